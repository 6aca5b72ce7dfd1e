"""Crowds whose inputs nobody kept: labels, and gold of most items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crowdfuse.datasets.data_folder import data_folder
from crowdfuse.io.labels import read_gold
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_names, positions_of

LABEL_ONLY_DATASETS = ("bluebird", "dog", "rte", "web", "product", "zencrowd")


@dataclass(frozen=True)
class LabelOnly:
    """Labels; the rows of the items that have labels and gold, and their true classes as positions in `classes`."""

    annotations: Annotations
    judged: IntArray
    truth: IntArray
    """-1 where nobody ever says the true class: no label can be right there."""


def load_label_only(name: str, folder: Path | None = None) -> LabelOnly:
    """Read `labels.csv` and `gold.csv` below `folder`/labels_only/`name`, or below $CROWDFUSE_DATA's.

    Who labelled an item twice (zencrowd has such) counts with the first label.
    """
    place = data_folder(folder, name, f"labels_only/{name}/ with labels.csv and gold.csv") / "labels_only" / name
    for file in ("labels.csv", "gold.csv"):
        if not (place / file).exists():
            raise FileNotFoundError(f"{place / file} is not there: labels and gold are needed, or leave {name} out")
    ann = Annotations.read(place / "labels.csv", on_conflict="first")
    ids, names = read_gold(place / "gold.csv")
    rows = positions_of(ids, ann.items)
    known = rows >= 0
    if not known.any():
        raise ValueError(
            f"{place}: gold is of items such as {format_names(ids, 3)}, labels of {format_names(ann.items, 3)}: none "
            "of both"
        )
    return LabelOnly(ann, rows[known], positions_of(names[known], ann.classes))
