"""Estimator of COINNet: confusion matrices and outlier items."""

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
from crowdfuse.training.joined_blocks import JoinedBlocks


@dataclass(kw_only=True, eq=False, repr=False)
class COINNetClassifier(GlobalConfusionsClassifier):
    """COINNet: one confusion matrix per annotator, and extra terms for items to which the matrices do not apply.

    Outliers are items on which annotators make other errors than their confusion matrices predict. Each label has an
    outlier term: a probability that is added to the predicted probability of the label. A penalty keeps most outlier
    terms close to 0, so that only few items have large terms. Outliers are found by comparing the labels of an item, so
    at least one item must have several labels. The loss has one term per label, so items with more labels have more
    influence.

    Parameters
    ----------
    outlier_weight : float
        How improbable the labels of an item must be for the item to count as an outlier; larger values give fewer
        outliers. With 1, the outliers are roughly the items whose labels are less probable than chance.
    volume_weight : float
        Strength of the regularizer that pushes the class probabilities of different items apart. Many combinations of
        class probabilities and confusion matrices explain the labels equally well. The regularizer selects one
        combination, as in `GeoCrowdNetClassifier`.
    start : float or None
        Initial accuracy of annotators, before training. None: `e / (e + K - 1)` for K classes and Euler's number e, as
        in the authors' code. This is 23 % for 10 classes.

    See Also
    --------
    GeoCrowdNetClassifier : The same model without outlier terms.

    Notes
    -----
    `outliers()` returns an outlier score per item. `fused_labels()` combines the network's prediction (the prior) with
    the labels (the evidence) by Bayes' rule. The labels of outliers are only weak evidence.

    References
    ----------
    T. Nguyen, S. Ibrahim and X. Fu. "Noisy Label Learning with Instance-Dependent Outliers: Identifiability via Crowd
    Wisdom". NeurIPS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import COINNetClassifier
    >>> truth = np.arange(200) % 2
    >>> X = np.random.default_rng(0).normal(size=(200, 2)) + 4 * truth[:, None]
    >>> Y = truth[:, None].repeat(3, 1)
    >>> Y[:10] = 1 - Y[:10]  # all annotators are wrong on ten items
    >>> clf = COINNetClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> (clf.outliers(X, Y) > 0.5).nonzero()[0]
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    method_name: ClassVar[str] = "coin-net"
    assumes: ClassVar[str] = "confusions are the same on all items except a few, on which annotators err together"
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
            raise ValueError(
                "outlier_weight must be above 0, got 0; with 0, every item would be an outlier, and nothing would be "
                "learned"
            )
        check_nonnegative("volume_weight", self.volume_weight)
        if self.start is not None:
            check_above_chance("start", self.start, spec.n_classes)
        return COINNet(spec, outlier_weight=self.outlier_weight, volume_weight=self.volume_weight, start=self.start)

    def outliers(self, X: Any, annotations: Any, *, items: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return an outlier score for each item. The items may be training items or new items.

        Outliers are items on which annotators make other errors than their confusion matrices predict.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators)
            Labels of the items.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        outliers : ndarray of shape (n_items,)
            Scores from 0 (not an outlier) to 1 (certain outlier); NaN for items without labels. Each label has an
            outlier term: a probability that is added to the probability that the confusion matrix predicts for the
            label. The score of an item is the root mean square of its outlier terms.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(3, 1)
        >>> crowdfuse.COINNetClassifier(epochs=4).fit(X, Y).outliers(X, Y).shape
        (20,)
        """
        inputs = self._inputs(X)
        ann = self._known(align(annotations, len(inputs), items))
        method = self._method_for(ann)
        assert isinstance(method, COINNet)
        outliers = JoinedBlocks(ann.n_labels)
        for batch, h in self._batches(inputs, ann):
            outliers.append(method.outliers(h, batch.item, batch.annotator, batch.label))
        square = np.bincount(ann.item, outliers.rows.astype(np.float64) ** 2, minlength=len(inputs))
        with np.errstate(invalid="ignore"):
            root_mean_square: NDArray[np.float64] = np.sqrt(square / np.diff(ann.indptr))
        return root_mean_square
