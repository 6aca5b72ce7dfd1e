"""crowdfuse against scikit-activeml's CrowdLayerClassifier and AnnotMixClassifier: same data, network and optimizer.

    pip install --no-deps --target peers scikit-activeml==1.0.1 skorch iteration-utilities makefun tabulate tqdm
    PYTHONPATH=peers python benchmarks/scikit_activeml.py --json docs/results/scikit_activeml.json

5,000 items of 20 features, 5 classes, six labels per item on average from 20, 200 or 1,000 annotators, 128 hidden
units, Adam 0.002, batches of 64, 256 or 1,024 items, alpha 0.5 and eta 0.9 for Annot-mix, one thread. All alternate in
one process, one turn per seed. Time is CPU time per epoch: a fit of six epochs minus a fit of one, divided by five,
which excludes the start. Accuracy is that of six epochs, on 5,000 other items; the difference is paired over seeds,
with a 95 % interval. A plain epoch is the minimum that torch needs for this network on the same number of rows, one
per item for the crowd layer and one per label for Annot-mix: cross-entropy without annotators, prepared batches,
forward, backward and a fused step of Adam.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crowdfuse import Annotations, AnnotMixClassifier, CrowdLayerClassifier
from crowdfuse.labels.intervals import t_interval_half_width

Fit = Callable[[NDArray[Any], NDArray[Any], int, int, int], Any]
"""Function of inputs, labels, epochs, items per step and seed that returns a fitted classifier."""

N_ITEMS, N_FEATURES, N_CLASSES, LABELS_PER_ITEM = 5_000, 20, 5, 6  # labels on average
CROWDS, BATCHES, RATE, HIDDEN = (20, 200, 1_000), (64, 256, 1_024), 0.002, 128


class Net(nn.Module):
    """Network of both libraries: returns the logits and the hidden features they are computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(N_FEATURES, HIDDEN), nn.ReLU())
        self.head = nn.Linear(HIDDEN, N_CLASSES)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(x)
        return self.head(h), h


def make_crowd(seed: int, n_annotators: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return inputs, true classes, and labels of shape (N, R), -1 where missing."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, N_CLASSES, N_ITEMS)
    X = generator.normal(size=(N_ITEMS, N_FEATURES)).astype(np.float32)
    X[np.arange(N_ITEMS), truth] += 2
    accuracies = np.random.default_rng(7).uniform(0.4, 0.9, n_annotators)
    shape = (N_ITEMS, n_annotators)
    guesses = generator.integers(0, N_CLASSES, shape)
    label_matrix = np.where(generator.random(shape) < accuracies, truth[:, None], guesses)
    label_matrix[generator.random(shape) >= LABELS_PER_ITEM / n_annotators] = -1
    return X, truth, label_matrix


def theirs(name: str, **more: Any) -> Fit:
    """Return the fit function of a classifier of scikit-activeml."""

    def fit(X: NDArray[Any], label_matrix: NDArray[Any], epochs: int, batch: int, seed: int) -> Any:
        from skactiveml.classifier import multiannotator  # type: ignore[import-not-found]

        settings = {
            "max_epochs": epochs,
            "batch_size": batch,
            "lr": RATE,
            "optimizer": torch.optim.Adam,
            "verbose": 0,
            "iterator_train__shuffle": True,
        }
        torch.manual_seed(seed)
        classifier = getattr(multiannotator, name)(
            Net, n_annotators=label_matrix.shape[1], neural_net_param_dict=settings, classes=list(range(N_CLASSES)),
            random_state=seed, **more,
        )  # fmt: skip
        classifier.fit(X, np.where(label_matrix < 0, np.nan, label_matrix))  # fit returns None
        return classifier

    return fit


def ours(kind: Any, **more: Any) -> Fit:
    """Return the fit function of our classifier, with the same network and optimizer."""
    settings = {"hidden": (HIDDEN,), "optimizer": "adam", "weight_decay": 0.0, "schedule": "constant"}

    def fit(X: NDArray[Any], label_matrix: NDArray[Any], epochs: int, batch: int, seed: int) -> Any:
        given = {"epochs": epochs, "batch_size": batch, "random_state": seed, "learning_rate": RATE}
        classifier = kind(**given, **settings, **more, standardize=False)
        return classifier.fit(X, Annotations.from_matrix(label_matrix, classes=list(range(N_CLASSES))))

    return fit


def plain(rows_of: Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]) -> Fit:
    """Return a plain PyTorch training loop on the rows and labels that `rows_of` selects."""

    def fit(X: NDArray[Any], label_matrix: NDArray[Any], epochs: int, batch: int, seed: int) -> None:
        torch.manual_seed(seed)
        net = Net()
        optimizer = torch.optim.Adam(net.parameters(), RATE, fused=True)
        item, label = rows_of(label_matrix)
        size = round(batch * len(item) / len(X))
        inputs, labels = torch.from_numpy(X[item]).split(size), torch.from_numpy(label).split(size)
        for _ in range(epochs):
            for x, y in zip(inputs, labels, strict=True):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x)[0], y).backward()
                optimizer.step()

    return fit


