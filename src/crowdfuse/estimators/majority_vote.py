"""All annotators count the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.majority_vote import MajorityVote


@dataclass(kw_only=True, eq=False, repr=False)
class MajorityVoteClassifier(CrowdClassifier):
    """All annotators count the same.

    Parameters
    ----------
    vote : "soft" trains on the share of labels a class got, "hard" on the winner, ties broken from the seed
    loss_scale : "plain": the mean over items; "paper": that divided by K, as the paper trains its soft vote

    The other parameters are those of every classifier here: see `CrowdClassifier`.
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
