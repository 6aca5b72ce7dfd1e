"""The report on a fitted classifier and the labels it is applied to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.labels.alignment import gold_codes
from crowdfuse.labels.ids import IntArray, format_count
from crowdfuse.report.gold_facts import GoldSet
from crowdfuse.report.item_previews import previews_of_inputs
from crowdfuse.report.printable import printable
from crowdfuse.report.report import Report
from crowdfuse.report.report_data import ReportData, compute_report_data
from crowdfuse.report.report_facts import make_report


def report_classifier(
    classifier: CrowdClassifier,
    X: Any,
    annotations: Any,
    *,
    items: ArrayLike | None = None,
    gold: ArrayLike | None = None,
    n_items: int = 30,
    sensitivity: float = 0.95,
    positive: Any = None,
    title: str | None = None,
) -> Report:
    """Report on a fitted classifier and on the labels of the given items; `clf.report` calls this.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier.
    X : array-like, sparse matrix or Inputs of N rows
        Inputs of the items, as in `predict`.
    annotations : Annotations or array-like of shape (n_items, n_annotators)
        Labels of the items, as in `fit`.
    items : array-like of shape (n_items,), default=None
        Item id of each row of `X`, as in `fit`.
    gold : array-like of shape (n_items,), default=None
        True class of each row, None where unknown. Gold is used only to measure accuracy.
    n_items : int, default=30
        Number of disputed items to show, from 1 to 200. The lists of ambiguous and of mislabelled items are each a
        third as long.
    sensitivity : float, default=0.95
        For two classes with gold labels: target sensitivity (recall of the positive class), above 0 and at most 1. The
        report shows a decision threshold that reaches it.
    positive : object, default=None
        For two classes: the positive class. None means the second class.
    title : str, default=None
        Title of the report. The default names the method.

    Returns
    -------
    Report
        The report; `report.save("report.html")` writes it.

    Raises
    ------
    ValueError
        If `n_items` or `sensitivity` is out of range, `positive` is not one of two classes, or `gold` has an unknown
        class.

    See Also
    --------
    crowdfuse.report_labels : The same for labels without inputs.

    Examples
    --------
    >>> import crowdfuse
    >>> X, Y = np.eye(4).repeat(5, 0), np.arange(4).repeat(5)[:, None].repeat(2, 1)
    >>> report_classifier(crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y), X, Y)
    Report(20 items, 2 annotators, 40 labels; .save('report.html') writes it)
    """
    data = compute_report_data(classifier, X, annotations, items)
    gold_sets = [] if gold is None else _split_by_labels(data, gold_codes(gold, data.ann.classes, data.ann.n_items))
    feature_names = getattr(classifier, "feature_names_in_", None)
    n_new = data.ann.n_annotators - len(classifier.annotators_)
    notes = []
    if n_new:
        notes.append(f"{format_count(n_new, 'annotator')} not seen in training, treated as the average annotator.")
    inputs = classifier._inputs(X)
    return make_report(
        data,
        training=training_facts(classifier),
        gold_sets=gold_sets,
        notes=[*notes, *diagnostic_notes(classifier)],
        make_previews=lambda rows, side: previews_of_inputs(inputs, rows, side, feature_names),
        n_items=n_items,
        sensitivity=sensitivity,
        positive=positive,
        title=title or f"Report on {classifier.method_name}",
    )


def training_facts(classifier: CrowdClassifier) -> dict[str, Any]:
    """Return the `training` entry of a report: method, loss per epoch, and settings of a fitted classifier."""
    return {
        "method": classifier.method_name,
        "history": [_printable_record(record) for record in classifier.history_],
        "best_epoch": classifier.best_epoch_,
        "interrupted": classifier.interrupted_,
        "gold_used_for": classifier.gold_used_for_,
        "settings": classifier.json_settings(),
    }


def diagnostic_notes(classifier: CrowdClassifier) -> list[str]:
    """Return one sentence per finding of the method's diagnostics: what it could not learn from the labels."""
    return [f"{message[:1].upper()}{message[1:]}." for message in classifier.diagnostic_messages_]


def _split_by_labels(data: ReportData, codes: IntArray) -> list[GoldSet]:
    """Return two gold sets: items with labels, which may have been used in training, and items without."""
    known, labelled = codes >= 0, data.labels_per_item > 0
    parts = (
        ("gold, items with labels", known & labelled, "the model was probably trained on the labels of these items"),
        ("gold, items without labels", known & ~labelled, "the model was trained on no labels of these items"),
    )
    rows_by_part = [(name, np.flatnonzero(mask), training_use) for name, mask, training_use in parts]
    return [GoldSet(name, rows, codes[rows], use, is_unbiased=True) for name, rows, use in rows_by_part if len(rows)]


def _printable_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of the training history with printable strings."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in record.items()}
