"""What labels cannot decide: whether the assumptions behind a model of annotators hold, as far as its labels tell.

A gate says how likely an annotator is right on an item. It can be believed where wrong labels are about even over the
wrong classes, where annotators do not make the same mistakes, and where people label the same items. All three can be
looked at, given what the classifier takes the items for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import failed_sanity_checks
from crowdfuse.labels.ids import format_names

MAX_ERROR_CONCENTRATION = 0.25  # how far wrong labels may be from even, between 0 and 1
MAX_EXCESS_SHARED_ERRORS = 0.1  # how much oftener than by chance two wrong labels of an item may be the same
MAX_JOINT_ERROR_RATIO = 1.25  # times as often as the gates explain that two labels of an item are wrong
MIN_WRONG_LABELS = 30  # wrong labels, or pairs of them, to speak of


@dataclass(frozen=True)
class Diagnostics:
    """What was looked at. A figure is None where there is nothing to compute it from."""

    error_concentration: float | None
    """How far wrong labels are from even over the wrong classes: 0 for even, near 1 for always the same one."""
    shared_error_rate: float | None
    """Of two wrong labels of an item, how often they are the same..."""
    shared_error_rate_by_chance: float | None
    """... and how often they would be, were they chosen independently."""
    joint_error_ratio: float | None
    """How often two labels of an item are both wrong, over how often the gates have it so."""
    overlap: float
    """The share of labelled items that have more than one label."""
    initial_classes_from: str
    """What told the classes at the start: "labels", "labels and gold" where they agree, "gold", or "vote"."""
    gates_can_be_trusted: bool
    messages: tuple[str, ...]
    """In words, what to know; empty if there is nothing."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"messages": list(self.messages)}


NO_LABELS = Diagnostics(
    None, None, None, None, 0.0, "labels", False, ("the gates cannot be trusted", "there are no labels")
)


def diagnose(
    probabilities: NDArray[Any], gates: NDArray[Any], ann: Annotations, *, initial_classes_from: str = "labels"
) -> Diagnostics:
    """Look at class probabilities (N, K), the gates of all labels (L,), and the labels.

    `decided_by` is "gold" where that overruled the labels: then what speaks against the labels is no surprise, and
    nothing against the classifier; "vote" where nothing told who is right.

    >>> truth = np.arange(400) % 4
    >>> Y = np.stack([truth, truth, (truth + 1) % 4], axis=1)      # the third always says the next class
    >>> found = diagnose(np.eye(4)[truth], np.tile([1.0, 1.0, 0.0], 400), Annotations.from_matrix(Y))
    >>> round(found.unevenness, 2), found.gates_can_be_trusted
    (0.61, False)
    """
    predicted = probabilities.argmax(1)
    labelled = np.diff(ann.indptr) > 0
    overlap = float((np.diff(ann.indptr) > 1).sum() / max(1, labelled.sum()))
    spread, uneven = _unevenness(probabilities, ann)
    same, by_chance, together = _pairs(predicted, gates, ann, spread)
    doubts = []
    if uneven is not None and uneven > MAX_ERROR_CONCENTRATION:
        doubts.append(
            f"wrong labels are not even over the wrong classes (by {uneven:.2f}; 0 is even, 1 always the same): who is "
            "wrong where may be taken for somebody else"
        )
    if same is not None and by_chance is not None and same > by_chance + MAX_EXCESS_SHARED_ERRORS:
        doubts.append(
            f"two wrong labels of an item are the same in {100 * same:.0f} % of cases, {100 * by_chance:.0f} % by "
            "chance: annotators share mistakes, and nothing in the labels tells these from the truth"
        )
    if together is not None and together > MAX_JOINT_ERROR_RATIO:
        doubts.append(f"two labels of an item are both wrong {together:.1f} times as often as the gates explain")
    if initial_classes_from == "vote":
        doubts.append(
            "annotators contradict each other, each on other items, and nothing in the labels tells who is right "
            "where: the classifier goes by the vote, and fifty gold items could change that"
        )
    elif ann.n_classes == 2 and initial_classes_from == "labels":
        doubts.append("with two classes, who is wrong on a kind of items cannot be told from labels: give some gold")
    if overlap == 0:
        doubts.append("no item has two labels: a hard item and a bad annotator look the same")
    against = [] if initial_classes_from == "gold" else _objections(predicted, ann, labelled)
    messages = [*doubts, *against, *_missing(predicted, ann)]
    if doubts:
        messages.insert(0, "the gates cannot be trusted")
    return Diagnostics(uneven, same, by_chance, together, overlap, initial_classes_from, not doubts, tuple(messages))


