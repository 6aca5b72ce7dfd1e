"""Estimator of the weighted doctor net."""

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
    """Weighted doctor net: one network per annotator, combined by learned weights.

    Training has two phases. The first phase has `epochs` epochs, and trains one network per annotator on that
    annotator's labels. The networks share all layers except the last. The second phase has `weight_epochs` epochs. It
    freezes the networks and learns one weight per annotator, so that the weighted average of the networks' predictions
    comes close to the vote shares (for each class, the fraction of the item's labels that are this class). This
    weighted average is the prediction of the classifier. In the first phase, the loss has one term per label, so items
    with more labels have more influence.

    Parameters
    ----------
    weights : {"softmax", "released"}
        "softmax": positive weights that sum to 1 and are equal at first, as in the WDN paper. "released": any real
        numbers, initially drawn from a normal distribution, as in the released code of the fusion paper (see
        `FusionClassifier`). The weighted sum of the networks' probabilities is then used as class logits. A negative
        weight inverts the prediction of its network. Training corrects negative initial weights, but "released" needs a
        few thousand training steps for this.
    weight_epochs : int
        Number of epochs of the second phase, which has a separate optimizer and schedule. If there is validation, it
        chooses one of the epochs of the second phase.
    loss_scale : {"plain", "paper"}
        Scale of the loss in the second phase. "plain": the loss is the mean over items. "paper": the mean over items is
        divided by the number of classes, as in the released code of the fusion paper.

    Attributes
    ----------
    weights_ : ndarray of shape (n_annotators,)
        Weight of each network in the weighted mean of the predictions; 0 for annotators without labels. If the
        setting `weights` is "released", these weights can be negative.

    See Also
    --------
    FusionClassifier : Learns weights that depend on the item.

    Notes
    -----
    Prediction takes more time and memory if there are more annotators.

    `annotator_weights()` returns the same weights for all items. They are computed from `weights_`: negative weights
    become 0, annotators without labels get the mean weight of the others, and the result is normalized to sum to 1. The
    weights do not measure accuracy (for accuracies, see `consensus()`). They measure how much each annotator
    contributes to the vote, because the weighted average of the predictions is fitted to the vote shares.

    In `history_`, "phase" says whether networks or weights were trained.

    References
    ----------
    M. Y. Guan, V. Gulshan, A. M. Dai and G. E. Hinton. "Who Said What: Modeling Individual Labelers Improves
    Classification". AAAI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import WDNClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = WDNClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.weights_.round(1)  # each annotator makes up a third of the vote
    array([0.3, 0.3, 0.3], dtype=float32)
    >>> clf.consensus(X, Y, folds=2).annotator_accuracy.argmin()
    np.int64(2)
    """

    method_name: ClassVar[str] = "wdn"
    assumes: ClassVar[str] = (
        "annotators label differently, and the average of one classifier per annotator is better than each of them"
    )
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
        """Weight of each annotator's network in the weighted mean of the predictions.

        Returns
        -------
        weights : ndarray of shape (n_annotators,)
            0 for annotators without labels.
        """
        check_is_fitted(self)
        assert isinstance(self.method_, WDN)
        weights: NDArray[np.float32] = self.method_.average().detach().numpy()
        return weights
