"""Whether to rely on the predictions of a classifier and on their confidence, by what its run has measured."""

from __future__ import annotations

import numpy as np

from crowdfuse.labels.intervals import wilson_interval
from crowdfuse.labels.number_format import format_confidence
from crowdfuse.quality.consensus import Consensus

MIN_OVERCONFIDENCE = 0.03  # smallest excess of the mean confidence over the estimated accuracy that is reported


def prediction_limitations(result: Consensus) -> tuple[str, ...]:
    """Return reasons not to rely on a classifier's predictions of new items, or on the confidence of the predictions.

    The reasons come from the out-of-fold predictions of the labelled items. The true classes are unknown, so the
    accuracy of these predictions is an estimate: for each item, take the probability that the consensus gives to the
    predicted class. The mean over the items is the estimated accuracy.

    Parameters
    ----------
    result : Consensus
        Result of `crowdfuse.consensus`, or of the method `consensus` of a classifier.

    Returns
    -------
    tuple of str
        One or two sentences per reason. Empty if `result` has no predictions of a classifier, or if there is no reason.

    Examples
    --------
    >>> from crowdfuse import Annotations, consensus
    >>> ann = Annotations.from_matrix([[0, 0], [1, 1]] * 50)
    >>> wrong_half_of_the_time = [[0.99, 0.01], [0.99, 0.01]] * 50
    >>> print(prediction_limitations(consensus(ann, wrong_half_of_the_time, n_folds=5))[0])
    Do not rely on the predictions of this classifier: on items kept out of its training, it is right on an estimated \
50 %, with a mean confidence of 99 %. Always predicting the most frequent class would be right on 50 %.
    """
    probabilities = result.out_of_fold_probabilities
    if probabilities is None:
        return ()
    if result.n_folds == 0:
        return (
            "It is unknown how far to trust the predictions of this classifier and their confidence: both are measured "
            "by cross-fitting, but there was no cross-fitting (0 folds).",
        )
    has_labels = result.labels_per_item > 0
    posterior = result.class_probabilities[has_labels]
    said = probabilities[has_labels].argmax(1)
    accuracy = float(posterior[np.arange(len(said)), said].mean(dtype=np.float64))
    confidence = float(probabilities[has_labels].max(1).mean(dtype=np.float64))
    measured = (
        f"on items kept out of its training, it is right on an estimated {format_confidence(accuracy)}, with a mean "
        f"confidence of {format_confidence(confidence)}"
    )
    never = tuple(finding.message for finding in result.findings if finding.kind == "class_never_predicted")
    if result.parameters.get("sharpness", np.array(1.0)) == 0:
        most_frequent = np.bincount(result.consensus_codes[has_labels]).max() / len(said)
        baseline = f"Always predicting the most frequent class would be right on {format_confidence(most_frequent)}."
        return f"Do not rely on the predictions of this classifier: {measured}. {baseline}", *never
    _, high = wilson_interval(accuracy * len(said), len(said))
    if confidence > high and confidence >= accuracy + MIN_OVERCONFIDENCE:
        return (f"The confidence of the predictions of this classifier is too high: {measured}.", *never)
    return never
