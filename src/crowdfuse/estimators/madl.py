"""Multi-annotator deep learning."""

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
    """How each annotator does on each item, and less weight for those who are like many others (Herde et al., 2023).

    Parameters
    ----------
    confusions : what is learned for each item and annotator. "isotropic", our default: how likely the annotator is
        right, the wrong classes being alike; "diagonal": that for each class; "full": a whole confusion matrix, as in
        the authors' code, which leaves so much open that the classes are sometimes not found
    weights : "density": in the loss an annotator counts the less, the more others there are like it, so that copies do
        not outvote the rest; "uniform": all count the same
    eta : how often annotators are taken to be right before anything is learned; more than chance
    embedding : how many numbers describe an annotator, and an item for how annotators do on it
    gamma_shape, gamma_rate : of the gamma prior of how sharply "density" tells annotators apart

    The other parameters are those of every classifier here: see `CrowdClassifier`. An item's loss is the sum over
    its labels, so items with more labels count more.

    Attributes
    ----------
    weights_ (R,) : how much each annotator counts in the loss, mean 1

    `annotator_weights` are in the same proportions, on every item. They say who is like many others, not who is right:
    `confusion_matrices` do, item by item. `fused_labels` takes the network's prediction as the prior, and the labels as
    evidence by Bayes.

    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.normal(size=(300, 2))
    >>> truth = (X[:, 1] > 0).astype(int)
    >>> guess = generator.integers(0, 2, 300)                # what the second annotator says where x < 0
    >>> Y = np.stack([truth, np.where(X[:, 0] > 0, truth, guess), truth], axis=1)
    >>> clf = MaDLClassifier(epochs=10, learning_rate=0.02).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices(X).shape                      # item by item
    (300, 3, 2, 2)
    """

    method_name: ClassVar[str] = "madl"
    assumes: ClassVar[str] = (
        "how an annotator confuses classes depends on the item; annotators who are alike count less each"
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
        """How much each annotator counts in the loss, (R,), mean 1."""
        check_is_fitted(self)
        assert isinstance(self.method_, MaDL)
        everyone = torch.arange(len(self.annotators_))
        with torch.no_grad():
            shares = self.method_.weight_logits(torch.zeros(1), everyone, everyone).softmax(0)
        weights: NDArray[np.float32] = (shares * len(everyone)).numpy()
        return weights
