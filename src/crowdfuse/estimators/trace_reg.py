"""Trace regularisation."""

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
    """One global confusion matrix an annotator, learned with the network under a trace penalty (Tanno et al., 2019).

    Parameters
    ----------
    trace_weight : how strongly the traces of the matrices are pulled down; 0.01 in the paper
    start : how often annotators are taken to be right before anything is learned; None: e / (e + K - 1), as in the
        fusion paper's code, which is little where there are many classes

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, true to noisy, P(said | true)

    `fused_labels` takes the network's prediction as the prior, and the labels as evidence by Bayes.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = TraceRegClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    """

    method_name: ClassVar[str] = "trace-reg"
    assumes: ClassVar[str] = "an annotator mixes up classes in the same way on every item"
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
