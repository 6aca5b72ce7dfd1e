"""Estimator of GeoCrowdNet: confusion matrices made identifiable by a volume regularizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_above_chance, check_nonnegative
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.geo_crowd_net import GeoCrowdNet


@dataclass(kw_only=True, eq=False, repr=False)
class GeoCrowdNetClassifier(GlobalConfusionsClassifier):
    """GeoCrowdNet: one confusion matrix per annotator, with a regularizer that makes the matrices identifiable.

    Many combinations of network and matrices explain the labels equally well. The regularizer selects one combination
    by maximizing the volume of a matrix. With regularizer="f", the rows of the matrix are the class probabilities of
    the items of a batch. The volume is larger if these rows differ more. It is nearly 0 if a batch has fewer items than
    classes, so `batch_size` must be well above the number of classes. With regularizer="w", the matrix contains the
    confusion matrices. The volume is larger if different true classes get more different labels. The loss has one term
    per label, so items with more labels have more influence.

    Parameters
    ----------
    regularizer : {"f", "w"}
        Matrix whose volume is maximized. "f": the class probabilities of the items; suited to data in which each class
        has some clear items and annotators are inaccurate. "w": the confusion matrices; suited to data in which items
        are ambiguous and each class has expert annotators.
    volume_weight : float
        Strength of the regularizer. 0 turns it off: the network then maximizes the likelihood of the labels alone.
    start : float or None
        Initial accuracy of annotators, before training. None: `e / (e + K - 1)` for K classes and Euler's number e, as
        in the authors' code. This is 23 % for 10 classes.

    See Also
    --------
    COINNetClassifier : The same model with outlier terms, for items to which the confusion matrices do not apply.
    TraceRegClassifier : The same model with a trace penalty.

    Notes
    -----
    `fused_labels` combines the network's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    S. Ibrahim, T. Nguyen and X. Fu. "Deep Learning From Crowdsourced Labels: Coupled Cross-Entropy Minimization,
    Identifiability, and Regularization". ICLR 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import GeoCrowdNetClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = GeoCrowdNetClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)  # the most likely label of the third annotator, per true class
    array([1, 0])
    """

    method_name: ClassVar[str] = "geo-crowd-net"
    assumes: ClassVar[str] = (
        "confusions are the same on all items; each class has some items that are certain, or expert annotators"
    )
    paper_settings: ClassVar[dict[str, Any]] = {"start": None}
    search_space: ClassVar[SearchSpace] = {
        "regularizer": ["f", "w"],
        "volume_weight": (0.001, 0.5),
        "start": [None, 0.75],
    }

    regularizer: Literal["f", "w"] = "f"
    volume_weight: float = 0.01
    start: float | None = 0.75

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("regularizer", self.regularizer, ("f", "w"))
        check_nonnegative("volume_weight", self.volume_weight)
        if self.start is not None:
            check_above_chance("start", self.start, spec.n_classes)
        return GeoCrowdNet(spec, regularizer=self.regularizer, volume_weight=self.volume_weight, start=self.start)
