"""One run of the paper's kind: made-up annotators, training, the epoch chosen by gold, measured on test items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from crowdfuse.annotations import Annotations
from crowdfuse.classifier import CrowdClassifier
from crowdfuse.datasets.cifar_features import CifarFeatures
from crowdfuse.datasets.mnist import ImageData
from crowdfuse.experiments.store import Run
from crowdfuse.registry import estimator_class
from crowdfuse.synthesis import MadeUp, hammer_spammer_annotators, weakness_annotators

FEW = 100  # items to try settings on


@dataclass(frozen=True)
class Parts:
    """Items to train on, to choose the epoch by, and to be measured on; all with gold."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    X_validation: NDArray[Any]
    y_validation: NDArray[np.int64]
    X_test: NDArray[Any]
    y_test: NDArray[np.int64]
    distances: NDArray[np.float32] | None = None
    """(N, R): how far each item to train on is from each weakness image, where the items are no images."""

    @classmethod
    def cut(
        cls,
        data: ImageData | CifarFeatures,
        train: slice,
        validation: slice,
        distances: NDArray[np.float32] | None = None,
    ) -> Parts:
        """From the training items of a data set those to train on and those to choose the epoch by."""
        X, y = data.X_train, data.y_train
        near = None if distances is None else distances[train]
        return cls(X[train], y[train], X[validation], y[validation], data.X_test, data.y_test, near)

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(max(self.y.max(), self.y_test.max())) + 1


@dataclass(frozen=True)
class PaperWork(ABC):
    """Does runs on one data set; `folder` is where its files are, None for the environment's."""

    folder: Path | None

    @abstractmethod
    def load(self, *, download: bool = False) -> Parts:
        """Read the data set; fetch it first, if it is not there and `download`."""

    @cached_property
    def parts(self) -> Parts:
        """Loaded once in each process."""
        return self.load()

    def annotators(self, spec: dict[str, Any], parts: Parts, seed: int) -> MadeUp:
        """The annotators that a run describes."""
        names = spec["names"]
        if spec["rule"] == "hammer-spammer":
            given = {"n_annotators": len(names), "n_correct": spec["n_correct"]}
            return hammer_spammer_annotators(parts.y, **given, annotators=names, seed=seed)
        where = (
            {"X": parts.X, "weakness": spec["weakness"]} if parts.distances is None else {"distances": parts.distances}
        )
        return weakness_annotators(**where, y=parts.y, epsilon=spec["epsilon"], annotators=names, seed=seed)

    def check(self, runs: Sequence[Run], *, download: bool) -> None:
        """Read the files once, and prepare each method once on a few items."""
        if not runs:
            return
        parts = self.load(download=download)
        few, y = parts.X[:FEW], parts.y[:FEW]
        for run in {(run["method"], str(run["settings"])): run for run in runs}.values():
            names = run["annotators"]["names"] if "annotators" in run else None
            labels = y if names is None else Annotations.from_matrix(np.stack([y] * len(names), 1), annotators=names)
            _classifier(run, parts, None)._prepare(few, labels)

    def __call__(self, run: Run, checkpoint: Path) -> dict[str, Any]:
        parts = self.parts
        classifier = _classifier(run, parts, checkpoint)
        made = self.annotators(run["annotators"], parts, run["seed"]) if "annotators" in run else None
        labels = parts.y if made is None else made.annotations
        classifier.fit(parts.X, labels, validation=(parts.X_validation, parts.y_validation))
        if classifier.interrupted_:
            raise KeyboardInterrupt
        best = classifier.best_epoch_
        assert best is not None
        result: dict[str, Any] = {
            "test accuracy": classifier.score(parts.X_test, parts.y_test),
            "validation accuracy": classifier.history_[best - 1]["validation"],
            "best epoch": best,
            "history": classifier.history_,
        }
        if made is not None:
            result["share of right labels"] = made.accuracy.tolist()
            result |= believes_the_right(classifier, parts.X, made)
        return result


def _classifier(run: Run, parts: Parts, checkpoint: Path | None) -> CrowdClassifier:
    classes = list(range(parts.n_classes))
    kind = estimator_class(run["method"])
    return kind(**run["settings"], random_state=run["seed"], classes=classes, checkpoint=checkpoint)


def believes_the_right(classifier: CrowdClassifier, X: NDArray[Any], made: MadeUp) -> dict[str, Any]:
    """The paper's point, measured: do weights and diagonals say on which items an annotator is right?

    An AUROC an annotator, over the training items: of the weight, and of the diagonal entry P[said, said] of
    its matrix, against being right. Only for methods whose matrices depend on the item.
    """
    right = made.right
    if classifier.confusion_given_ != "said" or right.all(0).any() or (~right).all(0).any():
        return {}
    ann = made.annotations
    weights = classifier.annotator_weights(X)
    diagonal = np.concatenate([_said_diagonal(classifier, X[rows], ann[rows]) for rows in _blocks(len(X))])
    of = [ann.annotator == r for r in range(ann.n_annotators)]
    return {
        "auroc of weights": [float(roc_auc_score(right[:, r], weights[:, r])) for r in range(ann.n_annotators)],
        "auroc of diagonals": [
            float(roc_auc_score(right[ann.item[mask], r], diagonal[mask])) for r, mask in enumerate(of)
        ],
    }


def _said_diagonal(classifier: CrowdClassifier, X: NDArray[Any], ann: Annotations) -> NDArray[np.float32]:
    matrices = classifier.confusion_matrices(X, ann)
    return matrices[np.arange(ann.n_labels), ann.label, ann.label]


def _blocks(n_rows: int, size: int = 2048) -> list[NDArray[np.int64]]:
    """Some rows at a time: with 100 classes a matrix a label is large."""
    return [np.arange(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
