"""Time of one epoch of each method, against a plain PyTorch loop on gold with the same backbone, for growing data.

    python benchmarks/training_step.py --json out.json

One thread. Each number is the fastest of several epochs; all are measured alternating in one run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from crowdfuse import Annotations
from crowdfuse.estimators import FusionClassifier, MajorityVoteClassifier, TrueLabelClassifier
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.nets.lenet import LeNet
from crowdfuse.nets.mlp import mlp

IMAGES: dict[str, Any] = {"n_items": 2048, "n_annotators": 3, "n_classes": 10, "share": 1.0, "shape": (1, 28, 28)}
ROWS: dict[str, Any] = {"n_items": 4096, "n_annotators": 3, "n_classes": 10, "share": 1.0, "shape": (64,)}
GROWTH: dict[str, dict[str, Any]] = {
    "base: 4,096 items, 3 annotators, 10 classes, all labels": {},
    "items x 4": {"n_items": 16384},
    "annotators x 10, same labels": {"n_annotators": 30, "share": 0.1},
    "annotators x 100, same labels": {"n_annotators": 300, "share": 0.01},
    "classes x 10": {"n_classes": 100},
    "labels x 4": {"n_annotators": 12},
}


def make_data(n_items: int, n_annotators: int, n_classes: int, share: float, shape: tuple[int, ...]) -> Any:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n_items, *shape)).astype(np.float32)
    truth = generator.integers(0, n_classes, n_items)
    Y = np.where(generator.random((n_items, n_annotators)) < 0.7, truth[:, None], 0)
    Y[generator.random(Y.shape) >= share] = -1
    Y[np.arange(n_items), generator.integers(0, n_annotators, n_items)] = truth
    return X, truth, Annotations.from_matrix(Y, classes=list(range(n_classes)))


def plain_epoch(X: np.ndarray[Any, Any], truth: np.ndarray[Any, Any], n_classes: int) -> float:
    """Return the seconds of one epoch of plain PyTorch: the backbone and a class head, cross-entropy on gold."""
    images = X.ndim > 2
    body = LeNet() if images else nn.Sequential(nn.Linear(X.shape[1], 128), nn.ReLU())
    net = nn.Sequential(body, mlp(256, (120, 84), n_classes) if images else nn.Linear(128, n_classes))
    optimizer = torch.optim.AdamW(net.parameters(), 0.002)
    inputs, gold = torch.from_numpy(X), torch.from_numpy(truth)
    began = time.perf_counter()
    for rows in torch.randperm(len(X)).split(64):
        loss = nn.functional.cross_entropy(net(inputs[rows]), gold[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.perf_counter() - began


def fastest_epoch(classifier: CrowdClassifier, X: Any, y: Any, epochs: int) -> float:
    return float(min(record["seconds"] for record in classifier.set_params(epochs=epochs).fit(X, y).history_))


def measure(size: dict[str, Any], epochs: int) -> dict[str, float]:
    X, truth, ann = make_data(**size)
    seconds = {"plain loop": min(plain_epoch(X, truth, size["n_classes"]) for _ in range(epochs))}
    seconds["true-label"] = fastest_epoch(TrueLabelClassifier(), X, truth, epochs)
    seconds["majority-vote"] = fastest_epoch(MajorityVoteClassifier(), X, ann, epochs)
    seconds["fusion"] = fastest_epoch(FusionClassifier(), X, ann, epochs)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    print("| data | plain loop | true-label | majority-vote | fusion |\n|---|---|---|---|---|")
    sizes = {"LeNet, 2,048 images, 3 annotators, 10 classes": IMAGES}
    sizes |= {f"MLP, {name}": ROWS | change for name, change in GROWTH.items()}
    for name, size in sizes.items():
        seconds = results[name] = measure(size, given.epochs)
        plain = seconds["plain loop"]
        cells = [f"{value:.2f} s ({value / plain:.2f} x)" for value in seconds.values()]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
