"""What training reads: inputs, labels, gold and weights of every row, and batches cut from them."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.encoding import concatenate_ranges

BATCHES_PER_LOOKUP = 16  # batches whose labels are looked up in one go


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

    @property
    def labelled_weight(self) -> Tensor:
        """Sample weights (B,), 0 where an item has no label."""
        return self.weight * (torch.bincount(self.item, minlength=self.n_items) > 0)

    def select(self, chosen: Tensor) -> Batch:
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

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """The rows asked for, with all their labels."""
        return next(self.stream([rows]))

    def stream(self, batches: Sequence[NDArray[np.int64]]) -> Generator[Batch, None, None]:
        """The rows of each batch, in turn, with all their labels. Whoever stops before the last one closes it.

        Labels of some batches are looked up in one go: of small batches one by one, that would be work to speak of.
        """
        runs = (
            self._rest(batches[start : start + BATCHES_PER_LOOKUP])
            for start in range(0, len(batches), BATCHES_PER_LOOKUP)
        )
        with closing(self.inputs.stream(batches)) as inputs:
            for x, rest in zip(inputs, chain.from_iterable(runs), strict=True):
                yield Batch(torch.from_numpy(x), *rest)

    def _rest(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[tuple[Tensor, ...]]:
        """All of each batch but its inputs."""
        ann, rows = self.annotations, np.concatenate(batches)
        counts = ann.indptr[rows + 1] - ann.indptr[rows]
        labels = concatenate_ranges(ann.indptr[rows], counts)
        n_rows = [len(batch) for batch in batches]
        n_labels = np.diff(np.append(0, counts.cumsum())[np.append(0, np.cumsum(n_rows))]).tolist()
        item = np.repeat(concatenate_ranges(np.zeros(len(batches), np.int64), np.array(n_rows)), counts)
        of_rows = rows, self.weight[rows], self.gold[rows]
        of_labels = item, ann.annotator[labels].astype(np.int64), ann.label[labels].astype(np.int64)
        columns = [(column, n_rows) for column in of_rows] + [(column, n_labels) for column in of_labels]
        return zip(*(torch.from_numpy(column).split(sizes) for column, sizes in columns), strict=True)

    def fingerprint(self) -> dict[str, str]:
        """A hash of the inputs and one of everything said about them, to know the data again."""
        return fingerprint(self.inputs, self.annotations, self.gold, self.weight)


def fingerprint(inputs: Inputs, *said: Annotations | NDArray[Any]) -> dict[str, str]:
    """Hashes of inputs, and of labels, gold and weights."""
    of_labels = hashlib.blake2b(digest_size=16)
    for part in said:
        if isinstance(part, Annotations):
            of_labels.update(repr([part.annotators.tolist(), part.classes.tolist()]).encode())
        arrays = (part.indptr, part.annotator, part.label) if isinstance(part, Annotations) else (part,)
        for array in arrays:
            of_labels.update(np.ascontiguousarray(array).data)
    return {"inputs": inputs.fingerprint, "labels": of_labels.hexdigest()}
