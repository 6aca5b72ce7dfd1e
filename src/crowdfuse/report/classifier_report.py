"""The report on a fitted classifier and the labels it is applied to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.tables import as_table, choose_columns
from crowdfuse.labels.alignment import align, gold_codes
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_count, format_names, normalize_ids, positions_of, refuse_repeats
from crowdfuse.quality.consensus import Consensus
from crowdfuse.report.gold_facts import GoldSet
from crowdfuse.report.item_previews import previews_of_inputs
from crowdfuse.report.printable import printable
from crowdfuse.report.report import Report
from crowdfuse.report.report_data import ReportData, add_model, report_data_of
from crowdfuse.report.report_facts import check_settings, make_report


def report_classifier(
    classifier: CrowdClassifier,
    X: Any,
    annotations: Any,
    *,
    items: ArrayLike | None = None,
    gold: Any = None,
    consensus: Consensus | None = None,
    folds: int = 5,
    n_items: int = 30,
    sensitivity: float = 0.95,
    positive: Any = None,
    title: str | None = None,
) -> Report:
    """Create a report on a fitted classifier and the labels of the given items.

    The method `report` of a classifier calls this function.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier.
    X : array-like, sparse matrix or Inputs of shape (n_items, ...)
        Inputs of the items, as in `predict`.
    annotations : Annotations or array-like of shape (n_items, n_annotators)
        Labels of the items, as in `fit`.
    items : array-like of shape (n_items,), default=None
        Item id of each row of `X`, as in `fit`.
    gold : array-like of shape (n_items,), or data frame, default=None
        Name of the true class of each item; None or NaN if unknown. A data frame must have the columns item and label;
        it need not contain all items. Gold is used only to evaluate the model and the consensus. The report assumes
        that the classifier was trained on all items that have labels. On these items, the report therefore evaluates
        the out-of-fold predictions of `consensus`, not the predictions of the classifier itself. If the classifier was
        not trained on the items, evaluate its own predictions with `classifier.score`.
    consensus : Consensus, default=None
        Result of `classifier.consensus` on these items and labels. If None, this function computes it.
    folds : int, default=5
        Number of folds used to compute the consensus; one copy of the classifier is trained per fold. Not used if
        `consensus` is given.
    n_items : int, default=30
        Number of disputed items to show, from 1 to 200. An item is disputed if one of its labels or the prediction
        differs from the consensus. Two other lists are at most a third as long: ambiguous items (the confidence is low,
        although the annotators are accurate), and probably mislabelled items (the confidence is high, although at least
        half of the labels differ from the consensus).
    sensitivity : float, default=0.95
        Target sensitivity (recall of the positive class), above 0 and at most 1. The report shows a decision threshold
        that reaches the target. Used only if there are two classes and gold labels.
    positive : object, default=None
        Name of the positive class. None: the second of `classifier.classes_`. Must be None if there are not exactly two
        classes.
    title : str, default=None
        Title of the report. None: a title with the name of the learning method.

    Returns
    -------
    Report
        The report. Write it to files with `report.save("report.html")`.

    Raises
    ------
    ValueError
        If `n_items` or `sensitivity` is out of range, if `positive` is not a class, if `positive` is given although
        there are not exactly two classes, if `gold` has an unknown class, or if `consensus` was computed from other
        items, classes or labels.

    See Also
    --------
    crowdfuse.report_labels : Creates a report on labels without inputs.

    Examples
    --------
    >>> import crowdfuse
    >>> X, Y = np.eye(4).repeat(5, 0), np.arange(4).repeat(5)[:, None].repeat(2, 1)
    >>> report_classifier(crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, Y), X, Y, folds=2)
    Report(20 items, 2 annotators, 40 labels; .save('report.html') writes it)
    """
    check_settings(n_items, sensitivity)
    inputs = classifier._inputs(X)
    if consensus is None:
        consensus = classifier.consensus(inputs, annotations, items=items, folds=folds)
    else:
        _check_consensus(consensus, classifier, align(annotations, len(inputs), items))
    data = add_model(report_data_of(consensus), classifier, inputs)
    if hasattr(gold, "columns"):
        gold = _gold_by_row(gold, data.ann)
    gold_sets = [] if gold is None else _split_by_training(data, gold_codes(gold, data.ann.classes, data.ann.n_items))
    feature_names = getattr(classifier, "feature_names_in_", None)
    active = data.ann.annotators[consensus.labels_per_annotator > 0]
    n_new = int((positions_of(active, classifier.annotators_) < 0).sum())
    notes = []
    if n_new:
        notes.append(
            f"{format_count(n_new, 'annotator')} {'was' if n_new == 1 else 'were'} not seen in training and "
            f"{'is' if n_new == 1 else 'are'} treated like the average annotator."
        )
    return make_report(
        data,
        training=training_facts(classifier),
        gold_sets=gold_sets,
        notes=notes,
        make_previews=lambda rows, side: previews_of_inputs(inputs, rows, side, feature_names, classifier),
        n_items=n_items,
        sensitivity=sensitivity,
        positive=positive,
        title=title or f"Report on {classifier.method_name}",
    )


def _gold_by_row(table: Any, ann: Annotations) -> list[Any]:
    """Return the true class of each item from a data frame with an item and a label column; None where unknown."""
    columns = as_table(table)
    names = choose_columns(columns.column_names, {"item": None, "label": None}, "the data frame passed as gold")
    ids = normalize_ids(columns[names["item"]].to_pylist(), f"gold, column {names['item']!r}")
    refuse_repeats(ids, f"gold, column {names['item']!r}")
    rows = positions_of(ann.items, ids)
    if not (rows >= 0).any():
        raise ValueError(
            f"none of the items in gold ({format_names(ids, 3)}) is an item of the report "
            f"({format_names(ann.items, 3)}); pass the item id of each row of X as the argument items"
        )
    truth = columns[names["label"]].to_pylist()
    return [truth[row] if row >= 0 else None for row in rows]


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


def _check_consensus(consensus: Consensus, classifier: CrowdClassifier, ann: Annotations) -> None:
    """Raise a ValueError unless the consensus has the classes of this classifier and belongs to these labels."""
    if consensus.predicted_probabilities is None:
        raise ValueError(
            "the given consensus has no predictions of a classifier; pass the result of clf.consensus(X, annotations)"
        )
    own = consensus.annotations
    if not np.array_equal(consensus.classes, classifier.classes_):
        differs = f"the classes {format_names(consensus.classes)} instead of {format_names(classifier.classes_)}"
    elif len(own) != len(ann) or not np.array_equal(own.items, ann.items):
        differs = f"the items {format_names(own.items, 3)} instead of {format_names(ann.items, 3)}"
    elif _label_triples(own) != _label_triples(ann):
        differs = "other labels"
    else:
        return
    raise ValueError(
        f"the given consensus does not belong to these annotations: it has {differs}; pass the result of "
        "clf.consensus(X, annotations)"
    )


def _label_triples(ann: Annotations) -> set[tuple[int, Any, Any]]:
    """Return the labels as (row, annotator, class), which do not depend on the order of annotators and classes."""
    return set(zip(ann.item.tolist(), ann.annotators[ann.annotator], ann.classes[ann.label], strict=True))


def _split_by_training(data: ReportData, codes: IntArray) -> list[GoldSet]:
    """Return two gold sets: items with labels or training gold, which were probably used in training, and others."""
    known, seen = codes >= 0, (data.labels_per_item > 0) | data.has_training_gold
    parts = (
        ("gold, items with labels", known & seen, "the model was probably trained on the labels of these items", True),
        ("gold, items without labels", known & ~seen, "the model was not trained on labels of these items", False),
    )
    rows_by_part = [(name, np.flatnonzero(mask), use, is_seen) for name, mask, use, is_seen in parts]
    return [
        GoldSet(name, rows, codes[rows], use, is_optimistic=False, is_trained_on=is_seen)
        for name, rows, use, is_seen in rows_by_part
        if len(rows)
    ]


def _printable_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of the training history with printable strings."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in record.items()}
