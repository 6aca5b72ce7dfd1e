"""The gated method, the default: how likely each annotator is right on each item."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.methods.gated import Gated
from crowdfuse.methods.gold_classifier import MIN_GOLD_ITEMS
from crowdfuse.methods.wrong_labels import (
    BasisWrongLabels,
    PerAnnotatorWrongLabels,
    SharedWrongLabels,
    UniformWrongLabels,
    WrongLabels,
)
from crowdfuse.quality.diagnostics import NO_LABELS, diagnose
from crowdfuse.training.validation import Validation

SHARED_LIMIT = 1_000  # annotators: with 203, on Sentiment Polarity, shared heads were a point better than embedded
MAX_DIAGNOSED_ITEMS = 20_000  # items, when a fit looks back


@dataclass(kw_only=True, eq=False, repr=False)
class GatedClassifier(CrowdClassifier):
    """How likely each annotator is right on each item, learned with the classifier from the labels alone.

    Three phases: what annotators would say of an item; what it therefore is, as a start; and then the likelihood of
    all labels of an item together. See `crowdfuse.methods.gated` for the model, and docs/method.md for what it was
    measured against, and where it fails: annotators who make the same mistakes, and two classes, need gold. Gold items
    are worth much here: from ten on they can overrule what labels alone say.

    Parameters
    ----------
    wrong : what annotators say where they are wrong. "uniform": all wrong classes alike; "annotator": a table each,
        learned; "shared": one table for all; "basis": a mixture of permutations an annotator, the paper's basis read
        forward
    n_bases : how many permutations there are, for "basis"
    hold_out : keep some labels (a tenth, at most 5,000) of items that have several out of training, to choose the
        start and the epoch by. Without it, or where no item has two labels, the last epoch is kept
    annotator_heads : "shared": one network for all annotators, but for its last layer; "embedded": one for all that
        reads a few numbers an annotator, for many. "auto": "shared" for up to 1,000 annotators, else "embedded"
    embedding : how many numbers describe an annotator, with embedded heads

    The other parameters are those of every classifier here: see `CrowdClassifier`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    >>> Y = np.stack([truth, np.where(X[:, 0] > 0, truth, (truth + 1) % 4), truth], axis=1)
    >>> clf = GatedClassifier(epochs=20, batch_size=32).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices(X).shape
    (300, 3, 4, 4)

    Attributes, beside those of every classifier
    ----------
    diagnostics_ : what the labels cannot decide: figures, `gates_can_be_trusted`, and `messages` in words
    """

    method_name: ClassVar[str] = "gated"
    assumes: ClassVar[str] = (
        "how often an annotator is right depends on the item; wrong labels are even over the other classes"
    )
    search_space: ClassVar[SearchSpace] = {"wrong": ["uniform", "annotator", "shared"]}

    wrong: Literal["uniform", "annotator", "shared", "basis"] = "uniform"
    n_bases: int = 20
    hold_out: bool = True
    annotator_heads: Literal["auto", "shared", "embedded"] = "auto"
    embedding: int = 16

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("wrong", self.wrong, ("uniform", "annotator", "shared", "basis"))
        check_choice("annotator_heads", self.annotator_heads, ("auto", "shared", "embedded"))
        check_positive_integer("n_bases", self.n_bases)
        check_positive_integer("embedding", self.embedding)
        if self.epochs < 2:
            raise ValueError(
                f"gated needs at least 2 epochs, got epochs={self.epochs}: one on what annotators say, one on what the "
                "items therefore are; from 3 on the likelihood of the labels is trained too"
            )
        wrong: WrongLabels = UniformWrongLabels(spec.n_classes, spec.n_annotators)
        if self.wrong == "annotator":
            wrong = PerAnnotatorWrongLabels(spec.n_classes, spec.n_annotators)
        elif self.wrong == "shared":
            wrong = SharedWrongLabels(spec.n_classes)
        elif self.wrong == "basis":
            wrong = BasisWrongLabels(spec.n_classes, spec.n_annotators, self.n_bases, spec.seed)
        return Gated(spec, heads=self._heads(spec.n_annotators), embedding=self.embedding, wrong=wrong)

    def _heads(self, n_annotators: int) -> Literal["shared", "embedded"]:
        if self.annotator_heads != "auto":
            return self.annotator_heads
        return "shared" if n_annotators <= SHARED_LIMIT else "embedded"

    def _resolved_settings(self) -> dict[str, Any]:
        assert isinstance(self.method_, Gated)
        built = self.method_.heads
        return {} if built == self._heads(len(self.annotators_)) else {"annotator_heads": built}

    def _validation(self, given: Any, data: TrainingData, seed: int) -> tuple[TrainingData, Validation | None]:
        several = np.diff(data.annotations.indptr) > 1
        if given is None and self.hold_out and (several & (data.weight > 0)).any():
            given = "annotations"
        return super()._validation(given, data, seed)

    def _after_fit(self, data: TrainingData) -> None:
        """What the labels cannot decide; of much data, a sample tells."""
        rows = np.flatnonzero(np.diff(data.annotations.indptr) > 0)
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:MAX_DIAGNOSED_ITEMS])
        if not len(rows):
            self.diagnostics_ = NO_LABELS.as_json()
            return
        inputs, ann = data.inputs.take(rows), data.annotations[rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gates = self._gates(inputs, ann, None)
        probabilities = self.predict_proba(inputs)
        assert isinstance(self.method_, Gated)
        enough = int((data.gold >= 0).sum()) >= MIN_GOLD_ITEMS
        by_labels = "vote" if self.method_.trains_on_vote else "labels and gold" if enough else "labels"
        decided_by = "gold" if self.method_.starts_from_gold else by_labels
        self.diagnostics_ = diagnose(probabilities, gates, ann, initial_classes_from=decided_by).as_json()
        annotator, label = (torch.from_numpy(part.astype(np.int64)) for part in (ann.annotator, ann.label))
        self.method_.wrong.count_labels(annotator, label, torch.from_numpy(probabilities[ann.item]).float())

    def annotator_accuracy(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """How likely each annotator is right on each item: the gates, (N, R).

        With annotations, those of the labelled pairs alone, (labels,), in the order of the annotations. A warning says
        if the labels give reason not to trust them; `diagnostics_` says which.
        """
        check_is_fitted(self)
        if not self.diagnostics_["gates_can_be_trusted"]:
            warnings.warn("; ".join(self.diagnostics_["messages"]), stacklevel=2)
        return self._gates(X, annotations, items)

    def _gates(self, X: Any, annotations: Any, items: ArrayLike | None) -> NDArray[np.float32]:
        return self._of_pairs("annotator_accuracy", "accuracies", X, annotations, items)
