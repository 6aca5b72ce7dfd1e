"""One training step on a ResNet-18: what each method costs beside plain cross-entropy on the same network.

    python benchmarks/resnet_step.py --json out.json

CIFAR-100's size: batch 128 of 32 x 32 images, 3 annotators, 100 classes, 150 permutations. One thread. Time is the
processor's, methods by turns, the median over rounds; memory is the peak of a fresh process over what it held before
the first step. "plain" is PyTorch alone: the network with one linear layer, cross-entropy on gold.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from crowdfuse import Annotations
from crowdfuse.nets.resnet import ResNet18
from crowdfuse.registry import estimator_class

METHODS = ("true-label", "majority-vote", "fusion", "trace-reg", "mbem", "wdn")
N_CLASSES, N_ANNOTATORS = 100, 3
SETTINGS: dict[str, Any] = {"backbone": "resnet18", "optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}
OWN: dict[str, dict[str, Any]] = {"fusion": {"n_bases": 150, "annotator_heads": "separate"}}


def make_step(kind: str, batch: int) -> Callable[[], float]:
    """A function that does one step and returns the loss."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    X = generator.normal(size=(batch, 3, 32, 32)).astype(np.float32)
    y = np.arange(batch) % N_CLASSES
    labels = np.where(generator.random((batch, N_ANNOTATORS)) < 0.7, y[:, None], 0)
    if kind == "plain":
        net = nn.Sequential(ResNet18(), nn.Linear(512, N_CLASSES))
        inputs, gold = torch.from_numpy(X), torch.from_numpy(y)
        return stepper(net, lambda: nn.functional.cross_entropy(net(inputs), gold))
    classifier = estimator_class(kind)(**SETTINGS, **OWN.get(kind, {}), classes=list(range(N_CLASSES)))
    data, _, _ = classifier._prepare(X, y if kind == "true-label" else Annotations.from_matrix(labels))
    method = classifier.method_
    method.prepare(data)
    rows = data.batch(np.arange(batch))

    def loss() -> torch.Tensor:
        total, count = method.loss(rows)
        return total / count

    return stepper(method, loss)


def stepper(net: nn.Module, loss_of: Callable[[], torch.Tensor]) -> Callable[[], float]:
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    net.train()

    def step() -> float:
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def peak(kind: str, batch: int) -> float:
    """Bytes above what the process held before the first step."""
    step = make_step(kind, batch)
    before = float(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    for _ in range(2):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def in_fresh_process(kind: str, batch: int) -> float:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(peak, kind, batch).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    kinds = ("plain", *METHODS)
    memory = {kind: in_fresh_process(kind, given.batch) for kind in kinds}
    steps = {kind: make_step(kind, given.batch) for kind in kinds}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for step in steps.values():
        step()  # warm
    for _ in range(given.rounds):
        for kind, step in steps.items():
            began = time.process_time()
            step()
            seconds[kind].append(time.process_time() - began)
    results = {
        kind: {
            "seconds": statistics.median(seconds[kind]),
            "times plain": statistics.median(
                one / plain for one, plain in zip(seconds[kind], seconds["plain"], strict=True)
            ),
            "bytes": memory[kind],
            "memory times plain": memory[kind] / memory["plain"],
        }
        for kind in kinds
    }
    print("| method | seconds a step | times plain | MB | times plain |\n|---|---|---|---|---|")
    for kind, row in results.items():
        cells = (f"{row['seconds']:.2f}", f"{row['times plain']:.3f}", f"{row['bytes'] / 1e6:,.0f}")
        print(f"| {kind} | {' | '.join(cells)} | {row['memory times plain']:.3f} |")
    if given.json:
        given.json.write_text(json.dumps({"batch": given.batch, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
