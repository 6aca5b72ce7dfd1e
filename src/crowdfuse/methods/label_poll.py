"""Infer the initial class of each item from the labels that annotators are predicted to give (a poll).

A network predicts the label that each annotator would give to an item. The score of a class is how well it explains
these predicted labels, assuming that all wrong labels of an annotator are equally likely; see
`crowdfuse.functional.expected_class_log_likelihood`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdfuse.functional import expected_class_log_likelihood
from crowdfuse.methods.data import TrainingData

MAX_POLLED_ANNOTATORS = 64  # the annotators with the most labels are polled

ClassRule = Literal["any", "above chance"]
"""How initial classes are inferred from predicted labels; see `expected_class_log_likelihood`."""

CLASS_RULES: tuple[ClassRule, ...] = ("above chance", "any")


def poll_weights(data: TrainingData, n_annotators: int) -> NDArray[np.float64]:
    """Return the weight of each annotator when predicted labels are combined.

    Parameters
    ----------
    data : TrainingData
        The training data.
    n_annotators : int
        Number of annotators.

    Returns
    -------
    weights : ndarray of shape (n_annotators,)
        Proportional to the annotator's number of labels, where each label counts with the weight of its item. 0 for all
        but the 64 annotators with the most labels. The weights sum to 1.

    Examples
    --------
    >>> from crowdfuse import Annotations
    >>> from crowdfuse.io.inputs import Inputs
    >>> ann = Annotations.from_matrix([[0, 1], [1, -1], [0, -1]])
    >>> data = TrainingData(Inputs(np.eye(3)), ann, np.full(3, -1), np.ones(3, np.float32))
    >>> poll_weights(data, 2).tolist()
    [0.75, 0.25]
    """
    ann = data.annotations
    counts = np.bincount(ann.annotator, data.weight[ann.item], minlength=n_annotators)
    counts[np.argsort(-counts, kind="stable")[MAX_POLLED_ANNOTATORS:]] = 0
    weights: NDArray[np.float64] = counts / max(counts.sum(), 1e-9)
    return weights


def class_scores(label_probabilities: Tensor, weight: Tensor, rule: ClassRule) -> Tensor:
    """Return the score of each class from predicted labels.

    Parameters
    ----------
    label_probabilities : Tensor of shape (B, A, K)
        Predicted label probabilities of the polled annotators for each item.
    weight : Tensor of shape (A,)
        Weights of the polled annotators.
    rule : {"any", "above chance"}
        "above chance": an annotator supports only classes with a predicted label probability above 1 / K. "any": an
        annotator also supports classes with a predicted label probability far below 1 / K. See
        `crowdfuse.functional.expected_class_log_likelihood`.

    Returns
    -------
    scores : Tensor of shape (B, K)
    """
    above_chance = rule == "above chance"
    return (weight[:, None] * expected_class_log_likelihood(label_probabilities, above_chance=above_chance)).sum(1)


def rule_log_likelihood(label_probabilities: Tensor, truth: Tensor, label: Tensor, rule: ClassRule) -> Tensor:
    """Return the log-likelihood of labels, assuming that items have the classes that a rule infers.

    Parameters
    ----------
    label_probabilities : Tensor of shape (L, K)
        For each label, the predicted label probabilities of its annotator on its item.
    truth : Tensor of shape (L,)
        For each label, the class that the rule infers for its item.
    label : Tensor of shape (L,)
        The labels.
    rule : {"any", "above chance"}
        How the classes in `truth` were inferred; see `class_scores`.

    Returns
    -------
    log_likelihood : Tensor of shape (L,)
    """
    n_classes = label_probabilities.shape[1]
    q = label_probabilities.gather(1, truth[:, None])[:, 0].clamp(1e-6, 1 - 1e-6)
    if rule == "above chance":
        q = q.clamp(min=1 / n_classes)
    return torch.where(label == truth, q.log(), ((1 - q) / (n_classes - 1)).log())
