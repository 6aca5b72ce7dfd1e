"""Check whether the labels are consistent with the assumptions behind an annotator model.

A gate is the estimated probability that one annotator is right on one item. Gates are reliable if wrong labels are
spread evenly over the wrong classes, if annotators do not make the same mistakes, and if several annotators label the
same items. All three can be measured once the classifier has predicted the classes of the items.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import failed_sanity_checks
from crowdfuse.labels.ids import format_names

MAX_ERROR_CONCENTRATION = 0.25  # largest accepted `error_concentration`, between 0 and 1
MAX_EXCESS_SHARED_ERRORS = 0.1  # largest accepted excess of `shared_error_rate` over its value by chance
MAX_JOINT_ERROR_RATIO = 1.25  # largest accepted `joint_error_ratio`
MIN_WRONG_LABELS = 30  # fewer wrong labels, or fewer pairs of them, give no figure


@dataclass(frozen=True)
class Diagnostics:
    """Measurements that show whether the gates can be trusted, as returned by `diagnose`.

    A gate is the estimated probability that one annotator is right on one item. It relies on assumptions about the
    labels, which are measured here. A measurement is None if there is too little data for it.

    Attributes
    ----------
    error_concentration : float or None
        How unevenly wrong labels are spread over the wrong classes: 0 means evenly, close to 1 means always the same
        wrong class. The unevenness expected by chance is subtracted.
    shared_error_rate : float or None
        Of all pairs of wrong labels on the same item, the fraction in which both labels name the same class.
    shared_error_rate_by_chance : float or None
        The value of `shared_error_rate` if annotators chose their wrong labels independently.
    joint_error_ratio : float or None
        Number of pairs of labels on the same item in which both labels are wrong, divided by the number that the gates
        predict. A value above 1 means that annotators are wrong together more often than the
        gates predict.
    overlap : float
        Share of the labelled items that have more than one label.
    initial_classes_from : {"labels", "labels and gold", "gold", "vote"}
        Source of the classes that the training started from. "labels": the labels alone. "labels and gold": the labels,
        confirmed by gold. "gold": gold, which overruled the labels. "vote": the majority vote, because the labels do
        not show which annotators are right.
    gates_can_be_trusted : bool
        True if the labels violate none of the assumptions.
    messages : tuple of str
        One sentence per finding; empty if there is none.

    See Also
    --------
    diagnose : Computes the measurements.
    """

    error_concentration: float | None
    shared_error_rate: float | None
    shared_error_rate_by_chance: float | None
    joint_error_ratio: float | None
    overlap: float
    initial_classes_from: str
    gates_can_be_trusted: bool
    messages: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary that JSON can hold.

        Returns
        -------
        fields : dict
            One entry per attribute; `messages` is a list.
        """
        return asdict(self) | {"messages": list(self.messages)}


GATES_NOT_TRUSTED = "the gates (accuracy of each annotator on each item) cannot be trusted"
NO_LABELS = Diagnostics(None, None, None, None, 0.0, "labels", False, (GATES_NOT_TRUSTED, "there are no labels"))


def diagnose(
    probabilities: NDArray[Any], gates: NDArray[Any], ann: Annotations, *, initial_classes_from: str = "labels"
) -> Diagnostics:
    """Check whether the labels are consistent with the assumptions behind the gates.

    Parameters
    ----------
    probabilities : ndarray of shape (n_items, n_classes)
        Class probabilities predicted by the classifier.
    gates : ndarray of shape (n_labels,)
        Estimated probability that each label is right, in the order of `ann`.
    ann : Annotations
        The labels.
    initial_classes_from : {"labels", "labels and gold", "gold", "vote"}, default="labels"
        Source of the classes that the training started from; see `Diagnostics`. With "gold", the classifier is expected
        to contradict the labels, so its sanity checks are skipped. With "vote", `gates_can_be_trusted` is False.

    Returns
    -------
    diagnostics : Diagnostics

    Examples
    --------
    The third annotator always gives the class that follows the true class:

    >>> truth = np.arange(400) % 4
    >>> Y = np.stack([truth, truth, (truth + 1) % 4], axis=1)
    >>> result = diagnose(np.eye(4)[truth], np.tile([1.0, 1.0, 0.0], 400), Annotations.from_matrix(Y))
    >>> round(result.error_concentration, 2), result.gates_can_be_trusted
    (0.61, False)
    """
    predicted = probabilities.argmax(1)
    labels_per_item = np.diff(ann.indptr)
    overlap = float((labels_per_item > 1).sum() / max(1, (labels_per_item > 0).sum()))
    wrong_shares, concentration = _error_concentration(probabilities, ann)
    shared, shared_by_chance, joint = _pair_figures(predicted, gates, ann, wrong_shares)
    violations = _violations(concentration, shared, shared_by_chance, joint)
    if initial_classes_from == "vote":
        violations.append(
            "annotators contradict each other on different items, and the labels do not show who is right, so the "
            "classifier follows the majority vote. Pass about fifty gold labels to show who is right"
        )
    elif ann.n_classes == 2 and initial_classes_from == "labels":
        violations.append(
            "with two classes, the labels alone cannot show which annotator is wrong on which kind of item; pass some "
            "gold labels"
        )
    if overlap == 0:
        violations.append(
            "no item has two labels, so a difficult item and a bad annotator cannot be told apart; ask a second "
            "annotator about some items"
        )
    checks = [] if initial_classes_from == "gold" else _classifier_checks(predicted, ann)
    messages = [*violations, *checks, *_label_gaps(predicted, ann)]
    if violations:
        messages.insert(0, GATES_NOT_TRUSTED)
    return Diagnostics(
        error_concentration=concentration,
        shared_error_rate=shared,
        shared_error_rate_by_chance=shared_by_chance,
        joint_error_ratio=joint,
        overlap=overlap,
        initial_classes_from=initial_classes_from,
        gates_can_be_trusted=not violations,
        messages=tuple(messages),
    )


