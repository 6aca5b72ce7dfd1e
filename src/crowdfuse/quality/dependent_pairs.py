"""Tests of pairs of annotators: which pairs copy labels, and which pairs make the same mistakes.

Two annotators who make the same mistakes may outvote accurate annotators, who then seem to make mistakes together. So
the pair with the strongest evidence is tested first. All later pairs are tested without the labels of one of its two
annotators.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, pdtr

from crowdfuse.quality.annotator_pairs import ChosenPairs, PairEvidence, choose_pairs, examine_pair
from crowdfuse.quality.independent_crowd import IndependentCrowd
from crowdfuse.quality.multiple_tests import FALSE_ALARM_RATE, significant

COPY_MARGIN = 0.5  # no copying if there are at least this share of the disagreements that independence predicts
MIN_EXPECTED_DISAGREEMENTS = 10
DEPENDENCE_MARGIN = 0.02  # accepted share of items with coupled labels, beyond what is usual in the crowd


class DependentPair(NamedTuple):
    """A pair whose labels depend on each other.

    Attributes
    ----------
    evidence : PairEvidence
        The annotators and the counts.
    p_value : float
        P-value of the test, corrected for the number of pairs.
    copies : bool
        True if the pair copies labels, False if it makes the same mistakes without copying.
    """

    evidence: PairEvidence
    p_value: float
    copies: bool


def find_dependent_pairs(crowd: IndependentCrowd, n_annotators: int) -> list[DependentPair]:
    """Return pairs who copy labels, followed by other pairs who make the same mistakes; both sorted by p-value.

    Parameters
    ----------
    crowd : IndependentCrowd
        The labels and the fitted model. Sources from number `n_annotators` on (the classifier) are not paired; they
        only help to infer the true classes.
    n_annotators : int
        Number of annotators.

    Returns
    -------
    found : list of DependentPair
    """
    chosen = choose_pairs(crowd, n_annotators)
    examined = [evidence for pair in chosen.pairs if (evidence := examine_pair(crowd, pair)) is not None]
    suspects = _suspects(examined, chosen.n_pairs)
    if not suspects:
        return []
    typical = _examine_typical(crowd, chosen, suspects[0])
    found: list[DependentPair] = []
    reduced = _ReducedCrowds(crowd)
    for suspect in suspects:
        again = examine_pair(reduced.without(_left_out(suspect, found)), (suspect.first, suspect.second))
        if again is None:
            continue
        p_copy = chosen.n_pairs * _copy_p_value(again)
        p_shared = chosen.n_pairs * _shared_p_value(again, _usual_dependence(again, typical))
        if min(p_copy, p_shared) < FALSE_ALARM_RATE:
            copies = p_copy < FALSE_ALARM_RATE
            found.append(DependentPair(again, p_copy if copies else p_shared, copies))
    return sorted(found, key=lambda pair: (not pair.copies, pair.p_value))


def _suspects(examined: list[PairEvidence], n_pairs: int) -> list[PairEvidence]:
    """Return the pairs that seem to be dependent: first copying pairs, then other pairs, strongest evidence first."""
    by_copies = significant(np.array([_copy_p_value(pair) for pair in examined]), n_pairs)
    by_mistakes = significant(np.array([_shared_p_value(pair, 0.0) for pair in examined]), n_pairs)
    copies = [examined[at] for at, _ in by_copies]
    shared = [examined[at] for at, _ in by_mistakes if examined[at] not in copies]
    return copies + sorted(shared, key=lambda pair: -pair.log_ratio)


class _ReducedCrowds:
    """Crowds without some annotators. The last result is kept, because the next request is often the same."""

    def __init__(self, crowd: IndependentCrowd) -> None:
        self.crowd, self.last, self.left_out = crowd, crowd, frozenset[int]()

    def without(self, annotators: frozenset[int]) -> IndependentCrowd:
        """Return the model fitted without the labels of some annotators."""
        if annotators != self.left_out:
            self.last, self.left_out = self.crowd.without(annotators), annotators
        return self.last


def _copy_p_value(pair: PairEvidence) -> float:
    """Return the probability of so few disagreements if half as many are expected as for independent annotators."""
    if pair.expected_disagreements < MIN_EXPECTED_DISAGREEMENTS:
        return 1.0
    return float(pdtr(pair.disagreements, COPY_MARGIN * pair.expected_disagreements))


def _shared_p_value(pair: PairEvidence, usual: float) -> float:
    """Return the probability of such evidence if the dependence is `usual` plus the margin."""
    excess = pair.dependence - usual - DEPENDENCE_MARGIN
    return float(ndtr(-_in_standard_errors(pair) * excess / pair.dependence)) if excess > 0 else 1.0


def _in_standard_errors(pair: PairEvidence) -> float:
    """Return the estimated dependence divided by its standard error: the signed root of the likelihood-ratio test."""
    return float(np.sqrt(2 * pair.log_ratio))


def _left_out(pair: PairEvidence, found: list[DependentPair]) -> frozenset[int]:
    """Return one annotator of each dependent pair, but nobody of the given pair."""
    own = {pair.first, pair.second}
    others = (other.evidence for other in found)
    return frozenset(other.first if other.second in own else other.second for other in others) - own


def _examine_typical(crowd: IndependentCrowd, chosen: ChosenPairs, strongest: PairEvidence) -> list[PairEvidence]:
    """Return typical pairs, examined without the labels of one annotator of the most dependent pair."""
    left_out = strongest.second
    reduced = crowd.without(frozenset({left_out}))
    typical = [pair for pair, is_typical in zip(chosen.pairs, chosen.is_typical, strict=True) if is_typical]
    examined = [examine_pair(reduced, pair) for pair in typical if left_out not in pair]
    return [evidence for evidence in examined if evidence is not None]


def _usual_dependence(pair: PairEvidence, typical: list[PairEvidence]) -> float:
    """Return the usual dependence: a median over typical pairs of other annotators, at least 0.

    The standard error of each pair's dependence is subtracted first. Otherwise the random errors of a few independent
    pairs would look like a usual dependence.
    """
    own = {pair.first, pair.second}
    others = [other for other in typical if not own & {other.first, other.second}]
    lower_ends = [other.dependence * (1 - 1 / max(_in_standard_errors(other), 1.0)) for other in others]
    return float(np.median(lower_ends)) if others else 0.0
