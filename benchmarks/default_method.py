"""Compare all methods at their defaults on crowds of many kinds: docs/results/methods, docs/methods.md.

    python benchmarks/default_method.py
    python benchmarks/default_method.py --tables

Real crowds below $CROWDFUSE_DATA: Music, LabelMe, Sentiment Polarity (tf-idf of 1,000 words; a fifth of the sentences,
drawn by the seed, is the test set) and CIFAR-10N with its workers (2,000 images drawn by the seed). Simulated crowds:
eight kinds of wrong labels on 5,000 MNIST images of 14 x 14 pixels, and independent annotators with 100, 400 and 1,000
items of two, three and ten classes. All methods have the same network (one hidden layer of 128 units) and their own
default length of training and regularization. No method sees gold, except true-label.

Each finished run is a line of docs/results/methods/runs.jsonl; what is there is not run again. At the end, and with
`--tables` alone, the stored runs are made into docs/results/methods/table.md, docs/methods.md, the sentence on the
default method in README.md, and the results that the package ships for `crowdfuse methods`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from torch.optim.optimizer import register_optimizer_step_post_hook

from crowdfuse import Annotations
from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.music_genres import load_music_genres
from crowdfuse.datasets.sentiment import load_sentiment
from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.experiments.method_comparison import MNIST_DATASETS, MethodComparisonExecutor
from crowdfuse.experiments.method_results import N_DIGITS, RESULTS_FILE, Dataset, MethodResults, collect_results
from crowdfuse.experiments.method_results_table import describe_default, render_results_table
from crowdfuse.experiments.methods_page import render_methods_page
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.io.files import write_json, write_text

PROJECT = Path(__file__).parents[1]
RUNS_PATH = Path("docs/results/methods/runs.jsonl")
TABLE_PATH = Path("docs/results/methods/table.md")
PAGE_PATH = Path("docs/methods.md")
README_PATH = Path("README.md")
SHIPPED_PATH = Path("src/crowdfuse/experiments") / RESULTS_FILE
README_SENTENCE = re.compile(r"(<!-- default method -->\n).*?(\n<!-- end of default method -->)", re.DOTALL)

METHODS = tuple(method for method in ESTIMATORS if method != "single-annotator")  # that one is not for a whole crowd
N_MNIST_ITEMS = 5_000
REAL = (
    Dataset("Music", "real crowds", "700 songs of 10 genres, 44 annotators, 124 features"),
    Dataset("LabelMe", "real crowds", "1,000 scenes of 8 classes, 59 annotators, averaged VGG features"),
    Dataset(
        "Sentiment Polarity",
        "real crowds",
        "film reviews, 2 classes, 203 annotators, tf-idf of 1,000 words and word pairs; a fifth of the sentences, "
        "drawn by the seed, is the test set",
    ),
    Dataset(
        "CIFAR-10N, 2,000", "real crowds", "2,000 images of 10 classes, drawn by the seed; workers; frozen features"
    ),
)
SMALL = tuple(
    Dataset(
        f"{n} items, {K} classes",
        "small crowds",
        "Gaussian classes with 20 features; four independent annotators with accuracies from 50 to 90 %, a quarter of "
        "the labels missing",
    )
    for n in (100, 400, 1_000)
    for K in (2, 3, 10)
)
KINDS = tuple(
    Dataset(name, f"kinds of wrong labels on {N_MNIST_ITEMS:,} MNIST images", dataset.note)
    for name, dataset in MNIST_DATASETS.items()
)
ARENAS = {dataset.name: dataset for dataset in (*REAL, *SMALL, *KINDS)}


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
    if ARENAS[name] in SMALL:
        words = name.replace(",", "").split()
        return independent(int(words[0]), int(words[2]), seed)
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
    n_steps = 0

    def count_step(*_: Any) -> None:
        nonlocal n_steps
        n_steps += 1

    start = time.process_time()
    clf = estimator_class(method)(random_state=seed, classes=classes)
    gold = {"gold": arena.gold} if method == UPPER_BOUND else {}
    handle = register_optimizer_step_post_hook(count_step)
    try:
        clf.fit(arena.X, arena.ann.with_classes(np.array(classes)), **gold)
    finally:
        handle.remove()
    probabilities = np.asarray(clf.predict_proba(arena.X_test), np.float64)
    seconds = time.process_time() - start
    predicted = probabilities.argmax(1)
    recall = [(predicted[arena.y_test == k] == k).mean() for k in np.unique(arena.y_test)]
    probabilities /= probabilities.sum(1, keepdims=True)
    figures = {
        "accuracy": 100 * float((predicted == arena.y_test).mean()),
        "balanced_accuracy": 100 * float(np.mean(recall)),
        "log_loss": float(log_loss(arena.y_test, probabilities, labels=classes)),
        "seconds": seconds,
    }
    return {name: round(value, N_DIGITS) for name, value in figures.items()} | {"n_steps": n_steps}


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return the stored runs of known data sets."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [run for run in map(json.loads, lines) if run["arena"] in ARENAS]


def write_tables(results: MethodResults, project: Path) -> None:
    """Write everything that is made from the stored runs into the project's folder."""
    write_json(project / SHIPPED_PATH, results.to_dict())
    write_text(project / TABLE_PATH, render_results_table(results))
    write_text(project / PAGE_PATH, render_methods_page(results))
    text = (project / README_PATH).read_text(encoding="utf-8")
    sentence = f"The default method is `{DEFAULT_METHOD}`. {describe_default(results)}"
    write_text(project / README_PATH, README_SENTENCE.sub(lambda found: f"{found[1]}{sentence}{found[2]}", text))


def run_missing(path: Path, seeds: list[int], arenas: list[str], methods: list[str]) -> None:
    """Run what is missing, and append each finished run to the file."""
    done = {(run["arena"], run["method"], run["seed"]) for run in read_runs(path)}
    warnings.filterwarnings("ignore")
    data = Path(os.environ.get("CROWDFUSE_DATA", "data"))
    for seed in seeds:
        for name in arenas:
            left = [method for method in methods if (name, method, seed) not in done]
            arena = load(name, seed, data) if left else None
            for method in left:
                assert arena is not None
                run = {"arena": name, "method": method, "seed": seed, **measure(arena, method, seed)}
                with path.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(run) + "\n")
                print(run, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="another file of runs; then no tables are written")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--arenas", nargs="*", default=list(ARENAS), choices=list(ARENAS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--tables", action="store_true", help="run nothing, only write the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = arguments.results or PROJECT / RUNS_PATH
    if not arguments.tables:
        run_missing(path, arguments.seeds, arguments.arenas, arguments.methods)
    results = collect_results(read_runs(path), list(ARENAS.values()))
    if arguments.results is None:
        write_tables(results, PROJECT)
    else:
        print(render_results_table(results))


if __name__ == "__main__":
    main()
