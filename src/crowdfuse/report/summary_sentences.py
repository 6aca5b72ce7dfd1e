"""The sentences at the top of a report."""

from __future__ import annotations

from typing import Any

from crowdfuse.labels.ids import format_count
from crowdfuse.labels.number_format import format_percent
from crowdfuse.quality.multiple_tests import FALSE_ALARM_RATE

UNKNOWN_MODEL_ACCURACY = (
    "The accuracy of the model on new items is unknown: the model was trained on the items with gold, and there are no "
    "out-of-fold predictions. To measure the accuracy, use cross-fitting with 2 or more folds."
)
MIN_LABELS_OF_EXTREMES = 20  # labels of an annotator who is named as the most or the least accurate
Sentence = tuple[str, ...]
"""A sentence in parts. Every second part is a name from the data, which HTML and Markdown must escape."""


def summary_sentences(facts: dict[str, Any]) -> list[Sentence]:
    """Return the summary of a report: accuracy, best and worst annotator, wrong labels, confused classes."""
    has_model = facts["aggregation"] is None
    accuracy = _consensus_and_model_accuracy(facts) if has_model else [_aggregation_accuracy(facts)]
    return [*accuracy, *_annotator_extremes(facts), *_label_errors(facts)]


def evaluated_thing(facts: dict[str, Any]) -> str:
    """Return the word for what gold labels evaluate: "model", or "method" in a report on labels alone."""
    return "model" if facts["aggregation"] is None else "method"


def gold_use_sentence(training: dict[str, Any]) -> str:
    """Return what gold labels were used for in training.

    >>> gold_use_sentence({"gold_used_for": "nothing"})
    'No gold labels were used.'
    """
    use = training["gold_used_for"]
    return "No gold labels were used." if use == "nothing" else f"Gold labels were used for {use}."


def calibration_sentence(calibration: dict[str, Any], subject: str) -> str:
    """Return mean confidence and accuracy of the model or the consensus, and whether the confidence is too high.

    Parameters
    ----------
    calibration : dict
        One of the entries below `calibration` in a report.
    subject : str
        Its name: "model" or "consensus".

    Returns
    -------
    str
    """
    optimistic = " (optimistic)" if calibration["is_optimistic"] else ""
    figures = (
        f"Mean confidence of the {subject} on {format_count(calibration['n_items'], 'item')}{optimistic}: "
        f"{format_percent(calibration['mean_confidence'])}; accuracy: {format_percent(calibration['accuracy'])}; "
        f"expected calibration error: {format_percent(calibration['error'])}."
    )
    if not calibration["is_overconfident"]:
        return figures
    level = format_percent(FALSE_ALARM_RATE, 0)
    return (
        f"{figures} The confidence of the {subject} is too high on these items (one-sided binomial test at the level "
        f"{level})."
    )


def accuracy_notes(facts: dict[str, Any]) -> list[str]:
    """Return sentences that say on which items, and by which predictions, the figures on gold were measured."""
    notes = [
        f"The figures of the {subject} were measured on {found['evaluated_on']}."
        for subject, found in facts["calibration"].items()
        if found
    ]
    if any(gold["predicted"]["is_out_of_fold"] for gold in facts["accuracy"]):
        notes.append(
            "The predictions of single items in this report, and in the consensus.csv of a run, come from the final "
            "model, which has memorized labels of the items that it was trained on."
        )
    return notes


def threshold_sentence(operating_point: dict[str, Any]) -> str:
    """Return what to expect of the threshold of an operating point on new items."""
    chosen = "The threshold was chosen on the items on which these figures were measured"
    if operating_point["is_optimistic"]:
        return f"{chosen}, and the figures on these items are optimistic: expect lower figures on new items."
    if operating_point["is_out_of_fold"]:
        return (
            f"{chosen}, by out-of-fold predictions. The final model may be more or less confident, so check the "
            "threshold on items with gold that were not used in training."
        )
    return f"{chosen}, so expect slightly lower figures on new items."


