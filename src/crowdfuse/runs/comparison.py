"""Compare methods on a user's own files, with the same split, network, epochs and seeds for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.encoders import encode_inputs, make_encoder
from crowdfuse.encoders.frozen import FrozenEncoder
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.store import RunSpec
from crowdfuse.io.files import sha256
from crowdfuse.labels.folds import check_folds
from crowdfuse.labels.ids import format_count, positions_of
from crowdfuse.quality.model_selection import label_likelihood
from crowdfuse.runs.comparison_baselines import (
    LABEL_VOTE,
    MOST_FREQUENT,
    Baseline,
    score_most_frequent_class,
    score_vote,
)
from crowdfuse.runs.comparison_scores import AGREEMENT, GOLD_METRIC, HELD_OUT_METRIC, score_predictions
from crowdfuse.runs.job import Job, make_classifier
from crowdfuse.runs.job_data import JobData, read_job_data
from crowdfuse.training.loop import UnfitDataError

MAX_SINGLE_ANNOTATORS = 5  # with more annotators, single-annotator is left out by default
MIN_TEST_ITEMS = 100  # if fewer gold items than this have no annotator labels, labelled items are added to the test set
ADVICE_FOR_SETTING = {
    "random_state": "use --seeds",
    "annotator": "the method single-annotator is trained once per annotator",
}


@dataclass(frozen=True)
class Split:
    """The training rows and the test rows of the inputs.

    Parameters
    ----------
    train : ndarray of shape (n_train,)
        Row numbers of the training items.
    test : ndarray of shape (n_test,)
        Row numbers of the test items.
    """

    train: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Comparison:
    """A comparison of methods on the data of a job. The data has already been read and checked.

    The object is callable: `comparison(run, checkpoint)` trains the classifier of one run (one method with one seed),
    stores checkpoints in the folder `checkpoint`, and returns the results on the test set.

    Parameters
    ----------
    job : Job
        The files to read, and the settings that all methods share. `job.gold` is the file of gold labels used for
        testing.
    data : JobData
        The content of the files.
    test_share : float
        Share (between 0 and 1) of the labelled items to draw at random as test items, anew for each seed. If there are
        gold labels, it is the share of the labelled items that have a gold label. Not used if at least 100 items have a
        gold label but no annotator labels: these items are then the whole test set. See `Comparison.split`.

    See Also
    --------
    make_comparison : Read the files of a job.
    """

    job: Job
    data: JobData
    test_share: float

    @property
    def has_gold(self) -> bool:
        """Whether there are gold labels to test on."""
        return self.data.gold is not None

    @property
    def metric(self) -> str:
        """Metric that ranks the methods: "test_accuracy" if there are gold labels, otherwise "held_out_likelihood"."""
        return GOLD_METRIC if self.has_gold else HELD_OUT_METRIC

    @cached_property
    def labelled(self) -> NDArray[np.int64]:
        """Row numbers of the items that have annotator labels."""
        return np.flatnonzero(np.diff(self.data.train_annotations.indptr) > 0)

    @cached_property
    def unlabelled_gold(self) -> NDArray[np.int64]:
        """Row numbers of the items that have a gold label but no annotator labels. All of them are test items."""
        gold = np.zeros(0, np.int64) if self.data.gold is None else self.data.gold[0]
        return np.setdiff1d(gold, self.labelled)

    def split(self, seed: int) -> Split:
        """Split the rows into a training set and a test set.

        Without gold labels, the test set is a random share (`test_share`) of the labelled items.

        With gold labels, all items that have a gold label but no annotator labels are test items. If there are fewer
        than 100 of them, further items are added to the test set: a random share (`test_share`) of the items that have
        both a gold label and annotator labels.

        All labelled items that are not in the test set are the training set.

        Parameters
        ----------
        seed : int
            Seed of the random choice.

        Returns
        -------
        split : Split

        Raises
        ------
        ValueError
            If the training set or the test set is empty.
        """
        if len(self.unlabelled_gold) >= MIN_TEST_ITEMS:
            return Split(self.labelled, self.unlabelled_gold)
        pool = self.labelled if self.data.gold is None else np.intersect1d(self.data.gold[0], self.labelled)
        count = round(self.test_share * len(pool))
        test = np.union1d(np.random.default_rng([seed, 3]).permutation(pool)[:count], self.unlabelled_gold)
        train = np.setdiff1d(self.labelled, test)
        if not len(test) or not len(train):
            raise ValueError(
                f"--test-share {self.test_share:g} of {format_count(len(pool), 'item')} leaves no items for "
                f"{'training' if len(test) else 'testing'}; choose another share"
            )
        return Split(train, test)

    def notes(self, methods: Sequence[str]) -> list[str]:
        """Return notes for the reader: which items form the test set, and what cannot be concluded from the results.

        Parameters
        ----------
        methods : sequence of str
            Names of the methods that are compared.

        Returns
        -------
        notes : list of str
        """
        n_test = len(self.split(0).test)
        own = self._gold_notes(n_test, methods) if self.has_gold else self._held_out_notes(n_test)
        notes = [*self.data.notes, *own]
        if n_test < MIN_TEST_ITEMS:
            error = 50 / np.sqrt(n_test)
            n_items = format_count(n_test, "item")
            notes.append(
                f"only {n_items} to test on: the standard error of an accuracy is up to {error:.0f} percentage points"
            )
        return notes

    def _held_out_notes(self, n_test: int) -> list[str]:
        """Return the remarks on a comparison without gold labels."""
        return [
            f"there are no gold labels: each seed draws {n_test:,} labelled items that are kept out of training. A "
            "method is scored by the probability (%) that it gives to each label of these items, given the item and "
            "its other labels. The score is the geometric mean over all labels. Where annotators disagree, no method "
            "reaches 100",
            "without gold labels, mistakes that all annotators make together cannot be detected. With gold labels "
            "(--gold) of 100 items, differences of about 10 percentage points between methods can be detected; with "
            "gold labels of 1,000 items, differences of about 3 percentage points",
        ]

    def _gold_notes(self, n_test: int, methods: Sequence[str]) -> list[str]:
        """Return the remarks on a comparison with gold labels."""
        n_unlabelled = len(self.unlabelled_gold)
        n_drawn = n_test - n_unlabelled
        parts = [f"{format_count(n_unlabelled, 'item')} with gold but no annotator labels"] if n_unlabelled else []
        if n_drawn:
            n_items = format_count(n_drawn, "item")
            parts.append(f"{n_items} with gold and annotator labels, drawn anew for each seed and kept out of training")
        notes = [f"tested on {' and '.join(parts)}; gold labels are not used to choose epochs or settings"]
        if n_unlabelled and n_drawn:
            n_items = format_count(n_drawn, "test item")
            notes.append(f"the baseline '{LABEL_VOTE}' is scored only on the {n_items} with annotator labels")
        n_train = len(np.setdiff1d(self.data.gold[0], self.split(0).test)) if self.data.gold else 0
        if n_train and "true-label" in methods:
            notes.append(
                f"true-label is trained on the gold labels of {format_count(n_train, 'other item')}, all other methods "
                "on the annotators' labels"
            )
        return notes

    def baselines(self, seeds: Sequence[int]) -> list[Baseline]:
        """Return the test results of simple predictions that need no classifier, as means over seeds.

        Parameters
        ----------
        seeds : sequence of int
            Seeds of the splits.

        Returns
        -------
        baselines : list of Baseline
            The first baseline predicts the most frequent class of the training labels for every item. If there are gold
            labels, the second baseline is the majority vote of each test item's annotator labels; it has no scores if
            no test item has annotator labels.
        """
        ann = self.data.train_annotations
        frequent, votes = [], []
        for seed in seeds:
            split = self.split(seed)
            gold = positions_of(self._gold()[split.test], ann.classes) if self.has_gold else None
            frequent.append(score_most_frequent_class(ann[split.train], ann[split.test], gold))
            if gold is not None:
                votes.append(score_vote(ann[split.test], gold, seed))
        found = [Baseline(MOST_FREQUENT, _mean_scores(frequent))]
        return [*found, Baseline(LABEL_VOTE, _mean_scores(votes))] if self.has_gold else found

    def cells(self, methods: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
        """Return one run per method and seed. A run records all settings of its classifier, including defaults.

        Parameters
        ----------
        methods : sequence of str
            Names of the methods. The method single-annotator gets one run per annotator and seed.
        seeds : sequence of int
            Seeds. Each seed is used for the split and for the training.

        Returns
        -------
        cells : list of Cell
            The runs, each with its row in the table of results.

        Raises
        ------
        ValueError
            If a method or a setting is unknown, or if `job.settings` contains `random_state` or `annotator`. The
            comparison itself chooses the values of these two settings.
        """
        for name, advice in ADVICE_FOR_SETTING.items():
            if name in self.job.settings:
                raise ValueError(f"--set {name} cannot be used in a comparison: {advice}")
        annotators, identity = self.data.train_annotations.annotators.tolist(), self._identity()
        cells = []
        for seed in seeds:
            for method in methods:
                for row, extra in estimator_class(method).variants(annotators).items():
                    classifier = self._make_classifier(method, self.job.settings | extra)
                    run: RunSpec = {
                        "data": identity,
                        "method": method,
                        "settings": classifier.json_settings(),
                        "seed": seed,
                    }
                    cells.append(Cell(row, "", seed, run))
        return cells

    def _identity(self) -> dict[str, Any]:
        """Return what identifies the data of a run: hashes of the files, options for reading them, test share."""
        return {
            **{name: sha256(path) for name, path in self.job.files().items()},
            "inputs": self.data.loaded.fingerprint(),
            # only options that differ from the default, so that stored runs stay valid when `Reading` gets a new option
            "reading": self.job.reading.changed_options(),
            "test_share": None if len(self.unlabelled_gold) >= MIN_TEST_ITEMS else self.test_share,
        }

    def check_cells(self, cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
        """Check one run of each method without training it, so that errors appear before any training starts.

        For each method, the run with the last seed is checked. If this run cannot be trained, because the method cannot
        learn from the labels of the training set, the runs of the method are left out for all seeds. For the method
        single-annotator, one run per annotator is checked. If the annotator has no labels in the training set, the runs
        of this annotator are left out for all seeds.

        Parameters
        ----------
        cells : sequence of Cell
            The runs.

        Returns
        -------
        cells : list of Cell
            The runs that can be trained.
        remarks : list of str
            One sentence for each method or annotator that is left out, with the reason.

        Raises
        ------
        ValueError
            If no run can be trained, or if a setting is invalid.
        """
        left_out = {}
        for cell in {cell.row: cell for cell in cells}.values():
            training = self._training_set(cell.run)
            annotator = cell.run["settings"].get("annotator")
            if annotator is not None and not training["y"].select_annotator(annotator).n_labels:
                left_out[cell.row] = f"{annotator} has no label on the training items"
                continue
            try:
                self._classifier(cell.run, None).prepare(**training)
            except UnfitDataError as error:
                left_out[cell.row] = str(error)
        if len(left_out) == len({cell.row for cell in cells}):
            raise ValueError(f"nothing is left to compare: {'; '.join(left_out.values())}")
        remarks = [f"{row} is left out: {reason}" for row, reason in left_out.items()]
        return [cell for cell in cells if cell.row not in left_out], remarks

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Do nothing, because `check_cells` has already checked the data and all runs.

        Parameters
        ----------
        runs : sequence of RunSpec
            Not used.
        download : bool
            Not used.
        """

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """Train the classifier of a run and return its results on the test set."""
        classifier = self._classifier(run, checkpoint).fit(**self._training_set(run))
        if classifier.interrupted_:
            raise KeyboardInterrupt
        split = self.split(run["seed"])
        X = self.data.loaded.inputs.take(split.test)
        seconds = [epoch["seconds"] for epoch in classifier.history_]
        probabilities = classifier.predict_proba(X)
        predicted = probabilities.argmax(1)
        result: dict[str, Any] = {
            "n_evaluated": len(split.test),
            "predicted": predicted.tolist(),
            "seconds_per_epoch": round(float(np.median(seconds)), 4),
            "cut_short": classifier.cut_short_,
        }
        if self.has_gold:
            gold = positions_of(self._gold()[split.test], classifier.classes_)
            result |= score_predictions(predicted, gold, probabilities)
            result |= self._training_accuracies(classifier, split)
        else:
            score = label_likelihood(classifier, X, self.data.train_annotations[split.test])
            result[HELD_OUT_METRIC] = math.exp(score.mean)
            result[AGREEMENT] = classifier.score(X, self.data.train_annotations[split.test])
            result["failed_checks"] = list(score.failed_checks)
        return result

    def _training_accuracies(self, classifier: CrowdClassifier, split: Split) -> dict[str, float]:
        """Return the accuracy of the fused labels and of the predictions on training items with gold labels."""
        rows = np.intersect1d(split.train, self.data.gold[0] if self.data.gold else [])
        if not len(rows) or not type(classifier).trains_on_labels:
            return {}
        X, gold = self.data.loaded.inputs.take(rows), self._gold()[rows]
        fused = classifier.fused_labels(X, self.data.train_annotations[rows])
        known = ~np.isnan(fused).any(1)
        right = classifier.classes_[np.nan_to_num(fused).argmax(1)][known] == gold[known]
        return {
            "fused_label_accuracy": float(right.mean()) if known.any() else float("nan"),
            "train_accuracy": classifier.score(X, gold),
        }

    def _gold(self) -> NDArray[Any]:
        """Return the gold label of each row, None for rows without one."""
        gold = self.data.gold_by_row()
        if gold is None:
            raise ValueError(
                "the method true-label is trained on gold labels, but there are none; pass a file of gold labels "
                "with --gold, or remove true-label from --methods"
            )
        return gold

    def _classifier(self, run: RunSpec, checkpoint: Path | None) -> CrowdClassifier:
        """Return the classifier of a run, not fitted."""
        return self._make_classifier(run["method"], run["settings"] | {"random_state": run["seed"]}, checkpoint)

    def _make_classifier(
        self, method: str, settings: dict[str, Any], checkpoint: Path | None = None
    ) -> CrowdClassifier:
        """Return a classifier that is not fitted, with the job's own field for the folds of its training, if any."""
        folds = self.job.folds
        if "folds" in settings:
            if not estimator_class(method).cross_fits_itself:
                raise ValueError(
                    f"--set folds: in a comparison, {method} is trained once, without folds; remove {method} from "
                    "--methods, or leave out --set folds"
                )
            folds = check_folds(settings["folds"])
        settings = {name: value for name, value in settings.items() if name != "folds"}
        return make_classifier(replace(self.job, method=method, settings=settings, folds=folds), checkpoint)

    def _training_set(self, run: RunSpec) -> dict[str, Any]:
        """Return the arguments of `fit`: inputs and labels of the training rows, and gold labels for true-label."""
        X, ann, split = self.data.loaded.inputs, self.data.train_annotations, self.split(run["seed"])
        if estimator_class(run["method"]).trains_on_labels:
            return {"X": X.take(split.train), "y": ann[split.train]}
        gold = self._gold()
        gold[split.test] = None
        rows = np.flatnonzero(gold != None)  # noqa: E711 (an array of objects)
        if not len(rows):
            raise ValueError(
                "the method true-label is trained on gold labels, but all gold labels are used for testing; remove "
                "true-label from --methods, or add gold labels of items that annotators have labelled"
            )
        return {"X": X.take(rows), "y": ann[rows], "gold": gold[rows]}


