"""Ours beside scikit-activeml's CrowdLayerClassifier and AnnotMixClassifier: same data, network, batches, optimiser.

    pip install --no-deps --target peers scikit-activeml==1.0.1 skorch iteration-utilities makefun tabulate tqdm
    PYTHONPATH=peers python benchmarks/scikit_activeml.py --json docs/results/scikit_activeml.json

5,000 items of 20 features, 20 annotators, 5 classes, 30 % of the labels, one hidden layer of 128, Adam 0.002, 64, 256
or 1,024 items a step, alpha 0.5 and eta 0.9 for Annot-mix, one thread. All take turns, a seed a turn, in one process.
Time is that of a fit of six epochs minus that of a fit of one, over five: what starting costs is in neither. Accuracy
is that of the six epochs, on 5,000 other items; the difference is paired over seeds, with a 95 % interval. `a plain
step` is the least that torch can do with this network: cross-entropy on one label an item, no annotators, batches cut
before, nothing but forward, backward and a fused step of Adam.
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
from scipy import stats
from torch import nn

from crowdfuse import Annotations, AnnotMixClassifier, CrowdLayerClassifier

Fit = Callable[[NDArray[Any], NDArray[Any], int, int, int], Any]
"""Inputs, labels, epochs, items a step and seed to a fitted classifier."""

N_ITEMS, N_FEATURES, N_ANNOTATORS, N_CLASSES = 5_000, 20, 20, 5
BATCHES, RATE, HIDDEN, SHARE = (64, 256, 1_024), 0.002, 128, 0.3


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


def theirs(name: str, **more: Any) -> Fit:
    """A classifier of scikit-activeml."""

    def fit(X: NDArray[Any], said: NDArray[Any], epochs: int, batch: int, seed: int) -> Any:
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
            Net, n_annotators=N_ANNOTATORS, neural_net_param_dict=settings, classes=list(range(N_CLASSES)),
            random_state=seed, **more,
        )  # fmt: skip
        return classifier.fit(X, np.where(said < 0, np.nan, said))

    return fit


def ours(kind: Any, **more: Any) -> Fit:
    """A classifier of ours with the same network and optimiser."""
    settings = {"hidden": (HIDDEN,), "optimizer": "adam", "weight_decay": 0.0, "schedule": "constant"}

    def fit(X: NDArray[Any], said: NDArray[Any], epochs: int, batch: int, seed: int) -> Any:
        given = {"epochs": epochs, "batch_size": batch, "random_state": seed, "learning_rate": RATE}
        classifier = kind(**given, **settings, **more, standardize=False)
        return classifier.fit(X, Annotations.from_matrix(said, classes=list(range(N_CLASSES))))

    return fit


class Plain:
    """The network and a bare loop of torch."""

    def __init__(self, X: NDArray[Any], said: NDArray[Any], epochs: int, batch: int, seed: int) -> None:
        torch.manual_seed(seed)
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


MIXING = {"alpha": 0.5, "eta": 0.9}
PAIRS: dict[str, tuple[Fit, Fit]] = {
    "CrowdLayerClassifier": (theirs("CrowdLayerClassifier"), ours(CrowdLayerClassifier)),
    "AnnotMixClassifier": (theirs("AnnotMixClassifier", **MIXING), ours(AnnotMixClassifier, **MIXING)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| batch | method | theirs, s an epoch | ours | times faster | a plain step | theirs, accuracy | ours | "
        "ours minus theirs |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows = [row for batch in BATCHES for row in compare(batch, given.seeds)]
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


def compare(batch: int, n_seeds: int) -> list[dict[str, Any]]:
    """Both classifiers of each pair, and a plain step, in turns, a seed a turn."""
    contestants: dict[str, Fit] = {"a plain step": Plain}
    for name, (their, our) in PAIRS.items():
        contestants |= {f"{name}, theirs": their, f"{name}, ours": our}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    accuracy: dict[str, list[float]] = {name: [] for name in contestants}
    for seed in range(n_seeds):
        X, _, said = crowd(2 * seed, SHARE)
        X_test, truth_test, _ = crowd(2 * seed + 1, SHARE)
        for name, fit in contestants.items():
            took = []
            for epochs in (1, 6):
                began = time.perf_counter()
                model = fit(X, said, epochs, batch, seed)
                took.append(time.perf_counter() - began)
            seconds[name].append((took[1] - took[0]) / 5)
            accuracy[name].append(float((model.predict(X_test) == truth_test).mean()))
    rows = []
    for name in PAIRS:
        row = _row(name, batch, seconds, accuracy)
        rows.append(row)
        difference, low, high = row["difference"]
        their, our = (100 * statistics.mean(row["accuracy"][whose]) for whose in ("theirs", "ours"))
        print(
            f"| {batch:,} | {name} | {statistics.median(row['seconds an epoch']['theirs']):.3f} | "
            f"{statistics.median(row['seconds an epoch']['ours']):.3f} | {row['times faster']:.1f} | "
            f"{statistics.median(row['seconds an epoch']['a plain step']):.3f} | {their:.2f} | {our:.2f} | "
            f"{difference:+.2f} ({low:+.2f} to {high:+.2f}) |",
            flush=True,
        )
    return rows


def _row(name: str, batch: int, seconds: dict[str, list[float]], accuracy: dict[str, list[float]]) -> dict[str, Any]:
    """The figures of a pair; the difference of accuracies is in points, with the ends of its interval."""
    whose = {"theirs": f"{name}, theirs", "ours": f"{name}, ours"}
    points = 100 * (np.array(accuracy[whose["ours"]]) - np.array(accuracy[whose["theirs"]]))
    half = float(stats.t.ppf(0.975, len(points) - 1) * points.std(ddof=1) / np.sqrt(len(points)))
    plain = {"a plain step": seconds["a plain step"]}
    return {
        "batch": batch,
        "method": name,
        "seconds an epoch": {side: seconds[key] for side, key in whose.items()} | plain,
        "accuracy": {side: accuracy[key] for side, key in whose.items()},
        "times faster": statistics.median(seconds[whose["theirs"]]) / statistics.median(seconds[whose["ours"]]),
        "difference": [float(points.mean()), float(points.mean()) - half, float(points.mean()) + half],
    }


if __name__ == "__main__":
    main()
