"""Dawid-Skene on labels alone: time, memory and accuracy of ours against crowd-kit's, and ours on 10 million labels.

    python -m pip install --target peers crowd-kit==1.4.2     # once; crowd-kit is not a dependency
    python benchmarks/aggregation.py --crowd-kit peers --crowds dog,rte,web,product --json docs/results/aggregation.json
    python benchmarks/aggregation.py --labels 10000000 --repeats 1 --json docs/results/aggregation_large.json

The simulated crowd has 5 labels per item, 1,000 annotators who are right with probabilities from 0.4 to 0.9, and 10
classes. Each measurement runs in a fresh process with one thread; the two libraries alternate, with the same number of
iterations and no smoothing. Time covers the method only; each library starts from its own table in memory. Memory is
the peak of the process, including imports and the crowd. Without --crowd-kit only crowdfuse is measured. --crowds adds
the accuracy of both on real crowds (in `labels_only/` below CROWDFUSE_DATA), with the same number of iterations.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LABELS_PER_ITEM = 5

Crowd = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


def main() -> None:
    arguments = parse_arguments()
    os.environ["OMP_NUM_THREADS"] = "1"
    libraries = ["crowdfuse"] if arguments.crowd_kit is None else ["crowdfuse", "crowd-kit"]
    if arguments.crowd_kit is None:
        print("crowd-kit is not measured; give its folder with --crowd-kit")
    elif not (arguments.crowd_kit / "crowdkit").is_dir():
        sys.exit(
            f"{arguments.crowd_kit} does not contain crowd-kit; install it with "
            f"python -m pip install --target {arguments.crowd_kit} crowd-kit==1.4.2"
        )
    print(
        f"{arguments.labels:,} labels, {arguments.annotators:,} annotators, {arguments.classes} classes, "
        f"{arguments.iterations} iterations; {arguments.repeats} repeats on {os.cpu_count()} cores, "
        "which should be idle"
    )
    runs: dict[str, list[dict[str, float]]] = {library: [] for library in libraries}
    for _ in range(arguments.repeats):
        for library in libraries:  # alternating, so that other load on the machine affects both
            runs[library].append(run_in_fresh_process(measure, library, arguments))
    results = {library: summarize_runs(found) for library, found in runs.items()}
    print(f"{'':12}{'median s':>10}{'best s':>10}{'peak MB':>10}{'accuracy':>10}{'theirs / ours':>16}")
    for library, result in results.items():
        result["ratio"] = result["median_seconds"] / results["crowdfuse"]["median_seconds"]
        print(
            f"{library:12}{result['median_seconds']:10.2f}{result['best_seconds']:10.2f}{result['peak_mb']:10,.0f}"
            f"{result['accuracy']:10.4f}{result['ratio']:15.1f}x"
        )
    real = {
        name: run_in_fresh_process(accuracy_on_real_crowd, name, arguments)
        for name in arguments.crowds.split(",")
        if name
    }
    for name, found in real.items():
        print(f"{name:12}" + "".join(f"{library:>12} {100 * share:.2f} %" for library, share in found.items()))
    if arguments.json:
        settings = {name: value for name, value in vars(arguments).items() if not isinstance(value, Path | None)}
        arguments.json.write_text(
            json.dumps({"settings": settings, "results": results, "accuracy": real}, indent=2) + "\n"
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=500_000)
    parser.add_argument("--annotators", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--crowds", default="", help="real crowds, separated by commas")
    parser.add_argument("--crowd-kit", type=Path, help="folder in which crowd-kit is installed")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run_in_fresh_process(
    work: Callable[[str, argparse.Namespace], dict[str, float]], what: str, arguments: argparse.Namespace
) -> dict[str, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, what, arguments).result()


def measure(library: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Run once in this process; return seconds, peak memory in MB, and accuracy."""
    crowd = make_crowd(arguments.labels, arguments.annotators, arguments.classes)
    if library == "crowdfuse":
        seconds, labels = run_crowdfuse(crowd, arguments)
    else:
        sys.path.insert(0, str(arguments.crowd_kit))
        seconds, labels = run_crowd_kit(crowd, arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "peak_mb": peak, "accuracy": float((labels == crowd[3]).mean())}


