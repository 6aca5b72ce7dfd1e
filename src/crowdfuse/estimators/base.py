"""Base class of every estimator. It implements scikit-learn's methods; a subclass adds settings and `_build`."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from crowdfuse.checks.durations import parse_duration
from crowdfuse.checks.numbers import check_layer_widths, check_positive_integer, check_share_below_one
from crowdfuse.encoders import EncoderChoice, apply_encoder, check_raw_inputs, fit_encoder
from crowdfuse.estimators.docstrings import ComposedDocstring
from crowdfuse.estimators.inspection import Inspection
from crowdfuse.estimators.validation import make_validation
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.alignment import align, check_sample_weight, gold_codes, has_gold, labels_as_given, refuse_items
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count, format_names, normalize_ids, positions_of
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.nets import Backbone, choose_augmentation, make_augmentation, make_trunk
from crowdfuse.nets.standardize import Standardize
from crowdfuse.training.checkpoints import Checkpointing
from crowdfuse.training.loop import TrainingResult, check_trainable, train
from crowdfuse.training.recipes import OptimizerFactory, Recipe, Schedule
from crowdfuse.training.validation import Validation

if TYPE_CHECKING:
    from crowdfuse.estimators.cross_fitting import FoldTraining

MANY_EPOCHS = 1_000  # enough for all phases of every method
SearchSpace = dict[str, list[Any] | tuple[float, float]]
"""For each setting, the values to try: a list, or a range (low, high) from which values are drawn log-uniformly."""


class PreparedTraining(NamedTuple):
    """Everything that training needs apart from the network; returned by `CrowdClassifier.prepare`.

    Attributes
    ----------
    data : TrainingData
        Inputs, labels, gold labels and weights of all rows.
    validation : Validation or None
        Data used to choose the best epoch. None: the last epoch is kept.
    recipe : Recipe
        Optimizer, schedule, batch size, epochs, device and seed.
    """

    data: TrainingData
    validation: Validation | None
    recipe: Recipe


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdClassifier(ComposedDocstring, Inspection, ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of classifiers trained on the labels of several annotators who disagree.

    Each learning method is a subclass, such as `GatedClassifier`. This class is abstract: only subclasses can be
    instantiated. All parameters are keyword-only.

    Parameters
    ----------
    encoder : str, Encoder, nn.Module, callable or None
        Turns texts or images into rows of numbers before training. "auto": "tfidf" for texts, no encoder for other
        inputs. None: no encoder; not possible for texts.

        - For texts: "tfidf", "sentence:NAME", "sentence", or a function that takes a list of strings and returns one
          row of numbers per string. NAME is the name of a sentence-transformers model, or a folder that contains such a
          model. "sentence" stands for "sentence:all-MiniLM-L6-v2".
        - For images: the name of a pretrained network ("torchvision/NAME" or "timm/NAME"), an nn.Module, or a function
          without arguments that returns an nn.Module. The weights of the network do not change in training.

        Instead of a function, you can pass its import path, "module:callable". An `Encoder` object is copied. The
        encoder is fitted on the items that have labels or gold labels (trusted true classes; see `fit`).
        `crowdfuse.load` restores the encoder of a saved model. Exception: an nn.Module or a function is not saved and
        must be passed to `load` again.
    backbone : {"auto", "mlp", "lenet", "resnet18", "identity"}, nn.Module or callable
        Network that turns inputs into features of shape (n_items, n_features). A second network, the class head,
        computes class probabilities from the features. "auto": "mlp" for rows of numbers, "lenet" for images.
        "identity": the inputs are the features. A module is copied, so the original is not trained. A callable takes no
        argument and returns a module.
    hidden : tuple of int
        Widths of the hidden layers of the backbone "mlp". With the backbone "identity", which has no layers:
        widths of the hidden layers of the class head, unless `head_hidden` is given.
    head_hidden : tuple of int or None
        Widths of the hidden layers of the class head. None: (120, 84) for "lenet", no hidden layers for "mlp", `hidden`
        for "identity", and (128,) for other backbones.
    dropout : float
        Dropout rate in the backbone "mlp" and in the class head, from 0 to below 1.
    standardize : bool or None
        Whether the model scales its inputs to mean 0 and standard deviation 1. None: True if `backbone` is a name,
        False if it is a module or callable.
    augment : {"auto", "shift", "crop-flip", "resized-crop-flip"} or None
        Random changes of training images. "shift": shift by up to an eighth of the shorter side. "crop-flip": shift by
        up to 4 pixels and mirror. "resized-crop-flip": crop a random part, scale it to the input size and mirror. None:
        no changes. "auto": "shift" if `backbone` is "auto" and the inputs are images of shape (channels, height,
        width), else None.
    optimizer : {"adamw", "adam", "sgd"} or callable
        Optimizer. A callable takes the parameters of the network and returns a `torch.optim.Optimizer`.
    learning_rate : float
        Highest learning rate of the schedule. Not used if `optimizer` is a callable.
    momentum : float
        Momentum of the optimizer "sgd". Not used by other optimizers.
    weight_decay : float
        Weight decay. Not used if `optimizer` is a callable.
    schedule : {"one-cycle", "cosine", "constant"} or callable
        Learning-rate schedule. A callable takes the fraction of training steps that are done, from 0 to 1, and returns
        a factor that multiplies the learning rate. If training has several phases, the schedule restarts in each phase.
    batch_size : int
        Number of items per training step.
    epochs : int or None
        Number of epochs. An integer: each epoch is one pass over the data. None: the learning method chooses the number
        of epochs. Only in this case, an epoch consists of several passes if a pass has fewer than 50 training steps.
    max_time : float, str or None
        Time limit for training: seconds, or text such as "90s", "10m" or "2h". None: no limit. If training would take
        longer, the number of epochs is reduced. Some learning methods train in several phases, one after the other;
        each phase gets a share of the time, and at least one epoch. If the limit shortens a training run, the run
        cannot be reproduced exactly. `consensus()` may train copies of this classifier on parts of the data. The limit
        then applies to each copy separately.
    mixup : float
        If above 0, the network is trained on weighted means of two items (mixup). The weights are drawn from
        Beta(mixup, mixup). Usual values are 0.2 to 1. Mixup regularizes, but a training step takes twice as long. 0: no
        mixup.
    device : {"auto", "cpu", "cuda", "mps"}
        Kind of device to train on. "auto": a GPU if there is one, otherwise the CPU. Prediction always runs on the CPU.
    devices : int
        Number of devices. If there are several, one process per device is started, and each process trains on a part of
        each batch. Not used if torchrun has already started the processes.
    precision : str
        Numeric precision of training, as named in Lightning Fabric: for example "32-true", "bf16-mixed" or "64-true".
    channels_last : bool
        Whether to store images with channels last in memory while training. This makes convolutions faster, and changes
        results by rounding errors.
    compile : bool
        Whether to apply `torch.compile` to the backbone while training. Compilation delays the start of training. It is
        useful on GPUs.
    random_state : int, RandomState instance or None
        Seed of all random numbers.
    classes : sequence or None
        Names of all classes. Needed if a class may be missing from the labels. None: the classes that occur in the
        labels.
    checkpoint : str, Path or None
        Folder for checkpoints: saved states of the training. If the folder holds a checkpoint of an interrupted
        training run, `fit` continues from this checkpoint. None: no checkpoints are saved.
    verbose : int
        1 shows progress, 0 is silent.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class names, in the order of the columns of `predict_proba`.
    annotators_ : ndarray of shape (n_annotators,)
        Annotator names.
    n_features_in_ : int
        Number of values per item, after the encoder.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names of X; only set if X has column names and all of them are strings.
    input_shape_ : tuple of int
        Shape of one item, after the encoder.
    encoder_ : Encoder or None
        The fitted encoder; None if the inputs are not encoded.
    history_ : list of dict
        One dict per epoch, with these keys:

        - "epoch", "loss" and "seconds": number of the epoch from 1, mean loss, and duration.
        - "phase": name of the phase, if the learning method trains in several phases.
        - "validation_accuracy", if validation uses items that are not trained on. If these items were passed with gold
          labels: the accuracy on the gold labels. Otherwise: the fraction of their labels that equal the predicted
          class.
        - "held_out_log_likelihood", if `fit` held out labels (validation="annotations", the default of some learning
          methods): the mean log-likelihood per held-out label.
        - "candidate", if there is validation: whether validation may choose this epoch.
        - "failed_checks", if `fit` held out labels and the predictions after this epoch fail sanity checks: a
          description of each failed check. For example, a check fails if the predictions agree with the labels no
          better than chance, or if some class that annotators use is never predicted.
    best_epoch_ : int or None
        The epoch that validation chose, counted from 1. None if there was no validation. Validation chooses among the
        epochs whose "candidate" is True in `history_`. If the learning method trains in several phases, the epochs of
        some phases are not candidates.
    n_iter_ : int
        Number of epochs trained.
    gold_used_for_ : str
        What gold labels were used for: "nothing", "training", "choosing the epoch" or "training and choosing the
        epoch".
    interrupted_ : bool
        Whether Ctrl-C ended the training early.
    cut_short_ : bool
        Whether training had fewer epochs than planned because of `max_time`. If True, the result of `consensus()` says
        so in its attribute `limitations`.
    confusion_given_ : {"said", "true"} or None
        What the probabilities in the confusion matrices are conditioned on. "true": the true class, so the entries are
        P(annotator's label | true class). "said": the annotator's label, so the entries are P(true class | annotator's
        label). None if the learning method has no confusion matrices.
    method_ : Method
        The fitted PyTorch module of the learning method. It holds all trained parameters.
    """

    method_name: ClassVar[str]
    """Name of the learning method on the command line."""
    assumes: ClassVar[str]
    """What the learning method assumes about annotators, in one sentence for people who choose a learning method."""
    needs: ClassVar[str] = ""
    """What the learning method needs in the data beyond labelled items; empty if nothing."""
    paper_settings: ClassVar[dict[str, Any]] = {}
    """Settings of the learning method in the experiments of the fusion paper, except those of network and optimizer."""
    search_space: ClassVar[SearchSpace] = {}
    """Values to try for the learning method's own settings when they are tuned."""
    trains_on_labels: ClassVar[bool] = True
    """Whether training uses the annotators' labels."""
    low_effort_settings: ClassVar[dict[str, Any]] = {}
    """Settings with which `crowdfuse fit --effort low` trains in less time."""

    encoder: EncoderChoice = "auto"
    backbone: Backbone = "auto"
    hidden: tuple[int, ...] = (128,)
    head_hidden: tuple[int, ...] | None = None
    dropout: float = 0.0
    standardize: bool | None = None
    augment: str | None = "auto"
    optimizer: str | OptimizerFactory = "adamw"
    learning_rate: float = 0.002
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str | Schedule = "one-cycle"
    batch_size: int = 64
    epochs: int | None = None
    max_time: float | str | None = None
    mixup: float = 0.0
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    channels_last: bool = False
    compile: bool = False
    random_state: Any = 0
    classes: Sequence[Any] | None = None
    checkpoint: str | Path | None = None
    verbose: int = 0

    # ---- what a subclass defines -------------------------------------------------------------

    @classmethod
    def variants(cls, annotators: Sequence[Any]) -> dict[str, dict[str, Any]]:
        """Return the variants of this learning method that `crowdfuse compare` trains, with their settings.

        Parameters
        ----------
        annotators : sequence
            Names of the annotators in the data.

        Returns
        -------
        variants : dict of str to dict
            Maps the name of each variant to its settings. Most learning methods have a single variant, with default
            settings.

        Examples
        --------
        >>> import crowdfuse
        >>> crowdfuse.SingleAnnotatorClassifier.variants(["ada", "bob"])["single-annotator ada"]
        {'annotator': 'ada'}
        """
        return {cls.method_name: {}}

    @abstractmethod
    def _build(self, spec: ModelSpec) -> Method:
        """Return the module of the learning method. A subclass must define this function, and no other."""

    def _after_fit(self, data: TrainingData) -> None:
        """Update the fitted network from the training data; a subclass may override this method."""

    def _resolved_settings(self) -> dict[str, Any]:
        """Return "auto" settings, as the first fit resolved them, if they would be resolved differently now."""
        return {}

    def _default_validation(self, data: TrainingData) -> Any:
        """Return the validation to use for this data if `fit` gets validation=None."""
        return None

    def _validation_annotations(self, ann: Annotations) -> Annotations:
        """Return the labels that predictions are compared with if validation has no gold."""
        return ann

    def _gold(self, y: Any, gold: ArrayLike | None, ann: Annotations, n_rows: int) -> NDArray[np.int64]:
        """Return the true class of each row, -1 where unknown."""
        return np.full(n_rows, -1, np.int64) if gold is None else gold_codes(gold, ann.classes, n_rows)

    # ---- scikit-learn's methods ----------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        items: ArrayLike | None = None,
        gold: ArrayLike | None = None,
        validation: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on inputs and the labels of annotators.

        If `fit` raises an error, the estimator is unchanged.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...), or list of str
            The items: rows of numbers, images of shape (height, width) or (channels, height, width), or texts.
        y : Annotations or array-like of shape (n_items, n_annotators) or (n_items,)
            Labels of the annotators. In an array, -1, NaN or None is a missing label. A 1-D array holds the labels of
            one annotator. Items that have neither labels nor gold labels are not used in training.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match the items of `Annotations` to rows of X. If None, the items of
            `Annotations` must be in the order of the rows of X, or the item ids must be row numbers. Labels in an array
            are always matched row by row.
        gold : array-like of shape (n_items,), default=None
            Gold labels: the name of the true class of each item; None or NaN if unknown. Training treats these classes
            as certain, and uses them to estimate how accurate the annotators of these items are. To evaluate the model,
            use other gold labels that are not passed here.
        validation : tuple, float, "annotations" or None, default=None
            Data used to choose the best epoch. (X, gold), (X, Annotations) or (X, Annotations, items): separate
            validation items. A float: this fraction of the labelled items is held out (not used in training), and the
            predicted classes of these items are compared with their labels. "annotations": some labels of items with
            several labels are held out, and the epoch with the highest likelihood of these labels is chosen. Epochs
            whose predictions fail sanity checks are chosen only if all epochs fail (see "failed_checks" in `history_`).
            None: the last epoch is kept, unless the learning method has another default.
        sample_weight : array-like of shape (n_items,), default=None
            Weight of each item in the loss; None: all 1.

        Returns
        -------
        self : CrowdClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If inputs, labels or settings are invalid, or if labels cannot be matched to rows.
        UnfitDataError
            If the learning method cannot learn from this data, whatever its settings. A subclass of ValueError.
        DivergedError
            If the loss becomes NaN or infinite.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> table = {"item": ["a", "a", "b"], "annotator": ["ada", "bob", "ada"], "label": ["cat", "cat", "dog"]}
        >>> ann = crowdfuse.Annotations.from_table(table)
        >>> clf = crowdfuse.MajorityVoteClassifier(epochs=50, learning_rate=0.05)
        >>> clf.fit(np.array([[0.0, 1.0], [1.0, 0.0]]), ann, items=["a", "b"]).predict([[0.0, 1.0]])
        array(['cat'], dtype='<U3')
        """
        draft = copy.copy(self)  # an error leaves self unchanged
        prepared = draft.prepare(X, y, items, gold, validation, sample_weight)
        draft._gold_of_fit = None if gold is None else (prepared.data.inputs.fingerprint, prepared.data.gold)
        draft.fit_prepared(prepared)
        self.__dict__ = draft.__dict__
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        *,
        items: ArrayLike | None = None,
        gold: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        epochs: int = 1,
    ) -> Self:
        """Continue training with further items, labels and annotators.

        The first call creates the model. A new annotator starts with the parameters of the average annotator. Earlier
        data is not kept, so the model gradually forgets items that are not passed again. Each call starts a new
        optimizer and a new learning-rate schedule. If a learning method trains in several phases, each call runs all
        phases. Validation and checkpoints are not available.

        `MBEMClassifier` and `TwoStageClassifier` compute confusion matrices by counting labels. If an annotator has
        labels in the new data, the annotator's old matrix is replaced by a matrix that is counted from the new data
        only.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the same shape as in the first call.
        y : Annotations or array-like of shape (n_items, n_annotators) or (n_items,)
            Labels, as in `fit`.
        classes : sequence, default=None
            Names of all classes. Needed in the first call if a class may be missing from the labels of this call. Can
            be left out in later calls; if given, the classes must be the same as in the first call.
        items : array-like of shape (n_items,), default=None
            Ids of the rows of X, as in `fit`.
        gold : array-like of shape (n_items,), default=None
            Name of the true class of each item; None or NaN if unknown. See `fit`.
        sample_weight : array-like of shape (n_items,), default=None
            Weight of each item in the loss; None: all 1.
        epochs : int, default=1
            Number of passes over the data of this call. If a learning method trains in several phases, each phase makes
            at least one pass.

        Returns
        -------
        self : CrowdClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If the classes or the input shape differ from the first call. Also if the labels have new annotators and the
            classifier is a `FusionClassifier` with annotator_heads="separate", a model that takes no new annotators.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, y = np.eye(2).repeat(10, 0), np.arange(2).repeat(10)
        >>> clf = crowdfuse.MajorityVoteClassifier()
        >>> len(clf.partial_fit(X, y, classes=[0, 1], epochs=3).partial_fit(X, y).history_)
        4
        """
        check_positive_integer("epochs", epochs)
        draft = copy.copy(self)
        if hasattr(self, "method_"):
            data, recipe = draft._continue(X, y, classes, items, gold, sample_weight)
        else:
            draft.classes = self.classes if classes is None else classes
            data, _, recipe = draft.prepare(X, y, items, gold, None, sample_weight)
            draft.classes, draft.history_ = self.classes, []
        while not all(phase.epochs for phase in draft.method_.phases(epochs)):
            epochs += 1
        before, uses = draft.history_, {getattr(self, "gold_used_for_", "nothing"), draft.gold_used_for_} - {"nothing"}
        trained = train(draft.method_, data, replace(recipe, epochs=epochs), verbose=self.verbose)
        draft._keep(trained)
        later = [record | {"epoch": record["epoch"] + len(before)} for record in trained.history]
        draft.history_, draft.n_iter_ = before + later, max(1, len(before) + len(later))
        draft.gold_used_for_ = " and ".join(sorted(uses, reverse=True)) or "nothing"
        draft._after_fit(data)
        self.__dict__ = draft.__dict__
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each item from the inputs alone.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...), or list of str
            Inputs of the kind and shape seen in `fit`.

        Returns
        -------
        predicted : ndarray of shape (n_items,)
            Class names.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, y = np.eye(2).repeat(20, 0), np.arange(2).repeat(20)
        >>> crowdfuse.MajorityVoteClassifier(epochs=20).fit(X, y).predict([[0.0, 1.0]])
        array([1])
        """
        check_is_fitted(self)
        predicted: NDArray[Any] = self.classes_[self._logits(X).argmax(1)]
        return predicted if predicted.dtype.kind != "O" else predicted.astype(str)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *, items: ArrayLike | None = None) -> float:
        """Return the accuracy of the predictions, or their agreement with the labels of annotators.

        If `y` holds true classes, the score is the accuracy. If `y` holds labels of annotators, the score is the
        agreement: the fraction of these labels that equal the predicted class.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs of the shape seen in `fit`.
        y : array-like of shape (n_items,) or (n_items, n_annotators), or Annotations
            A 1-D array holds true classes; None or NaN if unknown. Items with an unknown class are left out of the
            accuracy. A 2-D array or `Annotations` holds labels of annotators.
        sample_weight : array-like of shape (n_items,), default=None
            Weight of each item; None: all 1.
        items : array-like of shape (n_items,), default=None
            Item id of each row of X, used to match `Annotations`; see `fit`.

        Returns
        -------
        score : float
            Between 0 and 1.

        Raises
        ------
        ValueError
            If `y` has no labels, or if labels cannot be matched to rows.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, y = np.eye(2).repeat(20, 0), np.arange(2).repeat(20)
        >>> crowdfuse.MajorityVoteClassifier(epochs=20).fit(X, y).score(X, y)
        1.0
        """
        predicted = self._logits(X).argmax(1)
        weight = check_sample_weight(sample_weight, len(predicted))
        y = labels_as_given(y)
        if y.ndim == 2:
            ann = align(y, len(predicted), items).with_classes(self.classes_)
            right, weight = predicted[ann.item] == ann.label, weight[ann.item]
        else:
            refuse_items(items)
            known = has_gold(y, self.classes_, len(predicted))
            right = predicted[known] == positions_of(normalize_ids(y[known], "gold"), self.classes_)
            weight = weight[known]
        if not weight.sum() > 0:
            raise ValueError(
                "the score cannot be computed, because no item has both a label in y and a weight above 0; "
                "pass labels, or weights above 0"
            )
        return float(np.average(right, weights=weight))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted model into a folder as safetensors and JSON, without pickle.

        Parameters
        ----------
        path : str or Path
            Folder to create.
        overwrite : bool, default=False
            Whether to replace an existing model folder. A folder without `model.json` is never replaced.

        Raises
        ------
        FileExistsError
            If the folder is not empty and `overwrite` is False, or if the folder contains files but no `model.json`.

        See Also
        --------
        crowdfuse.load : Read the folder.

        Examples
        --------
        >>> import tempfile, numpy as np, crowdfuse
        >>> X, y = np.eye(4).repeat(5, 0), np.arange(4).repeat(5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, y).save(f"{folder}/model")
        ...     crowdfuse.load(f"{folder}/model").classes_
        array([0, 1, 2, 3])
        """
        from crowdfuse.estimators.persistence import save

        check_is_fitted(self)
        save(self, Path(path), overwrite=overwrite)

    # ---- from settings and data to a training --------------------------------------------------

    def prepare(
        self,
        X: Any,
        y: Any,
        items: ArrayLike | None = None,
        gold: ArrayLike | None = None,
        validation: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> PreparedTraining:
        """Check settings and data, then build the network. `fit` does this before the first training step.

        Call `prepare()` to find mistakes before a long training run. `prepare()` sets `classes_`, `annotators_`,
        `input_shape_`, `n_features_in_`, `gold_used_for_`, `encoder_` and the untrained `method_`.

        Parameters
        ----------
        X : array-like, sparse matrix or Inputs of shape (n_items, ...)
            Inputs, as in `fit`.
        y : Annotations or array-like of shape (n_items, n_annotators) or (n_items,)
            Labels, as in `fit`.
        items : array-like of shape (n_items,), default=None
            Ids of the rows of X, as in `fit`.
        gold : array-like of shape (n_items,), default=None
            Name of the true class of each item; None or NaN if unknown. See `fit`.
        validation : tuple, float, "annotations" or None, default=None
            Data used to choose the best epoch; see `fit`.
        sample_weight : array-like of shape (n_items,), default=None
            Weight of each item in the loss; None: all 1.

        Returns
        -------
        prepared : PreparedTraining
            Named tuple (data, validation, recipe): the training data, the validation data or None, and the settings of
            the training loop.

        Raises
        ------
        ValueError
            If inputs, labels or settings are invalid.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> prepared = crowdfuse.MajorityVoteClassifier(epochs=7).prepare(np.eye(4), [0, 1, 0, 1])
        >>> len(prepared.data), prepared.validation, prepared.recipe.epochs
        (4, None, 7)
        """
        _check_feature_names(self, X, reset=True)
        raw = check_raw_inputs(X)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = labels_as_given(y)
        if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind == "f":
            check_classification_targets(y[~np.isnan(y)])
        ann = align(y, len(raw), items)
        if self.classes is not None:
            ann = ann.with_classes(np.asarray(self.classes))
        if ann.n_classes < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but the labels have "
                f"{'only one class, ' + format_names(ann.classes) if ann.n_classes else 'none'}; name all classes with "
                "classes= (--classes on the command line)"
            )
        true_classes = self._gold(y, gold, ann, len(raw))
        has_labels = (np.diff(ann.indptr) > 0) | (true_classes >= 0)
        self.encoder_, inputs = fit_encoder(self.encoder, raw, has_labels, verbose=self.verbose)
        data = TrainingData(inputs, ann, true_classes, check_sample_weight(sample_weight, len(inputs)))
        recipe = self._recipe()
        if validation is None:
            validation = self._default_validation(data)
        data, held_out = make_validation(
            validation, data, recipe.seed, self._validation_annotations, self._encode_validation
        )

        self.n_features_in_ = inputs.item_shape[0] if len(inputs.item_shape) == 1 else int(np.prod(inputs.item_shape))
        self.input_shape_ = inputs.item_shape
        self.classes_ = ann.classes
        self.annotators_ = ann.annotators
        self.gold_used_for_ = _gold_uses(data, held_out)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.method_ = self._build(self._model_spec(recipe.seed))
        rows = check_trainable(self.method_, data, recipe)
        self.method_.fit_standardization(inputs, rows)
        return PreparedTraining(data, held_out, recipe)

    def fold_trainings(self, prepared: PreparedTraining) -> list[FoldTraining]:
        """Return the training runs for cross-fitting that `fit` performs before it trains the network.

        In cross-fitting, the items are split into folds. For each fold, other classifiers are trained on the remaining
        folds. `fit` does so only if the class attribute `cross_fits_itself` is True, as it is for
        `ConsensusTrainingClassifier`. Most classifiers have no such training runs.

        Parameters
        ----------
        prepared : PreparedTraining
            Return value of `prepare`.

        Returns
        -------
        trainings : list of FoldTraining
            Each element describes one training run. Empty for most classifiers.
        """
        return []

    def training_costs(self, n_items: int) -> tuple[float, ...]:
        """Return the expected duration of each training run that `fit` performs, in an arbitrary unit.

        Call `prepare()` before this method.

        Parameters
        ----------
        n_items : int
            Number of items to learn from. It matters only for classifiers that use cross-fitting (see
            `fold_trainings`). If there are fewer items than folds, there are fewer folds, so there are fewer training
            runs.

        Returns
        -------
        costs : tuple of float
            A single number for most classifiers. For `ConsensusTrainingClassifier`, there is one number per training
            run: `fit` first trains up to five other classifiers, each of them once per fold. The last number is for the
            networks of `ConsensusTrainingClassifier` itself, which `fit` trains at the end.
        """
        return (1.0,)

    def _encode_validation(self, X: Any) -> Inputs:
        """Return validation inputs as numbers."""
        return apply_encoder(self.encoder_, check_raw_inputs(X, "validation X"))

    def fit_prepared(self, prepared: PreparedTraining, *, title: str | None = None) -> Self:
        """Train the network that `prepare` has built. `fit` calls `prepare`, then `fit_prepared`.

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

        See Also
        --------
        fit : Prepare and train in one call. Unlike `fit_prepared`, `fit` leaves the estimator unchanged if it raises an
            error.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> clf = crowdfuse.MajorityVoteClassifier(epochs=7)
        >>> prepared = clf.prepare(np.eye(4), [0, 1, 0, 1])  # mistakes in settings and data are found here
        >>> len(clf.fit_prepared(prepared).history_)
        7
        """
        data, held_out, recipe = prepared
        trained = train(
            self.method_,
            data,
            recipe,
            validation=held_out,
            checkpointing=self._checkpointing(data, held_out, recipe),
            verbose=self.verbose,
            title=title or self.method_name,
        )
        self._keep(trained)
        self._after_fit(data)
        return self

    def _continue(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None,
        items: ArrayLike | None,
        gold: ArrayLike | None,
        sample_weight: ArrayLike | None,
    ) -> tuple[TrainingData, Recipe]:
        """Return data and recipe of a later `partial_fit`, and add new annotators to the network."""
        if classes is not None and not np.array_equal(np.sort(np.asarray(classes)), np.sort(self.classes_)):
            raise ValueError(
                f"the argument classes differs from the classes of the model ({format_names(self.classes_)}); leave it "
                "out"
            )
        inputs = self._inputs(X)
        y = labels_as_given(y)
        ann = self._known(align(y, len(inputs), items), warn=False)
        n_new = ann.n_annotators - len(self.annotators_)
        self.method_ = copy.deepcopy(self.method_)
        if n_new and not self.method_.takes_new_annotators:
            raise ValueError(
                f"the labels are by {format_count(n_new, 'annotator')} whom the model does not know: "
                f"{format_names(ann.annotators[-n_new:])}. Annotators cannot be added to a model with "
                "annotator_heads='separate'. Train a new model with annotator_heads='shared' or 'embedded', or leave "
                "out the labels of the new annotators"
            )
        if n_new:
            self.method_.add_annotators(n_new)
        self.annotators_ = ann.annotators
        weight = check_sample_weight(sample_weight, len(inputs))
        data = TrainingData(inputs, ann, self._gold(y, gold, ann, len(inputs)), weight)
        self.gold_used_for_ = _gold_uses(data, None)
        recipe = self._recipe()
        check_trainable(self.method_, data, recipe)
        return data, recipe

    def _recipe(self) -> Recipe:
        """Return the settings that the training loop reads, with the seed drawn from `random_state`."""
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        names = [field.name for field in fields(Recipe) if field.name != "seed"]
        settings = {name: getattr(self, name) for name in names}
        for name in ("batch_size", "epochs", "devices"):
            if isinstance(settings[name], Integral):  # NumPy's come from parameter grids
                settings[name] = int(settings[name])
        if self.max_time is not None:
            settings["max_time"] = parse_duration("max_time", self.max_time)
        return Recipe(**settings, seed=int(seed))

    def _model_spec(self, seed: int) -> ModelSpec:
        """Return backbone and sizes, from `input_shape_`, `classes_` and `annotators_`."""
        check_share_below_one("dropout", self.dropout)
        trunk = make_trunk(self.backbone, self.input_shape_, check_layer_widths("hidden", self.hidden), self.dropout)
        scaled = trunk.is_built_in if self.standardize is None else self.standardize
        return ModelSpec(
            trunk=trunk,
            standardize=Standardize(self.input_shape_) if scaled else None,
            augment=make_augmentation(
                choose_augmentation(self.augment, self.backbone, self.input_shape_), self.input_shape_
            ),
            n_classes=len(self.classes_),
            n_annotators=len(self.annotators_),
            head_hidden=trunk.head_hidden
            if self.head_hidden is None
            else check_layer_widths("head_hidden", self.head_hidden),
            dropout=self.dropout,
            seed=seed,
        )

    def json_settings(self) -> dict[str, Any]:
        """Return the settings that influence training, as JSON-compatible values.

        Returns
        -------
        settings : dict of str to object
            All parameters except `checkpoint`, `verbose`, `device`, `classes` and `random_state`. A module is
            represented by its printed layers, any other object by its name.

        Examples
        --------
        >>> import crowdfuse
        >>> crowdfuse.FusionClassifier(hidden=(32, 16)).json_settings()["hidden"]
        [32, 16]
        """
        excluded = ("checkpoint", "verbose", "device", "classes", "random_state")
        return {name: _describe(value) for name, value in self.get_params().items() if name not in excluded}

    def _checkpointing(self, data: TrainingData, held_out: Validation | None, recipe: Recipe) -> Checkpointing | None:
        """Return the folder of the checkpoints, with the settings and data that the checkpoints belong to."""
        if self.checkpoint is None:
            return None
        settings = self.json_settings() | {"seed": recipe.seed}  # the seed that was drawn
        del settings["devices"]  # a training may continue with another number of processes
        fingerprint = data.fingerprint()
        if held_out is not None:
            fingerprint |= {f"validation_{name}": value for name, value in held_out.fingerprint().items()}
        identity = {"settings": {"method": self.method_name, **settings}, "data": fingerprint}
        return Checkpointing(Path(self.checkpoint), identity)

    def _keep(self, trained: TrainingResult) -> None:
        """Take over the trained weights and the history."""
        self.method_.to("cpu", torch.float32)
        self.method_.load_state_dict(trained.weights)
        self.method_.zero_grad(set_to_none=True)
        self.method_.eval()
        self.history_ = trained.history
        self.best_epoch_ = trained.best_epoch
        self.interrupted_ = trained.interrupted
        self.cut_short_ = trained.cut_short
        self.n_iter_ = max(1, len(trained.history))
        if trained.interrupted:
            warnings.warn(
                f"interrupted after {len(trained.history)} of {trained.n_epochs} epochs; "
                "the model keeps what it had learned by then",
                stacklevel=3,
            )

    def training_limitations(self) -> tuple[str, ...]:
        """Return problems of the training run that the user should know, one text per problem.

        Returns
        -------
        limitations : tuple of str
            Problems that the learning method reports, phases that were left out (see `skipped_phases`), and a text
            about the time limit if it shortened training. Empty if there are no problems.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, y = np.eye(2).repeat(20, 0), np.arange(2).repeat(20)
        >>> crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, y).training_limitations()
        ()
        """
        check_is_fitted(self)
        own = (*self.method_.limitations(), *self.skipped_phases())
        if not self.cut_short_:
            return own
        return (
            *own,
            f"The time limit (--max-time; max_time in Python) cut training short after "
            f"{format_count(len(self.history_), 'epoch')}. A model that is trained for longer may be better.",
        )

    def skipped_phases(self) -> tuple[str, ...]:
        """Return which phases of training were left out because `epochs` was too small for all phases.

        Returns
        -------
        limitations : tuple of str
            One text, which names the skipped phases. The tuple is empty if all phases were trained, or if training was
            interrupted.

        Examples
        --------
        >>> import numpy as np, crowdfuse
        >>> X, Y = np.eye(2).repeat(20, 0), np.arange(2).repeat(20)[:, None].repeat(2, 1)
        >>> print(*crowdfuse.GatedClassifier(epochs=2).fit(X, Y).skipped_phases())
        gated was trained without its phase 'gates', because 2 epochs are too few for its 3 phases. Leave out \
