"""Why the consensus of an item differs from the vote of its annotators or from the model's prediction, in words."""

from __future__ import annotations

import numpy as np

from crowdfuse.labels.ids import IntArray
from crowdfuse.quality.consensus import Consensus
from crowdfuse.report.number_format import format_confidence, format_percent
from crowdfuse.report.printable import printable

LOW_SHARE_RIGHT = 0.6  # labels that are right less often count as a weak record: "right in only 40 % of cases"


def explain_item(consensus: Consensus, row: int) -> str | None:
    """Explain in one sentence why the consensus of an item is not what most annotators or the model say.

    Parameters
    ----------
    consensus : Consensus
        The consensus with its labels.
    row : int
        Row of the item.

    Returns
    -------
    str or None
        The sentence. None if the consensus is the most frequent label (or one of them) and the prediction, or if the
        item has no consensus.

    Notes
    -----
    "Right in 40 % of cases" is about the labels of one class by the annotators who gave it to this item: the mean of
    the posterior of this class over all labels of this class that these annotators gave.

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
    labels = _labels_of_item(consensus, row)
    predicted = None if consensus.predicted_codes is None else int(consensus.predicted_codes[row])
    votes = np.bincount(labels, minlength=len(consensus.classes))
    if not len(labels):
        return None if predicted in (None, chosen) else _without_labels(consensus, row, chosen)
    if votes[chosen] == votes.max():
        return None if predicted in (None, chosen) else _against_prediction(consensus, row, chosen)
    return _against_vote(consensus, row, chosen, int(votes.argmax()))


def share_right(consensus: Consensus, annotators: IntArray, label: int, true: int | None = None) -> float:
    """Return how often labels of one class by some annotators are right: the mean of the posterior over these labels.

    Parameters
    ----------
    consensus : Consensus
        The consensus with its labels.
    annotators : ndarray of shape (n_selected,)
        Positions of the annotators.
    label : int
        The class that they said.
    true : int, default=None
        The true class. None means `label`; another class gives the share of the labels that should have been `true`.

    Returns
    -------
    float
        NaN if these annotators have no such labels.
    """
    ann = consensus.annotations
    chosen = (ann.label == label) & np.isin(ann.annotator, annotators)
    posterior = consensus.class_probabilities[ann.item[chosen], label if true is None else true]
    return float(posterior.mean(dtype=np.float64)) if len(posterior) else float("nan")


def _against_vote(consensus: Consensus, row: int, chosen: int, voted: int) -> str:
    """Return why the consensus is `chosen` although more annotators said `voted`."""
    named, voted_name = _name(consensus, chosen), _name(consensus, voted)
    voters, supporters = _annotators_who_said(consensus, row, voted), _annotators_who_said(consensus, row, chosen)
    right = share_right(consensus, voters, voted)
    vote = f"{_count_annotators(consensus, row, voters)} said {voted_name}"
    model, said, percent = _model_part(consensus, row)
    support = []
    if said == voted:
        vote += f" like {model} ({percent})"
    if said == chosen:
        support.append(f"{model} says {named} ({percent})")
    if len(supporters):
        share = format_percent(share_right(consensus, supporters, chosen), 0)
        count = f"{len(supporters)} annotator{'' if len(supporters) == 1 else 's'}"
        support.append(f"{count} said {named}, whose '{named}' labels are right in {share} of cases")
    if not support:
        meant = format_percent(share_right(consensus, voters, voted, chosen), 0)
        support.append(f"in {meant} of cases they should be {named}")
    labels = f"their '{voted_name}' labels are right in"
    if right < LOW_SHARE_RIGHT:
        return f"{vote}, but {labels} only {format_percent(right, 0)} of cases; {', and '.join(support)}."
    return f"{vote}, and {labels} {format_percent(right, 0)} of cases, but {', and '.join(support)}."


def _against_prediction(consensus: Consensus, row: int, chosen: int) -> str:
    """Return why the consensus is `chosen`, which no class has more votes than, although the model says otherwise."""
    assert consensus.predicted_codes is not None
    predicted = _name(consensus, int(consensus.predicted_codes[row]))
    model = f"The model says {predicted} ({_predicted_percent(consensus, row)})"
    if not _model_has_a_say(consensus):
        return f"{model}, but it has no say in the consensus, because it does not help to explain the labels."
    supporters = _annotators_who_said(consensus, row, chosen)
    count = _count_annotators(consensus, row, supporters)
    share = format_percent(share_right(consensus, supporters, chosen), 0)
    return (
        f"{model}, but {count[0].lower()}{count[1:]} said {_name(consensus, chosen)}, and such labels of theirs are "
        f"right in {share} of cases."
    )


def _without_labels(consensus: Consensus, row: int, chosen: int) -> str:
    """Return why the consensus of an item without labels is not the prediction."""
    assert consensus.predicted_codes is not None
    predicted = _name(consensus, int(consensus.predicted_codes[row]))
    return (
        f"No annotator labelled this item. The model says {predicted} ({_predicted_percent(consensus, row)}); after "
        f"calibration on the other items, {_name(consensus, chosen)} is more probable."
    )


def _model_part(consensus: Consensus, row: int) -> tuple[str, int, str]:
    """Return what the classifier contributed to the consensus of an item: who said it, the class and its percentage.

    The class is -1 if the classifier has no say. The contribution is out of fold, and may differ from the prediction.
    """
    part, predicted = consensus.out_of_fold_probabilities, consensus.predicted_codes
    part = consensus.predicted_probabilities if part is None else part
    if part is None or predicted is None or not _model_has_a_say(consensus):
        return "", -1, ""
    said = int(part[row].argmax())
    who = "the model" if said == predicted[row] else "the model trained without this item"
    return who, said, format_confidence(float(part[row].max()))


def _model_has_a_say(consensus: Consensus) -> bool:
    """Return whether the classifier is part of the evidence; with sharpness 0 it is not."""
    return bool(consensus.parameters.get("sharpness", np.array(1.0)) > 0)


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
    """Return how many of the annotators of an item these are, at the start of a sentence."""
    n_labels = int(consensus.labels_per_item[row])
    if n_labels == 1:
        return "The only annotator"
    if len(some) == n_labels:
        return "Both annotators" if n_labels == 2 else f"All {n_labels} annotators"
    return f"{len(some)} of {n_labels} annotators"


def _predicted_percent(consensus: Consensus, row: int) -> str:
    """Return the confidence of the prediction in percent."""
    assert consensus.predicted_probabilities is not None
    return format_confidence(float(consensus.predicted_probabilities[row].max()))


def _name(consensus: Consensus, k: int) -> str:
    """Return the name of a class as text."""
    return printable(consensus.classes[k])
