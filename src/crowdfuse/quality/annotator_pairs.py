"""Pairs of annotators: how often they agree, and how often they would if they were independent.

For a pair, the reference is the class probability of each common item, computed without the labels of the two. The
confusion matrix of one of the two is estimated without the labels of the other, because otherwise two annotators who
make the same mistakes confirm each other and appear to be right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from crowdfuse.quality.independent_crowd import (
    FloatArray,
    IndependentCrowd,
    IntArray,
    class_posterior,
)

MIN_COMMON_ITEMS = 40
MAX_COMMON_ITEMS = 1_500  # of more common items, a sample is used
MAX_SUSPICIOUS_PAIRS = 30  # pairs that are examined closely: those that most often give the same wrong label
MAX_TYPICAL_PAIRS = 15  # other pairs that are examined for comparison
MAX_LABEL_PAIRS = 30_000_000  # of more pairs of labels on the same item, a random sample of items is used
REFIT_ITERATIONS = 12


@dataclass(frozen=True)
class PairCounts:
    """Agreement of one pair of annotators on their common items.

    Attributes
    ----------
    first, second : int
        The annotators.
    n_common : int
        Number of common items.
    same_mistakes : float
        Estimated number of items to which both gave the same wrong label: the sum of the probability that the label is
        wrong, over the items on which they agree.
    expected_same_mistakes, variance_same_mistakes : float
        Mean and variance of `same_mistakes` for independent annotators.
    disagreements : int
        Number of items to which they gave different labels.
    expected_disagreements : float
        The value of `disagreements` expected for independent annotators.
    is_typical : bool
        Whether the pair shows how often pairs in general make the same mistakes, because it was not selected for its
        many shared mistakes.
    """

    first: int
    second: int
    n_common: int
    same_mistakes: float
    expected_same_mistakes: float
    variance_same_mistakes: float
    disagreements: int
    expected_disagreements: float
    is_typical: bool


def count_pairs(crowd: IndependentCrowd, n_annotators: int, seed: int = 0) -> tuple[int, list[PairCounts]]:
    """Return the number of pairs with enough common items, and the counts of the most suspicious of them.

    Parameters
    ----------
    crowd : IndependentCrowd
        The labels and the fitted model. Sources beyond `n_annotators` are not paired, but are part of the reference.
    n_annotators : int
        Number of annotators.
    seed : int, default=0
        Seed of the samples of items.

    Returns
    -------
    n_pairs : int
        Number of pairs with at least 40 common items.
    counts : list of PairCounts
        All pairs if there are at most 45. Otherwise the 30 pairs that most often give the same label against the
        consensus, compared with chance, and 15 random other pairs.
    """
    generator = np.random.default_rng(seed)
    first, second, z = _screen(crowd, n_annotators, generator)
    if len(first) <= MAX_SUSPICIOUS_PAIRS + MAX_TYPICAL_PAIRS:
        chosen, is_typical = np.arange(len(first)), np.ones(len(first), bool)
    else:
        order = np.argsort(-z, kind="stable")
        typical = generator.choice(order[MAX_SUSPICIOUS_PAIRS:], MAX_TYPICAL_PAIRS, replace=False)
        chosen = np.concatenate([order[:MAX_SUSPICIOUS_PAIRS], typical])
        is_typical = np.arange(len(chosen)) >= MAX_SUSPICIOUS_PAIRS
    counts = [
        _examine(crowd, int(first[pair]), int(second[pair]), bool(typical), generator)
        for pair, typical in zip(chosen, is_typical, strict=True)
    ]
    return len(first), [found for found in counts if found is not None]


def _screen(
    crowd: IndependentCrowd, n_annotators: int, generator: np.random.Generator
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the pairs with enough common items, and a score of their shared mistakes."""
    keep = crowd.source < n_annotators
    item, annotator, label = crowd.item[keep], crowd.source[keep], crowd.label[keep]
    n_items = len(crowd.posterior)
    pairs_per_item = np.bincount(item, minlength=n_items).astype(float) ** 2
    if pairs_per_item.sum() > MAX_LABEL_PAIRS:
        order = generator.permutation(n_items)
        used = np.zeros(n_items, bool)
        used[order[pairs_per_item[order].cumsum() <= MAX_LABEL_PAIRS]] = True
        keep = used[item]
        item, annotator, label = item[keep], annotator[keep], label[keep]
    enough = np.bincount(annotator, minlength=n_annotators) >= MIN_COMMON_ITEMS
    keep = enough[annotator]
    item, annotator, label = item[keep], annotator[keep], label[keep]

    def count_common(rows: IntArray, columns: IntArray, n_rows: int) -> csr_matrix:
        """Return the number of rows that two columns have in common, as a sparse matrix."""
        incidence = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(n_rows, n_annotators))
        return (incidence.T @ incidence).tocsr()

    common = count_common(item, annotator, n_items).tocoo()
    keep = (common.row < common.col) & (common.data >= MIN_COMMON_ITEMS)
    first, second, n_common = common.row[keep], common.col[keep], common.data[keep]
    if not len(first):
        return first, second, np.zeros(0)
    consensus = crowd.posterior.argmax(1)
    wrong = label != consensus[item]
    same = count_common(
        item[wrong].astype(np.int64) * crowd.n_classes + label[wrong], annotator[wrong], n_items * crowd.n_classes
    )
    observed = np.asarray(same[first, second]).ravel()
    n_labels = np.bincount(annotator, minlength=n_annotators)
    wrong_share = np.bincount(annotator[wrong], minlength=n_annotators) / np.maximum(n_labels, 1)
    expected = n_common * wrong_share[first] * wrong_share[second]
    expected *= observed.sum() / max(expected.sum(), 1e-9)
    return first, second, (observed - expected) / np.sqrt(expected + 1)