def _mean_scores(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over seeds."""
    return {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}


def make_comparison(job: Job, test_share: float) -> Comparison:
    """Read the files of a job for a comparison of methods.

    Parameters
    ----------
    job : Job
        The files to read, and the settings that all methods share. `job.gold` is the file of gold labels used for
        testing.
    test_share : float
        Share (between 0 and 1) of the labelled items to draw at random as test items, anew for each seed. If there are
        gold labels, it is the share of the labelled items that have a gold label. Not used if at least 100 items have a
        gold label but no annotator labels: these items are then the whole test set. See `Comparison.split`.

    Returns
    -------
    comparison : Comparison

    Raises
    ------
    ValueError
        If the files do not match each other.
    """
    data = read_job_data(job)
    encoder = make_encoder(job.settings.get("encoder", "auto"), data.loaded.inputs)
    if isinstance(encoder, FrozenEncoder):  # a frozen encoder learns nothing, so all runs can share its result
        inputs = encode_inputs(encoder.fit(data.loaded.inputs), data.loaded.inputs)
        data = replace(data, loaded=replace(data.loaded, inputs=inputs))
    return Comparison(job, data, test_share)


def applicable_methods(comparison: Comparison) -> tuple[list[str], list[str]]:
    """Return the methods that are compared by default.

    These are all methods, with two exceptions. The method single-annotator is left out if there are more than 5
    annotators, because it trains one classifier per annotator. The method true-label is left out if there are no gold
    labels to train on.

    Parameters
    ----------
    comparison : Comparison
        The comparison.

    Returns
    -------
    methods : list of str
        Names of the methods.
    remarks : list of str
        One sentence for each method that is left out, with the reason.
    """
    n_annotators, left_out = comparison.data.train_annotations.n_annotators, {}
    if n_annotators > MAX_SINGLE_ANNOTATORS:
        left_out["single-annotator"] = (
            f"it would train one classifier for each of the {n_annotators:,} annotators; to include it, list it in "
            "--methods"
        )
    if comparison.data.gold is None:
        left_out["true-label"] = "there are no gold labels"
    elif not len(np.setdiff1d(comparison.data.gold[0], comparison.split(0).test)):
        left_out["true-label"] = "all gold labels are used for testing, and none are left for training"
    remarks = [f"{method} is left out: {reason}" for method, reason in left_out.items()]
    return [method for method in ESTIMATORS if method not in left_out], remarks
