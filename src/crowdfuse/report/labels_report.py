"""The report on labels alone, without inputs and without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.checks.choices import check_choice
from crowdfuse.labels.alignment import as_annotations, gold_codes
from crowdfuse.quality.aggregate_consensus import consensus_of_aggregate
from crowdfuse.report.gold_facts import GoldSet
from crowdfuse.report.report import Report
from crowdfuse.report.report_data import report_data_of
from crowdfuse.report.report_facts import check_settings, make_report

LIMITATIONS = (
    "There are no inputs. The report has no map of the items, no thumbnails, and no weights of annotators per item; "
    "the accuracy of an annotator is a single number for all items.",
    "There is no model. The report has no training curves and no predictions, and confidence comes from the labels "
    "alone. If you have inputs, train a model with 'crowdfuse fit'.",
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
    """Create a report on labels alone, without inputs or a model.

    An aggregation method computes a consensus label for each item. From the consensus, the report estimates the
    accuracy of each annotator, finds labels that are probably wrong, and lists the items on which annotators disagree.
    In a notebook, the report is displayed as a page.

    Parameters
    ----------
    annotations : Annotations or array-like of shape (n_items, n_annotators)
        The labels. In an array, -1, None or NaN means that the label is missing.
    method : str, default="dawid-skene"
        Name of the aggregation method: one of the keys of `crowdfuse.aggregation.AGGREGATORS`.
    gold : array-like of shape (n_items,), default=None
        Name of the true class of each item; None if unknown. If `annotations` is an array, the order is that of its
        rows, otherwise that of `annotations.items`. Gold is used only to measure accuracy.
    n_items : int, default=30
        Number of disputed items to show, from 1 to 200. An item is disputed if one of its labels differs from the
        consensus. Two other lists are at most a third as long: ambiguous items (the confidence is low, although the
        annotators are accurate), and probably mislabelled items (the confidence is high, although at least half of the
        labels differ from the consensus).
    sensitivity : float, default=0.95
        Target sensitivity (recall of the positive class), above 0 and at most 1. The report shows a decision threshold
        that reaches the target. Used only if there are two classes and gold labels.
    positive : object, default=None
        Name of the positive class. None: the second of the two classes, in the order of `Annotations.classes`. Must be
        None if there are not exactly two classes.
    title : str, default=None
        Title of the report. None: a title with the name of the aggregation method.
    notes : sequence of str, default=()
        Sentences to show at the top of the report.
    seed : int, default=0
        Seed for methods that draw random numbers.

    Returns
    -------
    Report
        The report. Write it to HTML, Markdown and JSON files with `report.save("report.html")`.

    Raises
    ------
    ValueError
        If `method` is unknown, if `n_items` or `sensitivity` is out of range, if `positive` is not a class, if
        `positive` is given although there are not exactly two classes, or if `gold` has an unknown class.

    See Also
    --------
    CrowdClassifier.report : Report on a trained model and its labels.

    Examples
    --------
    >>> report_labels([["cat", "cat", "dog"], ["dog", "dog", "dog"], ["cat", "cat", "cat"]])
    Report(3 items, 3 annotators, 9 labels; .save('report.html') writes it)
    """
    check_choice("method", method, AGGREGATORS)
    check_settings(n_items, sensitivity)
    ann = as_annotations(annotations)
    codes = np.full(len(ann), -1) if gold is None else gold_codes(gold, ann.classes, len(ann))
    aggregate = AGGREGATORS[method](ann, seed=seed)
    rows = np.flatnonzero(codes >= 0)
    method_notes = [
        f"The consensus is computed by {method}. Estimated accuracies, confused classes and labels that are probably "
        "wrong are measured against it."
    ]
    gold_set = GoldSet(
        "gold", rows, codes[rows], "used only to measure accuracy", is_optimistic=False, is_trained_on=False
    )
    return make_report(
        report_data_of(consensus_of_aggregate(ann, aggregate)),
        training=None,
        aggregation={"method": method, "iterations": aggregate.n_iter, "converged": aggregate.converged},
        gold_sets=[gold_set] if len(rows) else [],
        make_previews=lambda rows, side: [{} for _ in rows],
        notes=[*notes, *method_notes],
        limitations=LIMITATIONS,
        n_items=n_items,
        sensitivity=sensitivity,
        positive=positive,
        title=title or f"Report on labels by {method}",
    )
