"""One run of the paper's kind: made-up annotators, training, the epoch chosen by gold, measured on test items."""

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

N_CHECK_ITEMS = 100  # items to try settings on
TIMED = 64  # items to see how long training takes


@dataclass(frozen=True)
class DataSplit:
    """Items to train on, to choose the epoch by, and to be measured on; all with gold."""

    X: Inputs
    y: NDArray[np.int64]
    X_validation: Inputs
    y_validation: NDArray[np.int64]
    X_test: Inputs
    y_test: NDArray[np.int64]
    distances: NDArray[np.float32] | None = None
    """(N, R): how far each item to train on is from each weakness image; None where X says it."""

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(max(self.y.max(), self.y_test.max())) + 1


def split_data(data: ImageData | CifarData | CifarFeatures, train: slice, share: Fraction) -> DataSplit:
    """Of a data set's own training items a share is there to train on, the rest chooses the epoch.

    `train` are the rows to be trained on; all must be in that share.
    """
    limit = int(len(data.X_train) * share)
    if train.stop > limit:
        raise ValueError(
            f"{train.stop:,} items to train on are asked for, but of the {len(data.X_train):,} here only {limit:,} "
            "are for that; --items takes fewer, for a trial"
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
    """Does runs on one data set; `folder` is where its files are, None for the environment's."""

    folder: Path | None
    _loaded: dict[str, DataSplit] = field(default_factory=dict, init=False, repr=False, compare=False)

    @abstractmethod
    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        """Read what a run needs of the data set; fetch it first, if it is not there and `download`."""

    def parts(self, run: RunSpec) -> DataSplit:
        """The last ones are kept: most runs of a process are on the same."""
        key = run_key({"data": run["data"], "seed": run["seed"]})
        if key not in self._loaded:
            self._loaded.clear()
            self._loaded[key] = self.load(run)
        return self._loaded[key]

    def annotators(self, run: RunSpec, parts: DataSplit) -> SyntheticCrowd:
        """The annotators that a run describes.

        `annotators` of the run has `names` and a `rule`: "weakness" with `epsilon`, mostly `weakness`, and `wrong`
        where it is not "uniform"; "hammer-spammer" with `n_correct`; "habit" with `share` and `habits` or `n_habits`.
        `missing` is a share of the labels to leave out.
        """
        spec, seed = run["annotators"], run["seed"]
        names = spec["names"]
        if check_choice("rule", spec["rule"], RULES) == "hammer-spammer":
            given = {"n_annotators": len(names), "n_correct": spec["n_correct"]}
            made = hammer_spammer_annotators(parts.y, **given, annotators=names, seed=seed)
        elif spec["rule"] == "habit":
            given = {name: spec[name] for name in ("habits", "n_habits", "share") if name in spec}
            given |= {} if "habits" in spec else {"n_annotators": len(names)}
            made = habit_annotators(_values(parts), parts.y, **given, annotators=names, seed=seed)
        else:
            # stores hold runs from before there were kinds of wrong labels: without one, they are the paper's
            given = self.weakness(run, parts) | {"wrong": spec.get("wrong", "uniform")}
            if given["wrong"] == "neighbour" and "X" not in given:
                given["inputs"] = _values(parts)
            made = weakness_annotators(y=parts.y, **given, annotators=names, seed=seed)
        return _without(made, spec["missing"], seed) if spec.get("missing") else made

    def weakness(self, run: RunSpec, parts: DataSplit) -> dict[str, Any]:
        """What each annotator of the rule weakness cannot read: rows or distances, and epsilon."""
        spec = run["annotators"]
        where = {"X": parts.X.values} if parts.distances is None else {"distances": parts.distances}
        return where | {"weakness": spec.get("weakness"), "epsilon": spec["epsilon"]}

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Read the files once, and prepare each method once on a few items."""
        if not runs:
            return
        parts = self.load(runs[0], download=download)
        few = np.arange(min(N_CHECK_ITEMS, len(parts.X)))
        for run in {(run["method"], str(run["settings"])): run for run in runs}.values():
            make_classifier(run, parts).prepare(parts.X.take(few), _right_labels(run, parts.y[few]))

    def seconds(self, runs: Sequence[RunSpec]) -> float:
        """About how long these runs take one after another, on this machine: from a few steps of the first."""
        run, parts = runs[0], self.load(runs[0])
        few = np.arange(min(TIMED, len(parts.X)))
        trial = make_classifier(run, parts).set_params(epochs=2, batch_size=len(few) // 2)  # the first warms up
        trial.fit(parts.X.take(few), _right_labels(run, parts.y[few]))
        an_item = trial.history_[-1]["seconds"] / len(few)
        return float(sum(an_item * len(parts.X) * run["settings"]["epochs"] for run in runs))

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        parts = self.parts(run)
        classifier = make_classifier(run, parts, checkpoint)
        made = self.annotators(run, parts) if "annotators" in run else None
        labels = parts.y if made is None else made.annotations
        classifier.fit(parts.X, labels, validation=(parts.X_validation, parts.y_validation))
        if classifier.interrupted_:
            raise KeyboardInterrupt
        best = classifier.best_epoch_
        assert best is not None
        result: dict[str, Any] = {
            "test accuracy": classifier.score(parts.X_test, parts.y_test),
            "validation accuracy": classifier.history_[best - 1]["validation_accuracy"],
            "best epoch": best,
            "history": classifier.history_,
        }
        if made is not None:
            result["share of right labels"] = made.accuracy.tolist()
            result["share of items with nobody right"] = made.all_wrong_share
            result |= correctness_auroc(classifier, parts.X, made)
        return result


def weakness_rows(X: Any, y: Any, skills: Sequence[float], epsilon: float) -> IntArray:
    """Weakness images that give annotators about these shares of right labels: the same for every seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether somebody is always right is said of the annotators that are used
        chosen = weakness_annotators(X, y, accuracies=skills, epsilon=epsilon, seed=0).weakness
    assert chosen is not None
    return chosen


def _values(parts: DataSplit) -> NDArray[Any]:
    """Inputs to take class means of."""
    if isinstance(parts.X, ImageFiles):
        raise ValueError(
            "habits and the most confusable class come from the means of classes, and these images stay in their "
            "files; --scale desk has features of them"
        )
    values: NDArray[Any] = parts.X.values
    return values


def _without(made: SyntheticCrowd, share: float, seed: int) -> SyntheticCrowd:
    """Without a share of the labels, left out one by one: some items lose all that they have."""
    ann = made.annotations
    kept = np.random.default_rng([seed, 4]).random(ann.n_labels) >= share
    return replace(made, annotations=ann.keep_labels(kept))


def _right_labels(run: RunSpec, y: NDArray[np.int64]) -> NDArray[np.int64] | Annotations:
    """Labels to try a run's settings with: everybody is right."""
    if "annotators" not in run:
        return y
    names = run["annotators"]["names"]
    return Annotations.from_matrix(np.stack([y] * len(names), 1), annotators=names)


def make_classifier(run: RunSpec, parts: DataSplit, checkpoint: Path | None = None) -> CrowdClassifier:
    classes = list(range(parts.n_classes))
    kind = estimator_class(run["method"])
    return kind(**run["settings"], random_state=run["seed"], classes=classes, checkpoint=checkpoint)


def correctness_auroc(classifier: CrowdClassifier, X: Inputs, made: SyntheticCrowd) -> dict[str, Any]:
    """The paper's point, measured: do weights and diagonals say on which items an annotator is right?

    An AUROC an annotator, over the training items: of the weight, and of the diagonal entry P[said, said] of
    its matrix, against being right. Only for methods whose matrices depend on the item.
    """
    right = made.is_correct
    if classifier.confusion_given_ != "said" or right.all(0).any() or (~right).all(0).any():
        return {}
    weights = classifier.annotator_weights(X)
    found: dict[str, Any] = {"auroc of weights": [], "auroc of diagonals": []}
    for r, name in enumerate(made.annotations.annotators):
        alone = made.annotations.select_annotator(name)
        columns = classifier.fused_labels(X, alone)  # a label by itself, with weight 1, is cleaned into P[:, said]
        diagonal = columns[alone.item, alone.label]
        found["auroc of weights"].append(float(roc_auc_score(right[:, r], weights[:, r])))
        found["auroc of diagonals"].append(float(roc_auc_score(right[alone.item, r], diagonal)))
    return found
