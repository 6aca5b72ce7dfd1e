"""Estimator of the majority vote with a robust loss."""

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
    """Robust vote: trains on the majority vote with generalized cross-entropy as the loss.

    A network that is trained with generalized cross-entropy memorizes fewer wrong votes than a network that is trained
    with cross-entropy. All annotators have the same weight. Ties in the vote are broken at random, using `random_state`
    as the seed. For items with gold, the network is trained on the true class with cross-entropy.

    Parameters
    ----------
    q : float
        Tolerance of wrong votes, above 0 and at most 1. The authors use 0.7. As `q` approaches 0, the loss approaches
        cross-entropy. If `q` is 1, the loss is 1 - p, where p is the predicted probability of the voted class. Wrong
        votes then have the least effect, but learning is slow, especially if there are many classes.
    vote : {"hard", "soft"}
        "hard": train on the class with the most labels. "soft": train on all labels of an item, with equal weight.

    See Also
    --------
    MajorityVoteClassifier : Trains on the vote with cross-entropy.

    References
    ----------
    Z. Zhang and M. R. Sabuncu. "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels".
    NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import RobustVoteClassifier
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.where(generator.random((200, 1)) < 0.3, 1 - truth[:, None], truth[:, None])  # 30 % are wrong
    >>> RobustVoteClassifier(epochs=20).fit(X, Y).score(X, truth) > 0.9
    True
    """

    method_name: ClassVar[str] = "robust-vote"
    assumes: ClassVar[str] = (
        "the vote is mostly right, and its mistakes are the labels that the network finds hardest to learn"
    )
    search_space: ClassVar[SearchSpace] = {"q": (0.3, 0.9), "vote": ["hard", "soft"]}

    q: float = 0.7
    vote: Literal["soft", "hard"] = "hard"

    def _build(self, spec: ModelSpec) -> Method:
        _check_q(self.q)
        check_choice("vote", self.vote, ("soft", "hard"))
        return RobustVote(spec, q=float(self.q), vote=self.vote)


def _check_q(q: object) -> None:
    """Raise an error unless `q` is above 0 and at most 1."""
    if not isinstance(q, Real) or not 0 < float(q) <= 1:
        raise ValueError(
            f"q must be a number above 0 and at most 1, got {q!r}; for plain cross-entropy (q = 0) use "
            "MajorityVoteClassifier(vote='hard')"
        )
