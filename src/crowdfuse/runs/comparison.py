"""Several methods on a user's own files: the same split, network, budget and seed for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.store import RunSpec
from crowdfuse.io.files import sha256
from crowdfuse.labels.ids import format_count, positions_of
from crowdfuse.quality.model_selection import label_likelihood
from crowdfuse.runs.job import Job, make_classifier
from crowdfuse.runs.job_data import JobData, read_job_data
from crowdfuse.training.loop import UnfitDataError

MAX_SINGLE_ANNOTATORS = 5  # up to here each is also tried alone
MIN_TEST_ITEMS = 100  # items to judge by
GOLD_METRIC, HELD_OUT_METRIC = "test accuracy", "likelihood of held-out labels"
AGREEMENT = "agreement with held-out labels"
COMPARISON_DECIDES = {"random_state": "use --seeds", "annotator": "single-annotator tries each annotator"}


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by, by one seed."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Comparison:
    """What is compared on what, read and checked. It is also the work: called with a run, it trains and judges."""

    job: Job
    material: JobData
    test_share: float

    @property
    def has_gold(self) -> bool:
        """Whether anybody knows the truth of anything."""
        return self.material.gold is not None

    @property
    def metric(self) -> str:
        """What the methods are compared by."""
        return GOLD_METRIC if self.has_gold else HELD_OUT_METRIC

    @cached_property
    def labelled(self) -> NDArray[np.int64]:
        """Rows that have labels."""
        return np.flatnonzero(np.diff(self.material.train_annotations.indptr) > 0)

    @cached_property
    def unlabelled_gold(self) -> NDArray[np.int64]:
        """Rows with gold that nobody labelled: made for judging."""
        gold = np.zeros(0, np.int64) if self.material.gold is None else self.material.gold[0]
        return np.setdiff1d(gold, self.labelled)

    def split(self, seed: int) -> Split:
        """Who judges: the gold items without labels, and where these are too few, a share of those with labels.

        The share is drawn by the seed and kept out of training. Without gold it is of all labelled items.
        """
        if len(self.unlabelled_gold) >= MIN_TEST_ITEMS:
            return Split(self.labelled, self.unlabelled_gold)
        judges = self.labelled if self.material.gold is None else np.intersect1d(self.material.gold[0], self.labelled)
        count = round(self.test_share * len(judges))
        test = np.union1d(np.random.default_rng([seed, 3]).permutation(judges)[:count], self.unlabelled_gold)
        train = np.setdiff1d(self.labelled, test)
        if not len(test) or not len(train):
            raise ValueError(f"a test share of {self.test_share:g} leaves no items on one side of {len(judges)}")
        return Split(train, test)

    def notes(self) -> list[str]:
        """What the reader must know: how the judging items came about, what cannot be told."""
        test = self.split(0).test
        bare = len(self.unlabelled_gold)
        if not self.has_gold:
            how = [
                f"there is no gold: {len(test):,} labelled items, drawn by each seed, are kept out of training, and a "
                "method is judged by how likely it makes each of their labels, given the item and its other labels: "
                "the geometric mean. Nobody reaches 100 where annotators disagree",
                "this cannot tell who is right where all annotators make the same mistakes. A hundred gold items "
                "(--gold) show differences of ten points, a thousand of three",
            ]
        else:
            drawn = len(test) - bare
            judges = [f"{format_count(bare, 'gold item')} without labels"] if bare else []
            if drawn:
                judges.append(f"{drawn:,} of the gold items with labels, drawn by each seed and kept out of training")
            how = [f"judged by {' and '.join(judges)}; gold chooses nothing"]
            training = len(np.setdiff1d(self.material.gold[0], test)) if self.material.gold else 0
            if training:
                how.append(f"true-label, and nothing else, is trained on gold: on {format_count(training, 'item')}")
        if len(test) < MIN_TEST_ITEMS:
            error = 50 / np.sqrt(len(test))
            few = format_count(len(test), "item")
            how.append(f"only {few} to judge by: the standard error of an accuracy is up to {error:.0f} points")
        return [*self.material.notes, *how]

    def cells(self, methods: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
        """A run for every method and seed, known by all its settings, the defaults too."""
        for name, instead in COMPARISON_DECIDES.items():
            if name in self.job.settings:
                raise ValueError(f"--set {name} is not for a comparison; {instead}")
        annotators, identity = self.material.train_annotations.annotators.tolist(), self._identity()
        cells = []
        for seed in seeds:
            for method in methods:
                for row, extra in estimator_class(method).variants(annotators).items():
                    classifier = make_classifier(replace(self.job, method=method, settings=self.job.settings | extra))
                    run: RunSpec = {
                        "data": identity,
                        "method": method,
                        "settings": classifier.json_settings(),
                        "seed": seed,
                    }
                    cells.append(Cell(row, "", seed, run))
        return cells

    def _identity(self) -> dict[str, Any]:
        """Everything about files and reading that decides a run."""
        return {
            **{name: sha256(path) for name, path in self.job.files().items()},
            "inputs": self.material.loaded.fingerprint(),
            # changed options only: stored runs stay valid when `Reading` gets a new option
            "reading": self.job.reading.changed_options(),
            "test share": None if len(self.unlabelled_gold) >= MIN_TEST_ITEMS else self.test_share,
        }

    def check_cells(self, cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
        """Everything but the training, for each row once: what is wrong is said before any work.

        Left out are annotators with no label to train on, and methods that cannot learn from such labels; returns the
        other cells, and remarks on these.
        """
        left_out = {}
        for cell in {cell.row: cell for cell in cells}.values():
            training = self._training_set(cell.run)
            who = cell.run["settings"].get("annotator")
            if who is not None and not training["y"].select_annotator(who).n_labels:
                left_out[cell.row] = f"{who} has no label among the items to train on"
                continue
            try:
                self._classifier(cell.run, None).prepare(**training)
            except UnfitDataError as error:
                left_out[cell.row] = str(error)
        if len(left_out) == len({cell.row for cell in cells}):
            raise ValueError(f"nothing is left to compare: {'; '.join(left_out.values())}")
        remarks = [f"{row} is left out: {why}" for row, why in left_out.items()]
        return [cell for cell in cells if cell.row not in left_out], remarks

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Everything has been read and rehearsed already."""

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        classifier = self._classifier(run, checkpoint).fit(**self._training_set(run))
        if classifier.interrupted_:
            raise KeyboardInterrupt
        split = self.split(run["seed"])
        X = self.material.loaded.inputs.values
        seconds = [epoch["seconds"] for epoch in classifier.history_]
        result: dict[str, Any] = {
            "items judged": len(split.test),
            "predicted": positions_of(classifier.predict(X[split.test]), classifier.classes_).tolist(),
            "seconds an epoch": round(float(np.median(seconds)), 4),
        }
        if self.has_gold:
            result[GOLD_METRIC] = classifier.score(X[split.test], self._gold()[split.test])
            result |= self._fused(classifier, split)
        else:
            verdict = label_likelihood(classifier, X[split.test], self.material.train_annotations[split.test])
            result[HELD_OUT_METRIC] = math.exp(verdict.mean)
            result[AGREEMENT] = classifier.score(X[split.test], self.material.train_annotations[split.test])
            result["failed_checks"] = list(verdict.failed_checks)
        return result

    def _fused(self, classifier: CrowdClassifier, split: Split) -> dict[str, float]:
        """How many training items get their true class, by fused labels (where any label counts) and by predictions."""
        rows = np.intersect1d(split.train, self.material.gold[0] if self.material.gold else [])
        if not len(rows) or not type(classifier).trains_on_labels:
            return {}
        X, gold = self.material.loaded.inputs.values[rows], self._gold()[rows]
        fused = classifier.fused_labels(X, self.material.train_annotations[rows])
        known = ~np.isnan(fused).any(1)
        right = classifier.classes_[np.nan_to_num(fused).argmax(1)][known] == gold[known]
        return {
            "fused labels right": float(right.mean()) if known.any() else float("nan"),
            "predictions right on training items": classifier.score(X, gold),
        }

    def _gold(self) -> NDArray[Any]:
        """Gold by row, None where unknown."""
        gold = self.material.gold_by_row()
        if gold is None:
            raise ValueError("true-label trains on gold, and there is none: give --gold, or leave it out of --methods")
        return gold

    def _classifier(self, run: RunSpec, checkpoint: Path | None) -> CrowdClassifier:
        settings = run["settings"] | {"random_state": run["seed"]}
        return make_classifier(replace(self.job, method=run["method"], settings=settings), checkpoint)

    def _training_set(self, run: RunSpec) -> dict[str, Any]:
        """Inputs and labels of the rows to train on; gold for the one method that is trained on it."""
        X, ann, split = self.material.loaded.inputs.values, self.material.train_annotations, self.split(run["seed"])
        if estimator_class(run["method"]).trains_on_labels:
            return {"X": X[split.train], "y": ann[split.train]}
        gold = self._gold()
        gold[split.test] = None
        rows = np.flatnonzero(gold != None)  # noqa: E711 (an array of objects)
        if not len(rows):
            raise ValueError("true-label trains on gold, and all of it judges; leave it out of --methods")
        return {"X": X[rows], "y": ann[rows], "gold": gold[rows]}


def make_comparison(job: Job, test_share: float) -> Comparison:
    """Read a job's files for comparing; `gold` judges."""
    return Comparison(job, read_job_data(job), test_share)


def fitting_methods(comparison: Comparison) -> tuple[list[str], list[str]]:
    """All methods that can be compared on these files, and remarks on those left out."""
    n_annotators, left_out = comparison.material.train_annotations.n_annotators, {}
    if n_annotators > MAX_SINGLE_ANNOTATORS:
        left_out["single-annotator"] = f"there are {n_annotators:,} annotators; name it to try each"
    if comparison.material.gold is None:
        left_out["true-label"] = "there is no gold"
    elif not len(np.setdiff1d(comparison.material.gold[0], comparison.split(0).test)):
        left_out["true-label"] = "all gold is for judging, none is left to train on"
    remarks = [f"{method} is left out: {reason}" for method, reason in left_out.items()]
    return [method for method in ESTIMATORS if method not in left_out], remarks
