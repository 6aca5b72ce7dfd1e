"""The sentences at the top of a report."""

from __future__ import annotations

from typing import Any

from crowdfuse.labels.ids import format_count
from crowdfuse.labels.number_format import format_percent

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


def _consensus_and_model_accuracy(facts: dict[str, Any]) -> list[Sentence]:
    """Return the accuracy of consensus and model, each on its largest unbiased gold set, or why it is unknown."""
    sentences: list[Sentence] = []
    for name, subject in (("consensus", "The consensus"), ("predicted", "The model")):
        gold_sets = [gold for gold in facts["accuracy"] if gold["is_unbiased"] and gold[name]["n"]]
        if gold_sets:
            largest = max(gold_sets, key=lambda gold: gold[name]["n"])
            accuracy = _accuracy_with_interval(largest[name])
            sentences.append((f"{subject} is right on {accuracy}: {largest['training_use']}.",))
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
    """Return the most and the least accurate annotator by the ends of their intervals, if these do not overlap."""
    rows = [row for row in facts["annotators"]["rows"] if row["accuracy"]["value"] is not None]
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
