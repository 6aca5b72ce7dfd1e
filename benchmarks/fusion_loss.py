"""The fusion loss step, against the textbook einsum, the best dense version and the backbone alone; time and memory.

    python benchmarks/fusion_loss.py --json out.json

Each measurement runs in its own process with one thread. Memory is the peak above the memory of the process after the
inputs were made.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# (batch, annotators, classes, bases); the dense versions run where their matrices fit
SIZES = [
    (64, 3, 10, 20),
    (128, 3, 100, 150),
    (32, 3, 1000, 150),
    (256, 3, 100, 150),
    (128, 6, 100, 150),
    (128, 3, 200, 150),
    (128, 3, 100, 300),
]
MAX_DENSE_BYTES = 10e9


def measure(kind: str, batch: int, n_annotators: int, n_classes: int, n_bases: int, seconds: float) -> dict[str, float]:
    """Return median seconds, peak bytes and value of the loss with its gradient with respect to all head outputs."""
    import torch
    from torch import nn

    from crowdfuse.functional import (
        basis_penalty,
        fuse_by_basis,
        kl_divergence,
        penalty_form,
        permutation_basis,
        scatter_sum,
        segment_softmax,
    )

    torch.set_num_threads(1)
    torch.manual_seed(0)
    basis = permutation_basis(n_classes, n_bases)
    form = penalty_form(basis)
    dense_basis = (
        nn.functional.one_hot(basis, n_classes).transpose(1, 2).float() if kind in ("textbook", "two-step") else None
    )
    item = torch.arange(batch).repeat_interleave(n_annotators)
    label = torch.randint(n_classes, (batch * n_annotators,))
    outputs = [
        torch.randn(batch * n_annotators, requires_grad=True),
        torch.randn(batch * n_annotators, n_bases, requires_grad=True),
        torch.randn(batch, n_classes, requires_grad=True),
    ]
    backbone = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, n_classes))
    x = torch.randn(batch, 512)

    def ours() -> torch.Tensor:
        scores, coefficients, logits = outputs
        w = segment_softmax(scores, item, batch)
        c = coefficients.softmax(1)
        t = fuse_by_basis(w, c, label, item, basis, batch)
        penalty = scatter_sum(basis_penalty(c, form), item, batch) / n_annotators
        return (kl_divergence(t, logits.log_softmax(1)) + penalty).mean()

    def two_step() -> torch.Tensor:
        """Return the loss by the best dense version: one product for all P, then the sum over annotators."""
        scores, coefficients, logits = outputs
        w = scores.view(batch, n_annotators).softmax(1)
        c = coefficients.view(batch, n_annotators, n_bases).softmax(2)
        P = torch.einsum("nrm,mij->nrij", c, dense_basis)
        one_hot = nn.functional.one_hot(label, n_classes).float().view(batch, n_annotators, n_classes)
        t = torch.einsum("nr,nrij,nrj->ni", w, P, one_hot)
        penalty = (1 - P.diagonal(dim1=2, dim2=3)).square().sum((1, 2)) / n_annotators
        return (kl_divergence(t, logits.log_softmax(1)) + penalty).mean()

    def textbook() -> torch.Tensor:
        """Return the loss by the literal formula: every c_m B_m is stored before the sum."""
        scores, coefficients, logits = outputs
        w = scores.view(batch, n_annotators).softmax(1)
        c = coefficients.view(batch, n_annotators, n_bases).softmax(2)
        P = torch.einsum("nrm,mij->nrmij", c, dense_basis).sum(2)
        one_hot = nn.functional.one_hot(label, n_classes).float().view(batch, n_annotators, n_classes)
        t = torch.einsum("nr,nrij,nrj->ni", w, P, one_hot)
        penalty = (1 - P.diagonal(dim1=2, dim2=3)).square().sum((1, 2)) / n_annotators
        return (kl_divergence(t, logits.log_softmax(1)) + penalty).mean()

    def backbone_alone() -> torch.Tensor:
        loss: torch.Tensor = backbone(x).logsumexp(1).mean()
        return loss

    step = {"ours": ours, "textbook": textbook, "two-step": two_step, "backbone": backbone_alone}[kind]
    before = _resident_bytes()
    loss = step()
    loss.backward()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        began = time.perf_counter()
        step().backward()
        times.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": sorted(times)[len(times) // 2], "bytes": max(0.0, peak - before), "loss": float(loss)}


def _resident_bytes() -> float:
    """Return the memory of the process in bytes; without /proc, its peak so far."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_in_process(kind: str, size: tuple[int, int, int, int], seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", kind, *map(str, size), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure_all(size: tuple[int, int, int, int], seconds: float) -> dict[str, Any]:
    """Measure all versions that fit into memory at one size; fail if their losses differ."""
    batch, n_annotators, n_classes, n_bases = size
    row: dict[str, Any] = {"batch": batch, "annotators": n_annotators, "classes": n_classes, "bases": n_bases}
    needed = {
        "ours": 0.0,
        "textbook": 8.0 * n_classes**2 * batch * n_annotators * n_bases,
        "two-step": 4.0 * n_classes**2 * (3 * batch * n_annotators + 2 * n_bases),
        "backbone": 0.0,
    }
    for kind, size_in_bytes in needed.items():
        row[kind] = measure_in_process(kind, size, seconds) if size_in_bytes < MAX_DENSE_BYTES else None
        if kind in ("textbook", "two-step") and row[kind] is not None:
            difference = abs(row[kind]["loss"] - row["ours"]["loss"])
            if difference > 1e-4 * max(1, abs(row["ours"]["loss"])):
                raise SystemExit(f"{kind} and ours differ by {difference} at {size}")
    return row


def format_cell(figures: dict[str, float] | None, ours: dict[str, float]) -> str:
    if figures is None:
        return "too large"
    text = f"{1e3 * figures['seconds']:.2f} ms, {figures['bytes'] / 1e6:.0f} MB"
    return text if figures is ours else f"{text} ({figures['seconds'] / ours['seconds']:,.1f} x)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for repeating each measurement")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, batch, n_annotators, n_classes, n_bases, seconds = given.one
        sizes = (int(batch), int(n_annotators), int(n_classes), int(n_bases))
        print(json.dumps(measure(kind, *sizes, float(seconds))))
        return
    rows = []
    print(
        "| batch, R, K, M | ours | textbook einsum | best dense | backbone alone (512-512-K) |\n|---|---|---|---|---|"
    )
    for size in SIZES:
        row = measure_all(size, given.seconds)
        rows.append(row)
        cells = [format_cell(row[kind], row["ours"]) for kind in ("ours", "textbook", "two-step", "backbone")]
        print(f"| {', '.join(map(str, size))} | {' | '.join(cells)} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
