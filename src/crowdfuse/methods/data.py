"""The training data (inputs, labels, gold and weights of every row) and batches of it."""

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

BATCHES_PER_LOOKUP = 16  # batches whose labels are looked up together, since one lookup per small batch is slow


class Batch(NamedTuple):
    """A batch: B items with their L labels.

    Parameters
    ----------
    x : Tensor of shape (B, ...)
        Inputs.
    row : Tensor of shape (B,)
        For each item, its row in the training data.
    weight : Tensor of shape (B,)
        Sample weights.
    gold : Tensor of shape (B,)
        For each item, the index of its gold class (the trusted true class), -1 if unknown.
    item : Tensor of shape (L,)
        For each label, the position of its item in the batch.
    annotator : Tensor of shape (L,)
        For each label, the index of its annotator.
    label : Tensor of shape (L,)
        For each label, the index of its class.
    """

    x: Tensor
    row: Tensor
    weight: Tensor
    gold: Tensor
    item: Tensor
    annotator: Tensor
    label: Tensor

    @property
    def n_items(self) -> int:
        """Number of items B."""
        return len(self.row)

    @property
    def labelled_weight(self) -> Tensor:
        """Weight of each item, (B,): the sample weight, or 0 for items without labels."""
        return self.weight * (torch.bincount(self.item, minlength=self.n_items) > 0)

    def select(self, chosen: Tensor) -> Batch:
        """Return a batch of some of the items, with their labels.

        Parameters
        ----------
        chosen : Tensor of bool of shape (B,)
            True for the items to keep.

        Returns
        -------
        batch : Batch
        """
        new_position = chosen.cumsum(0) - 1
        is_chosen = chosen[self.item]
        return Batch(
            x=self.x[chosen],
            row=self.row[chosen],
            weight=self.weight[chosen],
            gold=self.gold[chosen],
            item=new_position[self.item[is_chosen]],
            annotator=self.annotator[is_chosen],
            label=self.label[is_chosen],
        )

    def reorder(self, order: Tensor) -> Batch:
        """Return a batch of the same items in another order, with their labels.

        Parameters
        ----------
        order : Tensor of int of shape (B,)
            A permutation of 0 to B - 1: `order[i]` is the current position of the item that becomes item i.

        Returns
        -------
        batch : Batch
            Its labels are sorted by the new positions of the items.
        """
        position = torch.empty_like(order)
        position[order] = torch.arange(len(order), device=order.device)
        item, by_item = position[self.item].sort(stable=True)
        return Batch(
            x=self.x[order],
            row=self.row[order],
            weight=self.weight[order],
            gold=self.gold[order],
            item=item,
            annotator=self.annotator[by_item],
            label=self.label[by_item],
        )

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device.

        Parameters
        ----------
        device : torch.device
            Device to move all tensors to.

        Returns
        -------
        batch : Batch
        """
        return Batch(*(tensor.to(device) for tensor in self))


@dataclass(frozen=True)
class TrainingData:
    """All training rows. Row i of the inputs, annotations, gold and weights belongs to the same item.

    Parameters
    ----------
    inputs : Inputs
        The inputs of all N rows.
    annotations : Annotations
        The labels, with one item per row.
    gold : ndarray of int of shape (N,)
        Index of the gold class (the trusted true class) of each row, -1 if unknown.
    weight : ndarray of shape (N,)
        Sample weights.
    """

    inputs: Inputs
    annotations: Annotations
    gold: NDArray[np.int64]
    weight: NDArray[np.float32]

    def __len__(self) -> int:
        """Return the number of rows N."""
        return len(self.inputs)

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """Return a batch of some rows, with all their labels.

        Parameters
        ----------
        rows : ndarray of shape (B,)
            Row numbers.

        Returns
        -------
        batch : Batch
        """
        return next(self.stream([rows]))

    def stream(self, batches: Sequence[NDArray[np.int64]]) -> Generator[Batch, None, None]:
        """Yield the batches in order.

        If the inputs are image files, worker processes decode images in advance until the generator ends. A caller that
        stops before the last batch must therefore call the generator's `close()`.

        Parameters
        ----------
        batches : sequence of ndarray
            Row numbers of each batch.

        Yields
        ------
        batch : Batch
        """
        groups = (
            self._columns(batches[start : start + BATCHES_PER_LOOKUP])
            for start in range(0, len(batches), BATCHES_PER_LOOKUP)
        )
        with closing(self.inputs.stream(batches)) as inputs:
            for x, columns in zip(inputs, chain.from_iterable(groups), strict=True):
                yield Batch(torch.from_numpy(x), *columns)

    def _columns(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[tuple[Tensor, ...]]:
        """Return the fields of each batch after its inputs."""
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
        """Return hashes of the data. Resumed training compares them, to check that the data has not changed.

        Returns
        -------
        hashes : dict
            "inputs": hash of the inputs. "labels": hash of the labels, gold and weights together.
        """
        return fingerprint(self.inputs, self.annotations, self.gold, self.weight)


def fingerprint(inputs: Inputs, *annotations_gold_weights: Annotations | NDArray[Any]) -> dict[str, str]:
    """Return hashes of inputs, and of labels, gold and weights together.

    Parameters
    ----------
    inputs : Inputs
        The inputs.
    *annotations_gold_weights : Annotations or ndarray
        The labels, gold and weights, which are hashed together in the given order.

    Returns
    -------
    hashes : dict
        "inputs": hash of the inputs. "labels": hash of all other arguments. Both are hexadecimal strings.
    """
    of_labels = hashlib.blake2b(digest_size=16)
    for part in annotations_gold_weights:
        if isinstance(part, Annotations):
            of_labels.update(repr([part.annotators.tolist(), part.classes.tolist()]).encode())
        arrays = (part.indptr, part.annotator, part.label) if isinstance(part, Annotations) else (part,)
        for array in arrays:
            of_labels.update(np.ascontiguousarray(array).data)
    return {"inputs": inputs.fingerprint, "labels": of_labels.hexdigest()}
