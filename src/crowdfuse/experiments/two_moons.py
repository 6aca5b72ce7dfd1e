"""The paper's two-moons experiment: train a small network on each of two annotators alone, and on both by fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.two_moons import Split, TwoMoons, make_two_moons
from crowdfuse.estimators import FusionClassifier, SingleAnnotatorClassifier
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.labels.annotations import Annotations
from crowdfuse.synthesis import two_moon_annotators
from crowdfuse.training.progress import make_progress_bar

PAPER_ACCURACY = {"annotator-1": 66.51, "annotator-2": 83.67, "fusion": 86.70}  # in %, one run each

# full-batch SGD, no dropout in the annotators' heads; the model of the last step is evaluated
RECIPE: dict[str, Any] = {
    "backbone": "identity",
    "hidden": (64, 32),
    "dropout": 0.05,
    "standardize": False,
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "schedule": "constant",
    "epochs": 400,
}
FUSION_SETTINGS: dict[str, Any] = {"n_bases": 2, "annotator_hidden": (32, 16), "loss_scale": "paper"}

VARIANTS: dict[str, Callable[..., CrowdClassifier]] = {
    "annotator-1": lambda **recipe: SingleAnnotatorClassifier(annotator="annotator-1", **recipe),
    "annotator-2": lambda **recipe: SingleAnnotatorClassifier(annotator="annotator-2", **recipe),
    "fusion": lambda **recipe: FusionClassifier(**FUSION_SETTINGS, penalty=1.0, **recipe),
    "fusion, lambda 0": lambda **recipe: FusionClassifier(**FUSION_SETTINGS, penalty=0.0, **recipe),
    "fusion, full": lambda **recipe: FusionClassifier(**FUSION_SETTINGS, penalty=1.0, confusions="full", **recipe),
    "fusion, full, lambda 0": lambda **recipe: FusionClassifier(
        **FUSION_SETTINGS, penalty=0.0, confusions="full", **recipe
    ),
}


@dataclass
class TwoMoonsRun:
    """One variant trained on one seed.

    Parameters
    ----------
    variant : str
        One of `VARIANTS`.
    seed : int
        Seed of data and training.
    metrics : dict
        Results on the test points.
    classifier : CrowdClassifier
        The fitted classifier.
    data : TwoMoons
        Training and test points.
    """

    variant: str
    seed: int
    metrics: dict[str, Any]
    classifier: CrowdClassifier
    data: TwoMoons


def region_names(X: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return the region of each point where exactly one annotator is right, and "" elsewhere.

    In the regions A and D, only annotator 1 is right. In B and C, only annotator 2 is right.

    A is the left end of the upper moon, and B is the right half of the upper moon. C is the left half of the lower
    moon, and D is the right end of the lower moon.
    """
    said = two_moon_annotators(X).to_matrix()
    first, second = (said == y[:, None]).T
    upper = y == 0
    names = np.full(len(y), "", dtype="<U1")
    names[first & ~second & upper] = "A"
    names[~first & second & upper] = "B"
    names[~first & second & ~upper] = "C"
    names[first & ~second & ~upper] = "D"
    return names


def train_variant(
    variant: str, seed: int, split: Split = "text", epochs: int = 400, n_points: int = 20_000
) -> TwoMoonsRun:
    """Train one variant and evaluate it on the test points.

    Parameters
    ----------
    variant : str
        One of `VARIANTS`.
    seed : int
        Seed of data and training.
    split : {"text", "code"}, default="text"
        Split of the points into training and test points; see `make_two_moons`.
    epochs : int, default=400
        Number of epochs. Each epoch is one step of full-batch SGD.
    n_points : int, default=20_000
        Number of points.
    """
    data = make_two_moons(seed, n_points, split)
    recipe = RECIPE | {"epochs": epochs, "batch_size": len(data.X_train), "random_state": seed}
    classifier = VARIANTS[variant](**recipe).fit(data.X_train, two_moon_annotators(data.X_train))
    return TwoMoonsRun(variant, seed, _measure(classifier, data), classifier, data)


def _measure(classifier: CrowdClassifier, data: TwoMoons) -> dict[str, Any]:
    """Return the results on the test points."""
    X, y = data.X_test, data.y_test
    predicted = classifier.predict(X)
    metrics: dict[str, Any] = {
        "accuracy": 100 * float((predicted == y).mean()),
        "predicted_class_1_percent": 100 * float(predicted.mean()),
        "final_loss": classifier.history_[-1]["loss"],
    }
    if isinstance(classifier, FusionClassifier):
        ann = two_moon_annotators(X)
        weight = classifier.annotator_weights(X)[:, 0]
        diagonals = said_label_probabilities(classifier, X, ann)
        where = region_names(X, y)
        metrics["mean_diagonal"] = float(diagonals.mean())
        metrics["regions"] = {
            name: {
                "points": int((where == name).sum()),
                "weight_annotator_1": float(weight[where == name].mean()),
                "diagonal_annotator_1": float(diagonals[where == name, 0].mean()),
                "diagonal_annotator_2": float(diagonals[where == name, 1].mean()),
            }
            for name in "ABCD"
        }
    return metrics


def said_label_probabilities(
    classifier: CrowdClassifier, X: NDArray[np.float64], ann: Annotations
) -> NDArray[np.float64]:
    """Return the estimated probability that each annotator's label is right, (n_points, 2).

    This probability is the diagonal entry P[label, label] of the annotator's confusion matrix.
    """
    matrices = classifier.confusion_matrices(X)
    said = ann.to_matrix()
    return np.stack([matrices[np.arange(len(X)), r, said[:, r], said[:, r]] for r in range(2)], axis=1)


def summarize_runs(runs: Iterable[TwoMoonsRun]) -> list[dict[str, Any]]:
    """Return one row per variant: mean, standard deviation over seeds, range, and the paper's accuracy."""
    by_variant: dict[str, list[float]] = {}
    for one in runs:
        by_variant.setdefault(one.variant, []).append(one.metrics["accuracy"])
    return [
        {
            "variant": variant,
            "runs": len(values),
            "mean": float(np.mean(values)),
            "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
            "min": min(values),
            "max": max(values),
            "paper_accuracy": PAPER_ACCURACY.get(variant),
        }
        for variant, values in by_variant.items()
    ]


def count_fusion_wins(runs: Iterable[TwoMoonsRun]) -> tuple[int, int]:
    """Return on how many seeds fusion is better than both annotators, and the number of seeds."""
    by_seed: dict[int, dict[str, float]] = {}
    for one in runs:
        by_seed.setdefault(one.seed, {})[one.variant] = one.metrics["accuracy"]
    wins = [accuracy["fusion"] > max(accuracy["annotator-1"], accuracy["annotator-2"]) for accuracy in by_seed.values()]
    return sum(wins), len(wins)


def train_all_variants(
    seeds: list[int], split: Split, epochs: int, verbose: int, n_points: int = 20_000
) -> list[TwoMoonsRun]:
    """Train every variant on every seed."""
    runs: list[TwoMoonsRun] = []
    with make_progress_bar(verbose) as progress:
        task = progress.add_task("two moons", total=len(seeds) * len(VARIANTS))
        for seed in seeds:
            for variant in VARIANTS:
                progress.update(task, description=f"two moons, seed {seed}, {variant}")
                runs.append(train_variant(variant, seed, split, epochs, n_points))
                progress.advance(task)
    return runs
