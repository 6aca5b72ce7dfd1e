"""Estimator of two stages: aggregate the labels, then train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.two_stage import TwoStage


@dataclass(kw_only=True, eq=False, repr=False)
class TwoStageClassifier(GlobalConfusionsClassifier):
    """Two stages: first aggregates the labels of each item, then trains on the aggregated labels.

    Training on aggregated labels is the most common practice, and the baseline to beat. For items with gold labels
    (trusted true classes), the network is trained on gold instead of the aggregated labels. The aggregators themselves
    do not use gold, except "dawid-skene".

    Parameters
    ----------
    aggregator : {"dawid-skene", "one-coin", "glad", "mace", "wawa", "majority-vote"}
        Algorithm that combines the labels of each item into class probabilities; see `crowdfuse.aggregation`.
    target : {"soft", "hard"}
        "soft": train on the aggregator's probabilities. "hard": train on the most probable class.

    Attributes
    ----------
    confusion_matrices_ : ndarray of shape (n_annotators, n_classes, n_classes)
        P(annotator's label | true class), the same for all items. A label counts towards every true
        class, with the probability that the aggregator gives this class. On items with gold, it counts towards the true
        class alone.

    See Also
    --------
    MBEMClassifier : Repeats both stages, and uses the network's predictions to aggregate the labels again.
    crowdfuse.aggregation : The aggregators alone, without a network.

    Notes
    -----
    `fused_labels()` returns the class probabilities of the items given their labels. They are computed by Bayes' rule
    from the labels and `confusion_matrices_`, without the network.

    References
    ----------
    A. P. Dawid and A. M. Skene. "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm". Journal
    of the Royal Statistical Society C, 1979. This algorithm is the default aggregator.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import TwoStageClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = TwoStageClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)  # the most likely label of the third annotator, per true class
    array([1, 0])
    """

    method_name: ClassVar[str] = "two-stage"
    assumes: ClassVar[str] = (
        "the labels alone determine the classes: each item has several labels, and inputs add nothing"
    )
    search_space: ClassVar[SearchSpace] = {
        "aggregator": ["dawid-skene", "one-coin", "glad", "mace"],
        "target": ["soft", "hard"],
    }

    aggregator: str = "dawid-skene"
    target: Literal["soft", "hard"] = "soft"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("aggregator", self.aggregator, tuple(AGGREGATORS))
        check_choice("target", self.target, ("soft", "hard"))
        return TwoStage(spec, aggregator=self.aggregator, target=self.target)
