"""Sentiment Polarity from its texts: accuracy on the test sentences, per method, encoder and seed.

    python benchmarks/sentiment.py --data DATA --encoders tfidf --out docs/results/sentiment.jsonl

`DATA/sentiment_polarity/` holds `labels.csv`, `train_text.csv` and `test_text.csv`. Each run is the command

    crowdfuse fit labels.csv --inputs train_text.csv --text text --item task --on-missing drop --folds 0
        --method METHOD --encoder ENCODER --seed SEED

All settings are defaults; nothing is chosen on the test sentences, which come from another collection than the training
sentences. Runs that are in the output file are not repeated, so the script can be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("gated", "majority-vote", "two-stage")


def read_test(path: Path) -> tuple[list[str], list[str]]:
    """Return the test sentences and their classes."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["gold"] for row in rows]


def run_once(folder: Path, method: str, encoder: str, seed: int) -> dict[str, Any]:
    """Train and predict in processes of their own; return the accuracy and the seconds of the training."""
    texts, gold = read_test(folder / "test_text.csv")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        with (place / "test.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])
        crowdfuse = [sys.executable, "-m", "crowdfuse"]
        begin = time.perf_counter()
        subprocess.run(
            [
                *crowdfuse, "fit", str(folder / "labels.csv"), "--inputs", str(folder / "train_text.csv"),
                "--text", "text", "--item", "task", "--on-missing", "drop", "--folds", "0", "--method", method,
                "--encoder", encoder, "--seed", str(seed), "--out", str(place / "run"), "--quiet",
            ],
            check=True,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        predictions = place / "predictions.csv"
        subprocess.run(
            [*crowdfuse, "predict", str(place / "run"), str(place / "test.csv"), "--out", str(predictions)], check=True
        )
        with predictions.open(newline="", encoding="utf-8") as file:
            found = [row["label"] for row in csv.DictReader(file)]
    accuracy = float(np.mean([label == truth for label, truth in zip(found, gold, strict=True)]))
    return {"accuracy": accuracy, "n_test": len(gold), "seconds": round(seconds, 1)}


def table(runs: list[dict[str, Any]]) -> str:
    """Return mean and standard deviation over seeds as a Markdown table."""
    lines = ["| encoder | method | accuracy in % | standard deviation | seeds |", "|---|---|---|---|---|"]
    for encoder, method in sorted({(run["encoder"], run["method"]) for run in runs}):
        values = [100 * run["accuracy"] for run in runs if (run["encoder"], run["method"]) == (encoder, method)]
        spread = np.std(values, ddof=1) if len(values) > 1 else float("nan")
        lines.append(f"| {encoder} | {method} | {np.mean(values):.1f} | {spread:.1f} | {len(values)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoders", nargs="+", default=["tfidf"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    runs = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    for seed in range(given.seeds):
        for encoder in given.encoders:
            for method in given.methods:
                key = {"encoder": encoder, "method": method, "seed": seed}
                if any(key.items() <= run.items() for run in runs):
                    continue
                runs.append(key | run_once(given.data / "sentiment_polarity", method, encoder, seed))
                with given.out.open("a") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
                print(runs[-1], flush=True)
    print(table(runs))


if __name__ == "__main__":
    main()
