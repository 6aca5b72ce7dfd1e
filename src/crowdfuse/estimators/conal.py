"""Estimator of CoNAL: common and individual noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from crowdfuse.checks.numbers import check_nonnegative, check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.estimators.fitted_network import PairFunction
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.conal import CoNAL


@dataclass(kw_only=True, eq=False, repr=False)
class CoNALClassifier(CrowdClassifier):
    """CoNAL: one common confusion matrix for all annotators, and one individual confusion matrix per annotator.

    The distribution of an annotator's labels is a mixture of the common matrix and the annotator's individual matrix.
    The share of each matrix in the mixture depends on the item and the annotator. The loss has one term per label, so
    items with more labels have more influence.

    Parameters
    ----------
    separation : float
        Strength of the loss term that pushes the individual matrices away from the common matrix. Here this term is
        added once per label. The authors' code adds it once per annotator, with strength 0.00001. For the authors' data
        sets, which have 44 and 59 annotators, the authors' strength corresponds to a `separation` of about 0.0005. On
        synthetic annotators, 0.01 separated the matrices better. 0.1 was too strong: the term outweighed the labels.
    embedding : int
        Size of the annotator embeddings and of the item embeddings. The shares of the two matrices are computed from
        these embeddings.

    Attributes
    ----------
    common_confusion_ : ndarray of shape (n_classes, n_classes)
        P(annotator's label | true class) of the common matrix, with axes (true class, annotator's label).
    individual_confusions_ : ndarray of shape (n_annotators, n_classes, n_classes)
        P(annotator's label | true class) of each annotator's individual matrix, with axes (annotator, true class,
        annotator's label).

    See Also
    --------
    CrowdLayerClassifier : Individual matrices only.

    Notes
    -----
    If there are few annotators, beware of an annotator who is always wrong: the common matrix absorbs part of that
    annotator's errors. `CrowdLayerClassifier` has no common matrix and corrects such errors better. For each item and
    annotator, `confusion_matrices` returns the mixture of both matrices, and `common_share` returns the share of the
    common matrix. This share is the sigmoid of a cosine, so it lies between 0.27 and 0.73. `fused_labels` combines the
    network's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    Z. Chu, J. Ma and H. Wang. "Learning from Crowds by Modeling Common Confusions". AAAI 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import CoNALClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, truth, 1 - truth], axis=1)  # the fourth annotator is always wrong
    >>> clf = CoNALClassifier(epochs=20, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.common_confusion_.argmax(1)
    array([0, 1])
    >>> clf.individual_confusions_.diagonal(axis1=1, axis2=2).mean(1).argmin()
    np.int64(3)
    >>> clf.common_share(X).shape
    (200, 4)
    """

    method_name: ClassVar[str] = "conal"
    assumes: ClassVar[str] = (
        "some confusions are shared by all annotators, others are individual; item and annotator decide which applies"
    )
    search_space: ClassVar[SearchSpace] = {"separation": (0.0001, 0.02)}

    separation: float = 0.0005
    embedding: int = 20

    def _build(self, spec: ModelSpec) -> Method:
        check_nonnegative("separation", self.separation)
        check_positive_integer("embedding", self.embedding)
        return CoNAL(spec, separation=self.separation, embedding=self.embedding)

    @property
    def common_confusion_(self) -> NDArray[np.float32]:
        """Confusion matrix that all annotators share.

        Returns
        -------
        matrix : ndarray of shape (n_classes, n_classes)
            P(annotator's label | true class); axes are (true class, annotator's label), rows sum to 1.
        """
        check_is_fitted(self)
        assert isinstance(self.method_, CoNAL)
        return _row_softmax(self.method_.common)

    @property
    def individual_confusions_(self) -> NDArray[np.float32]:
        """Individual confusion matrix of each annotator, without the common matrix.

        Returns
        -------
        matrices : ndarray of shape (n_annotators, n_classes, n_classes)
            P(annotator's label | true class); axes are (annotator, true class, annotator's label), rows sum to 1.
        """
        check_is_fitted(self)
        assert isinstance(self.method_, CoNAL)
        return _row_softmax(self.method_.individual)

    def common_share(self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None) -> NDArray[np.float32]:
        """Return, for each item and annotator, the share of the common confusion matrix in the mixture.

        The annotator's confusion matrix on an item is a mixture of the common matrix and an individual matrix.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators), default=None
            If given, shares are computed only for pairs (item, annotator) that have a label. None: for all pairs.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        share : ndarray of shape (n_items, n_annotators) or (n_labels,)
            Between 0.27 and 0.73, because the share is the sigmoid of a cosine. If `annotations` is None, one share per
            item and annotator. Otherwise, one share per label: first the labels of the first row of X, then those of
            the second row, and so on.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)[:, None].repeat(3, 1)
        >>> crowdfuse.CoNALClassifier(epochs=2).fit(X, Y).common_share(X).shape
        (20, 3)
        """
        return self._values_of_pairs(_common_shares, X, annotations, items, caller="common_share")


def _common_shares(method: Method) -> PairFunction:
    """Return the function of the network that predicts shares of the common matrix."""
    assert isinstance(method, CoNAL)
    return method.common_shares


def _row_softmax(logits: Tensor) -> NDArray[np.float32]:
    """Return matrices whose rows sum to 1."""
    matrices: NDArray[np.float32] = logits.detach().softmax(-1).numpy()
    return matrices
