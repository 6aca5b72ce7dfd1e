"""What every method of this room gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation.votes import FloatArray, Votes
from crowdfuse.labels.ids import IntArray, format_count
from crowdfuse.labels.votes import argmax_breaking_ties


@dataclass(frozen=True, repr=False, eq=False)
class Aggregate:
    """What the labels amount to. N items, K classes, R annotators; what is not known is NaN."""

    method: str
    items: NDArray[Any]
    classes: NDArray[Any]
    annotators: NDArray[Any]
    class_probabilities: NDArray[np.float32]
    """(N, K): how likely each class is; NaN for items without labels."""
    consensus_codes: IntArray
    """(N,): the most likely class, as a position in `classes`; -1 for items without labels. Ties are drawn from the
    seed."""
    annotator_accuracy: FloatArray
    """(R,): the share of the annotator's labels that are right, as far as the soft labels know: the mean of
    P(class that was said). It means the same in all methods; NaN for annotators without labels."""
    labels_per_item: IntArray
    labels_per_annotator: IntArray
    confusion_matrices: FloatArray | None = None
    """(R, K, K), axes (annotator, true, said): P(said | true), where the method learns them."""
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)
    """What else the method learned, by name; its docstring explains them."""
    log_likelihood: tuple[float, ...] = ()
    """At each iteration log P(labels), plus the logarithm of the prior where a method has one: what never falls."""
    converged: bool = True

    @property
    def n_iter(self) -> int:
        """Iterations that were made; 0 where a method has none."""
        return len(self.log_likelihood)

    @property
    def confidence(self) -> NDArray[np.float32]:
        """(N,): how likely the most likely class is."""
        highest: NDArray[np.float32] = self.class_probabilities.max(1)
        return highest

    @property
    def consensus(self) -> NDArray[Any]:
        """(N,): the most likely class by name. For items without labels -1, or None where classes are strings or -1."""
        has_room = self.classes.dtype.kind == "i" and -1 not in self.classes
        names = np.array([*self.classes, -1 if has_room else None], np.int64 if has_room else object)
        chosen: NDArray[Any] = names[self.consensus_codes]  # -1 takes the last
        return chosen

    def to_table(self, *, proba: bool = False) -> Any:
        """A pyarrow table, a row an item: item, label, confidence, n_labels; with `proba` a column `p_...` a class."""
        import pyarrow as pa

        known = self.consensus_codes >= 0
        columns = {
            "item": pa.array(self.items),
            "label": pa.array(self.classes).take(pa.array(self.consensus_codes, mask=~known)),
            "confidence": pa.array(self.confidence, mask=~known),
            "n_labels": pa.array(self.labels_per_item),
        }
        if proba:
            columns |= {
                f"p_{name}": pa.array(self.class_probabilities[:, k], mask=~known)
                for k, name in enumerate(self.classes)
            }
        return pa.table(columns)

    def __repr__(self) -> str:
        ran = f", {format_count(self.n_iter, 'iteration')}, {'' if self.converged else 'not '}converged"
        return (
            f"Aggregate({self.method}: {len(self.items):,} items, {len(self.annotators):,} annotators, "
            f"{len(self.classes):,} classes{ran if self.n_iter else ''})"
        )


def make_result(
    method: str,
    votes: Votes,
    soft: NDArray[np.float32],
    *,
    seed: int,
    confusions: FloatArray | None = None,
    parameters: Mapping[str, FloatArray] | None = None,
    em_trace: tuple[tuple[float, ...], bool] = ((), True),
) -> Aggregate:
    """From the soft labels of the items that have labels; annotators without labels get NaN everywhere."""
    ann = votes.annotations
    counts = votes.labels_per_annotator()
    right = np.zeros(votes.n_annotators)
    for block in votes.blocks:
        right += block.by_annotator(block.label_confidence(soft[block.rows]))
    with np.errstate(invalid="ignore"):
        skill = right / counts
    best = np.full(ann.n_items, -1, np.int64)
    best[votes.labelled] = most_likely(soft, seed)
    if confusions is not None:
        confusions[counts == 0] = np.nan
    return Aggregate(
        method=method,
        items=ann.items,
        classes=ann.classes,
        annotators=ann.annotators,
        class_probabilities=_with_unlabelled(soft, votes),
        consensus_codes=best,
        annotator_accuracy=skill,
        labels_per_item=np.diff(ann.indptr),
        labels_per_annotator=counts,
        confusion_matrices=confusions,
        parameters={} if parameters is None else parameters,
        log_likelihood=em_trace[0],
        converged=em_trace[1],
    )


def _with_unlabelled(soft: NDArray[np.float32], votes: Votes) -> NDArray[np.float32]:
    if votes.labelled.all():
        return soft
    everyone = np.full((len(votes.labelled), votes.n_classes), np.nan, np.float32)
    everyone[votes.labelled] = soft
    return everyone


def most_likely(soft: NDArray[np.float32], seed: int) -> IntArray:
    """The class with the highest value of each row; among equals one is drawn."""
    return argmax_breaking_ties(soft, np.random.default_rng(seed).random(len(soft)))
