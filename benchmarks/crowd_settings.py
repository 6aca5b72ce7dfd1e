"""The choice of dropout for `crowdfuse reproduce crowds` without gold: which value predicts held-out labels better?

    python benchmarks/crowd_settings.py --sets labelme,sentiment,cifar10n --json settings.json

Soft vote with the network and training of the grid, with and without dropout, is trained on nine tenths of the labelled
items. The result is the share of the labels of the other tenth that it predicts after the last epoch. No gold is used.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from crowdfuse import MajorityVoteClassifier
from crowdfuse.experiments.crowds import DATASETS, NETWORK_SETTINGS, CrowdsExecutor

DROPOUT = (0.0, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="labelme,sentiment,cifar10n")
    parser.add_argument("--data", type=Path, help="folder of the data; default: CROWDFUSE_DATA")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    work, found = CrowdsExecutor(given.data), []
    print("| set | seed | dropout | held-out labels predicted (%) |\n|---|---|---|---|")
    for name in given.sets.split(","):
        for seed in map(int, given.seeds.split(",")):
            crowd = work.crowd(name, seed)
            for dropout in DROPOUT:
                settings = NETWORK_SETTINGS | (DATASETS[name].training or {}) | {"dropout": dropout}
                classifier = MajorityVoteClassifier(**settings, random_state=seed, classes=crowd.classes)
                classifier.fit(crowd.X, crowd.annotations, validation=0.1)
                agreement = 100 * classifier.history_[-1]["validation_accuracy"]
                found.append({"dataset": name, "seed": seed, "dropout": dropout, "held_out_agreement": agreement})
                print(f"| {name} | {seed} | {dropout:g} | {agreement:.2f} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