def accuracy_on_real_crowd(name: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Return the accuracy of each library on a real crowd."""
    from crowdfuse.aggregation import dawid_skene
    from crowdfuse.datasets.label_only import load_label_only

    loaded = load_label_only(name)
    ann = loaded.annotations
    best = dawid_skene(ann, max_iter=arguments.iterations, tol=0, smoothing=0).consensus_codes
    found = {"crowdfuse": float((best[loaded.judged] == loaded.truth).mean())}
    if arguments.crowd_kit is not None:
        sys.path.insert(0, str(arguments.crowd_kit))
        triples = [column.astype(np.int32) for column in (ann.item, ann.annotator, ann.label)]
        theirs = np.full(ann.n_items, -1)
        crowd = (triples[0], triples[1], triples[2], np.empty(0, np.int32))
        theirs[np.unique(ann.item)] = run_crowd_kit(crowd, arguments)[1]
        found["crowd-kit"] = float((theirs[loaded.judged] == loaded.truth).mean())
    return found


def make_crowd(n_labels: int, n_annotators: int, n_classes: int) -> Crowd:
    """Return items, annotators and labels, sorted by item, no annotator twice on an item; and the true classes."""
    generator = np.random.default_rng(0)
    n_items = n_labels // LABELS_PER_ITEM
    truth = generator.integers(0, n_classes, n_items, dtype=np.int32)
    accuracies = generator.uniform(0.4, 0.9, n_annotators).astype(np.float32)
    stride = n_annotators // LABELS_PER_ITEM  # so that the annotators of an item differ
    first = generator.integers(0, n_annotators, n_items, dtype=np.int32)
    annotator = np.sort((first[:, None] + stride * np.arange(LABELS_PER_ITEM, dtype=np.int32)) % n_annotators).ravel()
    item = np.repeat(np.arange(n_items, dtype=np.int32), LABELS_PER_ITEM)
    wrong = generator.integers(1, n_classes, len(item), dtype=np.int32)
    wrong[generator.random(len(item), dtype=np.float32) < accuracies[annotator]] = 0
    return item, annotator, (truth[item] + wrong) % n_classes, truth


def run_crowdfuse(crowd: Crowd, arguments: argparse.Namespace) -> tuple[float, NDArray[Any]]:
    from crowdfuse import Annotations
    from crowdfuse.aggregation import dawid_skene

    item, annotator, label, truth = crowd
    ann = Annotations(
        indptr=np.searchsorted(item, np.arange(len(truth) + 1)),
        annotator=annotator,
        label=label,
        items=np.arange(len(truth)),
        annotators=np.arange(arguments.annotators),
        classes=np.arange(arguments.classes),
        by_row=True,
    )
    dawid_skene(ann[:10], max_iter=1)  # warm up: load modules outside the timed part
    started = time.perf_counter()
    result = dawid_skene(ann, max_iter=arguments.iterations, tol=0, smoothing=0)
    return time.perf_counter() - started, result.consensus


def run_crowd_kit(crowd: Crowd, arguments: argparse.Namespace) -> tuple[float, NDArray[Any]]:
    import pandas as pd
    from crowdkit.aggregation import DawidSkene  # type: ignore[import-not-found]

    item, annotator, label, _ = crowd
    table = pd.DataFrame({"task": item, "worker": annotator, "label": label})
    DawidSkene(n_iter=1).fit(table[:50])
    started = time.perf_counter()
    fitted = DawidSkene(n_iter=arguments.iterations, tol=-np.inf).fit(table)
    seconds = time.perf_counter() - started
    return seconds, fitted.labels_.sort_index().to_numpy()


def summarize_runs(runs: list[dict[str, float]]) -> dict[str, float]:
    seconds = [run["seconds"] for run in runs]
    return {
        "median_seconds": statistics.median(seconds),
        "best_seconds": min(seconds),
        "peak_mb": max(run["peak_mb"] for run in runs),
        "accuracy": runs[0]["accuracy"],
    }


if __name__ == "__main__":
    main()
