"""A report on labels alone: no inputs, no model, and all that can be told without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.checks.choices import check_choice
from crowdfuse.labels.alignment import as_annotations, gold_codes
from crowdfuse.labels.ids import format_count
from crowdfuse.report.gold_facts import GoldSet
from crowdfuse.report.report_data import report_data_from_aggregate
from crowdfuse.report.run_report import Report, check_settings, make_report

LIMITATIONS = (
    "There are labels and no inputs: no map of the items, no picture of one, and no weight of an annotator on an item. "
    "Each annotator is judged by all of their labels together, not here and there.",
    "There is no model: no training to look at, no prediction, and no confidence but that of the labels themselves. "
    "With inputs, crowdfuse fit trains one.",
)


def report_labels(
    annotations: Any,
    *,
    method: str = "dawid-skene",
    gold: ArrayLike | Sequence[Any] | None = None,
    n_items: int = 30,
    sensitivity: float = 0.95,
    positive: Any = None,
    title: str | None = None,
    notes: Sequence[str] = (),
    seed: int = 0,
) -> Report:
    """What labels amount to without inputs, for people to look at; a notebook shows it by itself.

    `method` is an aggregation, one of `crowdfuse.aggregation.METHODS`: its soft labels are the fused labels, and judge
    annotators and single labels. `gold` (N,), None where unknown, in the order of `annotations.items`, tells how good
    they are, and changes nothing. The rest is as in `clf.report`; what takes a model is said to be missing.

    >>> report_labels([["cat", "cat", "dog"], ["dog", "dog", "dog"], ["cat", "cat", "cat"]])
    Report(3 items, 3 annotators, 9 labels; .save('report.html') writes it)
    """
    check_choice("method", method, AGGREGATORS)
    check_settings(n_items, sensitivity)
    ann = as_annotations(annotations)
    codes = np.full(len(ann), -1) if gold is None else gold_codes(gold, ann.classes, len(ann))
    fused = AGGREGATORS[method](ann, seed=seed)
    rows = np.flatnonzero(codes >= 0)
    told = [
        f"Fused labels are what {method} makes of the labels. Estimated accuracies, mixed up classes and likely wrong "
        "labels are judged by them."
    ]
    if not fused.converged:
        told.append(f"It stopped after {format_count(fused.n_iter, 'iteration')}, still rising.")
    return make_report(
        report_data_from_aggregate(ann, fused),
        about=None,
        aggregation={"method": method, "iterations": fused.n_iter, "converged": fused.converged},
        sets=[GoldSet("gold", rows, codes[rows], "it was used for nothing else", is_unbiased=True)]
        if len(rows)
        else [],
        pictures=lambda rows, side: [{} for _ in rows],
        notes=[*notes, *told],
        missing=LIMITATIONS,
        n_items=n_items,
        sensitivity=sensitivity,
        positive=positive,
        title=title or f"Report on labels by {method}",
    )
