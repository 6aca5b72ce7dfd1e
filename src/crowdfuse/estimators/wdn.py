"""Weighted doctor net."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.wdn import WDN


@dataclass(kw_only=True, eq=False, repr=False)
class WDNClassifier(CrowdClassifier):
    """Weighted doctor net: a network for each annotator, and weights to average them by (Guan et al., 2018).

    First, for `epochs`, one network an annotator on its own labels; all but their last layers is shared. Then, for
    `weight_epochs` and with the networks frozen, one weight an annotator, so that the average of all networks comes
    close to the vote. Predicts with the weighted average, in time and memory that grow with the number of annotators.

    Parameters
    ----------
    weights : "softmax": positive and summing to 1, as in Guan et al., from the plain average on; "released": free
        numbers from a normal start, as in the fusion paper's code, where the weighted sum of probabilities is taken
        for class logits. These want some thousand steps: a weight that is still negative turns its network round
    weight_epochs : how long the weights are trained, by an optimiser and a run of the schedule of their own;
        validation chooses among these epochs
    loss_scale : of the weights' loss. "plain": the mean over items; "paper": that divided by K

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss for the networks is
    the sum over its labels, so items with more labels count more.

    Attributes
    ----------
    weights_ (R,) : the weights in the average; 0 for annotators without labels. "released" ones can be negative

    `annotator_weights` are the same on every item: `weights_` without the negative ones, and the mean of the others for
    who has no labels, made to sum to 1. They say
    who makes up the vote, which the average is fitted to, not who is right: `annotator_reliability` does.
    `history_` says as "phase" whether networks or weights were trained.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = WDNClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.weights_.round(1)                                # each makes up a third of the vote
    array([0.3, 0.3, 0.3], dtype=float32)
    >>> clf.annotator_reliability(X, Y).argmin()
    np.int64(2)
    """

    method_name: ClassVar[str] = "wdn"
    assumes: ClassVar[str] = "every annotator is worth a classifier, and their average is better than any of them"
    paper_settings: ClassVar[dict[str, Any]] = {"weights": "released", "weight_epochs": 5, "loss_scale": "paper"}
    search_space: ClassVar[SearchSpace] = {"weight_epochs": [2, 5, 10]}

    weights: Literal["released", "softmax"] = "softmax"
    weight_epochs: int = 5
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("weights", self.weights, ("released", "softmax"))
        check_choice("loss_scale", self.loss_scale, ("plain", "paper"))
        check_positive_integer("weight_epochs", self.weight_epochs)
        return WDN(spec, weights=self.weights, weight_epochs=int(self.weight_epochs), loss_scale=self.loss_scale)

    @property
    def weights_(self) -> NDArray[np.float32]:
        """How much each annotator's network counts in the average, (R,)."""
        check_is_fitted(self)
        assert isinstance(self.method_, WDN)
        weights: NDArray[np.float32] = self.method_.average().detach().numpy()
        return weights
