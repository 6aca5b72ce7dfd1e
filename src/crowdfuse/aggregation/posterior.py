"""The model behind the consensus: annotators' confusion matrices and a calibrated classifier, fitted by EM.

For item n, annotator r, true class k and label y, the model is (~ means proportional to)::

    P(true = k | item n)  ~  exp(sharpness * log p[n, k] + bias[k])  *  product over the labels (r, y) of item n:
                                                                        confusion[r, k, y]

Here p[n, k] is the classifier's probability of class k for item n. If sharpness is 0, the classifier is ignored, and
the first factor is the frequency of the class, the same for all items.

A method may estimate that an annotator is better on some items than on others. Let g[n, r] be the estimated probability
that annotator r is right on item n (the gate). The difference between a gate and the annotator's mean gate shifts the
diagonal of the confusion matrix::

    logit P(said = k | true = k, n, r)  =  logit confusion[r, k, k] + gate_weight * (logit g[n, r] - mean of r)

The gate weight is fitted to the labels. It is 0 if the gates do not help to explain the labels.

Annotators may make the same mistakes. On a share of the items, `same_mistake_share`, all annotators who are wrong give
the same wrong label (`crowdfuse.aggregation.same_mistakes`). This share is fitted to the labels as well. Without a
classifier, or with two classes, it is 0: then nothing tells the same mistakes from right labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, logsumexp, ndtri

from crowdfuse.aggregation.same_mistakes import log_probability_of_same_mistakes
from crowdfuse.aggregation.votes import Block, FloatArray, Votes, normalize_log_joint
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import IntArray

MAX_EM_ITERATIONS = 200
CONVERGENCE_TOLERANCE = 1e-4  # EM stops when class probabilities change by less than this per item
ANNOTATOR_PRIOR_LABELS = 10.0  # the accuracy of all annotators counts like this many labels of each annotator
ROW_PRIOR_LABELS = 30.0  # the annotator's accuracy counts like this many labels in each row of the confusion matrix
PRIOR_ACCURACY, PRIOR_ACCURACY_LABELS = 0.7, 2.0  # prior of the accuracy of all annotators together, and its weight
MAX_SHARPNESS = 20.0
SHARPNESS_PRIOR_PRECISION = 0.1  # precision of the prior of the sharpness, which has mean 1
GATE_PRIOR_PRECISION = 0.1  # precision of the prior of the gate weight, which has mean 0
MAX_GATE_WEIGHT = 3.0
MAX_GATE_LOGIT = 6.9  # limits the probabilities of right labels to the range from 0.001 to 0.999
SAME_MISTAKE_PRIOR = (1.0, 9.0)  # prior of the share of items with the same mistakes, in items with and without
MIN_SAME_MISTAKE_SHARE = 1e-3  # a smaller share is taken as 0
MIN_CLASSIFIER_GAIN = 3.0  # the classifier is used only if it raises the log-likelihood by at least this
CHANCE_LEVEL = 0.05  # of the test whether a classifier agrees with the labels more often than by chance
UNIFORM_MIXTURE_WEIGHT = 1e-3  # share of the uniform distribution that is mixed in, so that no probability is 0
MAX_CONFUSION_BYTES = 1 << 28  # larger confusion matrices are replaced by one for all annotators


class AnnotatorModel(NamedTuple):
    """How annotators label items of each class.

    Attributes
    ----------
    accuracy : ndarray of shape (n_annotators,)
        Probability that a label of the annotator is right.
    wrong_labels : ndarray of shape (n_classes, n_classes)
        Distribution of the wrong labels of all annotators together, axes (annotator's label, true class); the diagonal
        is 0.
    confusions : ndarray of shape (n_annotators, n_classes, n_classes) or None
        P(annotator's label | true class), axes (annotator, annotator's label, true class). None if the matrices would
        take more than 256 MB. In that case, `accuracy` and `wrong_labels` are used instead.
    gate_weight : float
        Weight of the gates: the estimated probabilities that annotators are right on single items. If 0, gates are
        ignored.
    same_mistake_share : float
        Share of the items on which all annotators who are wrong give the same wrong label.
    """

    accuracy: FloatArray
    wrong_labels: FloatArray
    confusions: FloatArray | None
    gate_weight: float
    same_mistake_share: float = 0.0

    def log_label_probability(self, block: Block, gate: FloatArray | None) -> FloatArray:
        """Return log P(labels of the item | true class) of the items of a block: (n_block_items, n_classes).

        `gate` (n_block_labels,) holds, for each label, the difference between its gate and the annotator's mean gate,
        as logits. None: there are no gates.
        """
        return self.mix_same_mistakes(block, gate)[0]

    def mix_same_mistakes(self, block: Block, gate: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
        """Return `log_label_probability`, and how probable it is that wrong annotators give the same label.

        The second is P(wrong annotators give the same label | labels, true class): (n_block_items, n_classes). None if
        the share of items with the same mistakes is 0.
        """
        independent = self._of_independent_annotators(block, gate)
        if self.same_mistake_share == 0:
            return independent, None
        right = self._right_probability_of_labels(block)
        if gate is not None and self.gate_weight > 0:
            right = self.gated_right_probability(right, gate)
        same = log_probability_of_same_mistakes(block, right, self.wrong_labels) + np.log(self.same_mistake_share)
        mixture: FloatArray = np.logaddexp(np.log1p(-self.same_mistake_share) + independent, same)
        return mixture, np.exp(same - mixture)

    def _right_probability_of_labels(self, block: Block) -> FloatArray:
        """Return P(said = k | true = k) of the annotator of each label, without gates: (n_block_labels, n_classes)."""
        return np.clip(self.right_probability()[block.annotator], 1e-6, 1 - 1e-6)

    def _of_independent_annotators(self, block: Block, gate: FloatArray | None) -> FloatArray:
        """Return the same as `log_label_probability`, for annotators who are independent given the true class."""
        log_probability = self._without_gates(block)
        if gate is None or self.gate_weight == 0:
            return log_probability
        right = self._right_probability_of_labels(block)
        shifted = self.gated_right_probability(right, gate)
        change = np.log1p(-shifted) - np.log1p(-right)
        rows = np.arange(len(change))
        change[rows, block.label] = (np.log(shifted) - np.log(right))[rows, block.label]
        starts = np.searchsorted(block.item, np.arange(block.n_items))
        log_probability += np.add.reduceat(change, starts, axis=0)
        return log_probability

    def gated_right_probability(self, right: FloatArray, gate: FloatArray) -> FloatArray:
        """Return the probabilities `right` (n_labels, n_classes) of a right label, shifted by the gates."""
        shifted: FloatArray = expit(logit(right) + self.gate_weight * gate[:, None])
        return np.clip(shifted, 1e-9, 1 - 1e-9)

    def _without_gates(self, block: Block) -> FloatArray:
        """Return the same as `_of_independent_annotators`, computed without gates."""
        if self.confusions is not None:
            return np.asarray(block.incidence @ np.log(self.confusions).reshape(-1, len(self.wrong_labels)))
        log_wrong = np.log(self.wrong_labels + np.eye(len(self.wrong_labels)))
        log_wrong_rate = np.log1p(-self.accuracy)
        right = block.vote_counts((np.log(self.accuracy) - log_wrong_rate)[block.annotator])
        any_class = block.vote_counts(log_wrong_rate[block.annotator]).sum(1, keepdims=True)
        result: FloatArray = block.vote_counts() @ log_wrong + right + any_class
        return result

    def right_probability(self) -> FloatArray:
        """Return P(said = k | true = k) of each annotator and class k: (n_annotators, n_classes)."""
        if self.confusions is None:
            return np.repeat(self.accuracy[:, None], len(self.wrong_labels), 1)
        diagonal: FloatArray = np.einsum("rkk->rk", self.confusions)
        return diagonal


class PosteriorFit:
    """The fitted model: class probabilities of the items, accuracies and confusion matrices, and the calibration.

    The model is fitted by EM. Items are processed in blocks, so that memory holds little more than the class
    probabilities.

    Parameters
    ----------
    votes : Votes
        The labels.
    log_p : ndarray of shape (n_labelled_items, n_classes)
        Logarithm of the classifier's probabilities, for the items with labels.
    certain : ndarray of shape (n_labelled_items,)
        True class of items with gold, -1 for items without gold.
    max_sharpness : float
        Upper limit of the sharpness. If 0, the classifier is left out.
    gate : ndarray of shape (n_labels,) or None
        For each label, how much better the annotator is on this item than on average: the difference of two logits.

    Attributes
    ----------
    soft : ndarray of float32, shape (n_labelled_items, n_classes)
        Class probabilities of the items with labels.
    sharpness : float
        Exponent of the classifier's probabilities.
    bias : ndarray of shape (n_classes,)
        Added to the logarithm of the classifier's probabilities.
    gate_weight : float
        Weight of the gates.
    same_mistake_share : float
        Share of the items on which all annotators who are wrong give the same wrong label.
    log_likelihood : float
        log P(labels) summed over the items, after EM.
    converged : bool
        Whether EM converged.
    """

    def __init__(
        self, votes: Votes, log_p: FloatArray, certain: IntArray, max_sharpness: float, gate: FloatArray | None = None
    ) -> None:
        self.votes, self.log_p, self.certain, self.max_sharpness = votes, log_p, certain, max_sharpness
        R, K = votes.n_annotators, votes.n_classes
        self.has_own_confusions = R * K * K * 8 <= MAX_CONFUSION_BYTES
        self.n_labels = votes.labels_per_annotator()
        self.sharpness, self.bias, self.gate_weight = min(1.0, max_sharpness), np.zeros(K), 0.0
        self.same_mistake_share = SAME_MISTAKE_PRIOR[0] / sum(SAME_MISTAKE_PRIOR) if max_sharpness and K > 2 else 0.0
        ends = np.cumsum([len(block.label) for block in votes.blocks])
        self._gates = [None] * len(ends) if gate is None else np.split(gate, ends[:-1])
        self._voted = np.bincount(votes.annotations.label, minlength=K) * (votes.n_items / votes.n_labels)
        is_single = np.diff(votes.annotations.indptr) == 1
        # if there is no classifier, the only label of an item tells nothing about the accuracy of its annotator
        self._prior_labels = PRIOR_ACCURACY_LABELS + (0 if max_sharpness else int(is_single.sum()))
        self.soft = votes.empty()
        self._reset_counts()
        for block in votes.blocks:  # start: the classifier counts as one more vote
            posterior = block.vote_counts() + (np.exp(log_p[block.rows]) if max_sharpness else 1 / K)
            posterior /= posterior.sum(1, keepdims=True)
            fix_certain(posterior, certain[block.rows])
            self._add_counts(block, posterior)
        self.converged, self.log_likelihood = False, -np.inf
        for _ in range(MAX_EM_ITERATIONS):
            if self._step() < CONVERGENCE_TOLERANCE:
                self.converged = True
                break

    def blocks(self) -> Iterator[tuple[Block, FloatArray | None]]:
        """Yield each block with the gates of its labels (None if there are no gates)."""
        yield from zip(self.votes.blocks, self._gates, strict=True)

    def prior(self, rows: slice) -> FloatArray:
        """Return the classifier's calibrated probabilities of a range of labelled items: (n_rows, n_classes)."""
        return normalize_log_joint(self.sharpness * self.log_p[rows] + self.bias)[0]

    def without_gold(self) -> NDArray[np.float32]:
        """Return class probabilities that do not use the item's own gold: (n_labelled_items, n_classes)."""
        if (self.certain < 0).all():
            return self.soft
        model, soft = self.annotators(), self.votes.empty()
        for block, gate in self.blocks():
            log_prior = np.log(np.maximum(self.prior(block.rows), 1e-300))
            soft[block.rows] = normalize_log_joint(log_prior + model.log_label_probability(block, gate))[0]
        return soft

    def item_log_likelihoods(self) -> FloatArray:
        """Return log P(labels of the item) of each item with labels: (n_labelled_items,)."""
        model, result = self.annotators(), np.empty(self.votes.n_items)
        for block, gate in self.blocks():
            log_prior = np.log(np.maximum(self.prior(block.rows), 1e-300))
            result[block.rows] = logsumexp(log_prior + model.log_label_probability(block, gate), axis=1)
        return result

    def accuracy(self) -> FloatArray:
        """Return the accuracy of each annotator, (n_annotators,), shrunk towards the accuracy of all annotators."""
        alpha, beta = self._accuracy_counts()
        return np.clip(alpha / (alpha + beta), 1e-9, 1 - 1e-9)

    def annotators(self, generator: np.random.Generator | None = None) -> AnnotatorModel:
        """Return accuracies and confusion matrices given the current class probabilities.

        Parameters
        ----------
        generator : Generator or None, default=None
            If given, accuracies and confusion matrices are drawn from their distribution. None: their means are
            returned.

        Returns
        -------
        model : AnnotatorModel
        """
        wrong = self._wrong_labels()
        accuracy = self.accuracy() if generator is None else generator.beta(*self._accuracy_counts())
        accuracy = np.clip(accuracy, 1e-9, 1 - 1e-9)
        if not self.has_own_confusions:
            return AnnotatorModel(accuracy, wrong, None, self.gate_weight, self.same_mistake_share)
        counts = self._confusion_counts(accuracy, wrong)
        if generator is not None:
            counts = np.maximum(generator.standard_gamma(counts), 1e-12)
        counts /= counts.sum(1, keepdims=True)
        return AnnotatorModel(accuracy, wrong, counts, self.gate_weight, self.same_mistake_share)

    def count(self, true_class: IntArray) -> None:
        """Compute the counts of the M step as if `true_class` (n_labelled_items,) were the true classes."""
        self._reset_counts()
        for block in self.votes.blocks:
            one_hot = np.eye(self.votes.n_classes)[true_class[block.rows]]
            self._add_counts(block, one_hot, keep=False)

    def _accuracy_counts(self) -> tuple[FloatArray, FloatArray]:
        """Return the beta distribution of each accuracy: numbers of right and wrong labels, plus the prior's."""
        n_right, n_labels = self.right.sum(), self.votes.n_labels
        overall = (n_right + PRIOR_ACCURACY * self._prior_labels) / (n_labels + self._prior_labels)
        alpha: FloatArray = self.right + ANNOTATOR_PRIOR_LABELS * overall
        beta: FloatArray = np.maximum(self.n_labels - self.right, 0) + ANNOTATOR_PRIOR_LABELS * (1 - overall)
        return np.maximum(alpha, 1e-6), np.maximum(beta, 1e-6)

    def _wrong_labels(self) -> FloatArray:
        """Return the distribution of wrong labels of each class: axes (annotator's label, true class), diagonal 0."""
        wrong: FloatArray = (self.pooled + 1) * (1 - np.eye(len(self.pooled)))
        wrong /= wrong.sum(0)
        return wrong

    def _confusion_counts(self, accuracy: FloatArray, wrong: FloatArray) -> FloatArray:
        """Return label counts plus prior (Dirichlet), axes (annotator, annotator's label, true class)."""
        K = self.votes.n_classes
        a = accuracy[:, None, None]
        expected: FloatArray = ROW_PRIOR_LABELS * (a * np.eye(K) + (1 - a) * wrong)
        expected += self.counts.reshape(-1, K, K)
        return expected

    def _reset_counts(self) -> None:
        """Set the counts of an M step to 0."""
        R, K = self.votes.n_annotators, self.votes.n_classes
        self.counts = np.zeros((R * K, K) if self.has_own_confusions else (0, K))  # axes (annotator and said, true)
        self.pooled = np.zeros((K, K))  # the counts of all annotators together
        self.right = np.zeros(R)

    def _add_counts(self, block: Block, posterior: FloatArray, *, keep: bool = True) -> None:
        """Add a block to the counts of the M step; if `keep`, store its class probabilities."""
        if self.has_own_confusions:
            self.counts += block.incidence.T @ posterior
        self.pooled += block.vote_counts().T @ posterior
        self.right += block.sum_by_annotator(block.label_confidence(posterior))
        if keep:
            self.soft[block.rows] = posterior

    def _step(self) -> float:
        """Run one M step and one E step; return the mean change of the class probabilities per item."""
        model = self.annotators()
        right = np.clip(model.right_probability(), 1e-6, 1 - 1e-6)
        self._reset_counts()
        slope, curve, change = SHARPNESS_PRIOR_PRECISION * (1 - self.sharpness), SHARPNESS_PRIOR_PRECISION, 0.0
        gate_slope, gate_curve = -GATE_PRIOR_PRECISION * self.gate_weight, GATE_PRIOR_PRECISION
        expected, self.log_likelihood = np.zeros(self.votes.n_classes), 0.0
        n_same, n_several = SAME_MISTAKE_PRIOR[0], sum(SAME_MISTAKE_PRIOR)
        for block, gate in self.blocks():
            log_p = self.log_p[block.rows]
            prior = self.prior(block.rows)
            log_prior = np.log(np.maximum(prior, 1e-300))
            log_labels, same = model.mix_same_mistakes(block, gate)
            posterior, log_likelihood = normalize_log_joint(log_prior + log_labels)
            self.log_likelihood += log_likelihood
            if same is not None:
                has_several = np.bincount(block.item, minlength=block.n_items) > 1
                n_same += float((posterior[has_several] * same[has_several]).sum())
                n_several += float(has_several.sum())
            fix_certain(posterior, self.certain[block.rows])
            change += float(np.abs(posterior - self.soft[block.rows]).sum())
            self._add_counts(block, posterior)
            mean = (prior * log_p).sum(1)
            slope += float((posterior * log_p).sum() - mean.sum())
            curve += float((prior * log_p**2).sum() - (mean**2).sum())
            expected += prior.sum(0)
            if gate is not None:
                weight = posterior[block.item]
                shifted = model.gated_right_probability(right[block.annotator], gate)
                said_right = block.label_confidence(posterior)
                gate_slope += float((gate * (said_right - (weight * shifted).sum(1))).sum())
                gate_curve += float((gate**2 * (weight * shifted * (1 - shifted)).sum(1)).sum())
        self.gate_weight = float(
            np.clip(self.gate_weight + np.clip(gate_slope / gate_curve, -0.3, 0.3), 0, MAX_GATE_WEIGHT)
        )
        if model.same_mistake_share:
            share = n_same / n_several
            self.same_mistake_share = share if share >= MIN_SAME_MISTAKE_SHARE else 0.0
        # one Newton step and one step of iterative scaling: the calibration converges along with EM
        newton = np.clip(self.sharpness + slope / curve, self.sharpness / 2, 2 * self.sharpness + 0.1)
        self.sharpness = float(np.clip(newton, 0, self.max_sharpness))
        seen = self.soft.sum(0, dtype=np.float64)
        if not self.max_sharpness:  # otherwise all labels of rare classes could be treated as mistakes
            seen = (seen + self._voted) / 2
        self.bias = self.bias + np.log(seen + 1) - np.log(expected + 1)
        return change / self.votes.n_items


def fit_posterior(
    votes: Votes, log_p: FloatArray, certain: IntArray, max_sharpness: float, gate: FloatArray | None = None
) -> PosteriorFit:
    """Fit the model with and without the classifier, and return the fit with the classifier if it is clearly better.

    Parameters
    ----------
    votes : Votes
        The labels.
    log_p : ndarray of shape (n_labelled_items, n_classes)
        Logarithm of the classifier's probabilities, for the items with labels.
    certain : ndarray of shape (n_labelled_items,)
        True class of items with gold, -1 for items without gold.
    max_sharpness : float
        Upper limit of the exponent of the classifier's probabilities.
    gate : ndarray of shape (n_labels,) or None, default=None
        For each label, how much better the annotator is on this item than on average; see `center_gates`. Used only in
        the fit with the classifier.

    Returns
    -------
    fit : PosteriorFit
        The fit with the classifier. In the following cases, the fit without the classifier (with sharpness 0):

        - The classifier gives all classes the same probability.
        - The classifier does not raise the log-likelihood of the labels by at least 3.
        - No item has two labels, there is no gold, and the classifier's most probable classes do not agree with the
          labels more often than by chance.
    """
    without = PosteriorFit(votes, log_p, certain, 0.0)
    if np.ptp(log_p, axis=1).max(initial=0) < 1e-9:  # the same probability for all classes
        return without
    has_other_evidence = bool((np.diff(votes.annotations.indptr) > 1).any()) or bool((certain >= 0).any())
    if not has_other_evidence and not _agrees_with_single_labels(votes, log_p):
        return without
    with_classifier = PosteriorFit(votes, log_p, certain, max_sharpness, gate)
    gain = with_classifier.log_likelihood - without.log_likelihood
    return with_classifier if gain >= MIN_CLASSIFIER_GAIN else without


def _agrees_with_single_labels(votes: Votes, log_p: FloatArray) -> bool:
    """Return whether the classifier agrees with the labels more often than by chance, by a test at the 5 % level.

    Every item has one label, so that the rows of `log_p` are in the order of the labels.
    """
    label, predicted = votes.annotations.label, log_p.argmax(1)
    shares = np.bincount(label, minlength=votes.n_classes) / len(label)
    by_chance = shares[predicted]
    deviation = float(np.sqrt((by_chance * (1 - by_chance)).sum()))
    surplus = float((label == predicted).sum() - by_chance.sum())
    return surplus > -float(ndtri(CHANCE_LEVEL)) * deviation


def center_gates(logits: FloatArray, annotator: IntArray, n_annotators: int) -> tuple[FloatArray, FloatArray]:
    """Return, for each label, how much better its annotator is on the item than on average; and these averages.

    Parameters
    ----------
    logits : ndarray of shape (n_labels,)
        For each label, the logit of the probability that its annotator is right on the item.
    annotator : ndarray of int, shape (n_labels,)
        Annotator of each label.
    n_annotators : int
        Number of annotators.

    Returns
    -------
    gates : ndarray of shape (n_labels,)
        For each label, the logit minus the mean logit of its annotator.
    mean : ndarray of shape (n_annotators,)
        Mean logit of each annotator; 0 for annotators without labels.

    Examples
    --------
    >>> gates, mean = center_gates(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), 2)
    >>> gates.tolist(), mean.tolist()
    ([-1.0, 1.0, 0.0], [2.0, 5.0])
    """
    logits = np.clip(logits, -MAX_GATE_LOGIT, MAX_GATE_LOGIT)
    count = np.bincount(annotator, minlength=n_annotators)
    mean: FloatArray = np.bincount(annotator, logits, minlength=n_annotators) / np.maximum(count, 1)
    return logits - mean[annotator], mean


def gates_of_labels(right_probability: FloatArray, ann: Annotations) -> FloatArray:
    """Return, for each label, how much better its annotator is on the item than on average, as a logit difference.

    Parameters
    ----------
    right_probability : ndarray of shape (n_labels,)
        For each label, the probability that its annotator is right on the item.
    ann : Annotations
        The labels.

    Returns
    -------
    gates : ndarray of shape (n_labels,)
    """
    logits = logit(np.clip(right_probability, 1e-12, 1 - 1e-12))
    return center_gates(logits, ann.annotator, ann.n_annotators)[0]


def log_with_uniform(probabilities: FloatArray) -> FloatArray:
    """Return the logarithms of class probabilities (N, K) mixed with 0.1 % of the uniform distribution.

    Examples
    --------
    >>> np.exp(log_with_uniform(np.array([[1.0, 0.0]]))).round(4).tolist()
    [[0.9995, 0.0005]]
    """
    share = UNIFORM_MIXTURE_WEIGHT
    log_p: FloatArray = np.log(probabilities * (1 - share) + share / probabilities.shape[1])
    return log_p


def fix_certain(soft: NDArray[np.floating], certain: IntArray) -> None:
    """Set the class probabilities (n, K) of items with gold to 0 and 1, in place. `certain` is -1 for other items."""
    known = np.flatnonzero(certain >= 0)
    soft[known] = 0
    soft[known, certain[known]] = 1
