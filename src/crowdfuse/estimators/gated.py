"""Estimator of the gated method: the probability that each annotator is right on each item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.estimators.fitted_network import PairFunction
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.methods.gated import Gated
from crowdfuse.methods.wrong_labels import (
    BasisWrongLabels,
    PerAnnotatorWrongLabels,
    SharedWrongLabels,
    UniformWrongLabels,
    WrongLabels,
)

# on Sentiment Polarity, with 203 annotators, shared heads were 1 point more accurate than embedded ones
MAX_ANNOTATORS_WITH_SHARED_GATES = 1_000
MAX_COUNTED_ITEMS = 20_000


@dataclass(kw_only=True, eq=False, repr=False)
class GatedClassifier(CrowdClassifier):
    """Gated: learns the probability that each annotator is right on each item.

    These probabilities are called gates. Classifier and gates are learned together from the labels, in three phases.
    The first phase learns which label each annotator would give to each item. The second phase infers a class for each
    item from these predicted labels, and trains classifier and gates on the inferred classes. The third phase continues
    to train classifier and gates, but now maximizes the joint likelihood of all labels of each item.

    Parameters
    ----------
    wrong : {"uniform", "annotator", "shared", "basis"}
        How wrong labels are distributed over the wrong classes. "uniform": all wrong classes are equally likely.
        "annotator": the distribution is learned for each annotator and true class. "shared": it is learned for each
        true class, and is the same for all annotators. "basis": the distribution is learned for each annotator with
        fewer parameters, as a mixture of `n_bases` permutations. The permutations are drawn at random and map every
        true class to a wrong label. For each annotator, one probability per permutation is learned.
    n_bases : int
        Number of permutations if wrong="basis"; otherwise not used.
    hold_out : bool
        Whether to hold out (not train on) a tenth of all labels, but at most 5,000 labels. The held-out labels are
        taken from items with several labels. Their likelihood decides which epoch is kept: the last epoch of the second
        phase, or an epoch of the third phase. If there are more than two classes, their likelihood also chooses between
        two rules by which the second phase infers classes from predicted labels. If `hold_out` is False, or if no item
        has several labels, the last epoch is kept. `hold_out` has no effect if `fit()` gets the argument `validation`.
    annotator_heads : {"auto", "shared", "embedded"}
        Networks that predict the gates. "shared": one network for all annotators, except for its last layer, which is
        separate for each annotator. "embedded": one network for all annotators, which takes an embedding of the
        annotator as input; suited to many annotators. "auto": "shared" for up to 1,000 annotators, else "embedded".
    embedding : int
        Size of the annotator embedding; used only if the heads are "embedded".

    See Also
    --------
    ConsensusTrainingClassifier : The default learning method. It cross-fits `GatedClassifier` and other classifiers.
    MaDLClassifier : A similar model that is trained in one phase.
    FusionClassifier : Sample-wise label fusion (Gao et al., 2022).

    Notes
    -----
    In two cases, the annotators' labels do not show the true classes, and some gold labels are needed. In the first
    case, annotators make the same mistakes. In the second case, there are only two classes, and each annotator is
    unreliable on a different part of the items. If ten or more items have gold labels, the gold labels can overrule the
    classes that the second phase inferred from the annotators' labels. docs/method.md describes the model, compares it
    with other models, and shows the cases in which it fails.

    The weights that `annotator_weights()` returns are proportional to the gates. `fused_labels()` combines the
    classifier's prediction (the prior) with the labels (the evidence) by Bayes' rule.

    References
    ----------
    Y. Yan, R. Rosales, G. Fung, M. Schmidt, G. Hermosillo, L. Bogoni, L. Moy and J. Dy. "Modeling annotator expertise:
    Learning when everybody knows a bit of something". AISTATS 2010. `GatedClassifier` is a deep variant of this model.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import GatedClassifier
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    >>> Y = np.stack([truth, np.where(X[:, 0] > 0, truth, (truth + 1) % 4), truth], axis=1)
    >>> clf = GatedClassifier(epochs=20, batch_size=32).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices(X).shape
    (300, 3, 4, 4)
    """

    method_name: ClassVar[str] = "gated"
    assumes: ClassVar[str] = (
        "the accuracy of an annotator depends on the item; wrong labels are equally likely for all wrong classes"
    )
    estimates_item_accuracy: ClassVar[bool] = True
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
        if self.epochs is not None and self.epochs < 2:
            raise ValueError(
                f"gated needs at least 2 epochs, got epochs={self.epochs}. 3 or more are better: training has three "
                "phases, and with 2 epochs the last phase is left out"
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
        """Return the kind of heads to build for this number of annotators."""
        if self.annotator_heads != "auto":
            return self.annotator_heads
        return "shared" if n_annotators <= MAX_ANNOTATORS_WITH_SHARED_GATES else "embedded"

    def _resolved_settings(self) -> dict[str, Any]:
        assert isinstance(self.method_, Gated)
        built = self.method_.heads
        return {} if built == self._heads(len(self.annotators_)) else {"annotator_heads": built}

    def _default_validation(self, data: TrainingData) -> Any:
        has_several = np.diff(data.annotations.indptr) > 1
        return "annotations" if self.hold_out and (has_several & (data.weight > 0)).any() else None

    def _after_fit(self, data: TrainingData) -> None:
        """Count which wrong labels annotators give, on a sample of the training data if there is much of it."""
        rows = np.flatnonzero(np.diff(data.annotations.indptr) > 0)
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:MAX_COUNTED_ITEMS])
        if not len(rows):
            return
        inputs, ann = data.inputs.take(rows), data.annotations[rows]
        probabilities = self.predict_proba(inputs)
        assert isinstance(self.method_, Gated)
        annotator, label = (torch.from_numpy(part.astype(np.int64)) for part in (ann.annotator, ann.label))
        self.method_.wrong.count_labels(annotator, label, torch.from_numpy(probabilities[ann.item]).float())

    def annotator_accuracy_per_item(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return the probability that each annotator is right on each item.

        These probabilities are predicted from the input alone, without the labels of the item. For one accuracy per
        annotator, with an interval, see `consensus()`.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators), default=None
            If given, accuracies are computed only for pairs (item, annotator) that have a label. None: for all pairs.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        accuracy : ndarray of shape (n_items, n_annotators) or (n_labels,)
            If `annotations` is None, one probability per item and annotator. Otherwise, one probability per label:
            first the labels of the first row of X, then those of the second row, and so on.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(3).repeat(50, 0), np.arange(3).repeat(50)[:, None].repeat(3, 1)
        >>> clf = crowdfuse.GatedClassifier(epochs=30, learning_rate=0.01).fit(X, Y)
        >>> (clf.annotator_accuracy_per_item(X) > 0.9).all()
        np.True_
        """
        check_is_fitted(self)
        return self._values_of_pairs(_accuracies, X, annotations, items, caller="annotator_accuracy_per_item")


def _accuracies(method: Method) -> PairFunction:
    """Return the function of the network that predicts accuracies."""
    assert isinstance(method, Gated)
    return method.accuracies
