"""Estimator of consensus training: networks that are cross-fitted, and the consensus that they are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, SearchSpace
from crowdfuse.estimators.cross_fitting import OutOfFold, predict_items
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.folds import check_folds
from crowdfuse.labels.ids import IntArray
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.consensus_training import ConsensusTraining
from crowdfuse.methods.data import TrainingData, fingerprint

MAX_ANNOTATORS_WITH_SHARED_HEADS = 1_000
MIN_EPOCHS = 2  # one for the label networks and one for the class networks


@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusTrainingClassifier(CrowdClassifier):
    """Consensus training: alternates between computing a consensus and training networks on it.

    The consensus is one probability distribution over the classes per item. The networks are cross-fitted: the labelled
    items are split into five folds, and every network is trained on the items of four folds.

    Each round has two steps. First, the consensus of each item is computed from its labels, the confusion matrices of
    the annotators, and the predictions of networks that were not trained on the item. Then the networks are trained on
    this consensus: class networks predict the class, and gate networks predict whether an annotator is right.

    The rounds are run twice, from two different initial consensuses. The first consists of the vote shares: the
    fraction of an item's labels that name each class. The second is inferred from predicted labels, by a network that
    learns which label each annotator would give to each item. The run with the higher likelihood of the labels is kept;
    if the likelihoods hardly differ, both runs are kept. The class probabilities of new items are the mean over the
    networks of all folds.

    Parameters
    ----------
    effort : {"high", "low"}
        "high": five folds. "low": one network of each kind, trained on all items, in about a third of the time. If it
        is "low", the networks predict the items that they were trained on, so the confidence of the consensus is too
        high.
    annotator_heads : {"auto", "shared", "embedded"}
        Structure of the networks that predict the labels and the accuracy of annotators. "shared": one network for all
        annotators, except for its last layer, which is separate for each annotator. "embedded": one network for all
        annotators, which takes an embedding of the annotator as input; suited to many annotators. "auto": "shared" for
        up to 1,000 annotators, else "embedded".
    embedding : int
        Size of the annotator embedding; used only if the heads are "embedded".

    See Also
    --------
    GatedClassifier : The default method: one network, trained on the likelihood of all labels of an item.
    FusionClassifier : The paper's method. crowdfuse.consensus : Computes the consensus from labels and the
    probabilities of any classifier.

    Notes
    -----
    The method `consensus` uses the networks of the folds, so it does not train again. If there are few items, its
    confidence is too high. The reason: the labels of an item affect the confusion matrices, and through them the
    consensus of all other items. So they influence even the networks that were not trained on this item. Gold labels
    given to `fit` are treated as certain. docs/consensus-training.md explains the method, the variants that were tried,
    and the cases in which it fails.

    References
    ----------
    A. P. Dawid and A. M. Skene. "Maximum likelihood estimation of observer error-rates using the EM algorithm". Applied
    Statistics, 1979. V. C. Raykar et al. "Learning from crowds". JMLR, 2010. Both methods alternate in a similar way,
    but without cross-fitting.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import ConsensusTrainingClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    >>> Y = np.stack([truth, np.where(X[:, 0] > 0, truth, (truth + 1) % 4), truth], axis=1)
    >>> clf = ConsensusTrainingClassifier(epochs=30, effort="low", learning_rate=0.01).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices(X).shape
    (200, 3, 4, 4)
    """

    method_name: ClassVar[str] = "consensus-training"
    assumes: ClassVar[str] = (
        "annotators make independent mistakes, given the class and what the input shows about their accuracy"
    )
    estimates_item_accuracy: ClassVar[bool] = True
    cross_fits_itself: ClassVar[bool] = True
    low_effort_settings: ClassVar[dict[str, Any]] = {"effort": "low"}
    search_space: ClassVar[SearchSpace] = {"dropout": [0.0, 0.25, 0.5]}

    dropout: float = 0.5
    effort: Literal["high", "low"] = "high"
    annotator_heads: Literal["auto", "shared", "embedded"] = "auto"
    embedding: int = 16

    def _build(self, spec: ModelSpec) -> Method:
        check_choice("effort", self.effort, ("high", "low"))
        check_choice("annotator_heads", self.annotator_heads, ("auto", "shared", "embedded"))
        check_positive_integer("embedding", self.embedding)
        if self.epochs is not None and self.epochs < MIN_EPOCHS:
            raise ValueError(
                f"consensus-training needs at least {MIN_EPOCHS} epochs, got epochs={self.epochs}: one for networks "
                "that predict labels and one for networks that predict classes; if you leave out epochs, the method "
                "chooses a suitable number"
            )
        n_folds = 5 if self.effort == "high" else 0
        others = [self._model_spec(spec.seed).trunk for _ in range(ConsensusTraining.n_trunks(n_folds) - 1)]
        heads = self._heads(spec.n_annotators)
        return ConsensusTraining(
            spec, trunks=[spec.trunk, *others], n_folds=n_folds, heads=heads, embedding=self.embedding
        )

    def _heads(self, n_annotators: int) -> Literal["shared", "embedded"]:
        """Return the kind of heads to build for this number of annotators."""
        if self.annotator_heads != "auto":
            return self.annotator_heads
        return "shared" if n_annotators <= MAX_ANNOTATORS_WITH_SHARED_HEADS else "embedded"

    def _resolved_settings(self) -> dict[str, Any]:
        built = self._method().heads
        return {} if built == self._heads(len(self.annotators_)) else {"annotator_heads": built}

    def _method(self) -> ConsensusTraining:
        """Return the fitted network."""
        assert isinstance(self.method_, ConsensusTraining)
        return self.method_

    def _after_fit(self, data: TrainingData) -> None:
        """Weight the runs from the two initial consensuses, and remember which data the folds belong to."""
        self._method().finish(data)
        self._trained_on = _identity(data)

    def _out_of_fold(
        self,
        inputs: Inputs,
        ann: Annotations,
        gold: IntArray | None,
        folds: int,
        *,
        validation: Any = None,
        folder: Path | None = None,
        labels: Annotations | None = None,
    ) -> OutOfFold | None:
        """Return predictions for each item by the networks that were not trained on it.

        If the model was fitted to other data, a fresh copy is trained first. If `folds` is 0, or if the model has no
        folds, the networks predict the items that they were trained on.
        """
        labels = (ann if labels is None else labels).with_classes(self.classes_)
        known = np.full(len(inputs), -1) if gold is None else np.asarray(gold, np.int64)
        data = TrainingData(inputs, ann.with_classes(self.classes_), known, np.ones(len(inputs), np.float32))
        method = self._method()
        if check_folds(folds) and method.n_folds and getattr(self, "_trained_on", None) != _identity(data):
            names = None if gold is None else [self.classes_[k] if k >= 0 else None for k in gold]
            copy = clone(self).set_params(classes=list(self.classes_))
            copy.fit(inputs, ann, gold=names, validation=validation)
            return None if copy.interrupted_ else copy._out_of_fold(inputs, ann, gold, folds, labels=labels)
        if folds and method.n_folds:
            return self._judge(data, labels)
        return predict_items(self, inputs, labels, 0)

    def _judge(self, data: TrainingData, labels: Annotations) -> OutOfFold:
        """Return class probabilities of items and accuracies for labels, by networks that were not trained on them."""
        known = self._known(labels, warn=False)
        method = self._method_for(known)
        assert isinstance(method, ConsensusTraining)
        outputs = method.outputs(TrainingData(data.inputs, known, data.gold, data.weight))
        weights = method.start_weights.double().numpy()
        probabilities = np.einsum("s,snk->nk", weights, outputs.class_probabilities)
        return OutOfFold(probabilities, expit(weights @ outputs.gate_logits), method.n_folds)

    def annotator_accuracy_per_item(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return the probability that each annotator is right on each item.

        The probability is predicted from the input alone, without the labels of the item. For one accuracy per
        annotator, with an interval, see `consensus`.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        annotations : Annotations or array-like of shape (n_items, n_annotators), default=None
            If given, values are computed only for pairs (item, annotator) that have a label.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        accuracy : ndarray of shape (n_items, n_annotators) or (n_labels,)
            If `annotations` are given, one probability per label, in the order of the annotations.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(3).repeat(50, 0), np.arange(3).repeat(50)[:, None].repeat(3, 1)
        >>> clf = crowdfuse.ConsensusTrainingClassifier(epochs=30, effort="low", learning_rate=0.01).fit(X, Y)
        >>> (clf.annotator_accuracy_per_item(X) > 0.9).all()
        np.True_
        """
        check_is_fitted(self)
        return self._values_of_pairs(
            lambda method: method.accuracies, X, annotations, items, caller="annotator_accuracy_per_item"
        )


def _identity(data: TrainingData) -> tuple[str, ...]:
    """Return hashes of inputs, labels and gold."""
    return tuple(fingerprint(data.inputs, data.annotations, data.gold).values())