the setting epochs, or set it to 3 or more.
        """
        check_is_fitted(self)
        if self.epochs is None or len(self.method_.phases(MANY_EPOCHS)) == 1:
            return ()
        trained = {record.get("phase") for record in self.history_}
        names = [phase.name for phase in self.method_.phases(MANY_EPOCHS)]
        skipped = [name for name in names if name not in trained]
        if not skipped or self.interrupted_:
            return ()
        enough = int(self.epochs)
        while sum(phase.epochs > 0 for phase in self.method_.phases(enough)) < len(names):
            enough += 1
        return (
            f"{self.method_name} was trained without its phase{'s' * (len(skipped) > 1)} {format_names(skipped)}, "
            f"because {format_count(int(self.epochs), 'epoch')} are too few for its {len(names)} phases. Leave out "
            f"the setting epochs, or set it to {enough} or more.",
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _gold_uses(data: TrainingData, held_out: Validation | None) -> str:
    """Return what gold is used for, in words."""
    chooses = held_out is not None and held_out.uses_gold
    uses = ["training"] if (data.gold >= 0).any() else []
    return " and ".join(uses + ["choosing the epoch"] * chooses) or "nothing"


def _describe(value: Any) -> Any:
    """Return a setting in a form that JSON can hold: a module as the text of its layers, other objects by name."""
    if isinstance(value, torch.nn.Module):
        return repr(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_describe(part) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", type(value).__qualname__)