def _violations(
    concentration: float | None, shared: float | None, shared_by_chance: float | None, joint: float | None
) -> list[str]:
    """One sentence per measured assumption that does not hold."""
    violations = []
    if concentration is not None and concentration > MAX_ERROR_CONCENTRATION:
        violations.append(
            f"wrong labels concentrate on some classes (concentration {concentration:.2f}, where 0 is evenly spread "
            "and 1 is always the same wrong class), so the gates may blame the wrong annotator"
        )
    if shared is not None and shared_by_chance is not None and shared > shared_by_chance + MAX_EXCESS_SHARED_ERRORS:
        violations.append(
            f"if two labels of an item are wrong, they name the same class in {100 * shared:.0f} % of cases "
            f"({100 * shared_by_chance:.0f} % expected by chance): annotators share mistakes, and labels alone cannot "
            "tell a shared mistake from the truth"
        )
    if joint is not None and joint > MAX_JOINT_ERROR_RATIO:
        violations.append(f"two labels of one item are both wrong {joint:.1f} times as often as the gates predict")
    return violations


def _error_concentration(f: NDArray[Any], ann: Annotations) -> tuple[NDArray[np.float64], float | None]:
    """Distribution of the wrong labels of each class, (K, K), and its distance from even beyond chance."""
    n_classes = ann.n_classes
    table = np.zeros((n_classes, n_classes))
    np.add.at(table, ann.label, f[ann.item])
    table = table.T * (1 - np.eye(n_classes))  # rows: true; columns: said
    count = table.sum(1)
    even = (1 - np.eye(n_classes)) / (n_classes - 1)
    wrong_shares = np.where(count[:, None] > 0, table / np.maximum(count, 1e-9)[:, None], even)
    if n_classes == 2 or count.sum() < MIN_WRONG_LABELS:
        return wrong_shares, None
    distance = np.abs(wrong_shares - even).sum(1) / 2
    p = 1 / (n_classes - 1)
    by_chance = (n_classes - 1) / 2 * np.sqrt(2 * p * (1 - p) / (np.pi * np.maximum(count, 1e-9)))
    return wrong_shares, float(np.average(np.maximum(0, distance - by_chance), weights=count))


def _pair_figures(
    predicted: NDArray[np.int64], gates: NDArray[Any], ann: Annotations, wrong_shares: NDArray[np.float64]
) -> tuple[float | None, float | None, float | None]:
    """Shared error rate, its value by chance, and joint error ratio, over pairs of labels of one item."""
    is_wrong = ann.label != predicted[ann.item]
    n_wrong = np.bincount(ann.item, is_wrong, minlength=ann.n_items)
    pairs = n_wrong * (n_wrong - 1) / 2
    expected_wrong = np.bincount(ann.item, 1.0 - gates, minlength=ann.n_items)
    squares = np.bincount(ann.item, (1.0 - gates) ** 2, minlength=ann.n_items)
    expected_pairs = float((expected_wrong**2 - squares).sum() / 2)
    if pairs.sum() < MIN_WRONG_LABELS:
        return None, None, None
    joint = float(pairs.sum()) / expected_pairs if expected_pairs > 1e-9 else None
    if ann.n_classes == 2:
        return None, None, joint
    votes = np.unique(ann.item[is_wrong].astype(np.int64) * ann.n_classes + ann.label[is_wrong], return_counts=True)[1]
    shared = float((votes * (votes - 1) / 2).sum() / pairs.sum())
    by_chance = float(np.average((wrong_shares**2).sum(1)[predicted], weights=pairs))
    return shared, by_chance, joint


def _classifier_checks(predicted: NDArray[np.int64], ann: Annotations) -> list[str]:
    """One sentence per sanity check that the predicted classes failed."""
    return [f"failed sanity check: the classifier {check}" for check in failed_sanity_checks(predicted, ann)]


def _label_gaps(predicted: NDArray[np.int64], ann: Annotations) -> list[str]:
    """What no method could learn from these labels, one sentence each."""
    messages = []
    label_counts = np.bincount(ann.label, minlength=ann.n_classes)
    unused = ann.classes[label_counts == 0]
    if len(unused):
        classes, they = ("class", "it") if len(unused) == 1 else ("classes", "they")
        messages.append(f"no annotator uses {classes} {format_names(unused)}, so {they} cannot be learned")
    if np.count_nonzero(np.bincount(ann.annotator, minlength=ann.n_annotators)) == 1:
        messages.append("all labels come from one annotator, so the mistakes of this annotator cannot be detected")
    if ann.n_labels:
        agreement = float((predicted[ann.item] == ann.label).mean())
        most_frequent = float(label_counts.max() / ann.n_labels)
        if agreement < most_frequent + 2 * np.sqrt(most_frequent * (1 - most_frequent) / ann.n_labels):
            messages.append(
                f"the labels hardly depend on the inputs: the classifier agrees with {100 * agreement:.0f} % of the "
                f"labels, and always predicting the most frequent label agrees with {100 * most_frequent:.0f} %"
            )
    return messages
