"""Why the consensus of an item differs from the vote, the prediction or the largest weight, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from crowdfuse.aggregation.posterior import log_with_uniform
from crowdfuse.labels.ids import IntArray, format_count
from crowdfuse.labels.number_format import format_confidence, format_percent
from crowdfuse.quality.consensus import Consensus
from crowdfuse.report.printable import printable

MAX_OPPOSING_CLASSES = 3  # opposing classes that are listed


def explain_item(consensus: Consensus, row: int) -> str | None:
    """List the evidence for and against the consensus of an item, if most annotators or the model disagree with it.

    All evidence against the consensus is listed: labels, the model trained without the item, and the final model. The
    last line has the probabilities of all classes that are named.

    Parameters
    ----------
    consensus : Consensus
        The consensus with its labels.
    row : int
        Row of the item.

    Returns
    -------
    str or None
        The explanation. None if the consensus equals both the prediction and the most frequent label (or one of several
        equally frequent labels), or if the item has no consensus.

    Notes
    -----
    The percentage in "2 of 3 annotators said cat (of all their 'cat' labels, 40 % are right)" is about these two
    annotators and all items: it is the mean probability of cat over all 'cat' labels that they gave.
    "The final model" is the one whose prediction is shown beside the consensus. "The model trained without this item"
    is the out-of-fold classifier. The consensus uses its probabilities, after calibration.

    Examples
    --------
    >>> import crowdfuse
    >>> ann = crowdfuse.Annotations.from_matrix([["cat", "cat"], ["dog", "dog"], ["cat", "dog"]] * 20)
    >>> explain_item(crowdfuse.consensus(ann), 0) is None
    True
    """
    chosen = int(consensus.consensus_codes[row])
    if chosen < 0:
        return None
    predicted = chosen if consensus.predicted_codes is None else int(consensus.predicted_codes[row])
    votes = np.bincount(_labels_of_item(consensus, row), minlength=len(consensus.classes))
    if votes[chosen] == votes.max() and predicted == chosen:
        return None
    if not votes.any():
        return _without_labels(consensus, row, chosen)
    opposing = _opposing_classes(consensus, row, votes, chosen)
    against = [_labels_part(consensus, row, k) for k in opposing[:MAX_OPPOSING_CLASSES]]
    if len(opposing) > MAX_OPPOSING_CLASSES:
        against.append(format_count(int(votes[opposing[MAX_OPPOSING_CLASSES:]].sum()), "other label"))
    support = [_labels_part(consensus, row, chosen)] if votes[chosen] else []
    if consensus.gold_codes is not None and consensus.gold_codes[row] == chosen:
        support.insert(0, f"the gold label is {_name(consensus, chosen)}")
    has_say, names_final = _model_has_a_say(consensus), False
    named = {chosen, predicted, *opposing[:MAX_OPPOSING_CLASSES]}
    if has_say:
        said, words, names_final = _model_part(consensus, row)
        (support if said == chosen else against).append(words)
        named.add(said)
    if predicted != chosen and not names_final:
        name, percent = _name(consensus, predicted), _percent(consensus.predicted_probabilities, row)
        why = ", but the consensus ignores the model, because it does not help to explain the labels"
        against.append(f"the final model predicts {name} ({percent}){'' if has_say else why}")
    if not support:
        voters, voted = _annotators_who_said(consensus, row, opposing[0]), _name(consensus, opposing[0])
        meant = format_percent(share_right(consensus, voters, opposing[0], chosen), 0)
        support = [f"'{voted}' labels of these annotators should be {_name(consensus, chosen)} in {meant} of cases"]
    lines = f"For {_name(consensus, chosen)}: {'; '.join(support)}.\nAgainst: {'; '.join(against)}.\n"
    return lines + _probabilities_part(consensus, row, named)


def explain_weights(consensus: Consensus, row: int, weights: Sequence[float] | NDArray[Any]) -> str | None:
    """Return a sentence if the annotator with the largest weight on an item is clearly less accurate than another one.

    The weight belongs to this item and comes from the method itself. The accuracy is estimated from all labels of an
    annotator.

    Parameters
    ----------
    consensus : Consensus
        The consensus with its labels.
    row : int
        Row of the item.
    weights : array-like of shape (n_labels_of_item,)
        Weights of the labels of the item, in the order of the labels.

    Returns
    -------
    str or None
        The sentence. None if the item has no annotator who gave a different label and whose accuracy interval lies
        above the interval of the annotator with the largest weight.
    """
    ann = consensus.annotations
    annotators, labels = ann.annotator[ann.indptr[row] : ann.indptr[row + 1]], _labels_of_item(consensus, row)
    if len(labels) < 2:
        return None
    heaviest = int(np.argmax(weights))
    low, high = consensus.annotator_accuracy_interval[annotators].T
    more_accurate = np.flatnonzero((low > high[heaviest]) & (labels != labels[heaviest]))
    if not len(more_accurate):
        return None
    best = more_accurate[low[more_accurate].argmax()]
    first, second = (printable(ann.annotators[annotators[place]]) for place in (heaviest, best))
    return (
        f"{first} has the largest weight here, although {second} is more accurate (at least "
        f"{format_percent(low[best])}, {first} at most {format_percent(high[heaviest])}). The weight is the method's "
        "own opinion on this item; the consensus does not use it."
    )


def share_right(consensus: Consensus, annotators: IntArray, label: int, true: int | None = None) -> float:
    """Return how often some annotators' labels of one class are right: the mean posterior over these labels.

    Parameters
    ----------
    consensus : Consensus
        The consensus with its labels.
    annotators : ndarray of shape (n_selected,)
        Positions of the annotators.
    label : int
        The class that the annotators gave.
    true : int, default=None
        The true class. None means `label`. If it is another class, the result is the share of the labels that should
        have been this class.

    Returns
    -------
    float
        NaN if these annotators have no such labels.
    """
    ann = consensus.annotations
    chosen = (ann.label == label) & np.isin(ann.annotator, annotators)
    posterior = consensus.class_probabilities[ann.item[chosen], label if true is None else true]
    return float(posterior.mean(dtype=np.float64)) if len(posterior) else float("nan")


def _opposing_classes(consensus: Consensus, row: int, votes: IntArray, chosen: int) -> list[int]:
    """Return the other classes among the labels of an item, those with the most labels first.

    The most probable of them is among the first `MAX_OPPOSING_CLASSES`, which are listed, even if it has few labels.
    """
    posterior = consensus.class_probabilities[row]
    classes = [int(k) for k in np.lexsort((-posterior, -votes)) if k != chosen and votes[k]]
    if len(classes) > MAX_OPPOSING_CLASSES:
        strongest = max(classes, key=lambda k: float(posterior[k]))
        if classes.index(strongest) >= MAX_OPPOSING_CLASSES:
            classes.remove(strongest)
            classes.insert(MAX_OPPOSING_CLASSES - 1, strongest)
    return classes


def _labels_part(consensus: Consensus, row: int, label: int) -> str:
    """Return how many annotators gave this label to an item, and how often their labels of this class are right."""
    who, name = _annotators_who_said(consensus, row, label), _name(consensus, label)
    share = format_percent(share_right(consensus, who, label), 0)
    return f"{_count_annotators(consensus, row, who)} said {name} (of all their '{name}' labels, {share} are right)"


def _model_part(consensus: Consensus, row: int) -> tuple[int, str, bool]:
    """Return what the classifier contributed to the consensus of an item: class, words, whether it is the final model.

    The contribution is out of fold, so it may differ from the prediction of the final model, which is also shown.
    """
    predicted, part = consensus.predicted_probabilities, consensus.out_of_fold_probabilities
    part = predicted if part is None else part
    assert part is not None
    said = int(part[row].argmax())
    is_shown = predicted is not None and np.array_equal(part[row], predicted[row])
    who = "the final model predicts" if is_shown else "the model trained without this item says"
    percent, calibrated = _percent(part, row), format_confidence(_calibrated(consensus, part[row])[said])
    more = "" if calibrated == percent else f"; after calibration {calibrated}"
    return said, f"{who} {_name(consensus, said)} ({percent}{more})", is_shown


def _calibrated(consensus: Consensus, probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the classifier's probabilities of one item as they enter the consensus."""
    log_p = log_with_uniform(probabilities[None].astype(np.float64))[0]
    sharpness, bias = consensus.parameters.get("sharpness", 1.0), consensus.parameters.get("class_bias", 0.0)
    calibrated: NDArray[np.float64] = softmax(sharpness * log_p + bias)
    return calibrated


