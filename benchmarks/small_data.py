"""Small data: the default method and its simple rivals on 100 to 4,000 items of independent annotators, ten seeds.

    python benchmarks/small_data.py --out docs/results/small_data.jsonl

The crowds are those of benchmarks/default_method.py: four annotators with accuracies from 0.5 to 0.9, a quarter of the
labels missing, two, three and ten classes, 3,000 test items. All methods have the same network (one hidden layer of 128
units) and their own default length of training. No method sees gold. Finished runs are not repeated, so the script can
be stopped and started again; without missing runs, it only prints the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crowdfuse.estimators.registry import DEFAULT_METHOD
from crowdfuse.labels.intervals import t_interval_half_width
from default_method import independent, measure

N_ITEMS = (100, 200, 400, 1_000, 4_000)
N_CLASSES = (2, 3, 10)
METHODS = ("majority-vote", "two-stage", "fusion", "madl", "gated", DEFAULT_METHOD)


def run_missing(path: Path, seeds: range) -> None:
    """Run what the file does not hold, seed by seed, and append one line per run."""
    done = {(run["n_items"], run["n_classes"], run["method"], run["seed"]) for run in read_runs(path)}
    for seed, n_classes, n_items in itertools.product(seeds, N_CLASSES, N_ITEMS):
        missing = [method for method in METHODS if (n_items, n_classes, method, seed) not in done]
        arena = independent(n_items, n_classes, seed) if missing else None
        for method in missing:
            assert arena is not None
            figures = measure(arena, method, seed)
            line = {"n_items": n_items, "n_classes": n_classes, "method": method, "seed": seed, **figures}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


def make_table(runs: list[dict[str, Any]]) -> str:
    """Return mean accuracies per cell, and the default method's difference from the best other method, as Markdown."""
    accuracy = {(run["n_classes"], run["n_items"], run["method"], run["seed"]): run["accuracy"] for run in runs}
    cells = [cell for cell in itertools.product(N_CLASSES, N_ITEMS) if any(key[:2] == cell for key in accuracy)]
    header = ["classes", "items", *METHODS, "default minus best other", "seeds"]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    all_means = []
    for cell in cells:
        seeds = [s for *_, method, s in accuracy if method == METHODS[0]]
        shared = sorted({s for s in seeds if all((*cell, method, s) in accuracy for method in METHODS)})
        if not shared:
            continue
        by_method = {method: np.array([accuracy[*cell, method, s] for s in shared]) for method in METHODS}
        means = {method: float(values.mean()) for method, values in by_method.items()}
        all_means.append(means)
        best = max((method for method in METHODS if method != DEFAULT_METHOD), key=lambda method: means[method])
        difference = by_method[DEFAULT_METHOD] - by_method[best]
        text = f"{difference.mean():+.1f} ({best})"
        if len(shared) > 1:
            half = t_interval_half_width(difference)
            text = (
                f"{difference.mean():+.1f} [{difference.mean() - half:+.1f}, {difference.mean() + half:+.1f}] ({best})"
            )
        figures = [f"{means[method]:.1f}" for method in METHODS]
        lines.append(f"| {cell[0]} | {cell[1]:,} | {' | '.join(figures)} | {text} | {len(shared)} |")
    if all_means:
        figures = [f"{np.mean([means[method] for means in all_means]):.1f}" for method in METHODS]
        lines.append(f"| mean | | {' | '.join(figures)} | | |")
    return "\n".join(lines)


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return the finished runs."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    run_missing(given.out, range(given.seeds))
    print(make_table(read_runs(given.out)))


if __name__ == "__main__":
    main()
