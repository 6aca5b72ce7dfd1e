"""Estimator of consensus training: cross-fitted classifiers, the consensus with them, and networks that learn it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_positive_integer
from crowdfuse.estimators.base import CrowdClassifier, PreparedTraining, SearchSpace
from crowdfuse.estimators.consensus_candidates import Candidate, candidate_classifiers, combine_candidates
from crowdfuse.estimators.cross_fitting import (
    FOLDS_FOLDER,
    ONE_ITEM,
    FoldTraining,
    OutOfFold,
    fold_trainings,
    insert_folds,
    predict_items,
    run_folds,
    trained_rows,
)
from crowdfuse.estimators.majority_vote import MajorityVoteClassifier
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.folds import check_folds, count_folds
from crowdfuse.labels.ids import IntArray, positions_of
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.consensus_training import ConsensusTraining, TrainingConsensus, n_class_networks
from crowdfuse.methods.data import TrainingData
from crowdfuse.nets import Trunk
from crowdfuse.quality.confidence_discount import discount_temperature, error_dependence, temper
from crowdfuse.training.progress import training_series

MAX_ANNOTATORS_WITH_SHARED_HEADS = 1_000
MIN_EPOCHS = 2  # one for the class networks and one for the gate network
OWN_COST = 0.5  # expected time of the last training with a fast backbone, relative to gated
SLOW_OWN_COST = 1.0  # the same with a slow backbone
FAST_BACKBONES = ("mlp", "identity")
MAX_FAST_WEIGHTS = 256_000  # 2,000 features and 128 units; with 10,000 features, a step takes five times as long
OWN_SETTINGS = ("encoder", "classes", "checkpoint", "max_time", "verbose", "random_state")  # not those of the copies


class CrossFitted(NamedTuple):
    """What cross-fitted classifiers say, and the consensus of the labels and these classifiers.

    Attributes
    ----------
    predictions : OutOfFold
        Class probabilities of each row, and for each label the probability that its annotator is right, by classifiers
        that were trained without the row.
    consensus : TrainingConsensus
        The consensus that the networks learn from.
    data : TrainingData
        The data that the classifiers learned from.
    """

    predictions: OutOfFold
    consensus: TrainingConsensus
    data: TrainingData


@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusTrainingClassifier(CrowdClassifier):
    """The default learning method: computes the consensus with cross-fitted classifiers, and trains networks on it.

    Training has three steps.

    1. Up to five classifiers are cross-fitted: `GatedClassifier` with and without dropout, `MajorityVoteClassifier`,
       `AnnotMixClassifier` and `MaxMIGClassifier`. The items are split into folds. For each fold, a copy of each
       classifier is trained on the other folds, and predicts the items of this fold. There are two cases in which only
       `GatedClassifier` with dropout and `MajorityVoteClassifier` are cross-fitted: the backbone is slow, or the
       confusion matrices of all annotators would take over 256 MB. For images, all backbones except "mlp" and
       "identity" are slow. For any inputs, backbones with over 256,000 weights are slow ("mlp" reaches this size with
       2,000 features and 128 hidden units).
    2. Some of the cross-fitted classifiers are chosen, and their predictions are averaged. The first chosen classifier
       is the one whose predictions make the labels most likely. Further classifiers are added one by one, as long as
       the average makes the labels more likely. The consensus is computed from the labels and the average, as in
       `crowdfuse.consensus`.
    3. Class networks learn to predict the consensus from the inputs: five networks if they are MLPs and fast, otherwise
       one. The class probabilities of new items are the mean over these networks. A further network predicts the gates:
       the probabilities that each annotator is right on each item.

    Parameters
    ----------
    folds : int
        Number of folds in the first step. If 0, the first step is left out, which is much faster. The consensus is then
        computed from the labels alone, without predictions of classifiers.
    annotator_heads : {"auto", "shared", "embedded"}
        Structure of the networks that predict the accuracy of annotators. "shared": one network for all annotators,
        except for its last layer, which is separate for each annotator. "embedded": one network for all annotators,
        which takes an embedding of the annotator as input; suited to many annotators. "auto": "shared" for up to 1,000
        annotators, else "embedded".
    embedding : int
        Size of the annotator embedding; used only if the heads are "embedded".

    See Also
    --------
    GatedClassifier : One network, trained on the likelihood of all labels of an item.
    FusionClassifier : Sample-wise label fusion (Gao et al., 2022).
    crowdfuse.consensus : Computes the consensus from labels and the class probabilities of any classifier.

    Notes
    -----
    If `consensus()` gets the same data as `fit()`, it uses the predictions of the classifiers that `fit()`
    cross-fitted. It then trains nothing and ignores its argument `folds`. Gold labels given to `fit()` are treated as
    certain. `partial_fit()` computes the consensus from the labels and the predictions of the networks, without
    cross-fitting.

    The weights that `annotator_weights()` returns are proportional to the gates. `fused_labels()` combines the mean
    prediction of the class networks (the prior) with the labels (the evidence) by Bayes' rule.

    docs/consensus-training.md explains the learning method, the variants that were tried, and the cases in which it
    fails.

    References
    ----------
    A. P. Dawid and A. M. Skene. "Maximum likelihood estimation of observer error-rates using the EM algorithm". Applied
    Statistics, 1979. V. C. Raykar et al. "Learning from crowds". JMLR, 2010. Both methods alternate between two steps.
    One step estimates the consensus. The other step estimates the accuracy of the annotators from the consensus; Raykar
    et al. also train a classifier in this step. Here, cross-fitted classifiers replace the alternation.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdfuse import ConsensusTrainingClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> truth = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    >>> Y = np.stack([truth, np.where(X[:, 0] > 0, truth, (truth + 1) % 4), truth], axis=1)
    >>> clf = ConsensusTrainingClassifier(epochs=20, folds=2, learning_rate=0.01).fit(X, Y)
    >>> clf.score(X, truth) > 0.9
    True
    >>> clf.confusion_matrices(X).shape
    (200, 3, 4, 4)
    """

    method_name: ClassVar[str] = "consensus-training"
    assumes: ClassVar[str] = (
        "given the class and the input, annotators make independent mistakes, or on a share of items the same mistake"
    )
    estimates_item_accuracy: ClassVar[bool] = True
    cross_fits_itself: ClassVar[bool] = True
    low_effort_settings: ClassVar[dict[str, Any]] = {"folds": 0}
    search_space: ClassVar[SearchSpace] = {"dropout": [0.0, 0.25, 0.5]}

    dropout: float = 0.5
    folds: int = 5
    annotator_heads: Literal["auto", "shared", "embedded"] = "auto"
    embedding: int = 16

    # ---- the networks ----------------------------------------------------------------------------

    def _build(self, spec: ModelSpec) -> Method:
        check_folds(self.folds)
        check_choice("annotator_heads", self.annotator_heads, ("auto", "shared", "embedded"))
        check_positive_integer("embedding", self.embedding)
        if self.epochs is not None and self.epochs < MIN_EPOCHS:
            raise ValueError(
                f"consensus-training needs at least {MIN_EPOCHS} epochs, got epochs={self.epochs}. Training "
                "has two phases of at least one epoch each: first, the class networks learn to predict classes; then "
                "another network learns which labels are right. Leave out epochs to train long enough"
            )
        is_fast = self._has_fast_backbone(spec.trunk)
        count = n_class_networks(spec.trunk, spec.head_hidden, spec.dropout) if is_fast else 1
        others = [self._model_spec(spec.seed).trunk for _ in range(count)]
        return ConsensusTraining(
            spec, trunks=[spec.trunk, *others], heads=self._heads(spec.n_annotators), embedding=self.embedding
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

    # ---- training --------------------------------------------------------------------------------

    def fit_prepared(self, prepared: PreparedTraining, *, title: str | None = None) -> Self:
        """Cross-fit the classifiers, compute the consensus, and train the networks that `prepare` has built.

        Parameters
        ----------
        prepared : PreparedTraining
            Return value of `prepare`, called on this same estimator.
        title : str, default=None
            Text to show with the progress. None: the name of the learning method.

        Returns
        -------
        self : CrowdClassifier
            The fitted estimator.

        Raises
        ------
        DivergedError
            If the loss becomes NaN or infinite.
        KeyboardInterrupt
            If training is interrupted before all classifiers are cross-fitted. If `checkpoint` is set, the next `fit()`
            continues the interrupted training.
        """
        n_items = len(trained_rows(self, prepared.data.annotations, prepared.data.gold))
        with training_series(self.training_costs(n_items)):
            self._cross_fitted = self._cross_fit(prepared)
            self._method().consensus = self._cross_fitted.consensus
            own = prepared._replace(
                recipe=replace(prepared.recipe, max_time=self._share_of_time(self._own_cost(), n_items))
            )
            super().fit_prepared(own, title=title)
            self._method().consensus = None
        return self

    def training_costs(self, n_items: int) -> tuple[float, ...]:
        """Return the expected duration of each training run in `fit()`, relative to a run of `GatedClassifier`.

        Call `prepare()` before this method.

        Parameters
        ----------
        n_items : int
            Number of items to learn from. If there are fewer items than `folds`, the number of folds is reduced, so
            there are fewer training runs.

        Returns
        -------
        costs : tuple of float
            One number per training run. First come the cross-fitted classifiers, with one number per classifier and
            fold. The last number is for the networks that learn the consensus.

        Examples
        --------
        >>> import numpy as np
        >>> clf = ConsensusTrainingClassifier(folds=2)
        >>> prepared = clf.prepare(np.eye(4), np.eye(4, 3, dtype=int))
        >>> clf.training_costs(n_items=4)
        (1.0, 1.0, 1.0, 1.0, 0.4, 0.4, 0.6, 0.6, 0.4, 0.4, 0.5)
        """
        n_folds = count_folds(self.folds, n_items)
        costs = [one.cost for one in self._candidates() for _ in range(n_folds)] if n_folds else []
        return (*costs, self._own_cost())

    def _candidates(self) -> list[Candidate]:
        """Return the classifiers to cross-fit, with the settings of this estimator."""
        shared = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in MajorityVoteClassifier().get_params() and name not in OWN_SETTINGS
        }
        heads = {"annotator_heads": self.annotator_heads, "embedding": self.embedding}
        return candidate_classifiers(
            shared, heads, len(self.annotators_), len(self.classes_), fast_backbone=self._is_fast()
        )

    def _is_fast(self) -> bool:
        """Return whether a training takes seconds."""
        return self._has_fast_backbone(self._model_spec(self._recipe().seed).trunk)

    def _has_fast_backbone(self, trunk: Trunk) -> bool:
        """Return whether a training of this backbone takes seconds."""
        reads_rows = len(self.input_shape_) == 1 or (isinstance(self.backbone, str) and self.backbone in FAST_BACKBONES)
        return reads_rows and sum(weights.numel() for weights in trunk.module.parameters()) <= MAX_FAST_WEIGHTS

    def _own_cost(self) -> float:
        """Return the expected time of the training on the consensus, relative to gated."""
        return OWN_COST if self._is_fast() else SLOW_OWN_COST

    def _share_of_time(self, cost: float, n_items: int) -> float | None:
        """Return the time limit of a training with this cost, in seconds; None without a limit."""
        limit = self._recipe().max_time
        return None if limit is None else limit * cost / sum(self.training_costs(n_items))

    def fold_trainings(self, prepared: PreparedTraining) -> list[FoldTraining]:
        """Return the training runs for cross-fitting: one per classifier and fold, in the order of the classifiers.

        Parameters
        ----------
        prepared : PreparedTraining
            Return value of `prepare`.

        Returns
        -------
        trainings : list of FoldTraining
            Each element describes one training run. Empty if `folds` is 0, or if there are fewer than two items to
            learn from.
        """
        data, trainings = prepared.data, []
        n_items = len(trained_rows(self, data.annotations, data.gold))
        for name, classifier, cost in self._candidates() if count_folds(self.folds, n_items) else []:
            classifier.set_params(
                verbose=self.verbose, random_state=self._recipe().seed, max_time=self._share_of_time(cost, n_items)
            )
            classifier.classes_ = self.classes_
            trainings += fold_trainings(
                classifier, data.inputs, data.annotations, data.gold, None, self.folds, data.weight, name
            )
        return trainings

    def _cross_fit(self, prepared: PreparedTraining) -> CrossFitted:
        """Return what the cross-fitted classifiers say, and the consensus."""
        data = prepared.data
        ann = data.annotations
        folder = None if self.checkpoint is None else Path(self.checkpoint) / FOLDS_FOLDER
        found = self._run_folds(self.fold_trainings(prepared), ann, folder)
        predictions, _, fit = combine_candidates(found, data)
        soft = np.full((len(ann), ann.n_classes), 1 / ann.n_classes, np.float32)
        temperature = discount_temperature(*error_dependence(fit))
        soft[fit.votes.labelled] = temper(fit.without_gold().astype(np.float64), temperature)
        return CrossFitted(predictions, TrainingConsensus(soft, fit.annotators()), data)

    def _run_folds(self, trainings: list[FoldTraining], ann: Annotations, folder: Path | None) -> list[OutOfFold]:
        """Return the out-of-fold predictions of each classifier."""
        predictions = run_folds(trainings, folder)
        if predictions is None:
            raise KeyboardInterrupt
        nothing = np.full((len(ann), ann.n_classes), 1 / ann.n_classes)
        if not trainings:
            return [OutOfFold(nothing, None, 0, (ONE_ITEM,) if self.folds else ())]
        n_folds = trainings[0].n_folds
        found = []
        for start in range(0, len(trainings), n_folds):
            part = slice(start, start + n_folds)
            right = np.full(ann.n_labels, 0.5) if trainings[start].classifier.estimates_item_accuracy else None
            uniform = OutOfFold(nothing.copy(), right, n_folds)
            found.append(insert_folds(uniform, trainings[part], predictions[part], ann))
        return found

    def _after_fit(self, data: TrainingData) -> None:
        """Measure the mean gate of each annotator."""
        self._method().finish(data)

    # ---- the consensus ---------------------------------------------------------------------------

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
        """Return what the cross-fitted classifiers of `fit` said; for other data, a fresh copy is fitted."""
        labels = (ann if labels is None else labels).with_classes(self.classes_)
        if not self.folds:
            return self._labels_alone(inputs, labels)
        known = np.full(len(inputs), -1) if gold is None else np.asarray(gold, np.int64)
        cross_fitted: CrossFitted | None = getattr(self, "_cross_fitted", None)
        if cross_fitted is not None and _was_trained_on(cross_fitted.data, inputs, labels, known):
            return self._merge(cross_fitted, inputs, labels)
        if not check_folds(folds):
            return predict_items(self, inputs, labels, 0)
        names = None if gold is None else [self.classes_[k] if k >= 0 else None for k in gold]
        copy = clone(self).set_params(classes=list(self.classes_), checkpoint=None)
        copy.fit(inputs, ann, gold=names, validation=validation)
        return None if copy.interrupted_ else copy._merge(copy._cross_fitted, inputs, labels)

    def _labels_alone(self, inputs: Inputs, labels: Annotations) -> OutOfFold:
        """Return predictions that tell nothing about labelled items, so that their consensus rests on the labels."""
        own = self.predict_proba(inputs)
        own[np.diff(labels.indptr) > 0] = 1 / labels.n_classes
        return OutOfFold(own, None, 0)

    def _merge(self, cross_fitted: CrossFitted, inputs: Inputs, labels: Annotations) -> OutOfFold:
        """Return what the cross-fitted classifiers say, and what this one says about other items and labels."""
        own, stored, ann = (
            predict_items(self, inputs, labels, 0),
            cross_fitted.predictions,
            cross_fitted.data.annotations,
        )
        learned = np.zeros(len(ann), bool)
        learned[trained_rows(self, ann, cross_fitted.data.gold)] = True
        learned &= cross_fitted.data.weight > 0
        probabilities = np.where(learned[:, None], stored.class_probabilities, own.class_probabilities)
        right = own.right_probability
        if right is not None and stored.right_probability is not None:
            position = _positions_of_pairs(labels, ann, self.annotators_)
            is_stored = (position >= 0) & learned[labels.item]
            right = np.where(is_stored, stored.right_probability[position], right)
        return OutOfFold(probabilities, right, stored.n_folds, stored.limitations)

    def annotator_accuracy_per_item(
        self, X: Any, annotations: Any = None, *, items: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return the probability that each annotator is right on each item.

        The probability is predicted from the input alone, without the labels of the item. For one accuracy per
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
        >>> clf = crowdfuse.ConsensusTrainingClassifier(epochs=20, folds=0, learning_rate=0.01).fit(X, Y)
        >>> (clf.annotator_accuracy_per_item(X) > 0.9).all()
        np.True_
        """
        check_is_fitted(self)
        return self._values_of_pairs(
            lambda method: method.accuracies, X, annotations, items, caller="annotator_accuracy_per_item"
        )


