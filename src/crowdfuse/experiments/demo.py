"""The main job on built-in data: scikit-learn's digits, five made-up annotators, a third of the labels missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from crowdfuse.estimators import FusionClassifier, MajorityVoteClassifier, TrueLabelClassifier
from crowdfuse.labels.summary import Summary
from crowdfuse.synthesis import SyntheticCrowd, weakness_annotators

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve")
# the row each annotator cannot read, and how large a share of the items looks too much like it
WEAKNESS = (0, 1, 2, 3, 4)
WEAK_SHARE = (0.15, 0.30, 0.45, 0.60, 0.75)
MISSING_SHARE = 1 / 3
N_TEST = 597


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo's table and report show."""

    n_train: int
    n_test: int
    summary: Summary
    accuracy: dict[str, float]
    annotators: list[dict[str, Any]]
    histories: dict[str, list[dict[str, float]]]
    disputed: list[dict[str, Any]]
    images: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON holds them."""
        return {"held-out accuracy": self.accuracy, "annotators": self.annotators, "disputed": self.disputed}


def make_annotators(X: NDArray[np.float64], y: NDArray[np.int64], seed: int) -> SyntheticCrowd:
    """Five annotators by the paper's rule, from good to poor."""
    distance = [np.linalg.norm(X - X[row], axis=1) for row in WEAKNESS]
    epsilon = [float(np.quantile(d, share)) for d, share in zip(distance, WEAK_SHARE, strict=True)]
    return weakness_annotators(
        X, y, weakness=WEAKNESS, epsilon=epsilon, missing=MISSING_SHARE, annotators=NAMES, seed=seed
    )


def run_demo(seed: int = 0, epochs: int = 40, verbose: int = 0) -> DemoResult:
    """Train majority vote, fusion and true labels; gold is used by the last one and for the held-out accuracy."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    test, train = order[:N_TEST], order[N_TEST:]
    made = make_annotators(X[train], y[train], seed)
    ann = made.annotations
    common: dict[str, Any] = {"epochs": epochs, "random_state": seed, "verbose": verbose}
    vote = MajorityVoteClassifier(**common).fit(X[train], ann)
    fusion = FusionClassifier(**common).fit(X[train], ann)
    true = TrueLabelClassifier(**common).fit(X[train], y[train])
    fitted = {"majority vote": vote, "fusion": fusion, "true labels (upper bound)": true}

    weights = fusion.annotator_weights(X[train])
    estimated = fusion.annotator_agreement(X[train], ann)
    annotators = [
        {
            "annotator": name,
            "labels": int((ann.annotator == r).sum()),
            "estimated": float(estimated[r]),
            "true": float(made.accuracy[r]),
            "weight where weak": float(weights[~made.is_correct[:, r], r].mean()),
            "weight where good": float(weights[made.is_correct[:, r], r].mean()),
        }
        for r, name in enumerate(NAMES)
    ]
    rows = _most_disputed(fusion.fused_labels(X[train], ann), np.diff(ann.indptr), 8)
    return DemoResult(
        n_train=len(train),
        n_test=len(test),
        summary=ann.summary(),
        accuracy={name: clf.score(X[test], y[test]) for name, clf in fitted.items()},
        annotators=annotators,
        histories={name: clf.history_ for name, clf in fitted.items()},
        disputed=_describe(fusion, X[train], y[train], made, rows),
        images=X[train][rows].reshape(-1, 8, 8),
    )


def _most_disputed(fused: NDArray[np.float32], n_labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Rows with at least three labels whose fused label is least sure."""
    sure = np.where(n_labels >= 3, fused.max(1), np.inf)
    return np.argsort(sure, kind="stable")[:count]


def _describe(
    fusion: FusionClassifier,
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    made: SyntheticCrowd,
    rows: NDArray[np.int64],
) -> list[dict[str, Any]]:
    ann = made.annotations[rows]
    fused = fusion.fused_labels(X[rows], ann)
    weights = fusion.annotator_weights(X[rows], ann)
    said = ann.to_matrix()
    return [
        {
            "item": int(row),
            "gold": int(y[row]),
            "fused": int(fused[i].argmax()),
            "confidence": float(fused[i].max()),
            "said": {
                name: {"label": int(said[i, r]), "weight": float(weights[i, r])}
                for r, name in enumerate(NAMES)
                if weights[i, r] > 0
            },
        }
        for i, row in enumerate(rows)
    ]
