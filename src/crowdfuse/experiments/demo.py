"""The demo: scikit-learn's digits, five simulated annotators, a third of the labels missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from crowdfuse.estimators import FusionClassifier, MajorityVoteClassifier, TrueLabelClassifier
from crowdfuse.labels.summary import Summary
from crowdfuse.synthesis import SyntheticCrowd, weakness_annotators

ANNOTATOR_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve")
# by annotator: the row of the weakness image, and the share of items so similar to it that the label is wrong
WEAKNESS_ROWS = (0, 1, 2, 3, 4)
WEAK_SHARE = (0.15, 0.30, 0.45, 0.60, 0.75)
MISSING_SHARE = 1 / 3
N_TEST = 597


@dataclass(frozen=True)
class DemoResult:
    """Results of the demo.

    Parameters
    ----------
    n_train, n_test : int
        Number of training and test items.
    summary : Summary
        Summary of the labels.
    accuracy : dict of str to float
        Test accuracy by method.
    annotators : list of dict
        One dictionary per annotator: estimated and true accuracy, and mean weights.
    histories : dict of str to list of dict
        Training history by method.
    disputed : list of dict
        Items whose fused label has the lowest confidence.
    images : ndarray of shape (n_disputed, 8, 8)
        Images of the disputed items.
    """

    n_train: int
    n_test: int
    summary: Summary
    accuracy: dict[str, float]
    annotators: list[dict[str, Any]]
    histories: dict[str, list[dict[str, float]]]
    disputed: list[dict[str, Any]]
    images: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, for JSON."""
        return {"held_out_accuracy": self.accuracy, "annotators": self.annotators, "disputed": self.disputed}


def make_annotators(X: NDArray[np.float64], y: NDArray[np.int64], seed: int) -> SyntheticCrowd:
    """Return five annotators who each have a weakness (see `weakness_annotators`), from good to poor."""
    distance = [np.linalg.norm(X - X[row], axis=1) for row in WEAKNESS_ROWS]
    epsilon = [float(np.quantile(d, share)) for d, share in zip(distance, WEAK_SHARE, strict=True)]
    return weakness_annotators(
        X, y, weakness=WEAKNESS_ROWS, epsilon=epsilon, missing=MISSING_SHARE, annotators=ANNOTATOR_NAMES, seed=seed
    )


def run_demo(seed: int = 0, epochs: int = 40, verbose: int = 0) -> DemoResult:
    """Train majority vote, fusion, and an upper bound (trained on gold), and evaluate them on held-out items.

    Parameters
    ----------
    seed : int, default=0
        Seed of the split, the simulated annotators and the training.
    epochs : int, default=40
        Number of epochs.
    verbose : int, default=0
        Whether to show progress: 0 (no) or 1 (yes).

    Returns
    -------
    DemoResult
    """
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
    consensus = fusion.consensus(X[train], ann)
    annotators = [
        {
            "annotator": ANNOTATOR_NAMES[r],
            "n_labels": int((ann.annotator == r).sum()),
            "estimated_accuracy": float(consensus.annotator_accuracy[r]),
            "true_accuracy": float(made.accuracy[r]),
            "mean_weight_when_wrong": float(weights[~made.is_correct[:, r], r].mean()),
            "mean_weight_when_right": float(weights[made.is_correct[:, r], r].mean()),
        }
        for r in consensus.annotator_order
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
    """Return the rows with at least three labels whose fused label has the lowest confidence."""
    confidence = np.where(n_labels >= 3, fused.max(1), np.inf)
    return np.argsort(confidence, kind="stable")[:count]


def _describe(
    fusion: FusionClassifier,
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    made: SyntheticCrowd,
    rows: NDArray[np.int64],
) -> list[dict[str, Any]]:
    """Return labels, weights and fused label of some rows."""
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
                for r, name in enumerate(ANNOTATOR_NAMES)
                if weights[i, r] > 0
            },
        }
        for i, row in enumerate(rows)
    ]
