"""Compare a run with its refit: test accuracy, consensus, predictions, and accuracy of the annotators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crowdfuse.labels.ids import ids_to_strings
from crowdfuse.quality.consensus import Consensus
from crowdfuse.quality.consensus_file import load_consensus
from crowdfuse.review.session import read_gold_rows
from crowdfuse.runs.folder import SUMMARY_FILE, read_json_object

MAX_LISTED_CHANGES = 50  # per list
MIN_ACCURACY_CHANGE = 0.0005  # smaller changes are not listed, because accuracies are shown in percent with one decimal


def compare_run_folders(before: Path, after: Path) -> dict[str, Any]:
    """Compare a run with its refit: the run trained again, with the decisions of reviewers as gold labels.

    Parameters
    ----------
    before : Path
        The folder of the run that was reviewed.
    after : Path
        The folder of the refit.

    Returns
    -------
    changes : dict of str to Any
        A "pair" is a list of two values: the value of the reviewed run, and the value of its refit. The keys are:

        - `n_items`: number of items of the run.
        - `n_settled`: number of settled items (items whose class a reviewer decided).
        - `n_test_items`: number of test items.
        - `test_accuracy`: pair of accuracies on the test items. Both are None if there are no test items.
        - `n_agreeing`: dict of two pairs. `n_agreeing["consensus"]` counts the settled items whose consensus is the
          class that the reviewer chose. `n_agreeing["predicted"]` counts the settled items whose prediction is that
          class.
        - `consensus`: dict about the items whose consensus changed. `n_changed` is their number. `rows` is a list of at
          most 50 of these items; settled items come last. The keys of a row are `item`, `before` and `after` (the
          consensus of the reviewed run and of the refit), and `settled` (the class that the reviewer chose; None if the
          item is not settled).
        - `predicted`: dict about the items whose prediction changed, in the same form as `consensus`.
        - `annotators`: dict about the annotators whose estimated accuracy changed. `n_changed` is their number, and
          `n_annotators` the number of annotators with a known accuracy in both runs. `rows` is a list of at most 50
          changes, the largest first. The keys of a row are `annotator`, `before` and `after` (the accuracies).

    Raises
    ------
    DamagedConsensusError
        If the consensus of a run is missing or damaged.
    LedgerError
        If the ledger, the file of all decisions of the reviewers, was edited.
    """
    old, new = (load_consensus(run) for run in (before, after))
    settled = dict(read_gold_rows(before)[0])
    summaries = [read_json_object(run / SUMMARY_FILE) for run in (before, after)]
    labels = {
        "consensus": [_by_item(result, result.consensus_codes) for result in (old, new)],
        "predicted": [_by_item(result, result.predicted_codes) for result in (old, new)],
    }
    return {
        "n_items": len(old.items),
        "test_accuracy": [summary.get("test_accuracy") for summary in summaries],
        "n_test_items": summaries[1].get("n_test_items"),
        "n_settled": len(settled),
        "n_agreeing": {
            name: [sum(by_item.get(item) == label for item, label in settled.items()) for by_item in pair]
            for name, pair in labels.items()
        },
        **{name: _changed_labels(pair[0], pair[1], settled) for name, pair in labels.items()},
        "annotators": _changed_accuracies(old, new),
    }


def _by_item(result: Consensus, codes: Any) -> dict[str, str]:
    """Return the names of the classes with these codes, by item; empty if there are no codes."""
    if codes is None:
        return {}
    names = ids_to_strings(result.classes)[codes]
    return dict(zip(ids_to_strings(result.items).tolist(), names.tolist(), strict=True))


def _changed_labels(old: dict[str, str], new: dict[str, str], settled: dict[str, str]) -> dict[str, Any]:
    """Return the items whose class changed; items that were not settled come first."""
    changes = [
        {"item": item, "before": label, "after": new[item], "settled": settled.get(item)}
        for item, label in old.items()
        if item in new and new[item] != label
    ]
    changes.sort(key=lambda change: change["settled"] is not None)
    return {"n_changed": len(changes), "rows": changes[:MAX_LISTED_CHANGES]}


def _changed_accuracies(old: Consensus, new: Consensus) -> dict[str, Any]:
    """Return the annotators whose accuracy changed, the largest change first."""
    accuracies = [
        {
            str(name): float(accuracy)
            for name, accuracy in zip(result.annotators, result.annotator_accuracy, strict=True)
            if accuracy == accuracy  # NaN is unknown
        }
        for result in (old, new)
    ]
    rows: list[dict[str, Any]] = [
        {"annotator": name, "before": accuracy, "after": accuracies[1][name]}
        for name, accuracy in accuracies[0].items()
        if name in accuracies[1]
    ]
    changed = [row for row in rows if abs(row["after"] - row["before"]) > MIN_ACCURACY_CHANGE]
    changed.sort(key=lambda row: -abs(row["after"] - row["before"]))
    return {"n_changed": len(changed), "n_annotators": len(rows), "rows": changed[:MAX_LISTED_CHANGES]}