def _probabilities_part(consensus: Consensus, row: int, named: set[int]) -> str:
    """Return the probabilities of these classes on an item, the highest first."""
    posterior = consensus.class_probabilities[row]
    parts = [
        f"{_name(consensus, k)} {format_confidence(posterior[k])}" for k in sorted(named, key=lambda k: -posterior[k])
    ]
    return f"Probabilities: {', '.join(parts)}."


def _without_labels(consensus: Consensus, row: int, chosen: int) -> str:
    """Return why the consensus of an item without labels differs from the prediction."""
    assert consensus.predicted_codes is not None
    predicted = _name(consensus, int(consensus.predicted_codes[row]))
    return (
        f"No annotator labelled this item. The final model predicts {predicted} "
        f"({_percent(consensus.predicted_probabilities, row)}); after calibration on the other items, "
        f"{_name(consensus, chosen)} is more probable."
    )


def _model_has_a_say(consensus: Consensus) -> bool:
    """Return whether a classifier is part of the evidence. If its sharpness is 0, it is not."""
    has_model = consensus.predicted_probabilities is not None
    return has_model and bool(consensus.parameters.get("sharpness", np.array(1.0)) > 0)


def _labels_of_item(consensus: Consensus, row: int) -> IntArray:
    """Return the classes that the annotators of one item said, as positions."""
    ann = consensus.annotations
    labels: IntArray = ann.label[ann.indptr[row] : ann.indptr[row + 1]]
    return labels


def _annotators_who_said(consensus: Consensus, row: int, label: int) -> IntArray:
    """Return the positions of the annotators who gave this label to this item."""
    ann = consensus.annotations
    annotators = ann.annotator[ann.indptr[row] : ann.indptr[row + 1]]
    chosen: IntArray = annotators[_labels_of_item(consensus, row) == label]
    return chosen


def _count_annotators(consensus: Consensus, row: int, some: IntArray) -> str:
    """Return in words which part of an item's annotators these are, such as "2 of 3 annotators"."""
    n_labels = int(consensus.labels_per_item[row])
    if n_labels == 1:
        return "the only annotator"
    if len(some) == n_labels:
        return "both annotators" if n_labels == 2 else f"all {n_labels} annotators"
    return f"{len(some)} of {n_labels} annotators"


def _percent(probabilities: NDArray[np.float32] | None, row: int) -> str:
    """Return the highest probability of an item in percent."""
    assert probabilities is not None
    return format_confidence(float(probabilities[row].max()))


def _name(consensus: Consensus, k: int) -> str:
    """Return the name of a class as text."""
    return printable(consensus.classes[k])