def _unevenness(f: NDArray[Any], ann: Annotations) -> tuple[NDArray[np.float64], float | None]:
    """What is said instead of each class, (K, K), and how far that is from even, without what chance alone makes."""
    n_classes = ann.n_classes
    table = np.zeros((n_classes, n_classes))
    np.add.at(table, ann.label, f[ann.item])
    table = table.T * (1 - np.eye(n_classes))  # rows: true; columns: said
    count = table.sum(1)
    even = (1 - np.eye(n_classes)) / (n_classes - 1)
    spread = np.where(count[:, None] > 0, table / np.maximum(count, 1e-9)[:, None], even)
    if n_classes == 2 or count.sum() < MIN_WRONG_LABELS:
        return spread, None
    off = np.abs(spread - even).sum(1) / 2
    p = 1 / (n_classes - 1)
    by_chance = (n_classes - 1) / 2 * np.sqrt(2 * p * (1 - p) / (np.pi * np.maximum(count, 1e-9)))
    return spread, float(np.average(np.maximum(0, off - by_chance), weights=count))


def _pairs(
    predicted: NDArray[np.int64], gates: NDArray[Any], ann: Annotations, spread: NDArray[np.float64]
) -> tuple[float | None, float | None, float | None]:
    """Of pairs of labels of an item that are both wrong: how many are the same, by chance, and over what gates say."""
    is_wrong = ann.label != predicted[ann.item]
    n_wrong = np.bincount(ann.item, is_wrong, minlength=ann.n_items)
    pairs = n_wrong * (n_wrong - 1) / 2
    missed = np.bincount(ann.item, 1.0 - gates, minlength=ann.n_items)
    squares = np.bincount(ann.item, (1.0 - gates) ** 2, minlength=ann.n_items)
    explained = float((missed**2 - squares).sum() / 2)
    if pairs.sum() < MIN_WRONG_LABELS:
        return None, None, None
    together = float(pairs.sum()) / explained if explained > 1e-9 else None
    if ann.n_classes == 2:
        return None, None, together
    votes = np.unique(ann.item[is_wrong].astype(np.int64) * ann.n_classes + ann.label[is_wrong], return_counts=True)[1]
    same = float((votes * (votes - 1) / 2).sum() / pairs.sum())
    by_chance = float(np.average((spread**2).sum(1)[predicted], weights=pairs))
    return same, by_chance, together


def _objections(predicted: NDArray[np.int64], ann: Annotations, labelled: NDArray[np.bool_]) -> list[str]:
    if not labelled.any():
        return []
    return [f"against the classifier: {one}" for one in failed_sanity_checks(predicted, ann)]


def _missing(predicted: NDArray[np.int64], ann: Annotations) -> list[str]:
    """What no method could learn from these labels."""
    found = []
    said = np.bincount(ann.label, minlength=ann.n_classes)
    if (said == 0).any():
        found.append(f"nobody ever names {format_names(ann.classes[said == 0])}: it cannot be learned")
    if np.count_nonzero(np.bincount(ann.annotator, minlength=ann.n_annotators)) == 1:
        found.append("all labels are by one annotator: what they get wrong cannot be told from what is there")
    if ann.n_labels:
        agreed, commonest = float((predicted[ann.item] == ann.label).mean()), float(said.max() / ann.n_labels)
        if agreed < commonest + 2 * np.sqrt(commonest * (1 - commonest) / ann.n_labels):
            found.append(
                f"the labels hardly depend on the inputs: the classifier agrees with {100 * agreed:.0f} % of them, the "
                f"commonest label alone with {100 * commonest:.0f} %"
            )
    return found
