"""Cost of one training step of each method, relative to plain cross-entropy on the same network.

    python benchmarks/method_step.py --network resnet18 --json docs/results/resnet_step.json
    python benchmarks/method_step.py --network lenet --rounds 200 --json docs/results/lenet_step.json

A ResNet-18 at CIFAR-100's size (32 x 32 images, 100 classes, 150 permutations), or the paper's LeNet at MNIST's (28 x
28 images, 10 classes, 20 permutations): batch size 128, 3 annotators, one thread. Time is CPU time, the median over
rounds in which the methods alternate. Memory is the peak of a fresh process above its memory before the first step.
"plain" is PyTorch alone: the network and its class head, cross-entropy on gold. For gated and COINNet it is a step of
their last phase.
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
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class
from crowdfuse.methods.coin_net import COINNet
from crowdfuse.methods.gated import Gated
from crowdfuse.nets.lenet import LeNet
from crowdfuse.nets.mlp import mlp
from crowdfuse.nets.resnet import ResNet18

METHODS = (*(method for method in ESTIMATORS if method != "single-annotator"), "fusion, separate heads")
N_ANNOTATORS = 3
SHAPES = {"resnet18": (3, 32, 32), "lenet": (28, 28)}
CLASSES = {"resnet18": 100, "lenet": 10}
BASES = {"resnet18": 150, "lenet": 20}


def plain_network(network: str) -> nn.Module:
    if network == "resnet18":
        return nn.Sequential(ResNet18(), nn.Linear(512, CLASSES[network]))
    return nn.Sequential(LeNet(), mlp(256, (120, 84), CLASSES[network]))


def make_step(kind: str, batch: int, network: str) -> Callable[[], float]:
    """Return a function that does one training step and returns the loss."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    n_classes = CLASSES[network]
    X = generator.normal(size=(batch, *SHAPES[network])).astype(np.float32)
    y = np.arange(batch) % n_classes
    labels = np.where(generator.random((batch, N_ANNOTATORS)) < 0.7, y[:, None], 0)
    if kind == "plain":
        net = plain_network(network)
        inputs, gold = torch.from_numpy(X), torch.from_numpy(y)
        return make_step_function(net, lambda: nn.functional.cross_entropy(net(inputs), gold))
    name, _, variant = kind.partition(", ")
    settings: dict[str, Any] = {"backbone": network, "standardize": False, "classes": list(range(n_classes))}
    if name == "fusion":
        settings |= {"n_bases": BASES[network], "annotator_heads": "separate" if variant else "auto"}
    classifier = estimator_class(name)(**settings)
    data, _, _ = classifier.prepare(X, y if kind == "true-label" else Annotations.from_matrix(labels))
    method = classifier.method_
    method.prepare(data)
    if isinstance(method, Gated):
        method.phase_index = 2
        method.is_initialized.fill_(True)
    if isinstance(method, COINNet):
        method.phase_index = 1
    rows = data.batch(np.arange(batch))

    def loss() -> torch.Tensor:
        total, count = method.loss(rows)
        return total / count

    return make_step_function(method, loss)


def make_step_function(net: nn.Module, loss_of: Callable[[], torch.Tensor]) -> Callable[[], float]:
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, fused=True)
    net.train()

    def step() -> float:
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def peak_memory(kind: str, batch: int, network: str) -> float:
    """Return the peak memory in bytes above the memory before the first step."""
    step = make_step(kind, batch, network)
    before = float(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    for _ in range(2):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def peak_in_fresh_process(kind: str, batch: int, network: str) -> float:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(peak_memory, kind, batch, network).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--network", choices=tuple(SHAPES), default="resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    kinds = ("plain", *METHODS)
    memory = {kind: peak_in_fresh_process(kind, given.batch, given.network) for kind in kinds}
    steps = {kind: make_step(kind, given.batch, given.network) for kind in kinds}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for step in steps.values():
        step()  # warm up
    for _ in range(given.rounds):
        for kind, step in steps.items():
            began = time.process_time()
            step()
            seconds[kind].append(time.process_time() - began)
    results = {
        kind: {
            "seconds": statistics.median(seconds[kind]),
            "relative_time": statistics.median(
                one / plain for one, plain in zip(seconds[kind], seconds["plain"], strict=True)
            ),
            "bytes": memory[kind],
            "relative_memory": memory[kind] / memory["plain"],
        }
        for kind in kinds
    }
    print("| method | ms per step | relative time | MB | relative memory |\n|---|---|---|---|---|")
    for kind, row in results.items():
        cells = (f"{1000 * row['seconds']:.2f}", f"{row['relative_time']:.3f}", f"{row['bytes'] / 1e6:,.0f}")
        print(f"| {kind} | {' | '.join(cells)} | {row['relative_memory']:.3f} |")
    if given.json:
        given.json.write_text(
            json.dumps({"network": given.network, "batch": given.batch, "results": results}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
