"""Is the default method the best choice? Test accuracy of methods at their defaults, on crowds of many kinds.

    python benchmarks/default_method.py --results default_method.jsonl

Real crowds below $CROWDFUSE_DATA: Music, LabelMe, Sentiment Polarity (tf-idf of 1,000 words; a fifth of the sentences,
drawn by the seed, is the test set) and CIFAR-10N with its workers (2,000 images drawn by the seed). Simulated crowds:
eight kinds of wrong labels on 5,000 MNIST images of 14 x 14 pixels, and independent annotators with 100, 400 and 1,000
items of two, three and ten classes. All methods have the same network (one hidden layer of 128 units) and their own
default length of training and regularization. No method sees gold, except true-label.

Each finished run is a line of the results file; what is there is not run again. `--show` prints the tables: means over
seeds, and paired differences from the default with 95 % t-intervals over data sets and seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student

from crowdfuse import Annotations
from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.music_genres import load_music_genres
from crowdfuse.datasets.sentiment import load_sentiment
from crowdfuse.estimators.registry import DEFAULT_METHOD, estimator_class
from crowdfuse.experiments.method_comparison import MNIST_DATASETS, MethodComparisonExecutor
from crowdfuse.report.markdown import markdown_table

METHODS = (
    DEFAULT_METHOD,
    "gated",
    "majority-vote",
    "two-stage",
    "fusion",
    "crowd-layer",
    "madl",
    "annot-mix",
    "max-mig",
    "true-label",
)
REAL = ("Music", "LabelMe", "Sentiment Polarity", "CIFAR-10N, 2,000")
SMALL = tuple(f"{n} items, {K} classes" for n in (100, 400, 1_000) for K in (2, 3, 10))
ARENAS = (*REAL, *SMALL, *MNIST_DATASETS)
N_MNIST_ITEMS = 5_000
UPPER_BOUND = "true-label"


class Arena(NamedTuple):
    X: NDArray[np.float32]
    ann: Annotations
    gold: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]


def independent(n: int, K: int, seed: int, n_test: int = 3_000) -> Arena:
    """Return items of Gaussian classes; four annotators with accuracies from 0.5 to 0.9, a quarter missing."""
    generator = np.random.default_rng([seed, n, K])
    y = generator.integers(0, K, n + n_test)
    centres = 0.8 * generator.normal(size=(K, 20))
    X = (centres[y] + 1.6 * generator.normal(size=(len(y), 20))).astype(np.float32)
    accuracy = generator.uniform(0.5, 0.9, 4)
    is_right = generator.random((n, 4)) < accuracy
    said = np.where(is_right, y[:n, None], (y[:n, None] + generator.integers(1, K, (n, 4))) % K)
    said[generator.random(said.shape) < 0.25] = -1
    empty = (said < 0).all(1)
    said[empty, 0] = y[:n][empty]
    return Arena(X[:n], Annotations.from_matrix(said, classes=range(K)), y[:n], X[n:], y[n:])


def load(name: str, seed: int, data: Path) -> Arena:
    if name in SMALL:
        words = name.replace(",", "").split()
        return independent(int(words[0].replace(",", "")), int(words[2]), seed)
    if name in MNIST_DATASETS:
        dataset = MNIST_DATASETS[name]
        run: dict[str, Any] = {"data": dataset.data, "annotators": dataset.annotators, "seed": seed}
        crowd = MethodComparisonExecutor(data).crowd(run)
        rows = np.arange(N_MNIST_ITEMS)
        X, X_test = (np.asarray(part, np.float32) for part in (crowd.X, crowd.X_test))
        X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
        return Arena(X[rows], crowd.annotations[rows], crowd.y[rows], X_test, crowd.y_test)
    if name == "Sentiment Polarity":
        split = load_sentiment(data).split(seed, words=1_000)
        return Arena(split.X, split.annotations, split.y, split.X_test, split.y_test)
    if name.startswith("CIFAR"):
        crowd = load_cifar10n(data)
        rows = np.sort(np.random.default_rng(seed).permutation(len(crowd.y))[:2_000])
        X = np.asarray(crowd.X)[rows]
        return Arena(X, crowd.annotations[rows], crowd.y[rows], np.asarray(crowd.X_test), crowd.y_test)
    crowd = load_music_genres(data) if name == "Music" else load_labelme(data)
    return Arena(crowd.X, crowd.annotations, crowd.y, crowd.X_test, crowd.y_test)


def measure(arena: Arena, method: str, seed: int) -> dict[str, float]:
    n_classes = int(max(arena.ann.classes.max(), arena.gold.max(), arena.y_test.max())) + 1
    classes = list(range(n_classes))
    start = time.process_time()
    clf = estimator_class(method)(random_state=seed, classes=classes)
    gold = {"gold": arena.gold} if method == UPPER_BOUND else {}
    clf.fit(arena.X, arena.ann.with_classes(np.array(classes)), **gold)
    predicted = clf.predict(arena.X_test)
    recall = [(predicted[arena.y_test == k] == k).mean() for k in np.unique(arena.y_test)]
    return {
        "accuracy": 100 * float((predicted == arena.y_test).mean()),
        "balanced_accuracy": 100 * float(np.mean(recall)),
        "seconds": round(time.process_time() - start, 1),
    }


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95 % t-interval."""
    if len(values) < 2:
        return float(values.mean()), float("nan")
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(half)


