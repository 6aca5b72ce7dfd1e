"""Choice of labels to buy: `next_labels` against random choice, replayed on crowds with existing labels.

    python benchmarks/next_labels.py --json next_labels.json        # crowds below $CROWDFUSE_DATA

Each replay starts with one random label per item and buys the others in rounds of a tenth of a label per item, among
the labels that the crowd gave: as `next_labels` proposes, given the `consensus` of the labels so far, or at random.
There is no classifier. Both strategies start from the same labels, and `consensus` judges both. Gold only evaluates.

"Lead" is the difference in accuracy over the items that have gold, in points, paired by seed, with a 95 % t-interval:
the mean over the rounds, and at the round where half of the labels for sale are bought. "Saved" is the share
of the labels bought at random until then that `next_labels` did not need for the same accuracy, by the mean curves.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse import Annotations, consensus
from crowdfuse.io.gold import read_gold
from crowdfuse.labels.intervals import t_interval_half_width
from crowdfuse.quality import next_labels

FOLDERS = {"LabelMe": "labelme", "dog": "labels_only/dog", "web": "labels_only/web", "rte": "labels_only/rte"}


def read_crowd(data: Path, name: str) -> tuple[Annotations, NDArray[np.int64]]:
    """Return the whole crowd, and gold as positions in its classes, -1 where there is none."""
    ann = Annotations.read(data / FOLDERS[name] / "labels.csv", on_conflict="first")
    ids, truth = read_gold(data / FOLDERS[name] / "gold.csv")
    gold = np.full(ann.n_items, -1)
    known = dict(zip(ids.tolist(), truth.tolist(), strict=True))
    position = {label: k for k, label in enumerate(ann.classes.tolist())}
    for n, item in enumerate(ann.items.tolist()):
        gold[n] = position.get(known.get(item), -1)
    return ann, gold


def select_labels(ann: Annotations, chosen: NDArray[np.bool_]) -> Annotations:
    """Return the crowd with only the chosen labels."""
    return Annotations(
        indptr=np.concatenate([[0], np.cumsum(chosen)])[ann.indptr],
        annotator=ann.annotator[chosen],
        label=ann.label[chosen],
        items=ann.items,
        annotators=ann.annotators,
        classes=ann.classes,
        by_row=True,
    )


def replay(ann: Annotations, gold: NDArray[np.int64], strategy: str, seed: int) -> list[float]:
    """Return the accuracy in percent at the start and after each round."""
    generator = np.random.default_rng(seed)
    counts = np.diff(ann.indptr)
    bought = np.zeros(ann.n_labels, bool)
    labelled = counts > 0
    bought[(ann.indptr[:-1] + generator.random(ann.n_items) * counts).astype(int)[labelled]] = True
    label_at = {pair: index for index, pair in enumerate(zip(ann.item.tolist(), ann.annotator.tolist(), strict=True))}
    item_at = {name: n for n, name in enumerate(ann.items.tolist())}
    annotator_at = {name: r for r, name in enumerate(ann.annotators.tolist())}
    step = max(int(labelled.sum()) // 10, 1)
    curve = []
    while True:
        found = consensus(select_labels(ann, bought))
        judged = gold >= 0
        curve.append(100 * float((found.consensus_codes == gold)[judged].mean()))
        for_sale = np.flatnonzero(~bought)
        if not len(for_sale):
            return curve
        if strategy == "random":
            bought[generator.permutation(for_sale)[:step]] = True
            continue
        pairs = ann.items[ann.item[for_sale]], ann.annotators[ann.annotator[for_sale]]
        table = next_labels(select_labels(ann, bought), found, min(step, len(for_sale)), pairs=pairs)
        proposed = zip(table["item"].to_pylist(), table["annotator"].to_pylist(), strict=True)
        chosen_labels = [label_at[item_at[item], annotator_at[annotator]] for item, annotator in proposed]
        # next_labels proposes fewer if the others would not change the consensus; fill up at random
        others = generator.permutation(np.setdiff1d(for_sale, chosen_labels))[: step - len(chosen_labels)]
        bought[[*chosen_labels, *others]] = True


def compare(ann: Annotations, gold: NDArray[np.int64], seeds: list[int]) -> dict[str, Any]:
    curves = {
        strategy: np.array([replay(ann, gold, strategy, seed) for seed in seeds])
        for strategy in ("next_labels", "random")
    }
    half = curves["random"].shape[1] // 2
    lead = curves["next_labels"] - curves["random"]
    means = {strategy: curve.mean(0) for strategy, curve in curves.items()}
    needed = int(np.argmax(means["next_labels"] >= means["random"][half]))
    return {
        "seeds": seeds,
        "accuracy": {strategy: curve.tolist() for strategy, curve in curves.items()},
        "half": half,
        "lead": mean_with_interval(lead[:, 1:-1].mean(1)),  # at the start and at the end both have the same labels
        "lead_at_half": mean_with_interval(lead[:, half]),
        "saved": 1 - needed / half,
    }


def mean_with_interval(values: NDArray[np.float64]) -> list[float]:
    """Return the mean and the ends of its 95 % interval."""
    spread = t_interval_half_width(values) if len(values) > 1 else 0.0
    return [float(values.mean()), float(values.mean() - spread), float(values.mean() + spread)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CROWDFUSE_DATA", "data")))
    parser.add_argument("--crowds", default=",".join(FOLDERS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    results = {}
    header = ["crowd", "start", "random at half", "next_labels at half", "all", "lead", "lead at half", "saved"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for name in given.crowds.split(","):
        result = results[name] = compare(*read_crowd(given.data, name), seeds)
        mean = {strategy: np.mean(curve, 0) for strategy, curve in result["accuracy"].items()}
        half = result["half"]
        leads = [f"{at:+.2f} [{low:+.2f}, {high:+.2f}]" for at, low, high in (result["lead"], result["lead_at_half"])]
        print(
            f"| {name} | {mean['random'][0]:.2f} | {mean['random'][half]:.2f} | {mean['next_labels'][half]:.2f} | "
            f"{mean['random'][-1]:.2f} | {leads[0]} | {leads[1]} | {100 * result['saved']:.0f} % |",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
