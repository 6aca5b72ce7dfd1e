"""Estimator of UnionNet: all labels of an item as one joint answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.union_net import UnionNet, Variant


@dataclass(kw_only=True, eq=False, repr=False)
class UnionNetClassifier(GlobalConfusionsClassifier):
    """UnionNet: treats all labels of an item as one joint answer of the item's annotators.

    The joint answer includes only the annotators who labelled the item. The loss of an item is the sum of the losses of
    its labels, so items with more labels have more influence.

    Parameters
    ----------
    variant : {"a", "b"}
        How the network's class probabilities become probabilities of labels. Both variants learn a transition matrix,
        which has one row per class, and one column for each combination of an annotator and a label. "a": first, the
        class probabilities are multiplied by the matrix; then one softmax is applied to the whole product. "b": first,
        a softmax is applied to each row of the matrix; then the class probabilities are multiplied by the result. Only
        "b" lets the network learn the true class probabilities.

    Attributes
    ----------
    confusion_matrices_ : ndarray of shape (n_annotators, n_classes, n_classes)
        P(annotator's label | true class), the same for all items. Before training, all entries outside the diagonal are
        equal, and the diagonal entries are `e / (e + K - 1)` for K classes and Euler's number e (23 % for 10 classes).

    See Also
    --------
    CrowdLayerClassifier : Fits the labels of each annotator separately.

    Notes
    -----
    `fused_labels` combines the network's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    H. Wei, R. Xie, L. Feng, B. Han and B. An. "Deep Learning From Multiple Noisy Annotators as A Union". IEEE
    Transactions on Neural Networks and Learning Systems, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import UnionNetClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = UnionNetClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)  # the most likely label of the third annotator, per true class
    array([1, 0])
    """

    method_name: ClassVar[str] = "union-net"
    assumes: ClassVar[str] = (
        "the labels of an item are one joint answer of its annotators; confusions are the same on all items"
    )
    search_space: ClassVar[SearchSpace] = {"variant": ["a", "b"]}

    variant: Variant = "b"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("variant", self.variant, ("a", "b"))
        return UnionNet(spec, variant=self.variant)
