"""What training reads: inputs, labels, gold and weights of every row, and batches cut from them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.annotations import Annotations, ranges
from crowdfuse.inputs import Inputs


class Batch(NamedTuple):
    """B items and the L labels they have. `item` says which of the B items a label belongs to."""

    x: Tensor  # (B, ...)
    row: Tensor  # (B,) rows of the training data
    weight: Tensor  # (B,) sample weights
    gold: Tensor  # (B,) class, -1 where unknown
    item: Tensor  # (L,)
    annotator: Tensor  # (L,)
    label: Tensor  # (L,)

    @property
    def n_items(self) -> int:
        return len(self.row)

    def of(self, chosen: Tensor) -> Batch:
        """The items where `chosen` (B,) is true, with their labels."""
        place = chosen.cumsum(0) - 1
        kept = chosen[self.item]
        return Batch(
            x=self.x[chosen],
            row=self.row[chosen],
            weight=self.weight[chosen],
            gold=self.gold[chosen],
            item=place[self.item[kept]],
            annotator=self.annotator[kept],
            label=self.label[kept],
        )

    def to(self, device: torch.device) -> Batch:
        return Batch(*(tensor.to(device) for tensor in self))


@dataclass(frozen=True)
class TrainingData:
    """All rows: row i of the inputs belongs with row i of the annotations, the gold and the weights."""

    inputs: Inputs
    annotations: Annotations
    gold: NDArray[np.int64]
    weight: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, rows: NDArray[Any], x: NDArray[np.float32] | None = None) -> Batch:
        """The rows asked for, with all their labels; `x` are their inputs, where they have been fetched already."""
        ann = self.annotations
        counts = ann.indptr[rows + 1] - ann.indptr[rows]
        labels = ranges(ann.indptr[rows], counts)
        return Batch(
            x=torch.from_numpy(self.inputs.rows(rows) if x is None else x),
            row=torch.from_numpy(rows),
            weight=torch.from_numpy(self.weight[rows]),
            gold=torch.from_numpy(self.gold[rows]),
            item=torch.from_numpy(np.repeat(np.arange(len(rows)), counts)),
            annotator=torch.from_numpy(ann.annotator[labels].astype(np.int64)),
            label=torch.from_numpy(ann.label[labels].astype(np.int64)),
        )

    def fingerprint(self) -> dict[str, str]:
        """A hash of the inputs and one of everything said about them, to know the data again."""
        return fingerprint(self.inputs, self.annotations, self.gold, self.weight)


def fingerprint(inputs: Inputs, *said: Annotations | NDArray[Any]) -> dict[str, str]:
    """Hashes of inputs, and of labels, gold and weights."""
    of_inputs = hashlib.blake2b(digest_size=16)
    inputs.hash_into(of_inputs)
    of_labels = hashlib.blake2b(digest_size=16)
    for part in said:
        if isinstance(part, Annotations):
            of_labels.update(repr([part.annotators.tolist(), part.classes.tolist()]).encode())
        arrays = (part.indptr, part.annotator, part.label) if isinstance(part, Annotations) else (part,)
        for array in arrays:
            of_labels.update(np.ascontiguousarray(array).data)
    return {"inputs": of_inputs.hexdigest(), "labels": of_labels.hexdigest()}
