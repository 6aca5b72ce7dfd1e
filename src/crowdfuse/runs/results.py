"""What a run folder holds in the end: model, fused labels, annotators, what to look at again, log, summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.files import nonfinite_to_none, write_csv, write_json, write_text
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import positions_of
from crowdfuse.quality.label_quality import LabelQuality, label_quality
from crowdfuse.report.report_data import relative_weights
from crowdfuse.runs.job_data import JobData

SUMMARY_FILE, INTERRUPTED_FILE = "summary.json", "interrupted.json"


def write_results(classifier: CrowdClassifier, material: JobData, out: Path) -> dict[str, Any]:
    """Write what was learned into the run folder; `summary.json` comes last and says that all is there."""
    ann = material.all_annotations
    _, probabilities, fused, weights = classifier.predict_with_labels(material.loaded.inputs, ann)
    if material.gold is not None:  # what is certain needs no labels to tell it
        rows, truth = material.gold
        fused[rows] = np.eye(fused.shape[1])[positions_of(truth, classifier.classes_)]
    known = ~np.isnan(fused).any(1)
    best = np.where(known, np.nan_to_num(fused).argmax(1), -1)
    counts = np.diff(ann.indptr)
    predicted = probabilities.argmax(1)
    write_csv(
        out / "fused.csv",
        ("item", "label", "confidence", "labels", "predicted", "predicted_confidence"),
        (
            (
                material.items[row],
                classifier.classes_[best[row]],
                f"{fused[row, best[row]]:.6f}",
                counts[row],
                classifier.classes_[predicted[row]],
                f"{probabilities[row, predicted[row]]:.6f}",
            )
            for row in np.flatnonzero(known)
        ),
    )
    _write_annotators(ann, predicted, best, weights, out / "annotators.csv")
    gold = material.gold_by_row()
    _write_reviews(label_quality(ann, probabilities, classes=classifier.classes_, gold=gold, out_of_fold=False), out)
    write_text(
        out / "log.jsonl", "".join(json.dumps(nonfinite_to_none(record)) + "\n" for record in classifier.history_)
    )
    summary: dict[str, Any] = {
        "method": classifier.method_name,
        "items": len(material.items),
        "labelled items": int((np.diff(material.train_annotations.indptr) > 0).sum()),
        "annotators": ann.n_annotators,
        "labels": material.train_annotations.n_labels,
        "classes": ann.classes.tolist(),
        "epochs": len(classifier.history_),
        "best epoch": classifier.best_epoch_,
        "interrupted": classifier.interrupted_,
        "gold was used for": classifier.gold_used_for_,
        "final loss": classifier.history_[-1]["loss"] if classifier.history_ else None,
        "notes": [*material.notes, *classifier.diagnostic_messages_],
    }
    if material.test is not None:
        rows, truth = material.test
        summary["test items"] = len(rows)
        summary["test accuracy"] = float((predicted[rows] == positions_of(truth, classifier.classes_)).mean())
    if material.loaded.columns is not None:  # so that another table's columns are taken by name
        classifier.feature_names_in_ = np.array(material.loaded.columns, dtype=object)
    classifier.save(out / "model", overwrite=True)
    # an interrupted run keeps its summary under another name, so that resume goes on
    write_json(out / (INTERRUPTED_FILE if classifier.interrupted_ else SUMMARY_FILE), summary)
    if not classifier.interrupted_:
        (out / INTERRUPTED_FILE).unlink(missing_ok=True)
    return summary


def _write_annotators(
    ann: Annotations,
    predicted: NDArray[np.int64],
    best: NDArray[np.int64],
    weights: NDArray[np.float32],
    path: Path,
) -> None:
    """Write one line per annotator, those who agree most with the predictions first.

    `predicted` and `best` are the predicted and the fused class of each row, -1 for none; `weights` those of labels.
    """
    fused = best[ann.item]
    judged = fused >= 0  # labels on items that have a fused label to compare with

    def mean(values: NDArray[Any]) -> NDArray[np.float64]:
        total = np.bincount(ann.annotator[judged], weights=values[judged], minlength=ann.n_annotators)
        with np.errstate(invalid="ignore"):
            average: NDArray[np.float64] = total / np.bincount(ann.annotator[judged], minlength=ann.n_annotators)
        return average

    if relative_weights(weights, ann) is None:  # all count the same: what is left is how many labels items have
        weights = np.full(ann.n_labels, np.nan)
    figures = np.column_stack([_agreement(ann, predicted), mean(ann.label == fused), mean(weights)])
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    order = np.argsort(-np.nan_to_num(figures[:, 0], nan=-1), kind="stable")
    write_csv(
        path,
        ("annotator", "labels", "reliability", "agreement_with_fused", "mean_weight"),
        (
            (ann.annotators[r], counts[r], *("" if np.isnan(value) else f"{value:.4f}" for value in figures[r]))
            for r in order
            if counts[r]
        ),
    )


def _agreement(ann: Annotations, predicted: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the share of each annotator's labels that equal the prediction; NaN without labels."""
    equal = np.bincount(ann.annotator, predicted[ann.item] == ann.label, minlength=ann.n_annotators)
    with np.errstate(invalid="ignore"):
        agreement: NDArray[np.float64] = equal / np.bincount(ann.annotator, minlength=ann.n_annotators)
    return agreement


def _write_reviews(found: LabelQuality, out: Path) -> None:
    """What to look at again first: items by how unsure they are, labels by how likely they are wrong."""
    for name, table, figure in (
        ("review_items.csv", found.review_items(), "confidence"),
        ("review_labels.csv", found.review_labels(), "suspicion"),
    ):
        columns = {column: table[column].to_pylist() for column in table.column_names}
        columns[figure] = [f"{value:.6f}" for value in columns[figure]]
        write_csv(out / name, table.column_names, zip(*columns.values(), strict=True))