def tables(records: list[dict[str, Any]]) -> str:
    by_run = {(r["arena"], r["method"], r["seed"]): r for r in records}
    methods = [method for method in METHODS if any(r["method"] == method for r in records)]
    arenas = [arena for arena in ARENAS if any(r["arena"] == arena for r in records)]

    def values(arena: str, method: str) -> dict[int, float]:
        return {r["seed"]: r["accuracy"] for r in records if r["arena"] == arena and r["method"] == method}

    rows, means = [], {}
    for arena in arenas:
        of = {method: values(arena, method) for method in methods}
        seeds = set.intersection(*(set(v) for v in of.values()))
        if not seeds:
            continue
        mean = {method: float(np.mean([of[method][s] for s in seeds])) for method in methods}
        means[arena] = mean
        best = max(mean[m] for m in methods if m != UPPER_BOUND)
        shown = [f"**{mean[m]:.1f}**" if mean[m] == best and m != UPPER_BOUND else f"{mean[m]:.1f}" for m in methods]
        rows.append([arena, str(len(seeds)), *shown])
    rows.append(["mean", "", *(f"{np.mean([of[m] for of in means.values()]):.1f}" for m in methods)])
    pairs = []
    for method in methods[1:]:
        common = [key for key in by_run if key[1] == method and (key[0], DEFAULT_METHOD, key[2]) in by_run]
        by_arena: dict[str, list[float]] = {}
        for arena, _, seed in common:
            gain = by_run[arena, DEFAULT_METHOD, seed]["accuracy"] - by_run[arena, method, seed]["accuracy"]
            by_arena.setdefault(arena, []).append(gain)
        mean_gain, half = interval(np.array([np.mean(gains) for gains in by_arena.values()]))
        worst = min(by_arena, key=lambda arena: float(np.mean(by_arena[arena])))
        cost = float(np.median([by_run[key]["seconds"] for key in common]))
        pairs.append(
            [
                method,
                f"{mean_gain:+.1f} ± {half:.1f}",
                str(len(by_arena)),
                f"{np.mean(by_arena[worst]):+.1f} ({worst})",
                f"{cost:.1f}",
            ]
        )
    own = float(np.median([r["seconds"] for r in records if r["method"] == DEFAULT_METHOD]))
    return "\n\n".join(
        [
            "## Test accuracy (%), mean over seeds",
            markdown_table(["crowd", "seeds", *methods], rows),
            f"## {DEFAULT_METHOD} minus each method (points), mean over crowds with a 95 % interval over crowds",
            markdown_table(["method", "difference", "crowds", "smallest", "seconds of CPU (median)"], pairs),
            f"The default takes {own:.1f} s of CPU (median).",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("default_method.jsonl"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--arenas", nargs="*", default=list(ARENAS), choices=list(ARENAS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--show", action="store_true", help="print the tables of what has run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    records = [json.loads(line) for line in lines]
    done = {(record["arena"], record["method"], record["seed"]) for record in records}
    if arguments.show:
        print(tables(records))
        return
    warnings.filterwarnings("ignore")
    data = Path(os.environ.get("CROWDFUSE_DATA", "data"))
    for seed in arguments.seeds:
        for name in arguments.arenas:
            left = [method for method in arguments.methods if (name, method, seed) not in done]
            arena = load(name, seed, data) if left else None
            for method in left:
                assert arena is not None
                record = {"arena": name, "method": method, "seed": seed, **measure(arena, method, seed)}
                with arguments.results.open("a") as stream:
                    stream.write(json.dumps(record) + "\n")
                print(record, flush=True)


if __name__ == "__main__":
    main()
