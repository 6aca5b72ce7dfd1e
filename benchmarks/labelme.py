"""LabelMe, a real crowd: 59 annotators, 2.5 labels per image, with the commands of the README.

    python benchmarks/labelme.py prepare --out labelme          # from $CROWDFUSE_DATA/labelme
    crowdfuse fit labelme/labels.csv --inputs labelme/features.npz --test labelme/test.csv --on-missing drop --out run
    python benchmarks/labelme.py compare --data labelme --seeds 0,1,2,3,4 --json out.json

`compare` runs `crowdfuse fit` for each method and seed. The last epoch is used, gold only evaluates. It prints paired
differences to soft majority vote with a 95 % interval over seeds.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.labels.intervals import t_interval_half_width


def prepare(source: Path, out: Path) -> None:
    """Write features of all images with their ids, the labels, and gold of the validation and test images."""
    out.mkdir(parents=True)
    data = np.load(source / "labelme_vgg_avg.npz", allow_pickle=False)
    parts = {"train": "", "valid": "valid-", "test": "test-"}
    X = np.concatenate([data[f"x_{part}"] for part in parts])
    items = [f"{prefix}{i}" for part, prefix in parts.items() for i in range(len(data[f"x_{part}"]))]
    np.savez(out / "features.npz", X=X, items=np.array(items))
    shutil.copy(source / "labels.csv", out / "labels.csv")
    for part in ("valid", "test"):
        with (out / f"{part}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("task", "label"))
            writer.writerows((f"{part}-{i}", int(label)) for i, label in enumerate(data[f"y_{part}"]))


def fit(data: Path, method: str, epochs: int, seed: int) -> float:
    """Run `crowdfuse fit` once and return its test accuracy in percent."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "crowdfuse", "fit", str(data / "labels.csv"), "--inputs", str(data / "features.npz"),
            "--test", str(data / "test.csv"), "--on-missing", "drop", "--method", method, "--epochs", str(epochs),
            "--seed", str(seed), "--out", f"{folder}/run", "--json", f"{folder}/summary.json", "--quiet",
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return 100 * float(json.loads(Path(folder, "summary.json").read_text())["test_accuracy"])


def compare(data: Path, methods: list[str], epochs: int, seeds: list[int]) -> dict[str, Any]:
    accuracy = {method: [fit(data, method, epochs, seed) for seed in seeds] for method in methods}
    table: dict[str, Any] = {}
    for method, values in accuracy.items():
        row: dict[str, Any] = {
            "accuracy": values,
            "mean": float(np.mean(values)),
            "std": float(np.std(values, ddof=1)),
        }
        if method != "majority-vote":
            difference = np.subtract(values, accuracy["majority-vote"])
            half = t_interval_half_width(difference)
            row["gain_over_soft_vote"] = float(difference.mean())
            row["interval"] = [float(difference.mean() - half), float(difference.mean() + half)]
        table[method] = row
    return {"seeds": seeds, "epochs": epochs, "methods": table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("prepare")
    making.add_argument("--source", type=Path, default=Path(os.environ.get("CROWDFUSE_DATA", "data")) / "labelme")
    making.add_argument("--out", type=Path, required=True)
    comparing = commands.add_parser("compare")
    comparing.add_argument("--data", type=Path, required=True)
    comparing.add_argument("--methods", default="majority-vote,fusion")
    comparing.add_argument("--epochs", default="40", help="one or more, separated by commas")
    comparing.add_argument("--seeds", default="0,1,2,3,4")
    comparing.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.command == "prepare":
        prepare(given.source, given.out)
        return
    seeds = [int(seed) for seed in given.seeds.split(",")]
    results = []
    print("| epochs | method | test accuracy, mean (standard deviation) | over soft vote |\n|---|---|---|---|")
    for epochs in map(int, given.epochs.split(",")):
        result = compare(given.data, given.methods.split(","), epochs, seeds)
        results.append(result)
        for method, row in result["methods"].items():
            over = ""
            if "interval" in row:
                over = f"{row['gain_over_soft_vote']:+.2f} [{row['interval'][0]:+.2f}, {row['interval'][1]:+.2f}]"
            print(f"| {epochs} | {method} | {row['mean']:.2f} ({row['std']:.2f}) | {over} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
