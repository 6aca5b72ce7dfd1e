"""All figures of a report, computed from its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crowdfuse import __version__
from crowdfuse.labels.ids import IntArray, format_names, normalize_ids, positions_of
from crowdfuse.quality.gold_tests import gold_contradictions
from crowdfuse.report.annotator_details import detail_facts, most_active_annotators, sample_labels
from crowdfuse.report.annotator_facts import annotator_facts
from crowdfuse.report.gold_facts import (
    GoldSet,
    abstention_facts,
    accuracy_facts,
    calibration_facts,
    evaluate_consensus,
    evaluate_model,
    operating_point,
)
from crowdfuse.report.item_facts import (
    ambiguous_rows,
    class_confusion_facts,
    disputed_rows,
    item_facts,
    mislabelled_rows,
    suspicious_facts,
)
from crowdfuse.report.item_map import map_facts, map_items
from crowdfuse.report.item_previews import THUMBNAIL_SIDES_PIXELS, ItemPreview
from crowdfuse.report.printable import printable
from crowdfuse.report.report import REPORT_MARKER, Report
from crowdfuse.report.report_data import ReportData

MAX_LISTED_ITEMS = 200  # keeps the page small enough to load and read
MAX_PREVIEW_BYTES = 1_000_000  # limit for all thumbnails together: half of a page of 2 MB
MAX_CLASS_ROWS = 40  # classes in the table of class frequencies


def make_report(
    data: ReportData,
    *,
    training: dict[str, Any] | None,
    gold_sets: Sequence[GoldSet],
    make_previews: Callable[[IntArray, int], list[ItemPreview]],
    notes: Sequence[str] = (),
    limitations: Sequence[str] = (),
    aggregation: dict[str, Any] | None = None,
    n_items: int = 30,
    sensitivity: float = 0.95,
    positive: Any = None,
    title: str = "Report",
) -> Report:
    """Compute all figures of a report.

    Exactly one of `training` and `aggregation` is given. If `training` is given, the accuracy with abstention and the
    decision threshold are those of the model. If `aggregation` is given, they are those of the consensus.

    Parameters
    ----------
    data : ReportData
        The consensus with its labels; fused labels and weights if there is a model.
    training : dict or None
        The model and its training, from `training_facts`; None for a report on labels alone.
    gold_sets : sequence of GoldSet
        Items whose true class is known.
    make_previews : callable
        Function that takes rows and the thumbnail size in pixels per side, and returns the preview of each row.
    notes : sequence of str, default=()
        Sentences to show at the top of the report.
    limitations : sequence of str, default=()
        Sentences that say what the report cannot show, and why. In the report, the limitations of the consensus come
        first.
    aggregation : dict, default=None
        For a report on labels alone: the aggregation method, its iterations, and whether it converged.
    n_items : int, default=30
        Number of disputed items to show, from 1 to 200. An item is disputed if one of its labels or the prediction
        differs from the consensus. The lists of ambiguous items and of mislabelled items are at most a third as long.
    sensitivity : float, default=0.95
        Target sensitivity (recall of the positive class), above 0 and at most 1. The report shows a decision threshold
        that reaches the target. Used only if there are two classes and gold labels.
    positive : object, default=None
        Name of the positive class. None: the second of the two classes, in the order of `Annotations.classes`. Must be
        None if there are not exactly two classes.
    title : str, default="Report"
        Title of the report.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        If `n_items` or `sensitivity` is out of range, or if `positive` is not a class or there are not exactly two
        classes.
    """
    check_settings(n_items, sensitivity)
    positive_code = _positive_code(data, positive)
    gold = np.full(data.ann.n_items, -1, np.int64)
    for gold_set in gold_sets:
        gold[gold_set.rows] = gold_set.codes
    of_consensus = evaluate_consensus(data, gold_sets)
    evaluation = evaluate_model(data, gold_sets) if aggregation is None else of_consensus
    labels = sample_labels(data, most_active_annotators(data))
    item_map = map_items(data, np.unique(data.ann.item[np.concatenate([*labels.values(), np.zeros(0, np.int64)])]))
    n_others = -(-n_items // 3)
    lists = {
        "disputed": (disputed_rows(data), n_items),
        "ambiguous": (ambiguous_rows(data), n_others),
        "mislabelled": (mislabelled_rows(data), n_others),
    }
    suspicious = suspicious_facts(data, n_items)
    facts: dict[str, Any] = {
        "generator": REPORT_MARKER,
        "crowdfuse": __version__,
        "title": printable(title),
        "warnings": [
            printable(finding.message)
            for finding in (*data.consensus.findings, *gold_contradictions(data.consensus, gold))
        ],
        "limitations": [printable(line) for line in (*data.consensus.limitations, *limitations)],
        "notes": [printable(line) for line in notes],
        "data": data_facts(data),
        "training": training,
        "aggregation": aggregation,
        "accuracy": accuracy_facts(data, gold_sets),
        "abstention": abstention_facts(evaluation),
        "calibration": {
            "model": None if aggregation is not None else calibration_facts(evaluation),
            "consensus": calibration_facts(of_consensus),
        },
        "operating_point": None
        if positive_code is None
        else operating_point(data, evaluation, positive=positive_code, sensitivity=sensitivity),
        "annotators": annotator_facts(data, gold),
        "map": map_facts(data, item_map),
        "annotator_details": detail_facts(data, labels, item_map),
        "class_confusion": class_confusion_facts(data),
        **{
            name: {"total": len(found), "items": [item_facts(data, int(row), gold) for row in found[:n_shown]]}
            for name, (found, n_shown) in lists.items()
        },
        "suspicious": suspicious,
    }
    shown = [row for found, n_shown in lists.values() for row in found[:n_shown].tolist()]
    return Report(facts, _previews(shown + [label["row"] for label in suspicious["rows"]], make_previews))


def check_settings(n_items: int, sensitivity: float) -> None:
    """Raise a ValueError if the settings of a report are out of range.

    Parameters
    ----------
    n_items : int
        Number of disputed items to show: 1 to 200.
    sensitivity : float
        Target sensitivity: above 0 and at most 1.

    Raises
    ------
    ValueError
        If a setting is out of range.
    """
    if isinstance(n_items, bool) or not isinstance(n_items, int) or not 1 <= n_items <= MAX_LISTED_ITEMS:
        raise ValueError(
            f"the number of items to show must be an integer from 1 to {MAX_LISTED_ITEMS}, got {n_items!r}"
        )
    if not 0 < sensitivity <= 1:
        raise ValueError(f"sensitivity must be above 0 and at most 1, got {sensitivity!r}")


def data_facts(data: ReportData) -> dict[str, Any]:
    """Return the `data` entry of a report: counts, agreement, and how often each class was used."""
    summary = data.ann.summary()
    n_labels = np.bincount(data.ann.label, minlength=data.ann.n_classes)
    codes = data.consensus.consensus_codes
    n_items = np.bincount(codes[codes >= 0], minlength=data.ann.n_classes)
    order = np.argsort(-n_labels, kind="stable")[:MAX_CLASS_ROWS]
    return {
        "n_items": summary.n_items,
        "n_items_without_labels": summary.items_without_labels,
        "n_annotators": int((data.consensus.labels_per_annotator > 0).sum()),
        "n_labels": summary.n_labels,
        "n_classes": summary.n_classes,
        "labels_per_item": summary.labels_per_item,
        "labels_per_annotator": summary.labels_per_annotator,
        "agreement": summary.agreement,
        "krippendorff_alpha": summary.krippendorff_alpha,
        "by_class": [
            {"class": printable(data.ann.classes[k]), "n_labels": int(n_labels[k]), "n_items": int(n_items[k])}
            for k in order
        ],
    }


def _positive_code(data: ReportData, positive: Any) -> int | None:
    """Return the position of the positive class, by default the second of two; None if there are more than two."""
    classes = data.ann.classes
    if positive is None:
        return 1 if len(classes) == 2 else None
    code = int(positions_of(normalize_ids([positive], "positive"), classes)[0])
    if code < 0:
        raise ValueError(
            f"the positive class {format_names([positive])} is not one of the classes ({format_names(classes)}); "
            "choose one of them"
        )
    if len(classes) != 2:
        raise ValueError(
            f"a positive class can be chosen only if there are exactly two classes, but there are {len(classes)}; do "
            "not choose one"
        )
    return code


def _previews(shown: list[int], make_previews: Callable[[IntArray, int], list[ItemPreview]]) -> dict[int, ItemPreview]:
    """Return the preview of each row in `shown`, at the largest size whose thumbnails fit in the page.

    The thumbnail of a row that appears in several lists is counted once per list.
    """
    rows = sorted(set(shown))
    previews: dict[int, ItemPreview] = {}
    for side in THUMBNAIL_SIDES_PIXELS:
        previews = dict(zip(rows, make_previews(np.array(rows, np.int64), side), strict=True)) if rows else {}
        if sum(len(previews[row].get("image", "")) for row in shown) <= MAX_PREVIEW_BYTES:
            break
    return previews
