"""Statistical tests of gold against the consensus and against the estimated accuracies of annotators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray, format_count
from crowdfuse.labels.number_format import format_percent
from crowdfuse.quality.findings import Finding, annotator_in_message, name_in_message
from crowdfuse.quality.independent_crowd import FloatArray
from crowdfuse.quality.multiple_tests import FALSE_ALARM_RATE, significant

if TYPE_CHECKING:
    from crowdfuse.quality.consensus import Consensus

RATIO_MARGIN, ADDED_MARGIN = 1.5, 0.05  # accepted contradictions: 1.5 x the expected error rate + 5 %
ACCURACY_MARGIN = 0.05  # accepted distance of an accuracy on gold from the interval of the estimated accuracy
MIN_ITEMS = 20  # with gold; for one annotator: labels of items with gold
MAX_LISTED_ANNOTATORS = 3


def gold_contradictions(consensus: Consensus, gold: IntArray) -> tuple[Finding, ...]:
    """Test whether gold contradicts the consensus of many items, or the estimated accuracies of annotators.

    Each of the two tests has a nominal false-alarm rate of 1 % for the whole data set. The test of the consensus leaves
    out items whose gold was used to compute the consensus.

    Parameters
    ----------
    consensus : Consensus
        The consensus of the labels.
    gold : ndarray of int, shape (n_items,)
        True class of each item, as a position in `consensus.classes`; -1 if unknown.

    Returns
    -------
    findings : tuple of Finding
        Of the kinds "gold_contradicts_consensus" and "gold_contradicts_accuracy". Empty if there is no contradiction,
        or too little gold.

    See Also
    --------
    crowdfuse.quality.diagnose : Tests that need no gold.

    Examples
    --------
    >>> from crowdfuse import Annotations, consensus
    >>> result = consensus(Annotations.from_matrix([[0, 0, 0], [1, 1, 1]] * 50))
    >>> wrong = 1 - result.consensus_codes
    >>> [finding.kind for finding in gold_contradictions(result, wrong)]
    ['gold_contradicts_consensus', 'gold_contradicts_accuracy']
    >>> gold_contradictions(result, result.consensus_codes)
    ()
    """
    unused = gold if consensus.gold_codes is None else np.where(consensus.gold_codes >= 0, -1, gold)
    probabilities = consensus.class_probabilities.astype(np.float64)
    return (*consensus_contradiction(consensus.annotations, probabilities, unused), *_test_accuracies(consensus, gold))


def consensus_contradiction(ann: Annotations, probabilities: FloatArray, gold: IntArray) -> Iterator[Finding]:
    """Yield a finding if gold contradicts the consensus on many items."""
    rows = np.flatnonzero((np.diff(ann.indptr) > 0) & (gold >= 0))
    if len(rows) < MIN_ITEMS:
        return
    consensus = probabilities[rows].argmax(1)
    error_rate = float(1 - probabilities[rows].max(1).mean())
    wrong = consensus != gold[rows]
    n_wrong = int(wrong.sum())
    accepted = min(1.0, RATIO_MARGIN * error_rate + ADDED_MARGIN)
    p_value = float(bdtrc(n_wrong - 1, len(rows), accepted)) if n_wrong else 1.0
    if p_value >= FALSE_ALARM_RATE:
        return
    cells, counts = np.unique(gold[rows][wrong] * ann.n_classes + consensus[wrong], return_counts=True)
    most, n_most = divmod(int(cells[counts.argmax()]), ann.n_classes), int(counts.max())
    gold_name, consensus_name = (name_in_message(ann.classes[k]) for k in most)
    message = (
        f"Gold contradicts the consensus on {n_wrong:,} of {len(rows):,} items, but according to its confidence, the "
        f"consensus is wrong on only about {error_rate * len(rows):,.0f}. Most often gold is {gold_name} and the "
        f"consensus is {consensus_name} ({n_most:,} items). Check that gold has the right item ids and class names. If "
        "it has, use it in training, because the annotators are wrong together."
    )
    yield Finding("gold_contradicts_consensus", message, p_value, len(rows))


def overconfidence_p_value(confidence: NDArray[Any], is_right: NDArray[np.bool_]) -> float:
    """Test whether answers are right less often than their confidence says.

    Under the null hypothesis, each answer is right with a probability equal to its confidence, independently of the
    others. The test is the one-sided binomial test of the mean confidence. If the confidences differ, the number of
    right answers varies less than a binomial variable, so the rate of false alarms is at most the level of the test
    (Hoeffding, 1956).

    Parameters
    ----------
    confidence : ndarray of shape (n_items,)
        Probability that each answer is right.
    is_right : ndarray of bool, shape (n_items,)
        Whether each answer is right.

    Returns
    -------
    p_value : float
        Small if the confidence is too high.

    Examples
    --------
    >>> from crowdfuse.quality.gold_tests import overconfidence_p_value
    >>> is_right = np.arange(100) < 80
    >>> overconfidence_p_value(np.full(100, 0.95), is_right) < 0.01
    True
    >>> overconfidence_p_value(np.full(100, 0.8), is_right) < 0.01
    False
    """
    return float(bdtr(int(is_right.sum()), len(is_right), min(float(confidence.mean(dtype=np.float64)), 1.0)))


def _test_accuracies(consensus: Consensus, gold: IntArray) -> Iterator[Finding]:
    """Yield a finding if annotators are right on gold much less or more often than their intervals say."""
    ann, known = consensus.annotations, gold[consensus.annotations.item] >= 0
    who, is_right = ann.annotator[known], (ann.label == gold[ann.item])[known]
    n_labels = np.bincount(who, minlength=ann.n_annotators)
    n_right = np.bincount(who, is_right, ann.n_annotators)
    low, high = consensus.annotator_accuracy_interval.T
    tested = np.flatnonzero((n_labels >= MIN_ITEMS) & np.isfinite(low))
    right, total = n_right[tested], n_labels[tested]
    lowest, highest = np.maximum(low[tested] - ACCURACY_MARGIN, 0), np.minimum(high[tested] + ACCURACY_MARGIN, 1)
    too_low = bdtr(right, total, lowest)
    too_high = np.where(right > 0, bdtrc(right - 1, total, highest), 1.0)
    found = significant(np.minimum(1.0, 2 * np.minimum(too_low, too_high)), len(tested))
    if not found:
        return
    parts = []
    for position, _ in found[:MAX_LISTED_ANNOTATORS]:
        r = tested[position]
        share = f"{n_right[r]:,.0f} of {n_labels[r]:,} items with gold ({format_percent(n_right[r] / n_labels[r])})"
        estimated = f"{format_percent(low[r])} to {format_percent(high[r])} are estimated"
        parts.append(f"{annotator_in_message(ann.annotators[r])} is right on {share}, where {estimated}")
    n_more = len(found) - len(parts)
    more = f"; {format_count(n_more, 'more annotator')} not listed" if n_more else ""
    message = (
        f"Gold contradicts the estimated accuracy of {len(found)} of {format_count(len(tested), 'annotator')} with at "
        f"least {MIN_ITEMS} labels of items with gold: {'; '.join(parts)}{more}. Either annotators are wrong together, "
        "which only gold shows, or the items with gold are harder or easier than the others. Use gold in training, or "
        "judge annotators by their accuracy on gold."
    )
    yield Finding("gold_contradicts_accuracy", message, found[0][1], int(total.sum()))
