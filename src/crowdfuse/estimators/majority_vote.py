"""Estimator of the majority vote: all annotators have the same weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.majority_vote import MajorityVote


@dataclass(kw_only=True, eq=False, repr=False)
class MajorityVoteClassifier(CrowdClassifier):
    """Majority vote: combines the labels of each item by a vote, and trains on the result.

    All annotators have the same weight.

    Parameters
    ----------
    vote : {"soft", "hard"}
        "soft": train on the vote shares (for each class, the fraction of the item's labels that are this class).
        "hard": train on the class with the most labels. Ties are broken at random, using `random_state` as the seed.
    loss_scale : {"plain", "paper"}
        "plain": the loss is the mean over items. "paper": the mean over items is divided by the number of classes, as
        in the paper under References.

    See Also
    --------
    RobustVoteClassifier : Trains on the vote with a loss that tolerates wrong votes.
    TwoStageClassifier : Other aggregations of the labels before training.

    References
    ----------
    Z. Gao et al. "Learning from Multiple Annotator Noisy Labels via Sample-wise Label Fusion". ECCV 2022. The vote is a
    baseline there.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import MajorityVoteClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> MajorityVoteClassifier(epochs=20).fit(X, Y).score(X, truth) > 0.9
    True
    """

    method_name: ClassVar[str] = "majority-vote"
    assumes: ClassVar[str] = "all annotators are equally good on all items"
    paper_settings: ClassVar[dict[str, Any]] = {"vote": "soft", "loss_scale": "paper"}

    vote: Literal["soft", "hard"] = "soft"
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("vote", self.vote, ("soft", "hard"))
        check_choice("loss_scale", self.loss_scale, ("plain", "paper"))
        return MajorityVote(spec, vote=self.vote, loss_scale=self.loss_scale)
