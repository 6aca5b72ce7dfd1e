"""Estimator of model-bootstrapped EM."""

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
    """Model-bootstrapped EM: estimates annotators from the predictions of the network.

    Each round trains on the posterior of the class given the labels of an item; the first posterior is the vote shares.
    Before every later round, the network's predictions are taken as true: they give a class prior and one confusion
    matrix per annotator, and these give the new posterior by Bayes' rule.

    Parameters
    ----------
    rounds : int
        Number of rounds; `epochs` are split evenly over them, so 40 epochs in 2 rounds are 20 and 20. The learning-rate
        schedule restarts in each round; the network and the state of the optimizer carry over.
    chosen : {"epoch", "round"}
        What validation chooses among. "epoch": the epochs of the last round. "round": the ends of all rounds, as in the
        fusion paper's code.

    Attributes
    ----------
    confusion_matrices_ : ndarray of shape (n_annotators, n_classes, n_classes)
        P(label | true class), the same for all items: the matrices that the round of the kept epoch was trained with
        (in the first round: counted from the vote).

    See Also
    --------
    TwoStageClassifier : Estimates annotators once, before training.

    Notes
    -----
    `history_` has the round as "phase". `fused_labels` is the posterior.

    References
    ----------
    A. Khetan, Z. C. Lipton and A. Anandkumar. "Learning From Noisy Singly-labeled Data". ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import MBEMClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = MBEMClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices_[2].argmax(1)  # the most likely label of the third annotator, per true class
    array([1, 0])
    >>> clf.history_[-1]["phase"]
    'round 2 of 2'
    """

    method_name: ClassVar[str] = "mbem"
    assumes: ClassVar[str] = "confusions are the same on all items; the network's first predictions are mostly right"
    paper_settings: ClassVar[dict[str, Any]] = {"rounds": 2, "chosen": "round"}
    search_space: ClassVar[SearchSpace] = {"rounds": [2, 3, 4]}

    rounds: int = 2
    chosen: Literal["epoch", "round"] = "epoch"

    def _build(self, spec: ModelSpec) -> Method:
        check_positive_integer("rounds", self.rounds)
        if self.rounds > self.epochs:
            raise ValueError(
                f"rounds={self.rounds} needs at least as many epochs, got epochs={self.epochs}: one per round"
            )
        check_choice("chosen", self.chosen, ("epoch", "round"))
        return MBEM(spec, rounds=int(self.rounds), chosen=self.chosen)