def _consensus_and_model_accuracy(facts: dict[str, Any]) -> list[Sentence]:
    """Return the accuracy of consensus and model, each on its largest gold set that is not optimistic, or why not."""
    sentences: list[Sentence] = []
    for name, subject, source in (
        ("consensus", "The consensus", "; {training_use}"),
        ("predicted", "The model", ", measured by {predictions}"),
    ):
        gold_sets = [gold for gold in facts["accuracy"] if gold[name]["n"] and not gold[name]["is_optimistic"]]
        if gold_sets:
            largest = max(gold_sets, key=lambda gold: gold[name]["n"])
            accuracy = _accuracy_with_interval(largest[name])
            sentences.append((f"{subject} is right on {accuracy}{source.format_map(largest)}.",))
        elif name == "predicted" and sentences:
            sentences.append((UNKNOWN_MODEL_ACCURACY,))
    if sentences:
        return sentences
    why = "All gold labels were used in training" if facts["accuracy"] else "There are no gold labels"
    return [
        (
            f"{why}, so the accuracy of consensus and model is unknown. Gold labels of 100 items that were not used in "
            "training would measure it to within 10 percentage points (crowdfuse report --gold).",
        )
    ]


def _aggregation_accuracy(facts: dict[str, Any]) -> Sentence:
    """Return the accuracy of the consensus of labels alone, or that it is unknown."""
    method = facts["aggregation"]["method"]
    accuracies = [gold["consensus"] for gold in facts["accuracy"] if gold["consensus"]["n"]]
    if not accuracies:
        return (
            f"There are no gold labels, so the accuracy of the consensus by {method} is unknown. Gold labels of 100 "
            "items would measure it to within 10 percentage points (crowdfuse report --gold).",
        )
    return (f"The consensus by {method} is right on {_accuracy_with_interval(accuracies[0])}.",)


def _accuracy_with_interval(accuracy: dict[str, Any]) -> str:
    """Return an accuracy with the number of items and the interval, in words."""
    low, high = format_percent(accuracy["low"]), format_percent(accuracy["high"])
    return f"{format_percent(accuracy['value'])} of {accuracy['n']:,} items with gold (95 % interval {low} to {high})"


def _annotator_extremes(facts: dict[str, Any]) -> list[Sentence]:
    """Return the most and the least accurate annotator by the ends of their intervals, if these do not overlap.

    If at least two annotators have 20 labels or more, only these are compared: a few right labels say little about the
    next labels.
    """
    known = [row for row in facts["annotators"]["rows"] if row["accuracy"]["value"] is not None]
    frequent = [row for row in known if row["n_labels"] >= MIN_LABELS_OF_EXTREMES]
    rows = frequent if len(frequent) > 1 else known
    if len(rows) < 2:
        return []
    best = max(rows, key=lambda row: row["accuracy"]["low"])
    worst = min(rows, key=lambda row: row["accuracy"]["high"])
    if best["accuracy"]["low"] <= worst["accuracy"]["high"]:
        return [("No annotator is clearly more accurate than another: their intervals overlap.",)]
    return [
        (
            "Most clearly accurate is annotator ",
            best["annotator"],
            f" (estimated accuracy {format_percent(best['accuracy']['value'])}, at least "
            f"{format_percent(best['accuracy']['low'])}; {format_count(best['n_labels'], 'label')}), most clearly "
            "inaccurate ",
            worst["annotator"],
            f" ({format_percent(worst['accuracy']['value'])}, at most {format_percent(worst['accuracy']['high'])}; "
            f"{format_count(worst['n_labels'], 'label')}).",
        )
    ]


def _label_errors(facts: dict[str, Any]) -> list[Sentence]:
    """Return how many labels differ from the consensus, and the most frequent confusion of classes."""
    n_differing, n_labels = facts["suspicious"]["total"], facts["data"]["n_labels"]
    share = format_percent(n_differing / n_labels)
    sentences: list[Sentence] = [(f"{n_differing:,} of {n_labels:,} labels ({share}) differ from the consensus.",)]
    pairs = facts["class_confusion"]["pairs"]
    if pairs:
        worst = pairs[0]
        sentences.append(
            (
                "The most frequent confusion: items whose consensus is ",
                worst["consensus"],
                " are labelled ",
                worst["said"],
                f" in {format_percent(worst['share'])} of their labels.",
            )
        )
    return sentences
