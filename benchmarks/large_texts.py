"""Many short texts: time and peak memory of `crowdfuse fit --effort low` with tf-idf, and of `crowdfuse predict`.

    python benchmarks/large_texts.py --out docs/results/large_texts.json
    python benchmarks/large_texts.py --items 10000 --out small.json

Makes 100,000 texts of 8 to 24 words and three labels per text by 200 annotators, who are right 60 to 95 % of the time.
Words are made of random syllables; their frequencies follow Zipf's law over 50,000 words, and one word in five is
typical of the class. Then runs, each in a process of its own with one thread:

    crowdfuse fit labels.csv --inputs texts.csv --effort low --out run
    crowdfuse predict run new_texts.csv

`predict` is measured on as many new texts, and on a quarter of them, which shows how its memory grows. Memory is the
peak of the process. Seconds of CPU are those of an idle machine; elapsed seconds depend on what else runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.estimators.registry import DEFAULT_METHOD

N_WORDS = 50_000
N_ANNOTATORS = 200
LABELS_PER_TEXT = 3
CLASSES = ("news", "sport", "trade", "travel")
SHARE_OF_TYPICAL_WORDS = 0.2
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def make_words(generator: np.random.Generator) -> NDArray[Any]:
    """Return different words of two to four syllables."""
    words: dict[str, None] = {}
    while len(words) < N_WORDS:
        words["".join(generator.choice(SYLLABLES, generator.integers(2, 5)))] = None
    return np.array(list(words))


def make_texts(words: NDArray[Any], truth: NDArray[np.int64], generator: np.random.Generator) -> list[str]:
    """Return one text per true class; every fourth word, by rank, is typical of the same class."""
    probability = 1 / np.arange(1, N_WORDS + 1)
    bound = np.cumsum(probability / probability.sum())
    bound[-1] = 1
    lengths = generator.integers(8, 25, len(truth))
    rank = np.searchsorted(bound, generator.random(lengths.sum()))
    of_class = np.repeat(truth, lengths)
    typical = generator.random(len(rank)) < SHARE_OF_TYPICAL_WORDS
    rank[typical] = rank[typical] // len(CLASSES) * len(CLASSES) + of_class[typical]
    return [" ".join(part) for part in np.split(words[rank], np.cumsum(lengths)[:-1])]


def make_labels(truth: NDArray[np.int64], generator: np.random.Generator) -> list[tuple[str, str, str]]:
    """Return rows of item, annotator and label."""
    accuracy = generator.uniform(0.6, 0.95, N_ANNOTATORS)
    rows = []
    for item, true_class in enumerate(truth):
        for annotator in generator.choice(N_ANNOTATORS, LABELS_PER_TEXT, replace=False):
            wrong = (true_class + generator.integers(1, len(CLASSES))) % len(CLASSES)
            label = true_class if generator.random() < accuracy[annotator] else wrong
            rows.append((f"text-{item}", f"annotator-{annotator}", CLASSES[label]))
    return rows


def write(path: Path, header: list[str], rows: Any) -> None:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def measure(arguments: list[str], folder: Path) -> dict[str, float]:
    """Run a command of crowdfuse; return elapsed seconds, seconds of CPU, and peak memory in MB."""
    command = [sys.executable, "-m", "crowdfuse", *arguments]
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return {
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mb": round(usage.ru_maxrss / 1024),
    }


def main() -> None:
    """Make the data, measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--method", default=DEFAULT_METHOD)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    generator = np.random.default_rng(0)
    words = make_words(generator)
    result: dict[str, Any] = {"n_texts": given.items, "n_labels": LABELS_PER_TEXT * given.items, "method": given.method}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        truth, new_truth = generator.integers(0, len(CLASSES), (2, given.items))
        texts = make_texts(words, truth, generator)
        write(folder / "texts.csv", ["item", "text"], ((f"text-{i}", text) for i, text in enumerate(texts)))
        write(folder / "labels.csv", ["item", "annotator", "label"], make_labels(truth, generator))
        new_texts = make_texts(words, new_truth, generator)
        for name, count in (("quarter", given.items // 4), ("all", given.items)):
            write(folder / f"{name}.csv", ["text"], ([text] for text in new_texts[:count]))
        fit = ["fit", "labels.csv", "--inputs", "texts.csv", "--effort", "low", "--method", given.method]
        result["fit"] = measure([*fit, "--out", "run"], folder)
        print(result, flush=True)
        result["predict_quarter"] = measure(["predict", "run", "quarter.csv", "--out", "quarter_out.csv"], folder)
        result["predict"] = measure(["predict", "run", "all.csv"], folder)
        with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
            found = [row["label"] for row in csv.DictReader(file)]
        with (folder / "run/consensus.csv").open(newline="", encoding="utf-8") as file:
            consensus = {row["item"]: row["label"] for row in csv.DictReader(file)}
        right = [consensus[f"text-{i}"] == CLASSES[k] for i, k in enumerate(truth)]
        result["consensus_accuracy"] = round(float(np.mean(right)), 4)
        result["accuracy_on_new_texts"] = round(float(np.mean(np.array(CLASSES)[new_truth] == found)), 4)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
