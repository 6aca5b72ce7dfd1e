"""Model-bootstrapped EM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_positive_integer
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.mbem import MBEM


@dataclass(kw_only=True, eq=False, repr=False)
class MBEMClassifier(GlobalConfusionsClassifier):
    """Model-bootstrapped EM: the network's predictions say how far each annotator is right (Khetan et al., 2018).

    Each round trains on the posterior of the class given an item's labels, which starts as the vote shares. Before
    every later round, the network's predictions are taken for the truth: from them come a class prior and a matrix
    an annotator, and from these, by Bayes, the new posterior.

    Parameters
    ----------
    rounds : how often to train; `epochs` is split evenly over them, so 40 epochs in 2 rounds are 20 and 20. The
        learning-rate schedule starts over in each round, the network and the optimiser's memory carry on
    chosen : what validation chooses among. "epoch": the epochs of the last round; "round": the ends of the rounds,
        as in the fusion paper's code

    The other parameters are those of every classifier here: see `CrowdClassifier`.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, true to noisy, P(said | true);
        those that the round of the kept epoch was trained with (in the first round: counted from the vote)

    `history_` says the round as "phase". `fused_labels` is the posterior.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = MBEMClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)                 # what it says of each class
    array([1, 0])
    >>> clf.history_[-1]["phase"]
    'round 2 of 2'
    """

    method_name: ClassVar[str] = "mbem"
    assumes: ClassVar[str] = (
        "an annotator mixes up classes in the same way on every item; the network's first predictions are mostly right"
    )
    paper_settings: ClassVar[dict[str, Any]] = {"rounds": 2, "chosen": "round"}
    search_space: ClassVar[SearchSpace] = {"rounds": [2, 3, 4]}

    rounds: int = 2
    chosen: Literal["epoch", "round"] = "epoch"

    def _build(self, spec: ModelSpec) -> Method:
        check_positive_integer("rounds", self.rounds)
        if self.rounds > self.epochs:
            raise ValueError(
                f"rounds={self.rounds} needs at least as many epochs, got epochs={self.epochs}: every round trains"
            )
        check_choice("chosen", self.chosen, ("epoch", "round"))
        return MBEM(spec, rounds=int(self.rounds), chosen=self.chosen)
