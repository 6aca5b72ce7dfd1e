"""Statistical tests that find faults in labels: shared mistakes, copies, uninformative annotators, and others.

Each kind of test has a false-alarm rate of at most 1 % for the whole data set. For this, p-values are corrected by
Holm's method for the number of tested annotators, pairs or classes. Each null hypothesis contains a margin, so that a
fault is reported only if it is large enough to matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, chdtrc, ndtr

from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count, format_names
from crowdfuse.labels.number_format import format_percent
from crowdfuse.quality.annotator_pairs import PairEvidence
from crowdfuse.quality.dependent_pairs import DependentPair, find_dependent_pairs
from crowdfuse.quality.findings import Finding, annotator_in_message, name_in_message, start_sentence
from crowdfuse.quality.gold_tests import consensus_contradiction
from crowdfuse.quality.independent_crowd import MAX_CELLS, FloatArray, IndependentCrowd, IntArray, normalize_log
from crowdfuse.quality.multiple_tests import FALSE_ALARM_RATE, significant

INFORMATIVE_MARGIN = 0.2  # an annotator is accepted if at least this share of the labels are not guesses
INPUT_MARGIN = 0.1  # a classifier is accepted if at least this share of its agreement with labels is not chance
RARELY_PREDICTED_SHARE = 0.25  # a class is accepted if it is predicted for at least this share of its items
MIN_LABELS = 30  # per annotator
MIN_CLASS_ITEMS = 10
MIN_PREDICTED_ITEMS = 50
INDEPENDENCE_LEVEL = 1e-3  # an annotator whose labels depend on the class at this level is not called uninformative
LABELS_PER_BLOCK = 1 << 18


def diagnose(
    ann: Annotations,
    class_probabilities: ArrayLike,
    *,
    predicted: ArrayLike | None = None,
    out_of_fold: bool = True,
    gold: ArrayLike | None = None,
) -> tuple[Finding, ...]:
    """Test the labels for faults, such as annotators who copy each other.

    Each kind of test raises a false alarm in at most 1 % of data sets without the fault.

    Parameters
    ----------
    ann : Annotations
        The labels.
    class_probabilities : array-like of shape (n_items, n_classes)
        Class probabilities of a consensus of the labels. Rows of items without labels are not used and may be NaN. If
        `gold` is given, pass probabilities that were computed without gold, so that gold is not compared with itself.
    predicted : array-like of int, shape (n_items,), or None, default=None
        Class that the classifier predicts for each item, as a position in `ann.classes`; -1 if unknown. If
        `out_of_fold` is True, the tests of annotators also use the predictions, as labels of one more annotator.
    out_of_fold : bool, default=True
        Whether each item was predicted by a classifier that was not trained on it. If False, predictions are used only
        in the test for classes that are never predicted.
    gold : array-like of int, shape (n_items,), or None, default=None
        True class of each item, as a position in `ann.classes`; -1 if unknown.

    Returns
    -------
    findings : tuple of Finding
        The faults, ordered by kind and p-value. Empty if no fault was found, or if there is too little data.

    Raises
    ------
    ValueError
        If the arrays do not match the annotations, or if class probabilities of labelled items are not finite.

    Notes
    -----
    Each test reports a fault if the labels contradict its null hypothesis, which says that there is no fault. The null
    hypotheses are, by kind of finding:

    shared_mistakes
        The labels of two annotators depend on each other on at most 2 % of the items, called coupled items. On coupled
        items, the two annotators agree as often as their confusion matrices allow. On all other items, their labels are
        independent given the true class. `crowdfuse.quality.annotator_pairs` describes the model. Other pairs of
        annotators may have coupled items, too, for example because some items are hard for everybody. The limit is then
        higher: 2 percentage points plus the median share of coupled items among these other pairs. The test needs 40
        items that both annotators labelled. Other annotators must also have labelled these items, with at least two
        labels per item on average. If fewer than half of all items were labelled by both annotators, one label per
        item is enough. A prediction counts as a label.
    copied_labels
        Two annotators disagree at least half as often as independent annotators would.
    uninformative_annotator
        The annotator recognizes the class of at least 20 % of the items, and may guess on all other items. The test
        needs 30 labels. An annotator whose labels clearly depend on the class is not reported, even if most of them are
        wrong, for example because the annotator swaps two classes.
    class_never_predicted
        If n items have the class as their consensus, the classifier predicts this class for at least n / 4 items.
    gold_contradicts_consensus
        The consensus differs from gold on a limited share of the items: at most 1.5 times the error rate expected from
        the confidence, plus 5 percentage points. The test needs 20 items with gold.
    labels_ignore_inputs
        The predictions agree with the labels more often than by chance. The improvement over chance is at least 10 % of
        the possible improvement. The test needs 50 items and out-of-fold predictions. If gold contradicts the
        consensus, this test is left out: the classifier may have been trained on the gold and then contradicts the
        labels, too.

    The test for shared mistakes is a likelihood-ratio test on the items that both annotators labelled. The test for
    copied labels counts disagreements. The test for an uninformative annotator compares the annotator's labels with all
    other labels. All three tests use confusion matrices of the annotators and of the classifier. The matrices are
    estimated by EM, starting from `class_probabilities`. Two annotators who make the same mistakes may outvote accurate
    annotators. The accurate annotators then seem to make mistakes together, and would be reported. Therefore the pair
    with the strongest evidence is tested first. If this test finds a fault, one of the two annotators is left out of
    the tests of other annotators. `benchmarks/diagnostics.py` measures false alarms and power.

    Examples
    --------
    The last annotator copies the labels of the one before:

    >>> generator = np.random.default_rng(0)
    >>> truth = generator.integers(0, 3, 300)
    >>> labels = np.where(generator.random((300, 6)) < 0.7, truth[:, None], generator.integers(0, 3, (300, 6)))
    >>> labels[:, 5] = labels[:, 4]
    >>> ann = Annotations.from_matrix(labels, annotators=["ann", "bob", "cem", "dot", "eve", "fay"])
    >>> [finding.kind for finding in diagnose(ann, ann.vote_shares())]
    ['copied_labels']
    """
    labelled = np.flatnonzero(np.diff(ann.indptr) > 0)
    probabilities = _check_probabilities(class_probabilities, ann, labelled)
    codes = _check_codes(predicted, "predicted", ann)
    gold_codes = _check_codes(gold, "gold", ann)
    if not len(labelled) or ann.n_classes < 2:
        return ()
    crowd = _fit_crowd(ann, probabilities, codes if out_of_fold else None)
    dependent = find_dependent_pairs(crowd, ann.n_annotators)
    findings = [_describe_pair(pair, ann) for pair in dependent]
    findings += _test_annotators(crowd.without(frozenset(pair.evidence.second for pair in dependent)), ann)
    if codes is not None:
        findings += _test_predicted_classes(ann, probabilities, codes)
    contradictions = [] if gold_codes is None else list(consensus_contradiction(ann, probabilities, gold_codes))
    findings += contradictions
    if codes is not None and out_of_fold and not contradictions:  # the classifier may be trained on this gold
        findings += _test_inputs(ann, probabilities, codes)
    return tuple(findings)


def _check_probabilities(values: ArrayLike, ann: Annotations, labelled: IntArray) -> FloatArray:
    """Return the class probabilities as an array."""
    probabilities = np.asarray(values, np.float64)
    if probabilities.shape != (ann.n_items, ann.n_classes):
        raise ValueError(
            f"class_probabilities must have shape {(ann.n_items, ann.n_classes)} (items, classes), got "
            f"{probabilities.shape}"
        )
    finite = np.isfinite(probabilities[labelled]).all(1)
    if not finite.all():
        item = ann.items[labelled[np.argmin(finite)]]
        raise ValueError(
            f"class_probabilities of item {format_names([item])} are not finite; every item with labels needs finite "
            "class probabilities"
        )
    return probabilities


def _check_codes(values: ArrayLike | None, name: str, ann: Annotations) -> IntArray | None:
    """Return class codes as an array, or None."""
    if values is None:
        return None
    codes = np.asarray(values)
    if codes.shape != (ann.n_items,) or codes.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must hold one integer per item, shape ({ann.n_items},), got {codes.dtype} of shape {codes.shape}"
        )
    outside = (codes < -1) | (codes >= ann.n_classes)
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(
            f"{name}[{at}] is {codes[at]}, but must be a position in the classes, from 0 to {ann.n_classes - 1}, or "
            "-1 if unknown"
        )
    return codes


def _fit_crowd(ann: Annotations, probabilities: FloatArray, predicted: IntArray | None) -> IndependentCrowd:
    """Return the model of independent annotators, fitted on all labelled items or a sample of them."""
    n_labels = np.diff(ann.indptr)
    used = n_labels > 0
    if ann.n_labels * ann.n_classes > MAX_CELLS:
        share = MAX_CELLS / (ann.n_labels * ann.n_classes)
        used &= np.random.default_rng(0).random(ann.n_items) < share
    position = np.cumsum(used) - 1
    keep = np.repeat(used, n_labels)
    item, source, label = position[ann.item[keep]], ann.annotator[keep], ann.label[keep]
    n_sources = ann.n_annotators
    if predicted is not None:
        known = np.flatnonzero(used & (predicted >= 0))
        item = np.concatenate([item, position[known]])
        source = np.concatenate([source, np.full(len(known), n_sources)])
        label = np.concatenate([label, predicted[known]])
        order = np.argsort(item, kind="stable")
        item, source, label = item[order], source[order], label[order]
        n_sources += 1
    return IndependentCrowd(item, source, label, n_sources, ann.n_classes, probabilities[used])


def _describe_pair(found: DependentPair, ann: Annotations) -> Finding:
    """Return the finding about a pair who copy labels or make the same mistakes."""
    pair, both = found.evidence, _both(found.evidence, ann)
    of_all = "of the " if pair.n_examined < pair.n_common else ""
    items = f"{pair.n_examined:,} {of_all}items that both labelled"
    if found.copies:
        message = (
            f"{both} probably copy from each other or from the same source: they disagree on {pair.disagreements:,} of "
            f"{items}, but independent annotators would disagree on about {pair.expected_disagreements:,.0f}. "
            "Ask how these labels were made, or count the two as one annotator."
        )
        return Finding("copied_labels", message, found.p_value, pair.n_examined)
    message = (
        f"{both} make the same mistakes more often than by chance: on {items}, they "
        f"gave the same wrong label about {pair.same_mistakes:,.0f} times, but independent annotators would do so "
        f"about {pair.expected_same_mistakes:,.0f} times. Let a third person check some of these items, or count the "
        "two as one annotator."
    )
    return Finding("shared_mistakes", message, found.p_value, pair.n_examined)


def _both(pair: PairEvidence, ann: Annotations) -> str:
    """Return the names of the annotators of a pair, as the start of a sentence."""
    first, second = (annotator_in_message(ann.annotators[at]) for at in (pair.first, pair.second))
    return f"{start_sentence(first)} and {second}"


def _test_annotators(crowd: IndependentCrowd, ann: Annotations) -> Iterator[Finding]:
    """Yield a finding for each annotator whose labels do not depend on the class."""
    R, K = ann.n_annotators, ann.n_classes
    rows = np.flatnonzero(crowd.source < R)
    annotator, label = crowd.source[rows], crowd.label[rows]
    label_counts = np.bincount(annotator * np.int64(K) + label, minlength=R * K).reshape(R, K)
    n_labels = label_counts.sum(1)
    label_shares = label_counts / np.maximum(n_labels, 1)[:, None]
    log_joint = crowd.log_joint()
    excess = np.empty(len(rows))  # agreement with the reference, minus the agreement of an annotator at the margin
    reference = np.empty(len(rows), np.int64)
    by_chance = np.zeros(R)
    for start in range(0, len(rows), LABELS_PER_BLOCK):
        part = slice(start, start + LABELS_PER_BLOCK)
        who, said = annotator[part], label[part]
        own = crowd.log_confusion[crowd.matrix_of_source[who], said]
        without_own = normalize_log(log_joint[crowd.item[rows[part]]] - own)
        guess = (label_shares[who] * without_own).sum(1)
        gain = without_own[np.arange(len(who)), said] - guess
        excess[part] = gain - INFORMATIVE_MARGIN * ((without_own**2).sum(1) - guess)
        reference[part] = without_own.argmax(1)
        by_chance += np.bincount(who, label_shares[who, reference[part]], R)
    tested = np.flatnonzero(n_labels >= MIN_LABELS)
    mean = np.bincount(annotator, excess, R)[tested] / n_labels[tested]
    spread = np.sqrt(np.maximum(np.bincount(annotator, excess**2, R)[tested] / n_labels[tested] - mean**2, 0))
    p_values = ndtr(mean * np.sqrt(n_labels[tested]) / np.maximum(spread, 1e-9))
    order = np.argsort(annotator, kind="stable")
    ends = n_labels.cumsum()
    for at, p_value in significant(p_values, len(tested)):
        one, n = int(tested[at]), int(n_labels[tested[at]])
        mine = order[ends[one] - n : ends[one]]
        if _are_dependent(reference[mine], label[mine], K):
            continue
        agreeing = int((reference[mine] == label[mine]).sum())
        constant = label_counts[one].max() == n
        always = f" Every label is {name_in_message(ann.classes[label_counts[one].argmax()])}." if constant else ""
        name = start_sentence(annotator_in_message(ann.annotators[one]))
        message = (
            f"{name} seems to label without looking at the items: {agreeing:,} of {n:,} labels agree with the class "
            f"that all other labels and the predictions suggest, and guessing would give about {by_chance[one]:,.0f}."
            f"{always} Look at some of these labels, and leave the annotator out if they are guesses."
        )
        yield Finding("uninformative_annotator", message, p_value, n)


def _are_dependent(first: IntArray, second: IntArray, n_classes: int) -> bool:
    """Return whether a chi-squared test finds that two lists of classes depend on each other."""
    table = np.bincount(first * n_classes + second, minlength=n_classes**2).reshape(n_classes, n_classes)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    if not freedom:
        return False
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    return bool(chdtrc(freedom, ((table - expected) ** 2 / expected).sum()) < INDEPENDENCE_LEVEL)


def _test_predicted_classes(ann: Annotations, probabilities: FloatArray, predicted: IntArray) -> Iterator[Finding]:
    """Yield a finding for each class that annotators use but the classifier never or hardly ever predicts."""
    rows = np.flatnonzero((np.diff(ann.indptr) > 0) & (predicted >= 0))
    n_items = probabilities[rows].sum(0)
    n_predicted = np.bincount(predicted[rows], minlength=ann.n_classes)
    tested = np.flatnonzero(n_items >= MIN_CLASS_ITEMS)
    n_tries = np.maximum(n_items.astype(np.int64), n_predicted)
    p_values = bdtr(n_predicted[tested], n_tries[tested], RARELY_PREDICTED_SHARE)
    for at, p_value in significant(p_values, len(tested)):
        k = tested[at]
        name, n_items_predicted = name_in_message(ann.classes[k]), format_count(int(n_predicted[k]), "item")
        predicts = (
            f"predicts class {name} for only {n_items_predicted}" if n_predicted[k] else f"never predicts class {name}"
        )
        message = (
            f"The classifier {predicts}, although about {n_items[k]:,.0f} of {len(rows):,} "
            "labelled items have this class as their consensus. Collect more items of this class, give it more weight "
            "in training, or merge it with another class."
        )
        yield Finding("class_never_predicted", message, p_value, len(rows))


def _test_inputs(ann: Annotations, probabilities: FloatArray, predicted: IntArray) -> Iterator[Finding]:
    """Yield a finding if predictions agree with labels hardly better than by chance."""
    n_labels = np.diff(ann.indptr)
    rows = np.flatnonzero((n_labels > 0) & (predicted >= 0))
    if len(rows) < MIN_PREDICTED_ITEMS:
        return
    keep = predicted[ann.item] >= 0
    item, label = ann.item[keep], ann.label[keep]
    predicted_shares = np.bincount(predicted[rows], minlength=ann.n_classes) / len(rows)

    def mean_by_item(values: NDArray[Any]) -> FloatArray:
        """Return the mean over the labels of each item."""
        means: FloatArray = np.bincount(item, values, ann.n_items)[rows] / n_labels[rows]
        return means

    guess = mean_by_item(predicted_shares[label])
    agreement = mean_by_item(label == predicted[item])
    possible = mean_by_item(probabilities[item, label]) - guess
    excess = agreement - guess - INPUT_MARGIN * possible
    p_value = float(ndtr(excess.mean() * np.sqrt(len(rows)) / max(excess.std(), 1e-9)))
    if p_value >= FALSE_ALARM_RATE:
        return
    message = (
        f"The labels do not depend on the inputs: on {len(rows):,} items, out-of-fold predictions agree with "
        f"{format_percent(agreement.mean(), 0)} of the labels, and chance alone would give "
        f"{format_percent(guess.mean(), 0)}. Check that the rows of the inputs belong to the right items, that the "
        "inputs show what the labels are about, and that training converged."
    )
    yield Finding("labels_ignore_inputs", message, p_value, len(rows))
