"""Data sets of labels without inputs, with gold labels for most items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crowdfuse.datasets.data_folder import data_folder, other_data_sets_advice
from crowdfuse.io.gold import read_gold
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_names, positions_of

LABEL_ONLY_DATASETS = ("bluebird", "dog", "rte", "web", "product", "zencrowd")


@dataclass(frozen=True)
class LabelOnly:
    """Annotators' labels of items without inputs, and gold labels of some of the items.

    Parameters
    ----------
    annotations : Annotations
        The labels.
    judged : ndarray of shape (n_gold,)
        The items that have both labels and a gold label, as positions in ``annotations.items``.
    truth : ndarray of shape (n_gold,)
        Gold label of each item in `judged`, as a position in ``annotations.classes``; -1 if no annotator used this
        class.
    """

    annotations: Annotations
    judged: IntArray
    truth: IntArray


def load_label_only(name: str, folder: Path | None = None) -> LabelOnly:
    """Load a data set of labels without inputs.

    If an annotator labelled an item twice, the first label is used. The data set zencrowd has such annotators.

    Parameters
    ----------
    name : str
        The data set, such as 'bluebird', 'dog', 'rte', 'web', 'product' or 'zencrowd'.
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder
        ``labels_only/NAME`` has ``labels.csv`` and ``gold.csv``.

    Returns
    -------
    data : LabelOnly

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says which files are expected.
    ValueError
        If a file is damaged; the message says where, and what is wrong.
    """
    place = data_folder(folder, name, f"labels_only/{name}/ with labels.csv and gold.csv") / "labels_only" / name
    for file in ("labels.csv", "gold.csv"):
        if not (place / file).exists():
            raise FileNotFoundError(f"{place / file} is missing; put it there, {other_data_sets_advice(name)}")
    ann = Annotations.read(place / "labels.csv", on_conflict="first")
    ids, names = read_gold(place / "gold.csv")
    rows = positions_of(ids, ann.items)
    known = rows >= 0
    if not known.any():
        raise ValueError(
            f"{place}: no item has both labels and a gold label. The gold labels are for items such as "
            f"{format_names(ids, 3)}, the labels for items such as {format_names(ann.items, 3)}"
        )
    return LabelOnly(ann, rows[known], positions_of(names[known], ann.classes))
