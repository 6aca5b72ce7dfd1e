"""An epoch of ours beside one of scikit-activeml's CrowdLayerClassifier: same data, network, batches and optimiser.

    pip install --no-deps --target peers scikit-activeml==1.0.1 skorch iteration-utilities makefun tabulate tqdm
    PYTHONPATH=peers python benchmarks/crowd_layer.py --json docs/results/crowd_layer.json

5,000 items of 20 features, 20 annotators, 5 classes, 30 % or all of the labels, one hidden layer of 128, Adam 0.002,
64, 256 or 1,024 items a step, one thread. All take turns, five times, in one process. A figure is the time of a fit of
six epochs minus that of a fit of one, over five: what starting costs is in neither. Accuracy is that of the six epochs,
on 5,000 other items. CrowdLayer has one matrix an annotator, as TraceReg has; fusion has one an item and annotator. `a
plain step` is the least that torch can do with this network: cross-entropy on one label an item, no annotators, batches
cut before, nothing but forward, backward and a fused step of Adam.
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

from crowdfuse import Annotations, FusionClassifier, TraceRegClassifier

N_ITEMS, N_FEATURES, N_ANNOTATORS, N_CLASSES = 5_000, 20, 20, 5
BATCHES, RATE, HIDDEN = (64, 256, 1_024), 0.002, 128


class Net(nn.Module):
    """The classifier of CrowdLayer: logits, and what it embeds them from."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(N_FEATURES, HIDDEN), nn.ReLU())
        self.head = nn.Linear(HIDDEN, N_CLASSES)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.body(x)
        return self.head(h), h


def crowd(seed: int, share: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, N_CLASSES, N_ITEMS)
    X = generator.normal(size=(N_ITEMS, N_FEATURES)).astype(np.float32)
    X[np.arange(N_ITEMS), truth] += 2
    skill = np.random.default_rng(7).uniform(0.4, 0.9, N_ANNOTATORS)
    said = np.where(
        generator.random((N_ITEMS, N_ANNOTATORS)) < skill,
        truth[:, None],
        generator.integers(0, N_CLASSES, (N_ITEMS, N_ANNOTATORS)),
    )
    said[generator.random(said.shape) >= share] = -1
    return X, truth, said


def crowd_layer(X: NDArray[Any], said: NDArray[Any], epochs: int, batch: int) -> Any:
    from skactiveml.classifier.multiannotator import CrowdLayerClassifier  # type: ignore[import-not-found]

    settings = {
        "max_epochs": epochs,
        "batch_size": batch,
        "lr": RATE,
        "optimizer": torch.optim.Adam,
        "verbose": 0,
        "iterator_train__shuffle": True,
    }
    y = np.where(said < 0, np.nan, said)
    torch.manual_seed(0)
    classifier = CrowdLayerClassifier(
        Net, N_ANNOTATORS, neural_net_param_dict=settings, classes=list(range(N_CLASSES)), random_state=0
    )
    classifier.fit(X, y)
    return classifier


def ours(kind: Any) -> Callable[..., Any]:
    def fit(X: NDArray[Any], said: NDArray[Any], epochs: int, batch: int) -> Any:
        settings = {"hidden": (HIDDEN,), "optimizer": "adam", "weight_decay": 0.0, "schedule": "constant"}
        classifier = kind(epochs=epochs, batch_size=batch, learning_rate=RATE, standardize=False, **settings)
        return classifier.fit(X, Annotations.from_matrix(said, classes=list(range(N_CLASSES))))

    return fit


class Plain:
    """The network and a bare loop of torch."""

    def __init__(self, X: NDArray[Any], said: NDArray[Any], epochs: int, batch: int) -> None:
        self.net = Net()
        optimizer = torch.optim.Adam(self.net.parameters(), RATE, fused=True)
        labelled = np.flatnonzero((said >= 0).any(1))
        one_each = said[labelled, (said[labelled] >= 0).argmax(1)]
        inputs = torch.from_numpy(X[labelled]).split(batch)
        for _ in range(epochs):
            for x, y in zip(inputs, torch.from_numpy(one_each).split(batch), strict=True):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.net(x)[0], y).backward()
                optimizer.step()

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            predicted: NDArray[Any] = self.net(torch.from_numpy(X))[0].argmax(1).numpy()
        return predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| batch | labels | method | seconds an epoch (from, to) | times faster | test accuracy |")
    print("|---|---|---|---|---|---|")
    rows = [row for batch in BATCHES for share in (0.3, 1.0) for row in compare(share, batch, given.turns)]
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


def compare(share: float, batch: int, turns: int) -> list[dict[str, Any]]:
    """All methods in turns on the same labels."""
    X, _, said = crowd(0, share)
    X_test, truth_test, _ = crowd(1, share)
    contestants: dict[str, Callable[..., Any]] = {
        "CrowdLayerClassifier (scikit-activeml 1.0.1)": crowd_layer,
        "TraceRegClassifier": ours(TraceRegClassifier),
        "FusionClassifier": ours(FusionClassifier),
        "a plain step": Plain,
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    accuracy = {}
    for _ in range(turns):
        for name, fit in contestants.items():
            took = []
            for epochs in (1, 6):
                began = time.perf_counter()
                model = fit(X, said, epochs, batch)
                took.append(time.perf_counter() - began)
            seconds[name].append((took[1] - took[0]) / 5)
            accuracy[name] = float((model.predict(X_test) == truth_test).mean())
    theirs = statistics.median(next(iter(seconds.values())))
    rows = []
    for name, values in seconds.items():
        usual = statistics.median(values)
        rows.append(
            {
                "batch": batch,
                "labels": int((said >= 0).sum()),
                "method": name,
                "seconds an epoch": values,
                "times faster": theirs / usual,
                "accuracy": accuracy[name],
            }
        )
        print(
            f"| {batch:,} | {(said >= 0).sum():,} | {name} | {usual:.3f} ({min(values):.3f}, {max(values):.3f}) | "
            f"{theirs / usual:.1f} | {100 * accuracy[name]:.1f} |",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
