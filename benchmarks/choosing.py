"""Model selection by held-out labels compared with selection by gold, for epochs and methods.

    CROWDFUSE_DATA=... python benchmarks/choosing.py epochs --json docs/results/choosing_epochs.json
    CROWDFUSE_DATA=... python benchmarks/choosing.py methods --json docs/results/choosing_methods.json

Three data sets: LabelMe, Sentiment Polarity and scikit-learn's digits with five simulated annotators. The gold
used for selection belongs to items that are not used otherwise (LabelMe's 500 validation images; 500 held-out
sentences; 200 digits). The result is test accuracy, mean over seeds.

Epochs: each method is trained three times on the same data and seed: with no validation (the last epoch), with
`validation="annotations"` (selection by held-out labels), and with gold. There are 40 epochs, many more than most
methods need here.

Methods: seven are trained on 70 % of the items, each with `validation="annotations"`. One is
selected by the labels of the other 30 %: by `crowdfuse.label_likelihood`, and by the share of these labels it predicts.
A third selection uses gold.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits

from crowdfuse import Annotations, label_likelihood
from crowdfuse.datasets.labelme import FILE, load_labelme
from crowdfuse.datasets.sentiment import load_sentiment
from crowdfuse.estimators.registry import estimator_class

EPOCH_METHODS = ("majority-vote", "trace-reg", "fusion", "two-stage", "gated")
COMPARED_METHODS = ("majority-vote", "trace-reg", "mbem", "wdn", "fusion", "two-stage", "gated")
SELECTION_SHARE = 0.3  # of the labelled items


class Problem(NamedTuple):
    """Training data, gold for choosing, gold for evaluation, and settings."""

    X: Any
    annotations: Annotations
    validation: tuple[Any, Any]
    test: tuple[Any, Any]
    settings: dict[str, Any]


def labelme(folder: Path, seed: int) -> Problem:
    crowd = load_labelme(folder)
    with np.load(folder / "labelme" / FILE) as arrays:
        valid = (arrays["x_valid"].astype(np.float32), arrays["y_valid"].astype(np.int64))
    return Problem(crowd.X, crowd.annotations, valid, (crowd.X_test, crowd.y_test), {})


def sentiment(folder: Path, seed: int) -> Problem:
    crowd = load_sentiment(folder).split(seed)
    half = len(crowd.y_test) // 2
    parts = [(crowd.X_test[rows], crowd.y_test[rows]) for rows in (slice(half), slice(half, None))]
    return Problem(crowd.X, crowd.annotations, parts[0], parts[1], {"standardize": False})


def digits(folder: Path, seed: int) -> Problem:
    X, y = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(X))
    train, valid, test = order[:1000], order[1000:1200], order[1200:]
    accuracies = (0.9, 0.7, 0.6, 0.5, 0.3)
    labels = np.stack(
        [
            np.where(generator.random(1000) < accuracy, y[train], generator.integers(0, 10, 1000))
            for accuracy in accuracies
        ],
        1,
    )
    labels[generator.random(labels.shape) < 0.4] = -1
    ann = Annotations.from_matrix(labels, classes=list(range(10)))
    return Problem(X[train], ann, (X[valid], y[valid]), (X[test], y[test]), {})


DATASETS = {"LabelMe": labelme, "Sentiment Polarity": sentiment, "digits, simulated": digits}


def choose_epochs(folder: Path, seeds: range) -> Iterator[dict[str, Any]]:
    for name, load in DATASETS.items():
        for method in EPOCH_METHODS:
            found: dict[str, list[float]] = {"last epoch": [], "held-out labels": [], "gold": []}
            for seed in seeds:
                given = load(folder, seed)
                choices: dict[str, Any] = {
                    "last epoch": None,
                    "held-out labels": "annotations",
                    "gold": given.validation,
                }
                for how, validation in choices.items():
                    settings = given.settings | (
                        {"hold_out": False} if method == "gated" and validation is None else {}
                    )
                    classifier = estimator_class(method)(random_state=seed, **settings)
                    classifier.fit(given.X, given.annotations, validation=validation)
                    found[how].append(100 * classifier.score(*given.test))
            yield {"data": name, "method": method, "seeds": len(seeds), **found}


def choose_methods(folder: Path, seeds: range) -> Iterator[dict[str, Any]]:
    for name, load in DATASETS.items():
        for seed in seeds:
            given = load(folder, seed)
            labelled = np.flatnonzero(np.diff(given.annotations.indptr) > 0)
            order = np.random.default_rng([seed, 3]).permutation(labelled)
            selection, training = np.split(order, [round(SELECTION_SHARE * len(order))])
            accuracy, by = {}, {"likelihood": {}, "agreement": {}, "gold": {}}  # type: ignore[var-annotated]
            for method in COMPARED_METHODS:
                classifier = estimator_class(method)(random_state=seed, **given.settings)
                classifier.fit(given.X[training], given.annotations[training], validation="annotations")
                unseen = (given.X[selection], given.annotations[selection])
                verdict = label_likelihood(classifier, *unseen)
                accuracy[method] = 100 * classifier.score(*given.test)
                by["likelihood"][method] = (not verdict.failed_checks, verdict.mean)
                by["agreement"][method] = classifier.score(*unseen)
                by["gold"][method] = classifier.score(*given.validation)
            chosen = {how: max(found, key=lambda method: found[method]) for how, found in by.items()}
            yield {"data": name, "seed": seed, "test_accuracy": accuracy, "chosen_by": chosen}


def print_epochs(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    print("| data | method | last epoch | held-out labels | gold | held-out labels minus gold |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        last, held, gold = (float(np.mean(row[how])) for how in ("last epoch", "held-out labels", "gold"))
        figures = f"{last:.1f} | {held:.1f} | {gold:.1f} | {held - gold:+.1f}"
        print(f"| {row['data']} | {row['method']} | {figures} |", flush=True)
        yield row


def print_methods(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    print("| data | seed | likelihood of labels | agreement with labels | gold | best in hindsight | worst |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        accuracy, chosen = row["test_accuracy"], row["chosen_by"]
        figures = [f"{accuracy[chosen[how]]:.1f} ({chosen[how]})" for how in ("likelihood", "agreement", "gold")]
        ends = f"{max(accuracy.values()):.1f} | {min(accuracy.values()):.1f}"
        print(f"| {row['data']} | {row['seed']} | {' | '.join(figures)} | {ends} |", flush=True)
        yield row


CHOICES = {"epochs": (choose_epochs, print_epochs), "methods": (choose_methods, print_methods)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("choice", choices=CHOICES)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CROWDFUSE_DATA", "data")))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    measure, print_rows = CHOICES[given.choice]
    rows = []
    for row in print_rows(measure(given.data, range(given.seeds))):
        rows.append(row)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
