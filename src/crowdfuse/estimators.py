"""What people import: one scikit-learn classifier a method, thin. The verbs are in `CrowdClassifier`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.alignment import gold_codes
from crowdfuse.annotations import Annotations
from crowdfuse.classifier import CrowdClassifier, widths
from crowdfuse.ids import few, find, tidy
from crowdfuse.methods.base import Method, Problem
from crowdfuse.methods.fusion import BasisConfusions, Fusion
from crowdfuse.methods.majority_vote import MajorityVote
from crowdfuse.methods.single_annotator import SingleAnnotator
from crowdfuse.methods.true_label import TrueLabel
from crowdfuse.progress import say
from crowdfuse.recipes import at_least_0, at_least_1
from crowdfuse.training import Validation

FULL_LIMIT = 100  # classes: a free matrix a pair has K^2 outputs


@dataclass(kw_only=True, eq=False, repr=False)
class FusionClassifier(CrowdClassifier):
    """Sample-wise label fusion: weights and confusion matrices per item and annotator (Gao et al., ECCV 2022).

    Parameters
    ----------
    n_bases : how many permutations M span the confusion matrices; at most K! are used. 1 leaves the
        identity alone: the ablation with weights only
    basis : "random" as in the paper; "latin" lets every class be reached from every label once M >= K
    penalty : lambda, how strongly the matrices are drawn to the identity
    confusions : "basis", or "full": a free column-stochastic matrix a pair, for small K
    weights : "learned", or "uniform": the ablation with confusions only
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

    n_bases: int = 20
    basis: Literal["random", "latin"] = "random"
    penalty: float = 1.0
    confusions: Literal["basis", "full"] = "basis"
    weights: Literal["learned", "uniform"] = "learned"
    annotator_hidden: tuple[int, ...] | None = None
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, problem: Problem) -> Method:
        _one_of("confusions", self.confusions, ("basis", "full"))
        _one_of("weights", self.weights, ("learned", "uniform"))
        _one_of("loss_scale", self.loss_scale, ("plain", "paper"))
        at_least_0("penalty", self.penalty)
        at_least_1("n_bases", self.n_bases)
        if self.confusions == "full" and problem.n_classes > FULL_LIMIT:
            raise ValueError(
                f"confusions='full' is for at most {FULL_LIMIT} classes, got {problem.n_classes}; use 'basis'"
            )
        possible = math.factorial(problem.n_classes)
        if self.confusions == "basis" and self.n_bases > possible:
            say(self.verbose, f"n_bases={self.n_bases}: {problem.n_classes} classes have only {possible} permutations")
        hidden = (
            (problem.head_hidden or (64,))
            if self.annotator_hidden is None
            else widths("annotator_hidden", self.annotator_hidden)
        )
        return Fusion(
            problem,
            n_bases=self.n_bases,
            basis=self.basis,
            penalty=self.penalty,
            confusions=self.confusions,
            weights=self.weights,
            annotator_hidden=hidden,
            loss_scale=self.loss_scale,
        )

    @property
    def n_bases_(self) -> int | None:
        """How many permutations there are: min(n_bases, K!); None with full confusions."""
        assert isinstance(self.method_, Fusion)
        return len(self.method_.confuse.basis) if isinstance(self.method_.confuse, BasisConfusions) else None


@dataclass(kw_only=True, eq=False, repr=False)
class MajorityVoteClassifier(CrowdClassifier):
    """All annotators count the same.

    Parameters
    ----------
    vote : "soft" trains on the share of labels a class got, "hard" on the winner, ties broken from the seed
    loss_scale : "plain": the mean over items; "paper": that divided by K, as the paper trains its soft vote

    The other parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "majority-vote"

    vote: Literal["soft", "hard"] = "soft"
    loss_scale: Literal["plain", "paper"] = "plain"

    def _build(self, problem: Problem) -> Method:
        _one_of("vote", self.vote, ("soft", "hard"))
        _one_of("loss_scale", self.loss_scale, ("plain", "paper"))
        return MajorityVote(problem, vote=self.vote, loss_scale=self.loss_scale)


@dataclass(kw_only=True, eq=False, repr=False)
class SingleAnnotatorClassifier(CrowdClassifier):
    """One annotator's labels and nobody else's.

    Parameters
    ----------
    annotator : the annotator's name; None where there is only one

    The other parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "single-annotator"

    annotator: Any = None

    def _build(self, problem: Problem) -> Method:
        if self.annotator is None:
            if len(self.annotators_) > 1:
                raise ValueError(
                    "say which annotator with annotator= (--set annotator=NAME on the command line); "
                    f"there are {few(self.annotators_)}"
                )
            return SingleAnnotator(problem, annotator=0)
        position = int(find(tidy(np.asarray([self.annotator]), "annotator"), self.annotators_)[0])
        if position < 0:
            raise ValueError(f"annotator {self.annotator!r} is not one of the annotators ({few(self.annotators_)})")
        return SingleAnnotator(problem, annotator=position)

    def _judged_by(self, ann: Annotations) -> Annotations:
        return ann if self.annotator is None else ann.of(self.annotator)


@dataclass(kw_only=True, eq=False, repr=False)
class TrueLabelClassifier(CrowdClassifier):
    """Trained on gold: the upper bound. `fit(X, gold)`, or `fit(X, annotations, gold=gold)`.

    Parameters are those of every classifier here: see `CrowdClassifier`.
    """

    method_name: ClassVar[str] = "true-label"

    def _build(self, problem: Problem) -> Method:
        return TrueLabel(problem)

    def _gold(self, y: Any, gold: ArrayLike | None, ann: Annotations, n_rows: int) -> NDArray[np.int64]:
        if gold is not None:
            return gold_codes(gold, ann.classes, n_rows)
        if y.ndim != 1:
            raise ValueError(
                "true-label trains on gold: fit(X, gold) with a 1-D array, or fit(X, annotations, gold=...) "
                "(--gold on the command line)"
            )
        codes = np.full(n_rows, -1, np.int64)
        codes[ann.item] = ann.label
        return codes

    def _gold_use(self, held_out: Validation | None) -> str:
        return "training"


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
