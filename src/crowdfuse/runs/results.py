"""Write the results of a run: model, consensus, annotators, suspicious labels, log and summary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.cross_fitting import OutOfFold, combine, predict_items
from crowdfuse.io.files import nonfinite_to_none, write_csv, write_json, write_text
from crowdfuse.labels.ids import positions_of
from crowdfuse.quality.consensus import NO_CROSS_FITTING, Consensus
from crowdfuse.quality.consensus_file import POSTERIOR_FILE, save_consensus
from crowdfuse.quality.findings import Finding
from crowdfuse.quality.gold_tests import gold_contradictions
from crowdfuse.quality.prediction_limits import prediction_limitations
from crowdfuse.runs.folder import (
    ANNOTATORS_FILE,
    CONSENSUS_FILE,
    INTERRUPTED_FILE,
    LOG_FILE,
    SUMMARY_FILE,
    SUSPICIOUS_LABELS_FILE,
)
from crowdfuse.runs.job_data import JobData

LOW_ACCURACY = 0.6  # the summary counts the annotators with a lower accuracy
INTERRUPTED_BEFORE_FOLDS = (
    "The run was interrupted before its folds were trained, so its consensus is preliminary. Until the run is "
    "finished, the consensus relies on a classifier that repeats mistakes in the labels, because it has memorized them."
)
INTERRUPTED_AFTER_FOLDS = (
    "The run was interrupted while its model was trained, so its predictions are preliminary. The consensus is "
    "complete."
)
INTERRUPTED_WITHOUT_FOLDS = (
    "The run was interrupted while its model was trained, so its results are preliminary, until the run is finished."
)


def write_results(
    classifier: CrowdClassifier, data: JobData, out: Path, predictions: OutOfFold | None, effort: str = "normal"
) -> dict[str, Any]:
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
    predictions : OutOfFold or None
        Out-of-fold predictions of all items. None if the run was interrupted before its folds were trained: in this
        case, `classifier` itself predicts all items, although it was trained on them.
    effort : {"normal", "low"}, default="normal"
        The effort of the job, for the summary.

    Returns
    -------
    summary : dict of str to Any
        The content of `summary.json`.
    """
    interrupted = predictions is None or classifier.interrupted_
    inputs, ann = data.loaded.inputs, data.all_annotations
    is_cross_fitted = predictions is not None
    if predictions is None:
        predictions = predict_items(classifier, inputs, ann.with_classes(classifier.classes_), 0)
    result = combine(classifier, inputs, ann, predictions, data.gold_by_row())
    if interrupted:
        result = replace(result, limitations=_limitations_when_interrupted(result, is_cross_fitted))
    save_consensus(result, out / POSTERIOR_FILE)
    _write_tables(result, out)
    write_text(out / LOG_FILE, "".join(json.dumps(nonfinite_to_none(record)) + "\n" for record in classifier.history_))
    summary = _summarize(classifier, data, result, interrupted) | {"effort": effort}
    if data.loaded.columns is not None:  # so that `predict` can select the columns of another table by name
        classifier.feature_names_in_ = np.array(data.loaded.columns, dtype=object)
    classifier.save(out / "model", overwrite=True)
    write_json(out / (INTERRUPTED_FILE if interrupted else SUMMARY_FILE), summary)
    if not interrupted:
        (out / INTERRUPTED_FILE).unlink(missing_ok=True)
    return summary


def _limitations_when_interrupted(result: Consensus, is_cross_fitted: bool) -> tuple[str, ...]:
    """Return the limitations of a result with what Ctrl-C left undone; `is_cross_fitted` unless folds are left."""
    if not is_cross_fitted:
        return tuple(INTERRUPTED_BEFORE_FOLDS if line == NO_CROSS_FITTING else line for line in result.limitations)
    return (INTERRUPTED_AFTER_FOLDS if result.n_folds else INTERRUPTED_WITHOUT_FOLDS, *result.limitations)


def summarize_stopped(classifier: CrowdClassifier, data: JobData) -> dict[str, Any]:
    """Return the summary of a run that was interrupted before its classifier was trained; there are no results yet.

    Parameters
    ----------
    classifier : CrowdClassifier
        The classifier, prepared but not trained.
    data : JobData
        The data of the job.

    Returns
    -------
    summary : dict of str to Any
    """
    return {
        "method": classifier.method_name,
        "n_epochs": 0,
        "interrupted": True,
        "gold_used_for": classifier.gold_used_for_,
        "notes": list(data.notes),
        "warnings": [],
    }


def _summarize(classifier: CrowdClassifier, data: JobData, result: Consensus, interrupted: bool) -> dict[str, Any]:
    """Return the content of `summary.json`."""
    has_labels = np.diff(data.all_annotations.indptr) > 0
    is_estimated = np.isfinite(result.annotator_accuracy)
    warnings = [finding.message for finding in (*result.findings, *_test_gold_findings(data, result))]
    notes = [*data.notes, *result.limitations, *(prediction_limitations(result) if result.n_folds else ())]
    summary: dict[str, Any] = {
        "method": classifier.method_name,
        "n_items": len(data.items),
        "n_labelled_items": int((np.diff(data.train_annotations.indptr) > 0).sum()),
        "n_consensus_items": int(has_labels.sum()),
        "n_annotators": data.all_annotations.n_annotators,
        "n_labels": data.train_annotations.n_labels,
        "classes": data.all_annotations.classes.tolist(),
        "n_epochs": len(classifier.history_),
        "best_epoch": classifier.best_epoch_,
        "n_folds": result.n_folds,
        "interrupted": interrupted,
        "cut_short": classifier.cut_short_,
        "mean_confidence": float(result.confidence[has_labels].mean()) if has_labels.any() else None,
        "n_estimated_annotators": int(is_estimated.sum()),
        "n_inaccurate_annotators": int((result.annotator_accuracy[is_estimated] < LOW_ACCURACY).sum()),
        "gold_used_for": classifier.gold_used_for_,
        "final_loss": classifier.history_[-1]["loss"] if classifier.history_ else None,
        "notes": [note for note in notes if note not in warnings],
        "warnings": warnings,
    }
    if data.test is not None:
        rows, truth = data.test
        assert result.predicted_codes is not None
        summary["n_test_items"] = len(rows)
        codes = positions_of(truth, classifier.classes_)
        summary["test_accuracy"] = float((result.predicted_codes[rows] == codes).mean())
    return summary


def _test_gold_findings(data: JobData, result: Consensus) -> tuple[Finding, ...]:
    """Return what gold that training has not used says against the result."""
    if data.test is None:
        return ()
    rows, truth = data.test
    gold = np.full(len(result.items), -1)
    gold[rows] = positions_of(truth, result.classes)
    return gold_contradictions(result, gold)


def _write_tables(result: Consensus, out: Path) -> None:
    """Write consensus, annotators and suspicious labels as CSV, each sorted by what to look at first."""
    for name, table in (
        (CONSENSUS_FILE, result.to_table()),
        (ANNOTATORS_FILE, result.annotator_table()),
        (SUSPICIOUS_LABELS_FILE, result.suspicious_labels()),
    ):
        columns = [_texts(table[title].to_pylist()) for title in table.column_names]
        write_csv(out / name, table.column_names, zip(*columns, strict=True))


def _texts(values: list[Any]) -> list[Any]:
    """Values of a column for CSV: fractions with six digits, and nothing for unknown values."""
    return [
        "" if value is None or value != value else f"{value:.6f}" if isinstance(value, float) else value
        for value in values
    ]
