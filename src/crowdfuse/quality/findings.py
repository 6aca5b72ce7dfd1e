"""What a statistical test found in labels, and how its message names annotators and classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """A fault that a statistical test found in the labels, as returned by `diagnose` and `gold_contradictions`.

    Attributes
    ----------
    kind : str
        Name of the test: "shared_mistakes", "copied_labels", "uninformative_annotator", "class_never_predicted",
        "gold_contradicts_consensus", "gold_contradicts_accuracy" or "labels_ignore_inputs".
    message : str
        Text that says what the fault is, how many items or labels were tested, and what to do about the fault.
    p_value : float
        Probability of such a finding if there is no fault, corrected for the number of tests of this kind. It is always
        below 0.01, because less significant results are not reported.
    n : int
        Number of tested items. For "uninformative_annotator" and "gold_contradicts_accuracy": number of tested labels.

    See Also
    --------
    diagnose : Runs the tests on labels.
    crowdfuse.quality.gold_tests.gold_contradictions : Tests gold against the consensus and the annotators' accuracies.
    """

    kind: str
    message: str
    p_value: float
    n: int


def name_in_message(name: Any) -> str:
    """Return an annotator or class as written by the user, without quotation marks unless it has spaces."""
    text = str(name)
    return text if text and not any(letter.isspace() for letter in text) else repr(text)


def annotator_in_message(name: Any) -> str:
    """Return the name of an annotator for a message, with the word "annotator" in front of a number."""
    return name_in_message(name) if isinstance(name, str) else f"annotator {name}"


def start_sentence(text: str) -> str:
    """Return the text with a capital first letter unless it starts with a name."""
    return f"A{text[1:]}" if text.startswith("annotator ") else text
