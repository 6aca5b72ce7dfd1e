"""Execution of one run of a paper experiment: simulate annotators, train, choose the epoch by gold, evaluate."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from crowdfuse.checks.choices import check_choice
from crowdfuse.datasets.cifar import CifarData
from crowdfuse.datasets.cifar_features import CifarFeatures
from crowdfuse.datasets.mnist import ImageData
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import estimator_class
from crowdfuse.experiments.store import RunSpec, run_key
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray
from crowdfuse.synthesis import SyntheticCrowd, habit_annotators, hammer_spammer_annotators, weakness_annotators
from crowdfuse.synthesis.label_files import RULES

N_CHECK_ITEMS = 100  # items on which settings are checked
N_TIMING_ITEMS = 64  # items on which the training time is estimated


@dataclass(frozen=True)
class DataSplit:
    """Inputs and gold (true classes) for training, for choosing the epoch (validation), and for evaluation (test).

    Parameters
    ----------
    X, X_validation, X_test : Inputs
        Inputs of n_train, n_validation and n_test items.
    y, y_validation, y_test : ndarray of shape (n_train,), (n_validation,), (n_test,)
        Gold, as class numbers.
    distances : ndarray of shape (n_train, n_annotators) or None, default=None
        Distance of each training item from the weakness image of each simulated annotator: an annotator gives wrong
        labels to items that are close to this image (see `weakness_annotators`). If None, distances are computed from
        `X` when they are needed.
    """

    X: Inputs
    y: NDArray[np.int64]
    X_validation: Inputs
    y_validation: NDArray[np.int64]
    X_test: Inputs
    y_test: NDArray[np.int64]
    distances: NDArray[np.float32] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(max(self.y.max(), self.y_test.max())) + 1


def split_data(data: ImageData | CifarData | CifarFeatures, train: slice, train_share: Fraction) -> DataSplit:
    """Split the training items of a data set into training and validation items.

    Parameters
    ----------
    data : ImageData, CifarData or CifarFeatures
        A data set that already has separate training and test items.
    train : slice
        Rows of the training items to train on. They must be among the rows that `train_share` allows.
    train_share : Fraction
        Share of the training rows, counted from the first row, that may be used for training. The remaining training
        rows are the validation items, used to choose the epoch.

    Returns
    -------
    DataSplit

    Raises
    ------
    ValueError
        If `train` ends beyond the rows that may be used for training.
    """
    limit = int(len(data.X_train) * train_share)
    if train.stop > limit:
        raise ValueError(
            f"the experiment needs {train.stop:,} items, but only {limit:,} of the {len(data.X_train):,} items are "
            "available for training (the others are for validation); choose fewer items with --items"
        )
    return DataSplit(
        Inputs(data.X_train[train]),
        data.y_train[train],
        Inputs(data.X_train[limit:]),
        data.y_train[limit:],
        Inputs(data.X_test),
        data.y_test,
    )


@dataclass(frozen=True)
class PaperExecutor(ABC):
    """Base class of run executors (see `RunExecutor`) for one data set with simulated annotators.

    Parameters
    ----------
    folder : Path or None
        Folder with the files of the data set. If None, the value of the environment variable ``CROWDFUSE_DATA``.
    """

    folder: Path | None
    _cached_splits: dict[str, DataSplit] = field(default_factory=dict, init=False, repr=False, compare=False)

    @abstractmethod
    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        """Read the data of a run.

        Parameters
        ----------
        run : RunSpec
            The run.
        download : bool, default=False
            Whether to download the data set if it is missing.

        Returns
        -------
        DataSplit
        """

    def cached_split(self, run: RunSpec) -> DataSplit:
        """Return the data of a run. They stay in memory until a run with other data or another seed is requested.

        Parameters
        ----------
        run : RunSpec
            The run.

        Returns
        -------
        DataSplit
        """
        key = run_key({"data": run["data"], "seed": run["seed"]})
        if key not in self._cached_splits:
            self._cached_splits.clear()
            self._cached_splits[key] = self.load(run)
        return self._cached_splits[key]

    def make_annotators(self, run: RunSpec, split: DataSplit) -> SyntheticCrowd:
        """Simulate the annotators of a run.

        Parameters
        ----------
        run : RunSpec
            The run. Its entry `annotators` has the ids of the annotators (`names`), the name of the rule (`rule`), and
            the settings of this rule:

            - "weakness" (see `weakness_annotators`): `epsilon` is required. Two settings are optional: `weakness` (the
              rows of the weakness images in `split.X`) and `wrong` (the kind of wrong labels, default "uniform").
            - "hammer-spammer" (see `hammer_spammer_annotators`): `n_correct` is required.
            - "habit" (see `habit_annotators`): `share` is required. Either `habits` or `n_habits` is required too.

            With every rule, `missing` (the share of labels to remove) is optional.
        split : DataSplit
            The data of the run.

        Returns
        -------
        SyntheticCrowd
        """
        spec, seed = run["annotators"], run["seed"]
        names = spec["names"]
        if check_choice("rule", spec["rule"], RULES) == "hammer-spammer":
            given = {"n_annotators": len(names), "n_correct": spec["n_correct"]}
            crowd = hammer_spammer_annotators(split.y, **given, annotators=names, seed=seed)
        elif spec["rule"] == "habit":
            given = {name: spec[name] for name in ("habits", "n_habits", "share") if name in spec}
            given |= {} if "habits" in spec else {"n_annotators": len(names)}
            crowd = habit_annotators(_input_values(split), split.y, **given, annotators=names, seed=seed)
        else:
            # runs that were stored before `wrong` existed used the paper's rule, "uniform"
            given = self.weakness_settings(run, split) | {"wrong": spec.get("wrong", "uniform")}
            if given["wrong"] == "neighbour" and "X" not in given:
                given["inputs"] = _input_values(split)
            crowd = weakness_annotators(y=split.y, **given, annotators=names, seed=seed)
        return _remove_labels(crowd, spec["missing"], seed) if spec.get("missing") else crowd

    def weakness_settings(self, run: RunSpec, split: DataSplit) -> dict[str, Any]:
        """Return the arguments of `weakness_annotators` for a run.

        Parameters
        ----------
        run : RunSpec
            The run.
        split : DataSplit
            The data of the run.

        Returns
        -------
        dict of str to object
            Three arguments: `distances` (or `X`, if `split` has no distances), `weakness` (the rows of the weakness
            images in `split.X`, or None) and `epsilon`.
        """
        spec = run["annotators"]
        inputs = {"X": split.X.values} if split.distances is None else {"distances": split.distances}
        return inputs | {"weakness": spec.get("weakness"), "epsilon": spec["epsilon"]}

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Before any run starts, raise an error if the data files or the settings of a method are wrong.

        The data files are read once. The settings of each method are checked on a few items.

        Parameters
        ----------
        runs : sequence of RunSpec
            The runs to check.
        download : bool
            Whether to download missing data.
        """
        if not runs:
            return
        split = self.load(runs[0], download=download)
        few = np.arange(min(N_CHECK_ITEMS, len(split.X)))
        for run in {(run["method"], str(run["settings"])): run for run in runs}.values():
            make_classifier(run, split).prepare(split.X.take(few), _correct_labels(run, split.y[few]))

    def estimate_seconds(self, runs: Sequence[RunSpec]) -> float:
        """Estimate how long this machine needs to execute the runs one after the other.

        The estimate extrapolates from a few training steps of the first run.

        Parameters
        ----------
        runs : sequence of RunSpec
            The runs; at least one.

        Returns
        -------
        float
            Seconds.
        """
        run, split = runs[0], self.load(runs[0])
        few = np.arange(min(N_TIMING_ITEMS, len(split.X)))
        trial = make_classifier(run, split).set_params(epochs=2, batch_size=len(few) // 2)  # the first epoch warms up
        trial.fit(split.X.take(few), _correct_labels(run, split.y[few]))
        seconds_per_item = trial.history_[-1]["seconds"] / len(few)
        return float(sum(seconds_per_item * len(split.X) * run["settings"]["epochs"] for run in runs))

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """Execute a run and return its results.

        Parameters
        ----------
        run : RunSpec
            Everything that defines the run.
        checkpoint : Path
            Folder for the checkpoint of the training.

        Returns
        -------
        dict of str to object
        """
        split = self.cached_split(run)
        classifier = make_classifier(run, split, checkpoint)
        crowd = self.make_annotators(run, split) if "annotators" in run else None
        labels = split.y if crowd is None else crowd.annotations
        classifier.fit(split.X, labels, validation=(split.X_validation, split.y_validation))
        if classifier.interrupted_:
            raise KeyboardInterrupt
        best = classifier.best_epoch_
        assert best is not None
        result: dict[str, Any] = {
            "test_accuracy": classifier.score(split.X_test, split.y_test),
            "validation_accuracy": classifier.history_[best - 1]["validation_accuracy"],
            "best_epoch": best,
            "history": classifier.history_,
        }
        if crowd is not None:
            result["true_annotator_accuracy"] = crowd.accuracy.tolist()
            result["nobody_right_share"] = crowd.all_wrong_share
            result |= correctness_auroc(classifier, split.X, crowd)
        return result


def choose_weakness_rows(X: Any, y: Any, target_accuracies: Sequence[float], epsilon: float) -> IntArray:
    """Choose weakness images that give annotators about the target accuracies. The choice is the same for every seed.

    Parameters
    ----------
    X : array of shape (n_items, ...)
        Inputs.
    y : array of shape (n_items,)
        Gold.
    target_accuracies : sequence of float
        Accuracy that each annotator should have, from 0 to 1.
    epsilon : float
        Distance from an annotator's weakness image. The annotator gives wrong labels to all items within this distance.

    Returns
    -------
    ndarray of shape (n_annotators,)
        Row of each annotator's weakness image in `X`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about these annotators come when the run makes them
        chosen = weakness_annotators(X, y, accuracies=target_accuracies, epsilon=epsilon, seed=0).weakness
    assert chosen is not None
    return chosen


def _input_values(split: DataSplit) -> NDArray[Any]:
    """Return the inputs as an array, for class means."""
    if isinstance(split.X, ImageFiles):
        raise ValueError(
            "annotators of the rule 'habit' or with wrong='neighbour' are simulated with the mean input of each class, "
            "which is not computed for image files; use --scale desk, which reads features of the images"
        )
    values: NDArray[Any] = split.X.values
    return values


def _remove_labels(crowd: SyntheticCrowd, share: float, seed: int) -> SyntheticCrowd:
    """Return the crowd without a random share of the labels. Some items may lose all their labels."""
    ann = crowd.annotations
    is_kept = np.random.default_rng([seed, 4]).random(ann.n_labels) >= share
    return replace(crowd, annotations=ann.keep_labels(is_kept))


def _correct_labels(run: RunSpec, y: NDArray[np.int64]) -> NDArray[np.int64] | Annotations:
    """Return labels to check the settings of a run: every annotator gives the gold class."""
    if "annotators" not in run:
        return y
    names = run["annotators"]["names"]
    return Annotations.from_matrix(np.stack([y] * len(names), 1), annotators=names)


def make_classifier(run: RunSpec, split: DataSplit, checkpoint: Path | None = None) -> CrowdClassifier:
    """Return the classifier of a run, not yet fitted."""
    classes = list(range(split.n_classes))
    estimator = estimator_class(run["method"])
    return estimator(**run["settings"], random_state=run["seed"], classes=classes, checkpoint=checkpoint)


def correctness_auroc(classifier: CrowdClassifier, X: Inputs, crowd: SyntheticCrowd) -> dict[str, Any]:
    """Measure how well weights and confusion matrices predict on which items an annotator is right.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier.
    X : Inputs
        The training items.
    crowd : SyntheticCrowd
        The annotators, with the items on which each is right.

    Returns
    -------
    dict of str to list of float
        Two lists with one AUROC per annotator. It measures how well a score separates the training items on which the
        annotator is right from the other training items. For `auroc_weights`, the score is the annotator's weight. For
        `auroc_diagonals`, it is the entry P[said, said] of the confusion matrix, where "said" is the annotator's label:
        the estimated probability that this label is right. The dict is empty if the confusion matrices of the
        method do not hold P(true class | label), or if an annotator is always right or always wrong.
    """
    is_correct = crowd.is_correct
    if classifier.confusion_given_ != "said" or is_correct.all(0).any() or (~is_correct).all(0).any():
        return {}
    weights = classifier.annotator_weights(X)
    aurocs: dict[str, Any] = {"auroc_weights": [], "auroc_diagonals": []}
    for r, name in enumerate(crowd.annotations.annotators):
        own = crowd.annotations.select_annotator(name)
        columns = classifier.fused_labels(
            X, own
        )  # if an item has a single label, its weight is 1, and the fused label is P[:, said]
        diagonal = columns[own.item, own.label]
        aurocs["auroc_weights"].append(float(roc_auc_score(is_correct[:, r], weights[:, r])))
        aurocs["auroc_diagonals"].append(float(roc_auc_score(is_correct[own.item, r], diagonal)))
    return aurocs
