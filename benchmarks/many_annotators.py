"""Cost of an epoch for growing numbers of annotators and labels; it should depend on the labels, not the annotators.

    python benchmarks/many_annotators.py --json docs/results/many_annotators.json

Each row is measured in its own process: five labels per item, from annotators drawn at random, 32 features, 10
classes, one hidden layer of 128 units, batches of 256 items, one thread. Seconds are the median of three epochs after
the first. Memory is the peak of the process above its memory before `fit`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

LABELS_PER_ITEM, N_FEATURES, N_CLASSES = 5, 32, 10
BY_ANNOTATORS = [(n_annotators, 1_000_000) for n_annotators in (10, 100, 1_000, 10_000)]
BY_LABELS = [(1_000, n_labels) for n_labels in (100_000, 1_000_000, 10_000_000)]


def measure(method: str, n_annotators: int, n_labels: int, heads: str | None) -> dict[str, Any]:
    """Measure one row of the table, in this process."""
    import numpy as np
    import torch

    from crowdfuse import Annotations
    from crowdfuse.estimators.registry import estimator_class

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    n_items = n_labels // LABELS_PER_ITEM
    truth = generator.integers(0, N_CLASSES, n_items)
    X = generator.normal(size=(n_items, N_FEATURES)).astype(np.float32)
    X[np.arange(n_items), truth] += 2
    # five different annotators per item: a random start and a random stride
    start = generator.integers(0, n_annotators, n_items)[:, None]
    stride = generator.integers(1, max(2, n_annotators // LABELS_PER_ITEM), n_items)[:, None]
    annotator = np.sort((start + stride * np.arange(LABELS_PER_ITEM)) % n_annotators, 1)
    label = np.where(generator.random(annotator.shape) < 0.7, truth[:, None], 0)
    ann = Annotations(
        indptr=np.arange(n_items + 1) * LABELS_PER_ITEM,
        annotator=annotator.ravel().astype(np.int32),
        label=label.ravel().astype(np.int32),
        items=np.arange(n_items),
        annotators=np.arange(n_annotators),
        classes=np.arange(N_CLASSES),
        by_row=True,
    )
    settings: dict[str, Any] = {} if heads is None else {"annotator_heads": heads}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clf = estimator_class(method)(epochs=4, batch_size=256, **settings).fit(X, ann)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = sorted(record["seconds"] for record in clf.history_[1:4])[1]
    return {
        "method": method,
        "heads": heads,
        "annotators": n_annotators,
        "labels": n_labels,
        "seconds_per_epoch": round(seconds, 3),
        "mb_above_data": round((peak - before) / 1024, 1),
        "parameters": sum(p.numel() for p in clf.method_.parameters()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--methods", default="fusion,trace-reg")
    parser.add_argument("--only", nargs=4, help=argparse.SUPPRESS, metavar=("METHOD", "R", "LABELS", "HEADS"))
    given = parser.parse_args()
    if given.only:
        method, n_annotators, n_labels, heads = given.only
        print(json.dumps(measure(method, int(n_annotators), int(n_labels), heads if heads != "-" else None)))
        return
    rows = []
    print("| method | annotators | labels | seconds per epoch | MB above the data | parameters |")
    print("|---|---|---|---|---|---|")
    for method in given.methods.split(","):
        heads = "embedded" if method == "fusion" else "-"
        for n_annotators, n_labels in [*BY_ANNOTATORS, *(pair for pair in BY_LABELS if pair not in BY_ANNOTATORS)]:
            asked = [method, str(n_annotators), str(n_labels), heads]
            answer = subprocess.run(
                [sys.executable, __file__, "--only", *asked], check=True, stdout=subprocess.PIPE, text=True
            )
            row = json.loads(answer.stdout)
            rows.append(row)
            print(
                f"| {method} | {n_annotators:,} | {n_labels:,} | {row['seconds_per_epoch']:.2f} | "
                f"{row['mb_above_data']:.0f} | {row['parameters']:,} |",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
