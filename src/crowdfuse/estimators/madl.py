"""Estimator of MaDL: multi-annotator deep learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_above_chance, check_nonnegative, check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.madl import MaDL


@dataclass(kw_only=True, eq=False, repr=False)
class MaDLClassifier(CrowdClassifier):
    """MaDL: learns confusion matrices per item and annotator.

    Annotators who resemble many other annotators have a lower weight in the loss. The loss of an item is the sum of the
    losses of its labels, so items with more labels have more influence.

    Parameters
    ----------
    confusions : {"isotropic", "diagonal", "full"}
        What is learned per item and annotator. "isotropic": the probability of a right label. "diagonal": the
        probability of a right label for each true class. In both cases, all wrong labels are equally likely. "full": a
        whole confusion matrix, as in the code of Herde et al. (2023). Full matrices are so flexible that the network
        sometimes does not learn to predict the true classes.
    weights : {"density", "uniform"}
        Weights of the annotators in the loss. "density": an annotator who resembles many other annotators has a low
        weight, so that annotators who copy each other do not outvote the rest. "uniform": all annotators have the same
        weight.
    eta : float
        Initial accuracy of annotators, before training. Must be above chance, 1 / n_classes.
    embedding : int
        Size of the annotator embeddings and of the item embeddings. Confusion matrices are predicted from these
        embeddings.
    gamma_shape : float
        Shape parameter of the gamma prior on a learned number g. Two annotators with embeddings a and b have similarity
        `exp(-g |a - b|^2)`. Used only if weights="density".
    gamma_rate : float
        Rate parameter of the gamma prior on g; see `gamma_shape`. Used only if weights="density".

    Attributes
    ----------
    weights_ : ndarray of shape (n_annotators,)
        Weight of each annotator in the loss; the mean is 1.

    See Also
    --------
    GatedClassifier : A similar model that is trained in three phases.
    AnnotMixClassifier : A learning method by the same authors, with mixup.

    Notes
    -----
    `annotator_weights()` returns weights per item: the entries of `weights_` for the item's annotators, divided by
    their sum. A low weight means that the annotator resembles many others. It does not mean that the annotator is
    inaccurate. For the accuracy per item, see the diagonals of the matrices that `confusion_matrices()` returns.
    `fused_labels()` combines the network's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    M. Herde, D. Huseljic and B. Sick. "Multi-annotator Deep Learning: A Probabilistic Framework for Classification".
    Transactions on Machine Learning Research, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import MaDLClassifier
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(300, 2))
    >>> truth = (X[:, 1] > 0).astype(int)
    >>> guess = generator.integers(0, 2, 300)  # labels of the second annotator where the first feature is negative
    >>> Y = np.stack([truth, np.where(X[:, 0] > 0, truth, guess), truth], axis=1)
    >>> clf = MaDLClassifier(epochs=10, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices(X).shape
    (300, 3, 2, 2)
    """

    method_name: ClassVar[str] = "madl"
    assumes: ClassVar[str] = (
        "the confusions of an annotator depend on the item; annotators who resemble many others count less"
    )
    paper_settings: ClassVar[dict[str, Any]] = {"confusions": "full"}
    search_space: ClassVar[SearchSpace] = {"confusions": ["isotropic", "diagonal", "full"]}

    confusions: Literal["isotropic", "diagonal", "full"] = "isotropic"
    weights: Literal["density", "uniform"] = "density"
    eta: float = 0.8
    embedding: int = 16
    gamma_shape: float = 1.25
    gamma_rate: float = 0.25

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("confusions", self.confusions, ("isotropic", "diagonal", "full"))
        check_choice("weights", self.weights, ("density", "uniform"))
        check_positive_integer("embedding", self.embedding)
        for name in ("gamma_shape", "gamma_rate"):
            check_nonnegative(name, getattr(self, name))
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)!r}")
        check_above_chance("eta", self.eta, spec.n_classes)
        return MaDL(
            spec,
            confusions=self.confusions,
            weights=self.weights,
            eta=float(self.eta),
            embedding=int(self.embedding),
            gamma_prior=(float(self.gamma_shape), float(self.gamma_rate)),
        )

    @property
    def weights_(self) -> NDArray[np.float32]:
        """Weight of each annotator in the loss.

        Returns
        -------
        weights : ndarray of shape (n_annotators,)
            The mean is 1.
        """
        check_is_fitted(self)
        assert isinstance(self.method_, MaDL)
        everyone = torch.arange(len(self.annotators_))
        with torch.no_grad():
            shares = self.method_.weight_logits(torch.zeros(1), everyone, everyone).softmax(0)
        weights: NDArray[np.float32] = (shares * len(everyone)).numpy()
        return weights
