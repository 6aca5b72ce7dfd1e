"""Estimator of trace regularization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from crowdfuse.checks.numbers import check_above_chance, check_nonnegative
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.trace_reg import TraceReg


@dataclass(kw_only=True, eq=False, repr=False)
class TraceRegClassifier(GlobalConfusionsClassifier):
    """Trace regularization: one confusion matrix per annotator, learned with the network.

    Different combinations of network and matrices explain the labels equally well. A penalty on the traces of the
    matrices (the sums of their diagonal entries) selects one combination. The loss has one term per label, so items
    with more labels have more influence.

    Parameters
    ----------
    trace_weight : float
        Strength of the trace penalty; 0.01 in the paper under References.
    start : float or None
        Initial accuracy of annotators, before training. None: `e / (e + K - 1)` for K classes and Euler's number e, as
        in the code of the fusion paper (see `FusionClassifier`). This is 23 % for 10 classes and 3 % for 100 classes.

    See Also
    --------
    GeoCrowdNetClassifier : The same model with a volume regularizer instead of the trace penalty.
    FusionClassifier : Learns confusion matrices that depend on the item.

    Notes
    -----
    `fused_labels` combines the network's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    R. Tanno, A. Saeedi, S. Sankaranarayanan, D. C. Alexander and N. Silberman. "Learning from Noisy Labels by
    Regularized Estimation of Annotator Confusion". CVPR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import TraceRegClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = TraceRegClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)  # the most likely label of the third annotator, per true class
    array([1, 0])
    """

    method_name: ClassVar[str] = "trace-reg"
    assumes: ClassVar[str] = "the confusions of an annotator are the same on all items"
    paper_settings: ClassVar[dict[str, Any]] = {"trace_weight": 0.01, "start": None}
    search_space: ClassVar[SearchSpace] = {
        "trace_weight": (0.001, 0.1),
        "start": [0.6, 0.75, 0.9],
    }

    trace_weight: float = 0.01
    start: float | None = 0.75

    def _build(self, spec: ModelSpec) -> Method:
        check_nonnegative("trace_weight", self.trace_weight)
        if self.start is not None:
            check_above_chance("start", self.start, spec.n_classes)
        return TraceReg(spec, trace_weight=self.trace_weight, start=self.start)
