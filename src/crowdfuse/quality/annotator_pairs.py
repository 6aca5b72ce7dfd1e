"""Pairs of annotators: how strongly their labels depend on each other, beyond what the true class explains.

If two annotators with confusion matrices A and B are independent, they give the labels a and b to an item of class k
with probability A[k, a] * B[k, b]. In the alternative model, the two labels are coupled on a share `dependence` of the
items. Coupled labels agree as often as the two confusion matrices allow:

    P(a, b | k)  =  (1 - dependence) * A[k, a] * B[k, b]  +  dependence * coupled[k, a, b]

So each of the two annotators makes as many mistakes as if they were independent, but they make the mistakes on the same
items. Both models are fitted by EM to the items that both annotators labelled (the common items), with the labels of
all annotators. The likelihood ratio of the two models is the evidence. The fit of the alternative starts from the votes
of all other annotators. The reason: two annotators who make the same mistakes confirm each other, so they seem to be
right in a consensus that treats them as independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from crowdfuse.quality.independent_crowd import FloatArray, IndependentCrowd, IntArray, log_joint, normalize_log

MIN_COMMON_ITEMS = 40
MAX_COMMON_ITEMS = 1_500  # if there are more common items, a sample is used
MAX_SUSPICIOUS_PAIRS = 30  # pairs that most often give the same wrong label; they are examined closely
MAX_TYPICAL_PAIRS = 15  # other pairs, which are examined for comparison
MAX_LABEL_PAIRS = 30_000_000  # if items have more pairs of labels in total, a random sample of items is used
MAX_EM_ITERATIONS = 30
CONVERGED_GAIN = 0.02  # EM stops when an iteration raises the log-likelihood by less than this
MAX_DEPENDENCE = 0.99
MIN_DEPENDENCE = 0.01  # a smaller dependence is treated as independence


@dataclass(frozen=True)
class PairEvidence:
    """How strongly the labels of two annotators depend on each other, on the items that both labelled (common items).

    Attributes
    ----------
    first, second : int
        The annotators.
    n_common : int
        Number of common items.
    n_examined : int
        Number of common items that were examined: all, or a random sample of 1,500. All other figures are about these
        items.
    dependence : float
        Estimated share of the common items on which the labels are coupled, from 0 (independent) to 1.
    log_ratio : float
        Log-likelihood with this dependence minus log-likelihood with independence; at least 0. The item with the
        strongest evidence for dependence is left out.
    same_mistakes : float
        Estimated number of items to which both annotators gave the same wrong label.
    expected_same_mistakes : float
        The value of `same_mistakes` expected for independent annotators.
    disagreements : int
        Number of items to which the annotators gave different labels.
    expected_disagreements : float
        The value of `disagreements` expected for independent annotators.
    """

    first: int
    second: int
    n_common: int
    n_examined: int
    dependence: float
    log_ratio: float
    same_mistakes: float
    expected_same_mistakes: float
    disagreements: int
    expected_disagreements: float


class ChosenPairs(NamedTuple):
    """The pairs of annotators that are examined closely.

    Attributes
    ----------
    n_pairs : int
        Number of pairs with at least 40 common items.
    pairs : list of tuple of int
        All these pairs if there are at most 45. Otherwise 30 suspicious pairs, which give the same label against the
        consensus more often than expected by chance, and 15 random other pairs.
    is_typical : list of bool
        For each pair, whether it is a random pair (not chosen for its shared mistakes) and so shows how dependent pairs
        usually are.
    """

    n_pairs: int
    pairs: list[tuple[int, int]]
    is_typical: list[bool]


def choose_pairs(crowd: IndependentCrowd, n_annotators: int, seed: int = 0) -> ChosenPairs:
    """Return the pairs of annotators that are examined closely.

    Parameters
    ----------
    crowd : IndependentCrowd
        The labels and the fitted model. Sources from number `n_annotators` on (the classifier) are not paired.
    n_annotators : int
        Number of annotators.
    seed : int, default=0
        Seed of the samples of items and pairs.

    Returns
    -------
    chosen : ChosenPairs
    """
    generator = np.random.default_rng(seed)
    first, second, z = _screen(crowd, n_annotators, generator)
    pairs = [(int(one), int(other)) for one, other in zip(first, second, strict=True)]
    if len(pairs) <= MAX_SUSPICIOUS_PAIRS + MAX_TYPICAL_PAIRS:
        return ChosenPairs(len(pairs), pairs, [True] * len(pairs))
    order = np.argsort(-z, kind="stable")
    typical = generator.choice(order[MAX_SUSPICIOUS_PAIRS:], MAX_TYPICAL_PAIRS, replace=False)
    chosen = [*order[:MAX_SUSPICIOUS_PAIRS], *typical]
    return ChosenPairs(len(pairs), [pairs[at] for at in chosen], [at in typical for at in chosen])


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
        """Return, for each pair of columns, the number of rows that both contain, as a sparse matrix."""
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


def examine_pair(crowd: IndependentCrowd, pair: tuple[int, int], seed: int = 0) -> PairEvidence | None:
    """Return the evidence about a pair of annotators.

    Parameters
    ----------
    crowd : IndependentCrowd
        The labels and the fitted model.
    pair : tuple of int
        The annotators.
    seed : int, default=0
        Seed of the sample of items, which is drawn if there are more than 1,500 common items.

    Returns
    -------
    evidence : PairEvidence or None
        None if the common items have too few labels of other annotators: on average fewer than two labels or
        predictions per item. If the common items are fewer than half of all items, one is enough.
    """
    first, second = pair
    said_first, said_second = crowd.labels_of(first), crowd.labels_of(second)
    items = np.flatnonzero((said_first >= 0) & (said_second >= 0))
    n_common = len(items)
    n_needed = 1 if n_common < len(crowd.posterior) / 2 else 2
    if n_common > MAX_COMMON_ITEMS:
        items = np.sort(np.random.default_rng([seed, *pair]).choice(items, MAX_COMMON_ITEMS, replace=False))
    if np.diff(crowd.labels.indptr)[items].mean() - 2 < n_needed:
        return None
    a, b = said_first[items], said_second[items]
    model = _PairModel(crowd, items, pair, (a, b))
    dependent = model.fit(model.votes_of_others(), can_depend=True)
    both_say = dependent.says_first * dependent.says_second
    classes = dependent.reference.sum(0)
    agree = a == b
    return PairEvidence(
        first=first,
        second=second,
        n_common=n_common,
        n_examined=len(items),
        dependence=dependent.dependence,
        log_ratio=_log_ratio(model, dependent, crowd.posterior[items]),
        same_mistakes=float((1 - dependent.posterior[np.arange(len(items)), a])[agree].sum()),
        expected_same_mistakes=float((both_say.sum(0) - both_say.diagonal()) @ classes),
        disagreements=int((~agree).sum()),
        expected_disagreements=float((1 - both_say.sum(0)) @ classes),
    )


def _log_ratio(model: _PairModel, dependent: _PairFit, posterior: FloatArray) -> float:
    """Return the gain in log-likelihood over the better of two independent fits, without the item of highest gain."""
    if dependent.dependence < MIN_DEPENDENCE:
        return 0.0
    fits = [model.fit(start, can_depend=False) for start in (posterior, dependent.posterior)]
    independent = max(fits, key=lambda fit: float(fit.log_likelihood.sum()))
    gain = dependent.log_likelihood - independent.log_likelihood
    return max(0.0, float(gain.sum() - gain.max()))


class _PairFit(NamedTuple):
    """A model of a pair, fitted to its common items. Confusion matrices have axes (label, true class)."""

    log_likelihood: FloatArray  # of the labels of each item
    dependence: float
    posterior: FloatArray  # class probabilities of the items
    reference: FloatArray  # class probabilities of the items without the labels of the pair
    says_first: FloatArray
    says_second: FloatArray


class _PairModel:
    """The labels of the common items of a pair, for EM on these items. Expected counts of all other items are fixed."""

    def __init__(
        self, crowd: IndependentCrowd, items: IntArray, pair: tuple[int, int], said: tuple[IntArray, IntArray]
    ) -> None:
        K = crowd.n_classes
        labels, posterior = crowd.labels[items], crowd.posterior[items]
        used, matrix = np.unique(labels.indices // K, return_inverse=True)  # the other matrices are not needed
        shape = (len(items), len(used) * K)
        self.labels = csr_matrix((labels.data, matrix * K + labels.indices % K, labels.indptr), shape=shape)
        self.crowd, self.said = crowd, said
        self.matrices = np.searchsorted(used, crowd.matrix_of_source[list(pair)])
        self.others = self.labels
        for at, label in zip(self.matrices, said, strict=True):
            own = (np.ones(len(items)), at * K + label, np.arange(len(items) + 1))
            self.others = self.others - csr_matrix(own, shape=shape)
        self.others.eliminate_zeros()
        self.transposed = self.labels.T.tocsr()
        self.outside = crowd.counts[used] - np.asarray(self.transposed @ posterior).reshape(-1, K, K)
        self.outside_classes = np.maximum(crowd.class_counts - posterior.sum(0), 0)

    def votes_of_others(self) -> FloatArray:
        """Return class probabilities from the votes of all annotators except the pair: (n_items, n_classes)."""
        K = self.crowd.n_classes
        votes = np.asarray(self.others @ np.tile(np.eye(K), (self.others.shape[1] // K, 1)))
        shares: FloatArray = (votes + 1 / K) / (votes.sum(1, keepdims=True) + 1)
        return shares

    def fit(self, posterior: FloatArray, *, can_depend: bool) -> _PairFit:
        """Return the model fitted by EM from the given class probabilities."""
        K = self.crowd.n_classes
        dependence, previous = 0.0, -np.inf
        for _ in range(MAX_EM_ITERATIONS):
            counts = self.outside + np.asarray(self.transposed @ posterior).reshape(-1, K, K)
            log_confusion = self.crowd.smooth(np.maximum(counts, 0))
            class_counts = self.outside_classes + posterior.sum(0) + 1
            log_reference = log_joint(self.others, log_confusion, np.log(class_counts / class_counts.sum()))
            reference = normalize_log(log_reference)
            says_first, says_second = np.exp(log_confusion[self.matrices])
            cells = self.said[0] * K + self.said[1]
            independent = (says_first[:, None] * says_second).reshape(-1, K)[cells] * reference
            joint = independent
            if can_depend:
                coupled = couple(says_first, says_second).reshape(-1, K)[cells] * reference
                dependence = _mixture_weight(independent.sum(1), coupled.sum(1), dependence)
                joint = independent + dependence * (coupled - independent)
            total = joint.sum(1)
            top = log_reference.max(1)
            log_likelihood = np.log(total) + top + np.log(np.exp(log_reference - top[:, None]).sum(1))
            posterior = joint / total[:, None]
            if log_likelihood.sum() - previous < CONVERGED_GAIN:
                break
            previous = log_likelihood.sum()
        return _PairFit(log_likelihood, dependence, posterior, reference, says_first, says_second)


def couple(says_first: FloatArray, says_second: FloatArray) -> FloatArray:
    """Return the probabilities of the labels of two annotators who agree as often as their confusion matrices allow.

    Parameters
    ----------
    says_first, says_second : ndarray of shape (n_classes, n_classes)
        Confusion matrices with axes (annotator's label, true class).

    Returns
    -------
    coupled : ndarray of shape (n_classes, n_classes, n_classes)
        P(both labels | true class), axes (label of the first, label of the second, true class). The sum over the second
        axis is `says_first`, and the sum over the first axis is `says_second`.

    Examples
    --------
    >>> both = couple(np.array([[0.9, 0.2], [0.1, 0.8]]), np.array([[0.7, 0.2], [0.3, 0.8]]))
    >>> both[:, :, 0].round(2).tolist(), both[:, :, 1].round(2).tolist()
    ([[0.7, 0.2], [0.0, 0.1]], [[0.2, 0.0], [0.0, 0.8]])
    """
    shared = np.minimum(says_first, says_second)
    rest = np.maximum(1 - shared.sum(0), 1e-12)
    coupled: FloatArray = (says_first - shared)[:, None] * (says_second - shared) / rest
    each = np.arange(len(shared))
    coupled[each, each] += shared
    return coupled


def _mixture_weight(first: FloatArray, second: FloatArray, start: float) -> float:
    """Return the weight w that maximizes sum log((1 - w) * first + w * second), by Newton's method."""
    slope = (second - first) / first
    weight = start
    for _ in range(8):
        ratio = slope / (1 + weight * slope)
        step = ratio.sum() / max(float((ratio**2).sum()), 1e-12)
        weight = float(np.clip(weight + step, 0, MAX_DEPENDENCE))
        if abs(step) < 1e-4:
            break
    return weight
