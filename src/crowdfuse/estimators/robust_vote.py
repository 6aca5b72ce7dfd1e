"""The vote, with a loss that distrusts it."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.robust_vote import RobustVote


@dataclass(kw_only=True, eq=False, repr=False)
class RobustVoteClassifier(CrowdClassifier):
    """The majority vote, trained with generalised cross-entropy (Zhang and Sabuncu, 2018).

    Wrong votes are learned by heart less than with cross-entropy. All annotators count the same, ties are broken from
    the seed, and items with gold have cross-entropy.

    Parameters
    ----------
    q : how far the vote is distrusted: towards 0 the loss is cross-entropy, at 1 it is 1 - p, which hardly minds wrong
        votes and learns slowly, the more so with many classes; 0.7 in the paper
    vote : "hard": on the winner of the vote; "soft": on all labels of an item, which count the same

    The other parameters are those of every classifier here: see `CrowdClassifier`.

    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.where(generator.random((200, 1)) < 0.3, 1 - truth[:, None], truth[:, None])   # 30 % are wrong
    >>> RobustVoteClassifier(epochs=20).fit(X, Y).score(X, truth) > 0.9
    True
    """

    method_name: ClassVar[str] = "robust-vote"
    assumes: ClassVar[str] = "the vote is mostly right, and its mistakes are what the network finds hardest to learn"
    search_space: ClassVar[SearchSpace] = {"q": (0.3, 0.9), "vote": ["hard", "soft"]}

    q: float = 0.7
    vote: Literal["soft", "hard"] = "hard"

    def _build(self, spec: ModelSpec) -> Method:
        _check_q(self.q)
        check_choice("vote", self.vote, ("soft", "hard"))
        return RobustVote(spec, q=float(self.q), vote=self.vote)


def _check_q(q: object) -> None:
    if not isinstance(q, Real) or not 0 < float(q) <= 1:
        raise ValueError(
            f"q must be a number above 0 and at most 1, got {q!r}; for plain cross-entropy (q = 0) there is "
            "MajorityVoteClassifier(vote='hard')"
        )
