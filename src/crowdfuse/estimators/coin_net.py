"""COINNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.checks.numbers import check_above_chance, check_nonnegative
from crowdfuse.estimators.base import SearchSpace
from crowdfuse.estimators.global_confusions import GlobalConfusionsClassifier
from crowdfuse.labels.alignment import align
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.coin_net import COINNet


@dataclass(kw_only=True, eq=False, repr=False)
class COINNetClassifier(GlobalConfusionsClassifier):
    """A confusion matrix an annotator, and outlier terms for items on which all err otherwise (Nguyen et al., 2024).

    Some items must have at least two labels.

    Parameters
    ----------
    outlier_weight : how unlikely an item's labels must be for it to be an outlier: with 1, about less likely than
        chance; more finds fewer outliers
    volume_weight : how strongly the class probabilities are spread, so that they and the matrices are the only ones
        that explain the labels; see `GeoCrowdNetClassifier`
    start : how often annotators are taken to be right before anything is learned; None: e / (e + K - 1), as in the
        authors' code

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more.

    Attributes
    ----------
    confusion_matrices_ (R, K, K) : axes (annotator, true, said): the same on every item, true to noisy, P(said | true)

    `outliers` says which items are outliers. `fused_labels` takes the network's prediction as the prior, and the labels
    as evidence by Bayes, which those of outliers hardly are.

    >>> import numpy as np
    >>> truth = np.arange(200) % 2
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + 4 * truth[:, None]
    >>> Y = truth[:, None].repeat(3, 1)
    >>> Y[:10] = 1 - Y[:10]                                  # ten items that fool everybody
    >>> clf = COINNetClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> (clf.outliers(X, Y) > 0.5).nonzero()[0]
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    method_name: ClassVar[str] = "coin-net"
    assumes: ClassVar[str] = (
        "confusions are the same on every item but for a few items, on which annotators err together"
    )
    needs: ClassVar[str] = "an item with two labels"
    paper_settings: ClassVar[dict[str, Any]] = {"start": None}
    search_space: ClassVar[SearchSpace] = {
        "outlier_weight": (0.8, 3.0),
        "volume_weight": (0.001, 0.5),
        "start": [None, 0.75],
    }

    outlier_weight: float = 1.0
    volume_weight: float = 0.01
    start: float | None = 0.75

    def _build(self, spec: ModelSpec) -> Method:
        check_nonnegative("outlier_weight", self.outlier_weight)
        if not self.outlier_weight:
            raise ValueError("outlier_weight=0 makes every item an outlier, and nothing is learned: give more than 0")
        check_nonnegative("volume_weight", self.volume_weight)
        if self.start is not None:
            check_above_chance("start", self.start, spec.n_classes)
        return COINNet(spec, outlier_weight=self.outlier_weight, volume_weight=self.volume_weight, start=self.start)

    def outliers(self, X: Any, annotations: Any, *, items: ArrayLike | None = None) -> NDArray[np.float64]:
        """How far the labels of each item are explained by outlier terms, (N,): 0 not at all, 1 altogether.

        The root mean square of what the terms add to the likelihoods of the item's labels; NaN where it has none.
        Of the training data, or of any other.
        """
        inputs = self._inputs(X)
        ann = self._known(align(annotations, len(inputs), items))
        method = self._method_for(ann)
        assert isinstance(method, COINNet)
        blocks = [method.outliers(h, b.item, b.annotator, b.label).numpy() for b, h in self._batches(inputs, ann)]
        square = np.bincount(ann.item, np.concatenate(blocks).astype(np.float64) ** 2, minlength=len(inputs))
        with np.errstate(invalid="ignore"):
            far: NDArray[np.float64] = np.sqrt(square / np.diff(ann.indptr))
        return far
