"""Extreme annotators: all perfect, and an adversary among four good ones who always gives the next class.

    python benchmarks/extremes.py --json docs/results/extremes.json

scikit-learn's digits, two thirds for training. The four annotators are right on 90, 85, 80 and 75 % of the items, and
their wrong labels are uniform. The result is test accuracy in %, by seed, and for the gated method also the probability
of the next class in the adversary's confusion matrix, mean over classes and items.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from crowdfuse.estimators.registry import estimator_class

ANNOTATOR_ACCURACIES = np.array([0.9, 0.85, 0.8, 0.75])
ROWS = (
    ("perfect", "true-label"),
    ("perfect", "gated"),
    ("four", "gated"),
    ("four_and_adversary", "gated"),
    ("four_and_adversary", "majority-vote"),
    ("four_and_adversary", "trace-reg"),
    ("four_and_adversary", "fusion"),
)


def measure(seed: int) -> dict[str, float]:
    """Return the results of one seed by crowd and method."""
    X, y = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(X))
    train, test = np.split(order, [2 * len(X) // 3])
    right = generator.random((len(y), 4)) < ANNOTATOR_ACCURACIES
    four = np.where(right, y[:, None], (y[:, None] + generator.integers(1, 10, right.shape)) % 10)
    labels = {
        "perfect": np.stack([y] * 3, 1),
        "four": four,
        "four_and_adversary": np.column_stack([four, (y + 1) % 10]),
    }
    found: dict[str, float] = {}
    for crowd, method in ROWS:
        classifier: Any = estimator_class(method)(random_state=seed)
        classifier.fit(X[train], y[train] if method == "true-label" else labels[crowd][train])
        found[f"{crowd}_{method}".replace("-", "_")] = 100 * classifier.score(X[test], y[test])
        if (crowd, method) == ("four_and_adversary", "gated"):
            matrix = classifier.confusion_matrices(X[train])[:, 4].mean(0)
            found["adversary_next_class_gated"] = float(np.mean([matrix[k, (k + 1) % 10] for k in range(10)]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    runs = [measure(seed) for seed in range(given.seeds)]
    print("| annotators, method | mean | by seed |\n|---|---|---|")
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"| {name} | {np.mean(values):.2f} | {', '.join(f'{value:.2f}' for value in values)} |")
    if given.json:
        given.json.write_text(json.dumps(runs, indent=2) + "\n")


if __name__ == "__main__":
    main()
