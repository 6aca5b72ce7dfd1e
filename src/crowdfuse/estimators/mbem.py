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
    """Model-bootstrapped EM: estimates confusion matrices from the predictions of the network.

    Training has several rounds. Each round trains the network on class probabilities of the items. In the first round,
    the class probabilities are the vote shares (for each class, the fraction of the item's labels that are this class).
    Before every later round, new class probabilities are computed in three steps. First, the network predicts the
    classes of the items. Second, a class prior and one confusion matrix per annotator are counted as if the predicted
    classes were the true classes (for items with gold, the true class is used). Third, Bayes' rule combines the prior,
    the matrices and the item's labels. The result is called the posterior.

    Parameters
    ----------
    rounds : int
        Number of rounds. The `epochs` are split evenly over the rounds: if there are 40 epochs and 2 rounds, each round
        has 20 epochs. The learning-rate schedule restarts in each round. The network and the state of the optimizer are
        kept from one round to the next.
    chosen : {"epoch", "round"}
        Epochs from which validation chooses the best one. "epoch": all epochs of the last round. "round": the last
        epoch of every round, as in the code of the fusion paper (see `FusionClassifier`).

    Attributes
    ----------
    confusion_matrices_ : ndarray of shape (n_annotators, n_classes, n_classes)
        P(annotator's label | true class), the same for all items. These are the matrices of the round that contains the
        epoch that validation chose; without validation, of the last round. For the matrices of the first round, the
        vote shares are used as the probabilities of the true class.

    See Also
    --------
    TwoStageClassifier : Estimates the confusion matrices once, before training.

    Notes
    -----
    In `history_`, "phase" is the round. `fused_labels()` returns the posterior.

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
        if self.epochs is not None and self.rounds > self.epochs:
            raise ValueError(
                f"rounds={self.rounds} needs at least {self.rounds} epochs, got epochs={self.epochs}; increase epochs, "
                "or reduce rounds"
            )
        check_choice("chosen", self.chosen, ("epoch", "round"))
        return MBEM(spec, rounds=int(self.rounds), chosen=self.chosen)
