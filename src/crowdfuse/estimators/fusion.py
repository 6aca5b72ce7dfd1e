"""Estimator of sample-wise label fusion (Gao et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sklearn.utils.validation import check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_layer_widths, check_nonnegative, check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.fusion import BasisConfusions, Fusion
from crowdfuse.training.progress import print_message

MAX_CLASSES_WITH_FULL_CONFUSIONS = 100  # a free matrix per pair needs n_classes^2 outputs
MAX_ANNOTATORS_WITH_SHARED_HEADS = 100  # with more, annotator_heads="auto" means "embedded"


@dataclass(kw_only=True, eq=False, repr=False)
class FusionClassifier(CrowdClassifier):
    """Sample-wise label fusion: weights and confusion matrices per item and annotator.

    This is the learning method of Gao et al. (2022); "the paper" below means their paper. For every item and annotator,
    the network predicts a weight and a confusion matrix. The matrix corrects the annotator's label. The weighted mean
    of the corrected labels is the fused label, a vector of class probabilities that the classifier is trained on.

    Parameters
    ----------
    n_bases : int
        Number of permutations of the classes. Each permutation is written as a matrix, and each confusion matrix is a
        weighted mean of these permutation matrices. For K classes, at most K! permutations are used. If `n_bases` is 1,
        the only permutation is the identity: this ablation learns weights but no confusions.
    basis : {"random", "latin"}
        How permutations are chosen. "random": drawn at random, as in the paper. "latin": the classes are put in a
        random order, and the permutations are cyclic shifts of this order. If `n_bases` is at least the number of
        classes, "latin" permutations can correct every label to every class. If `n_bases` is larger than the number of
        classes, further permutations are added.
    penalty : float
        Strength of the penalty that pulls the confusion matrices towards the identity matrix; lambda in the paper.
    confusions : {"basis", "full"}
        Form of the confusion matrices. "basis": weighted means of permutations. "full": any matrix whose columns sum to
        1, for at most 100 classes.
    weights : {"learned", "uniform"}
        "learned": weights are predicted for each item and annotator. "uniform": all weights are equal; this ablation
        learns confusion matrices only.
    annotator_heads : {"auto", "shared", "separate", "embedded"}
        Structure of the network that predicts the weights, and of the network that predicts the confusion matrices.
        "shared": each of the two is one network for all annotators, except for its last layer, which is separate for
        each annotator. "separate": as "shared", but each annotator has a separate network for the confusion matrices,
        as in the paper; suited to few annotators. "embedded": each of the two is one network for all annotators, which
        takes an embedding of the annotator as input; suited to many annotators. "auto": "shared" for up to 100
        annotators, else "embedded".
    embedding : int
        Size of the annotator embedding; used only if the heads are "embedded".
    annotator_hidden : tuple of int or None
        Widths of the hidden layers of the networks that `annotator_heads` describes. None: the widths of the class
        head, or (64,) if the class head has no hidden layer.
    loss_scale : {"plain", "paper"}
        "plain": the loss is the mean over items. "paper": the mean over items is divided by the number of classes, as
        in the paper's experiments.

    Attributes
    ----------
    n_bases_ : int or None
        Number of permutations that are used: the smaller of `n_bases` and K!, for K classes. None if confusions="full".

    See Also
    --------
    ConsensusTrainingClassifier : The default learning method.
    GatedClassifier : Models how labels arise instead of correcting labels.
    TraceRegClassifier : One confusion matrix per annotator, the same for all items.

    Notes
    -----
    Beware of annotators who always give the same label: their labels are the easiest to predict, so fusion tends to
    trust them. If items have many labels, the weights can concentrate on a single annotator who is not the most
    accurate; check the result of `annotator_weights()`.

    References
    ----------
    Z. Gao, F.-K. Sun, M. Yang, S. Ren, Z. Xiong, M. Engeler, A. Burazer, L. Wildling, L. Daniel and D. S. Boning.
    "Learning from Multiple Annotator Noisy Labels via Sample-wise Label Fusion". ECCV 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import FusionClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)  # the third annotator is always wrong
    >>> clf = FusionClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.annotator_weights(X).shape, clf.confusion_matrices(X).shape
    ((200, 3), (200, 3, 2, 2))
    """

    method_name: ClassVar[str] = "fusion"
    assumes: ClassVar[str] = (
        "accuracy and confusions of annotators depend on the item; labels are corrected, not modelled"
    )
    paper_settings: ClassVar[dict[str, Any]] = {
        "n_bases": 20,
        "penalty": 1.0,
        "annotator_heads": "separate",
        "loss_scale": "paper",
    }
    search_space: ClassVar[SearchSpace] = {
        "penalty": (0.1, 10.0),
        "n_bases": [5, 20, 50],
    }

    n_bases: int = 20
    basis: Literal["random", "latin"] = "random"
    penalty: float = 1.0
    confusions: Literal["basis", "full"] = "basis"
    weights: Literal["learned", "uniform"] = "learned"
    annotator_heads: Literal["auto", "shared", "separate", "embedded"] = "auto"
    embedding: int = 16
    annotator_hidden: tuple[int, ...] | None = None
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("confusions", self.confusions, ("basis", "full"))
        check_choice("weights", self.weights, ("learned", "uniform"))
        check_choice("annotator_heads", self.annotator_heads, ("auto", "shared", "separate", "embedded"))
        check_choice("loss_scale", self.loss_scale, ("plain", "paper"))
        check_nonnegative("penalty", self.penalty)
        check_positive_integer("n_bases", self.n_bases)
        check_positive_integer("embedding", self.embedding)
        if self.confusions == "full" and spec.n_classes > MAX_CLASSES_WITH_FULL_CONFUSIONS:
            raise ValueError(
                f"confusions='full' takes at most {MAX_CLASSES_WITH_FULL_CONFUSIONS} classes, got {spec.n_classes}; "
                "use confusions='basis'"
            )
        possible = math.factorial(spec.n_classes)
        if self.confusions == "basis" and self.n_bases > possible:
            print_message(
                self.verbose,
                f"n_bases={self.n_bases}, but {spec.n_classes} classes have only {possible} permutations; all "
                f"{possible} are used",
            )
        hidden = (
            (spec.head_hidden or (64,))
            if self.annotator_hidden is None
            else check_layer_widths("annotator_hidden", self.annotator_hidden)
        )
        return Fusion(
            spec,
            n_bases=self.n_bases,
            basis=self.basis,
            penalty=self.penalty,
            confusions=self.confusions,
            weights=self.weights,
            annotator_heads=self._heads(spec.n_annotators),
            embedding=self.embedding,
            annotator_hidden=hidden,
            loss_scale=self.loss_scale,
        )

    def _heads(self, n_annotators: int) -> Literal["shared", "separate", "embedded"]:
        """Return the kind of heads to build for this number of annotators."""
        if self.annotator_heads != "auto":
            return self.annotator_heads
        return "shared" if n_annotators <= MAX_ANNOTATORS_WITH_SHARED_HEADS else "embedded"

    def _resolved_settings(self) -> dict[str, Any]:
        assert isinstance(self.method_, Fusion)
        built = self.method_.annotator_heads
        return {} if built == self._heads(len(self.annotators_)) else {"annotator_heads": built}

    @property
    def n_bases_(self) -> int | None:
        """Number of permutation matrices whose weighted mean is the confusion matrix of an annotator in this model.

        Returns
        -------
        n_bases : int or None
            The smaller of the parameter `n_bases` and K!, for K classes. None if confusions="full".
        """
        check_is_fitted(self)
        assert isinstance(self.method_, Fusion)
        return len(self.method_.confuse.basis) if isinstance(self.method_.confuse, BasisConfusions) else None