def _was_trained_on(data: TrainingData, inputs: Inputs, labels: Annotations, gold: NDArray[np.int64]) -> bool:
    """Return whether a training on `data` learned from these inputs, this gold and only from these labels.

    Labels that the training did not see are allowed, since validation may hold labels out.
    """
    if len(data) != len(inputs) or not np.array_equal(data.gold, gold):
        return False
    learned = data.annotations
    position = _positions_of_pairs(learned, labels, learned.annotators)
    if (position < 0).any() or not np.array_equal(labels.label[position], learned.label):
        return False
    return data.inputs is inputs or data.inputs.fingerprint == inputs.fingerprint


def _positions_of_pairs(wanted: Annotations, known: Annotations, annotators: NDArray[Any]) -> NDArray[np.int64]:
    """Return, for each label of `wanted`, the position of the label of the same row and annotator in `known`, or -1."""
    pairs = [
        ann.item * (len(annotators) + 1) + positions_of(ann.annotators, annotators)[ann.annotator] + 1
        for ann in (wanted, known)
    ]
    order = np.argsort(pairs[1], kind="stable")
    if not len(order):
        return np.full(len(pairs[0]), -1)
    slot = np.searchsorted(pairs[1], pairs[0], sorter=order).clip(max=len(order) - 1)
    found = order[slot]
    return np.where(pairs[1][found] == pairs[0], found, -1)
