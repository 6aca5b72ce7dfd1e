"""Aggregation first, then training."""

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
    """First aggregate the labels, then train on what came out: what most people do, and the baseline to beat.

    Parameters
    ----------
    aggregator : "dawid-skene", "one-coin", "glad", "mace", "wawa" or "majority-vote": see `crowdfuse.aggregation`
    target : "soft" trains on the aggregator's probabilities, "hard" on the most likely class

    The other parameters are those of every classifier here: see `CrowdClassifier`. Gold takes the place of the
    aggregate where there is any; of the aggregators, "dawid-skene" alone learns from it about annotators.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): P(said | true), counted with the aggregate for the
        truth. `fused_labels` is the posterior of the class by these, the network has no part in it

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = TwoStageClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    """

    method_name: ClassVar[str] = "two-stage"
    assumes: ClassVar[str] = "labels alone tell what items are: each item has several, and inputs add nothing"
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
