"""Write the results of a run: model, fused labels, annotators, tables for review, log and summary."""

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
from crowdfuse.runs.folder import (
    ANNOTATORS_FILE,
    FUSED_FILE,
    INTERRUPTED_FILE,
    LOG_FILE,
    REVIEW_ITEMS_FILE,
    REVIEW_LABELS_FILE,
    SUMMARY_FILE,
)
from crowdfuse.runs.job_data import JobData


def write_results(classifier: CrowdClassifier, data: JobData, out: Path) -> dict[str, Any]:
    """Write all results into the run folder and return the summary.

    `summary.json` is written last, so a folder that contains it is complete. An interrupted run writes its summary to
    `interrupted.json` instead, so that it counts as unfinished and can be resumed.

    Parameters
    ----------
    classifier : CrowdClassifier
        The classifier, fitted to `data`.
    data : JobData
        The data of the job.
    out : Path
        The run folder.

    Returns
    -------
    summary : dict of str to Any
        The content of `summary.json`.
    """
    ann = data.all_annotations
    _, probabilities, fused, weights = classifier.predict_with_labels(data.loaded.inputs, ann)
    if data.gold is not None:  # gold labels replace the fused label of their items
        rows, truth = data.gold
        fused[rows] = np.eye(fused.shape[1])[positions_of(truth, classifier.classes_)]
    has_fused = ~np.isnan(fused).any(1)
    best = np.where(has_fused, np.nan_to_num(fused).argmax(1), -1)
    predicted = probabilities.argmax(1)
    _write_fused(out / FUSED_FILE, data, classifier.classes_, fused, best, probabilities)
    _write_annotators(ann, predicted, best, weights, out / ANNOTATORS_FILE)
    quality = label_quality(ann, probabilities, classes=classifier.classes_, gold=data.gold_by_row(), out_of_fold=False)
    _write_review_tables(quality, out)
    write_text(out / LOG_FILE, "".join(json.dumps(nonfinite_to_none(record)) + "\n" for record in classifier.history_))
    summary = _summarize(classifier, data, predicted)
    if data.loaded.columns is not None:  # so that `predict` can select the columns of another table by name
        classifier.feature_names_in_ = np.array(data.loaded.columns, dtype=object)
    classifier.save(out / "model", overwrite=True)
    write_json(out / (INTERRUPTED_FILE if classifier.interrupted_ else SUMMARY_FILE), summary)
    if not classifier.interrupted_:
        (out / INTERRUPTED_FILE).unlink(missing_ok=True)
    return summary


def _summarize(classifier: CrowdClassifier, data: JobData, predicted: NDArray[np.int64]) -> dict[str, Any]:
    """Return the content of `summary.json`."""
    summary: dict[str, Any] = {
        "method": classifier.method_name,
        "n_items": len(data.items),
        "n_labelled_items": int((np.diff(data.train_annotations.indptr) > 0).sum()),
        "n_annotators": data.all_annotations.n_annotators,
        "n_labels": data.train_annotations.n_labels,
        "classes": data.all_annotations.classes.tolist(),
        "n_epochs": len(classifier.history_),
        "best_epoch": classifier.best_epoch_,
        "interrupted": classifier.interrupted_,
        "gold_used_for": classifier.gold_used_for_,
        "final_loss": classifier.history_[-1]["loss"] if classifier.history_ else None,
        "notes": [*data.notes, *classifier.diagnostic_messages_],
    }
    if data.test is not None:
        rows, truth = data.test
        summary["n_test_items"] = len(rows)
        summary["test_accuracy"] = float((predicted[rows] == positions_of(truth, classifier.classes_)).mean())
    return summary


def _write_fused(
    path: Path,
    data: JobData,
    classes: NDArray[Any],
    fused: NDArray[Any],
    best: NDArray[np.int64],
    probabilities: NDArray[Any],
) -> None:
    """Write the fused label and the prediction of each item that has a fused label (`best` is not -1)."""
    counts = np.diff(data.all_annotations.indptr)
    predicted = probabilities.argmax(1)
    write_csv(
        path,
        ("item", "fused", "fused_confidence", "n_labels", "predicted", "predicted_confidence"),
        (
            (
                data.items[row],
                classes[best[row]],
                f"{fused[row, best[row]]:.6f}",
                counts[row],
                classes[predicted[row]],
                f"{probabilities[row, predicted[row]]:.6f}",
            )
            for row in np.flatnonzero(best >= 0)
        ),
    )


def _write_annotators(
    ann: Annotations,
    predicted: NDArray[np.int64],
    best: NDArray[np.int64],
    weights: NDArray[np.float32],
    path: Path,
) -> None:
    """Write one line per annotator, in descending order of agreement with the predictions.

    `predicted` is the predicted class of each row. `best` is the fused class of each row, -1 for none. `weights` has
    one entry per label.
    """
    fused = best[ann.item]
    has_fused = fused >= 0  # for each label: whether its item has a fused class

    def mean(values: NDArray[Any]) -> NDArray[np.float64]:
        total = np.bincount(ann.annotator[has_fused], weights=values[has_fused], minlength=ann.n_annotators)
        with np.errstate(invalid="ignore"):
            average: NDArray[np.float64] = total / np.bincount(ann.annotator[has_fused], minlength=ann.n_annotators)
        return average

    if relative_weights(weights, ann) is None:  # all annotators have the same weight
        weights = np.full(ann.n_labels, np.nan)
    values_by_annotator = np.column_stack([_agreement(ann, predicted), mean(ann.label == fused), mean(weights)])
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    order = np.argsort(-np.nan_to_num(values_by_annotator[:, 0], nan=-1), kind="stable")
    write_csv(
        path,
        ("annotator", "n_labels", "agreement_with_predicted", "agreement_with_fused", "mean_weight"),
        (
            (
                ann.annotators[r],
                counts[r],
                *("" if np.isnan(value) else f"{value:.4f}" for value in values_by_annotator[r]),
            )
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


def _write_review_tables(quality: LabelQuality, out: Path) -> None:
    """Write two tables: items, the least confident first, and labels, the most suspicious first."""
    for name, table, column in (
        (REVIEW_ITEMS_FILE, quality.review_items(), "confidence"),
        (REVIEW_LABELS_FILE, quality.review_labels(), "suspicion"),
    ):
        columns = {title: table[title].to_pylist() for title in table.column_names}
        columns[column] = [f"{value:.6f}" for value in columns[column]]
        write_csv(out / name, table.column_names, zip(*columns.values(), strict=True))