def _examine(
    crowd: IndependentCrowd, first: int, second: int, is_typical: bool, generator: np.random.Generator
) -> PairCounts | None:
    """Return the counts of a pair, or None if too little besides the pair is known about the common items."""
    K, n_items = crowd.n_classes, len(crowd.posterior)
    said_first, said_second = _labels_of(crowd, first), _labels_of(crowd, second)
    items = np.flatnonzero((said_first >= 0) & (said_second >= 0))
    common_share = len(items) / max((said_first >= 0).sum(), (said_second >= 0).sum())
    if len(items) > MAX_COMMON_ITEMS:
        items = np.sort(generator.choice(items, MAX_COMMON_ITEMS, replace=False))
    labels = crowd.labels[items]
    if np.diff(labels.indptr).mean() - 2 < (1 if len(items) < n_items / 2 else 2):
        return None
    a, b = said_first[items], said_second[items]
    used, column = np.unique(labels.indices // K, return_inverse=True)  # the other matrices play no part
    labels = csr_matrix(
        (labels.data, column * K + labels.indices % K, labels.indptr), shape=(len(items), len(used) * K)
    )
    posterior = crowd.posterior[items]
    outside = crowd.counts[used] - np.asarray(labels.T @ posterior).reshape(-1, K, K)
    outside_classes = crowd.class_counts - posterior.sum(0)
    matrix_a, matrix_b = np.searchsorted(used, crowd.matrix_of_source[[first, second]])
    only_a, only_b = (
        csr_matrix((np.ones(len(said)), matrix * K + said, np.arange(len(said) + 1)), shape=labels.shape)
        for matrix, said in ((matrix_a, a), (matrix_b, b))
    )
    others = labels - only_a - only_b
    confusion_a, prior_a = _refit(crowd, others + only_a, outside, outside_classes)
    confusion_b, prior_b = _refit(crowd, others + only_b, outside, outside_classes)
    reference = class_posterior(others, (confusion_a + confusion_b) / 2, (prior_a + prior_b) / 2)
    says_a, says_b = np.exp(confusion_a[matrix_a]), np.exp(confusion_b[matrix_b])  # axes (said, true)
    both_say = says_a * says_b
    agree = reference @ both_say.T  # probability that both give a label: (items, classes)
    right = reference * both_say.diagonal()  # and that it is right
    is_wrong = 1 - right / agree  # probability that a label is wrong, if both give it
    mean = (agree - right).sum(1)
    variance = float(((agree * is_wrong**2).sum(1) - mean**2).sum())
    reduction = _variance_reduction(says_a, says_b, reference.sum(0))
    return PairCounts(
        first=first,
        second=second,
        n_common=len(items),
        same_mistakes=float(is_wrong[np.arange(len(items)), a][a == b].sum()),
        expected_same_mistakes=float(mean.sum()),
        variance_same_mistakes=variance * (1 - common_share * (1 - reduction)),
        disagreements=int((a != b).sum()),
        expected_disagreements=float((1 - agree.sum(1)).sum()),
        is_typical=is_typical,
    )


def _labels_of(crowd: IndependentCrowd, annotator: int) -> IntArray:
    """Return the label that an annotator gave to each item, -1 where there is none."""
    said = np.full(len(crowd.posterior), -1)
    mine = crowd.source == annotator
    said[crowd.item[mine]] = crowd.label[mine]
    return said


def _variance_reduction(says_a: FloatArray, says_b: FloatArray, class_counts: FloatArray) -> float:
    """Return the variance of same mistakes, with confusion matrices estimated from the items, relative to known ones.

    If an annotator has many wrong labels by chance, the estimated confusion matrix has them too, and so has the
    expectation. What varies is only the interaction: with wrong labels c, d and probabilities p and q of the two, the
    sum over c and d of cov_p(c, d) cov_q(c, d), instead of the variance of the sum over c of 1(both say c).
    """
    off = 1 - np.eye(len(class_counts))
    p, q = says_a * off, says_b * off
    same = (p * q).sum(0)
    interaction = same - (p * q * (p + q)).sum(0) + same**2
    return float((class_counts * interaction).sum() / (class_counts * (same - same**2)).sum())


def _refit(
    crowd: IndependentCrowd, labels: csr_matrix, outside: FloatArray, outside_classes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return log confusion matrices and log class shares of a fit on some items; the others keep their counts.

    The fit starts from the vote, since the consensus may follow the pair whose labels are in question.
    """
    K = crowd.n_classes
    votes = np.asarray(labels @ np.tile(np.eye(K), (len(outside), 1)))
    posterior = (votes + 1 / K) / (votes.sum(1, keepdims=True) + 1)
    for _ in range(REFIT_ITERATIONS):
        counts = outside + np.asarray(labels.T @ posterior).reshape(-1, K, K)
        log_confusion = crowd.smooth(np.maximum(counts, 0))
        class_counts = np.maximum(outside_classes, 0) + posterior.sum(0) + 1
        log_prior = np.log(class_counts / class_counts.sum())
        posterior = class_posterior(labels, log_confusion, log_prior)
    return log_confusion, log_prior
