"""Estimator of Max-MIG: mutual information between a classifier and an aggregator of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.max_mig import MaxMIG


@dataclass(kw_only=True, eq=False, repr=False)
class MaxMIGClassifier(CrowdClassifier):
    """Max-MIG: trains a classifier and a label aggregator to maximize the mutual information of their predictions.

    The classifier predicts the class of an item from its input. The aggregator predicts the class from the labels of
    the item.

    There must be at least two annotators. The loss compares the items of a batch with each other, so `batch_size`
    should be well above the number of classes.

    Parameters
    ----------
    prior : {"votes", "uniform"}
        Assumed class frequencies. "votes": the frequencies of the classes among the labels. "uniform": all classes are
        equally frequent, as in the authors' code. Choose "uniform" if many labels come from annotators who always give
        the same label.

    See Also
    --------
    MaDLClassifier : Reduces the weight of annotators who resemble each other.

    Notes
    -----
    Copied labels that hardly depend on the items do no harm, even if many annotators copy each other. Copied systematic
    errors are different: they can mislead the training, because the aggregator is initialized with the vote of all
    annotators. `fused_labels()` returns the prediction of the aggregator. The weights that `annotator_weights()`
    returns measure how much the labels of each annotator change this prediction. The weights are the same for all
    items.

    References
    ----------
    P. Cao, Y. Xu, Y. Kong and Y. Wang. "Max-MIG: an Information Theoretic Approach for Joint Learning from Crowds".
    ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import MaxMIGClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, np.zeros(200, int)], axis=1)  # the third annotator always gives the same label
    >>> clf = MaxMIGClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.annotator_weights(X)[0].argmin()
    np.int64(2)
    """

    method_name: ClassVar[str] = "max-mig"
    assumes: ClassVar[str] = "given the class, labels are independent of the input; annotators may copy one another"
    needs: ClassVar[str] = "two annotators"
    search_space: ClassVar[SearchSpace] = {"prior": ["votes", "uniform"]}
    paper_settings: ClassVar[dict[str, Any]] = {"prior": "uniform"}

    prior: Literal["votes", "uniform"] = "votes"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("prior", self.prior, ("votes", "uniform"))
        if self.batch_size == 1:
            raise ValueError(
                "max-mig compares the items of a batch with each other, so batch_size=1 does not work; use 64, for "
                "example"
            )
        return MaxMIG(spec, prior=self.prior)
