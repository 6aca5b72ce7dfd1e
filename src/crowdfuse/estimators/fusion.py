"""Sample-wise label fusion, the paper of this library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_layer_widths, check_nonnegative, check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.fusion import BasisConfusions, Fusion
from crowdfuse.training.progress import print_message

FULL_LIMIT = 100  # classes: a free matrix a pair has K^2 outputs
MAX_ANNOTATORS_WITH_SHARED_HEADS = 100  # with more, annotator_heads="auto" means "embedded"


@dataclass(kw_only=True, eq=False, repr=False)
class FusionClassifier(CrowdClassifier):
    """Sample-wise label fusion: weights and confusion matrices per item and annotator (Gao et al., ECCV 2022).

    Mind who always says the same: such an annotator is the easiest to predict, and fusion comes to believe it. Where
    each item has many labels, the weights can end on one annotator, and not the best: look at `annotator_weights`.

    Parameters
    ----------
    n_bases : how many permutations M span the confusion matrices; at most K! are used. 1 leaves the
        identity alone: the ablation with weights only
    basis : "random" as in the paper; "latin" lets every class be reached from every label once M >= K
    penalty : lambda, how strongly the matrices are drawn to the identity
    confusions : "basis", or "full": a free column-stochastic matrix a pair, for small K
    weights : "learned", or "uniform": the ablation with confusions only
    annotator_heads : what makes the weights and matrices of an annotator. "separate": a network each, as in the
        paper, for few annotators (the weights' networks share all but their last layer); "shared": one network for
        all, but for its last layer; "embedded": one network for all that reads a few numbers an annotator, for many.
        "auto": "shared" for up to 100 annotators, else "embedded"
    embedding : how many numbers describe an annotator, with embedded heads
    annotator_hidden : widths of the hidden layers of the annotators' heads; None for those of the class
        head (one layer of 64 where that has none)
    loss_scale : "plain": the mean over items; "paper": that divided by K, as the paper's figures were trained

    The other parameters are those of every classifier here: see `CrowdClassifier`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0).astype(int)
    >>> Y = np.stack([truth, truth, 1 - truth], axis=1)      # the third annotator is always wrong
    >>> clf = FusionClassifier(epochs=20).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.annotator_weights(X).shape, clf.confusion_matrices(X).shape
    ((200, 3), (200, 3, 2, 2))
    """

    method_name: ClassVar[str] = "fusion"
    assumes: ClassVar[str] = (
        "whom to believe, and what is mixed up, depends on the item; labels are cleaned, not explained"
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
        if self.confusions == "full" and spec.n_classes > FULL_LIMIT:
            raise ValueError(
                f"confusions='full' is for at most {FULL_LIMIT} classes, got {spec.n_classes}; use 'basis'"
            )
        possible = math.factorial(spec.n_classes)
        if self.confusions == "basis" and self.n_bases > possible:
            print_message(
                self.verbose, f"n_bases={self.n_bases}: {spec.n_classes} classes have only {possible} permutations"
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
        if self.annotator_heads != "auto":
            return self.annotator_heads
        return "shared" if n_annotators <= MAX_ANNOTATORS_WITH_SHARED_HEADS else "embedded"

    def _resolved_settings(self) -> dict[str, Any]:
        assert isinstance(self.method_, Fusion)
        built = self.method_.annotator_heads
        return {} if built == self._heads(len(self.annotators_)) else {"annotator_heads": built}

    @property
    def n_bases_(self) -> int | None:
        """How many permutations there are: min(n_bases, K!); None with full confusions."""
        assert isinstance(self.method_, Fusion)
        return len(self.method_.confuse.basis) if isinstance(self.method_.confuse, BasisConfusions) else None