def first_labels(label_matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return every item with its first label, or with class 0 if it has none."""
    first = label_matrix[np.arange(len(label_matrix)), (label_matrix >= 0).argmax(1)]
    return np.arange(len(label_matrix)), np.maximum(first, 0)


def all_labels(label_matrix: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    item, annotator = np.nonzero(label_matrix >= 0)
    return item, label_matrix[item, annotator]


ANNOT_MIX_SETTINGS = {"alpha": 0.5, "eta": 0.9}
COMPARED: dict[str, tuple[Fit, Fit, Fit]] = {  # theirs, ours, and the plain loop
    "CrowdLayerClassifier": (theirs("CrowdLayerClassifier"), ours(CrowdLayerClassifier), plain(first_labels)),
    "AnnotMixClassifier": (
        theirs("AnnotMixClassifier", **ANNOT_MIX_SETTINGS),
        ours(AnnotMixClassifier, **ANNOT_MIX_SETTINGS),
        plain(all_labels),
    ),
}
SIDES = ("theirs", "ours", "plain_epoch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    titles = (
        "annotators", "batch", "method", "theirs, seconds per epoch", "ours", "speedup", "plain epoch",
        "theirs relative to plain", "theirs, accuracy (%)", "ours", "ours minus theirs (points)",
    )  # fmt: skip
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    rows = [row for annotators in CROWDS for batch in BATCHES for row in compare(annotators, batch, given.seeds)]
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


def compare(n_annotators: int, batch: int, n_seeds: int) -> list[dict[str, Any]]:
    """Measure both classifiers of each pair, and a plain epoch, alternating, one turn per seed."""
    keys = [(name, side) for name in COMPARED for side in SIDES]
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in keys}
    accuracy: dict[tuple[str, str], list[float]] = {key: [] for key in keys}
    for seed in range(n_seeds):
        X, _, label_matrix = make_crowd(2 * seed, n_annotators)
        X_test, truth_test, _ = make_crowd(2 * seed + 1, n_annotators)
        for name, fits in COMPARED.items():
            for side, fit in zip(SIDES, fits, strict=True):
                durations = []
                for epochs in (1, 6):
                    started = time.process_time()
                    model = fit(X, label_matrix, epochs, batch, seed)
                    durations.append(time.process_time() - started)
                seconds[name, side].append((durations[1] - durations[0]) / 5)
                if model is not None:
                    accuracy[name, side].append(float((model.predict(X_test) == truth_test).mean()))
    rows = [_row(name, n_annotators, batch, seconds, accuracy) for name in COMPARED]
    for row in rows:
        _print_row(row)
    return rows


def _row(
    name: str,
    n_annotators: int,
    batch: int,
    seconds: dict[tuple[str, str], list[float]],
    accuracy: dict[tuple[str, str], list[float]],
) -> dict[str, Any]:
    """Return the results of a pair; the difference of accuracies is in points, with the ends of its interval."""
    points = 100 * (np.array(accuracy[name, "ours"]) - np.array(accuracy[name, "theirs"]))
    half = t_interval_half_width(points)
    durations = {side: statistics.median(seconds[name, side]) for side in SIDES}
    return {
        "annotators": n_annotators,
        "batch": batch,
        "method": name,
        "seconds_per_epoch": {side: seconds[name, side] for side in SIDES},
        "accuracy": {side: accuracy[name, side] for side in ("theirs", "ours")},
        "speedup": durations["theirs"] / durations["ours"],
        "theirs_relative_to_plain": durations["theirs"] / durations["plain_epoch"],
        "difference": [float(points.mean()), float(points.mean()) - half, float(points.mean()) + half],
    }


def _print_row(row: dict[str, Any]) -> None:
    durations = {side: f"{statistics.median(row['seconds_per_epoch'][side]):.3f}" for side in SIDES}
    accuracies = {side: f"{100 * statistics.mean(of):.2f}" for side, of in row["accuracy"].items()}
    difference = "{:+.2f} ({:+.2f} to {:+.2f})".format(*row["difference"])
    cells = (
        f"{row['annotators']:,}", f"{row['batch']:,}", row["method"], durations["theirs"], durations["ours"],
        f"{row['speedup']:.1f}", durations["plain_epoch"], f"{row['theirs_relative_to_plain']:.1f}",
        accuracies["theirs"], accuracies["ours"], difference,
    )  # fmt: skip
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
