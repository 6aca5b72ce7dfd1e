"""The result of an aggregation method in the form of a consensus, with an interval for each annotator."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from crowdfuse.aggregation.result import Aggregate
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count
from crowdfuse.labels.intervals import wilson_interval
from crowdfuse.quality.consensus import Consensus


def consensus_of_aggregate(ann: Annotations, aggregate: Aggregate) -> Consensus:
    """Return the result of an aggregation method as a `Consensus`, with Wilson's interval of each accuracy.

    Parameters
    ----------
    ann : Annotations
        The labels.
    aggregate : Aggregate
        Result of an aggregation method on these labels.

    Returns
    -------
    Consensus
    """
    counts = aggregate.labels_per_annotator
    low, high = wilson_interval(aggregate.annotator_accuracy * counts, counts)
    interval = np.where(counts[:, None] > 0, np.stack([low, high], 1), np.nan)
    limitations: tuple[str, ...] = ()
    if not aggregate.converged:
        stopped = f"{aggregate.method} stopped after {format_count(aggregate.n_iter, 'iteration')} without converging"
        limitations = (f"{stopped}; treat the confidences with care.",)
    aggregate_fields: dict[str, Any] = {field.name: getattr(aggregate, field.name) for field in fields(Aggregate)}
    return Consensus(
        **aggregate_fields,
        annotations=ann,
        label_confidence=aggregate.class_probabilities[ann.item, ann.label].astype(np.float64),
        annotator_accuracy_interval=interval,
        limitations=limitations,
    )
