"""The probability of an item's labels if all annotators who are wrong on the item give the same wrong label.

Independent annotators rarely agree on a wrong label if there are many classes. Annotators who copy one another, or whom
an item misleads in the same way, often do. So two equal labels are weaker evidence for their class than the model of
independent annotators takes them to be.
"""

from __future__ import annotations

import numpy as np

from crowdfuse.aggregation.votes import Block, FloatArray


def log_probability_of_same_mistakes(block: Block, right: FloatArray, wrong_labels: FloatArray) -> FloatArray:
    """Return log P(labels of the item | true class) if there is only one wrong label per item.

    The wrong label l of an item of class k is drawn once, from `wrong_labels[l, k]`. Each annotator then gives either
    the true class or this label::

        P(labels | k)  =  sum over l of wrong_labels[l, k] * product over the labels (r, y) of
                          right[r, k] if y = k, (1 - right[r, k]) if y = l, else 0

    Parameters
    ----------
    block : Block
        The items and their labels.
    right : ndarray of shape (n_labels, n_classes)
        For each label and true class, the probability that the annotator is right on the item; above 0 and below 1.
    wrong_labels : ndarray of shape (n_classes, n_classes)
        Distribution of wrong labels, with axes (label, true class); the diagonal is 0.

    Returns
    -------
    log_probability : ndarray of shape (n_items, n_classes)
        -inf if an item has two or more different labels besides the true class.

    Examples
    --------
    >>> from crowdfuse.aggregation.votes import Votes
    >>> from crowdfuse.labels.annotations import Annotations
    >>> (block,) = Votes(Annotations.from_matrix([[0, 1, 1]], classes=range(3))).blocks
    >>> wrong_labels = (1 - np.eye(3)) / 2
    >>> np.exp(log_probability_of_same_mistakes(block, np.full((3, 3), 0.8), wrong_labels)).round(3).tolist()
    [[0.016, 0.064, 0.0]]
    """
    K = block.n_classes
    values = np.log1p(-right)
    each = np.arange(len(values))
    values[each, block.label] = np.log(right[each, block.label])
    log_probability: FloatArray = np.add.reduceat(values, np.searchsorted(block.item, np.arange(block.n_items)), axis=0)
    is_given = block.vote_counts() > 0
    n_wrong = is_given.sum(1, keepdims=True) - is_given  # number of different labels besides the true class
    log_probability[n_wrong > 1] = -np.inf
    item, true_class = np.nonzero(n_wrong == 1)
    if len(item):
        sum_given = (is_given * np.arange(K)).sum(1)
        wrong_label = sum_given[item] - is_given[item, true_class] * true_class  # what is left of the sum
        log_probability[item, true_class] += np.log(wrong_labels[wrong_label, true_class])
    return log_probability
