"""The base of every estimator: scikit-learn's verbs done once. A subclass holds settings and builds a method."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.numbers import check_layer_widths, check_positive_integer, check_share_below_one
from crowdfuse.estimators.inspection import Inspection
from crowdfuse.io.inputs import check_inputs
from crowdfuse.labels.alignment import align, check_sample_weight, gold_codes, has_gold, labels_as_given, refuse_items
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.held_out import hold_out_labels
from crowdfuse.labels.ids import format_count, format_names, normalize_ids, positions_of
from crowdfuse.methods.base import Method, ModelSpec
from crowdfuse.methods.data import TrainingData
from crowdfuse.nets import Backbone, make_augmentation, make_trunk
from crowdfuse.nets.standardize import Standardize
from crowdfuse.training.checkpoints import Checkpointing
from crowdfuse.training.loop import TrainingResult, check_trainable, train
from crowdfuse.training.recipes import OptimizerFactory, Recipe, Schedule
from crowdfuse.training.validation import AgreementValidation, GoldValidation, HeldOutLabelValidation, Validation

SearchSpace = dict[str, list[Any] | tuple[float, float]]
"""Settings, each with values to choose from, or with (low, high) to draw from evenly in logs."""


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdClassifier(Inspection, ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier trained on the labels of several annotators who disagree.

    Parameters
    ----------
    backbone : "auto", "mlp", "lenet", "resnet18", "identity", an nn.Module, or a callable that returns one
        What turns inputs into (N, D) features. "auto" is an MLP for rows and LeNet for images.
        A module is copied, never changed.
    hidden : widths of the MLP backbone, and of the class head on "identity"
    head_hidden : widths of the class head's hidden layers; None for what suits the backbone
    dropout : in the MLP backbone and the class head
    standardize : bring inputs to mean 0 and spread 1 inside the model; None: for named backbones only
    augment : "crop-flip" (moved by up to 4 pixels, mirrored) or "resized-crop-flip" (a random part, mirrored), for
        images in training; None for neither
    optimizer : "adamw", "adam", "sgd", or a callable from parameters to an optimiser
    learning_rate, momentum, weight_decay : of the named optimisers (momentum: of sgd)
    schedule : "one-cycle", "cosine", "constant", or a callable from the share of steps done to a factor
    batch_size, epochs : items a step; passes over the data
    device : "auto", "cpu", "cuda", "mps"
    devices : how many of them; over one, batches are split over as many processes. Under torchrun its number counts
    precision : Lightning Fabric's names, such as "32-true", "bf16-mixed", "64-true"
    channels_last : lay images out with channels last in memory while training: faster convolutions, other rounding
    compile : let torch.compile work on the backbone while training: slow to start, pays on GPUs
    random_state : the one seed of everything random
    classes : all class names, where the labels may lack some; None for those that are said
    checkpoint : a folder to keep the state of the training in, and to continue from
    verbose : 1 shows progress

    Attributes
    ----------
    classes_ (K,), annotators_ (R,) : the names
    history_ : a record an epoch: loss, seconds, phase where there are several; where there is validation its accuracy,
        or the mean log-likelihood of held-out labels and what else speaks against the epoch
    best_epoch_ : the epoch chosen by validation, in the last phase where there are several, or None
    uses_gold_ : what gold was used for: "nothing", "training", "choosing the epoch", or both
    interrupted_ : whether Ctrl-C ended the training early
    method_ : the fitted network
    """

    method_name: ClassVar[str]
    assumes: ClassVar[str]
    """What the method takes for granted about annotators, in a sentence for people who choose."""
    needs: ClassVar[str] = ""
    """What data must have for the method to learn from it, beside items with labels; empty if nothing."""
    paper_settings: ClassVar[dict[str, Any]] = {}
    """What the paper's experiments set otherwise than the defaults here, apart from network and optimiser."""
    search_space: ClassVar[SearchSpace] = {}
    """What there is to tune of the method's own settings."""
    trains_on_labels: ClassVar[bool] = True
    """Whether what annotators say makes a difference."""

    backbone: Backbone = "auto"
    hidden: tuple[int, ...] = (128,)
    head_hidden: tuple[int, ...] | None = None
    dropout: float = 0.0
    standardize: bool | None = None
    augment: str | None = None
    optimizer: str | OptimizerFactory = "adamw"
    learning_rate: float = 0.002
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str | Schedule = "one-cycle"
    batch_size: int = 64
    epochs: int = 40
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    channels_last: bool = False
    compile: bool = False
    random_state: Any = 0
    classes: Sequence[Any] | None = None
    checkpoint: str | Path | None = None
    verbose: int = 0

    # ---- what a subclass says ----------------------------------------------------------------

    @classmethod
    def variants(cls, annotators: Sequence[Any]) -> dict[str, dict[str, Any]]:
        """What an experiment runs of this method, by name: settings that each adds. Most methods are run once."""
        return {cls.method_name: {}}

    @abstractmethod
    def _build(self, spec: ModelSpec) -> Method:
        """The method, for this problem. The only thing a subclass must define."""

    def _after_fit(self, data: TrainingData) -> None:
        """Look at the training data with the fitted network."""

    def _resolved_settings(self) -> dict[str, Any]:
        """Settings left to the data, as first settled, where annotators who came later would settle them otherwise."""
        return {}

    # ---- scikit-learn's verbs ----------------------------------------------------------------

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
        """Train on inputs X (N, ...) and labels y.

        Parameters
        ----------
        y : Annotations; an (N, R) array, -1, NaN or None where missing; or a 1-D array (one annotator)
        items : the ids of X's rows, by which Annotations are matched to them. Without it, Annotations must be
            in the order of X's rows, or know their items by row number. Arrays always go row by row.
            Items without labels are not trained on.
        gold : true classes by name, one a row, None or NaN where unknown. The class of these items is taken as
            certain, and shows how far their annotators can be believed. Not the place for gold that judges
        validation : (X, gold) or (X, Annotations), with a third entry for items; or a share of the labelled
            items, judged by their own labels; or "annotations": some labels of items that have several are kept
            out, and judge by how likely they become. Used to choose the epoch; without it the last one is kept.
        sample_weight : how much each row counts
        """
        draft = copy.copy(self)  # what fails, fails there: this one stays as it was
        data, held_out, recipe = draft.prepare(X, y, items, gold, validation, sample_weight)
        trained = train(
            draft.method_,
            data,
            recipe,
            validation=held_out,
            checkpointing=draft._checkpointing(data, held_out, recipe),
            verbose=self.verbose,
            title=self.method_name,
        )
        draft._keep(trained)
        draft._after_fit(data)
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
        """Go on training with further items, labels and annotators, for `epochs` passes over them.

        The first call starts a model; `classes` names all classes then, where its labels may lack some. A new
        annotator starts as the average one. Nothing of earlier data is kept: what is never shown again is forgotten
        little by little, and matrices that are counted (MBEM, two-stage) are counted from this data for the annotators
        in it. The optimiser starts anew with each call, and its schedule runs over it; a method in phases goes through
        all of them. The other arguments are those of `fit`; there is no validation, and no checkpoint.
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
        """The most likely class of each row, by name (N,)."""
        check_is_fitted(self)
        predicted: NDArray[Any] = self.classes_[self._logits(X).argmax(1)]
        return predicted if predicted.dtype.kind != "O" else predicted.astype(str)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *, items: ArrayLike | None = None) -> float:
        """Accuracy against gold (N,), where it is known; against annotations, the share of labels agreed with."""
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
            raise ValueError("there is nothing to score on: y holds no label")
        return float(np.average(right, weights=weight))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model into a folder: safetensors and JSON, no pickle. `crowdfuse.load` reads it."""
        from crowdfuse.estimators.persistence import save

        check_is_fitted(self)
        save(self, Path(path), overwrite=overwrite)

    # ---- from settings to a training -----------------------------------------------------------

    def prepare(
        self,
        X: Any,
        y: Any,
        items: ArrayLike | None = None,
        gold: ArrayLike | None = None,
        validation: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> tuple[TrainingData, Validation | None, Recipe]:
        """All of `fit` but the training: whatever can be wrong with settings and data is said here."""
        _check_feature_names(self, X, reset=True)
        inputs = check_inputs(X)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = labels_as_given(y)
        if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind == "f":
            check_classification_targets(y[~np.isnan(y)])
        ann = align(y, len(inputs), items)
        if self.classes is not None:
            ann = ann.with_classes(np.asarray(self.classes))
        if ann.n_classes < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, got {ann.n_classes} class"
                f"{' (' + format_names(ann.classes) + ')' if ann.n_classes else ''}; name all with classes= "
                "(--classes on the command line)"
            )
        truth = self._gold(y, gold, ann, len(inputs))
        weight = check_sample_weight(sample_weight, len(inputs))
        data = TrainingData(inputs, ann, truth, weight)
        recipe = self._recipe()
        data, held_out = self._validation(validation, data, recipe.seed)

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
        return data, held_out, recipe

    def _continue(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None,
        items: ArrayLike | None,
        gold: ArrayLike | None,
        sample_weight: ArrayLike | None,
    ) -> tuple[TrainingData, Recipe]:
        """All of a later `partial_fit` but the training: the network gets its new annotators here."""
        if classes is not None and not np.array_equal(np.sort(np.asarray(classes)), np.sort(self.classes_)):
            raise ValueError(
                f"classes= names other classes than the model has ({format_names(self.classes_)}); leave it out"
            )
        inputs = self._inputs(X)
        y = labels_as_given(y)
        ann = self._known(align(y, len(inputs), items), warn=False)
        new = ann.n_annotators - len(self.annotators_)
        self.method_ = copy.deepcopy(self.method_)
        if new and not self.method_.takes_new_annotators:
            raise ValueError(
                f"{format_count(new, 'annotator')} never seen before: {format_names(ann.annotators[-new:])}; "
                "separate heads have no "
                "room for more. Take annotator_heads='shared' or 'embedded' from the start, or leave their labels out"
            )
        if new:
            self.method_.add_annotators(new)
        self.annotators_ = ann.annotators
        weight = check_sample_weight(sample_weight, len(inputs))
        data = TrainingData(inputs, ann, self._gold(y, gold, ann, len(inputs)), weight)
        self.gold_used_for_ = _gold_uses(data, None)
        recipe = self._recipe()
        check_trainable(self.method_, data, recipe)
        return data, recipe

    def _recipe(self) -> Recipe:
        names = ("optimizer", "learning_rate", "momentum", "weight_decay", "schedule", "batch_size", "epochs")
        where = ("device", "devices", "precision", "channels_last", "compile")
        settings = {name: getattr(self, name) for name in (*names, *where)}
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        for name in ("batch_size", "epochs", "devices"):
            if isinstance(settings[name], Integral):  # NumPy's come from parameter grids
                settings[name] = int(settings[name])
        return Recipe(**settings, seed=int(seed))

    def _model_spec(self, seed: int) -> ModelSpec:
        """Build backbone and sizes from `input_shape_`, `classes_` and `annotators_`."""
        check_share_below_one("dropout", self.dropout)
        trunk = make_trunk(self.backbone, self.input_shape_, check_layer_widths("hidden", self.hidden), self.dropout)
        scaled = trunk.is_built_in if self.standardize is None else self.standardize
        return ModelSpec(
            trunk=trunk,
            standardize=Standardize(self.input_shape_) if scaled else None,
            augment=make_augmentation(self.augment, self.input_shape_),
            n_classes=len(self.classes_),
            n_annotators=len(self.annotators_),
            head_hidden=trunk.head_hidden
            if self.head_hidden is None
            else check_layer_widths("head_hidden", self.head_hidden),
            dropout=self.dropout,
            seed=seed,
        )

    def _gold(self, y: Any, gold: ArrayLike | None, ann: Annotations, n_rows: int) -> NDArray[np.int64]:
        """True classes by row, -1 where they are not known."""
        return np.full(n_rows, -1, np.int64) if gold is None else gold_codes(gold, ann.classes, n_rows)

    def _validation_annotations(self, ann: Annotations) -> Annotations:
        """The labels that a validation without gold looks at."""
        return ann

    def _validation(self, given: Any, data: TrainingData, seed: int) -> tuple[TrainingData, Validation | None]:
        """What training keeps, and what chooses the epoch."""
        if given is None:
            return data, None
        if isinstance(given, str):
            check_choice("validation", given, ("annotations",))
            return self._hold_out_labels(data, seed)
        if isinstance(given, float):
            return self._hold_out(given, data, seed)
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise ValueError(
                "validation must be (X, gold), (X, Annotations), (X, Annotations, items), a share such as 0.1, or "
                "'annotations', "
                f"got {type(given).__name__}"
            )
        inputs = check_inputs(given[0], "validation X")
        if inputs.item_shape != data.inputs.item_shape:
            raise ValueError(f"validation inputs have shape {inputs.item_shape}, X has {data.inputs.item_shape}")
        items = given[2] if len(given) == 3 else None
        judges = labels_as_given(given[1])
        if isinstance(judges, np.ndarray) and judges.ndim == 2 and judges.shape[1] == 1:
            raise ValueError(
                "validation labels have one column: pass gold as a 1-D array, one annotator as Annotations"
            )
        if judges.ndim == 2:
            labels = self._validation_annotations(align(judges, len(inputs), items)).with_classes(
                data.annotations.classes
            )
            if not labels.n_labels:
                raise ValueError("validation holds no label to agree with; leave it out, or give labelled items")
            return data, AgreementValidation(inputs, labels)
        refuse_items(items)
        truth = gold_codes(given[1], data.annotations.classes, len(inputs), "validation gold")
        if (truth < 0).any():
            raise ValueError(f"validation gold is missing for {int((truth < 0).sum()):,} items; leave these out")
        return data, GoldValidation(inputs, truth)

    def _hold_out(self, share: float, data: TrainingData, seed: int) -> tuple[TrainingData, Validation]:
        """Keep a share of the labelled items out of training, to agree with their labels."""
        judges = self._validation_annotations(data.annotations)
        labelled = np.flatnonzero(np.diff(judges.indptr) > 0)
        count = round(share * len(labelled))
        if not 0 < share < 1 or not 0 < count < len(labelled):
            raise ValueError(f"validation as a share must leave items on both sides, got {share} of {len(labelled)}")
        out = np.sort(np.random.default_rng([seed, 2]).permutation(labelled)[:count])
        weight = data.weight.copy()
        weight[out] = 0
        kept = TrainingData(data.inputs, data.annotations, data.gold, weight)
        return kept, AgreementValidation(data.inputs.take(out), judges[out])

    def _hold_out_labels(self, data: TrainingData, seed: int) -> tuple[TrainingData, Validation | None]:
        """Keep some labels of items that have several out of training."""
        several = np.diff(self._validation_annotations(data.annotations).indptr) > 1
        kept, held = hold_out_labels(data.annotations, several & (data.weight > 0), seed)
        if held is None:
            raise ValueError(
                "validation='annotations' holds out labels of items that have several, and no item has two: "
                "give a share of the items, such as validation=0.1, or gold"
            )
        return replace(data, annotations=kept), HeldOutLabelValidation(data.inputs.take(held.rows), held)

    def json_settings(self) -> dict[str, Any]:
        """The settings that decide a training, as JSON holds them; seed, classes and device are said elsewhere."""
        apart = ("checkpoint", "verbose", "device", "classes", "random_state")
        return {name: _describe(value) for name, value in self.get_params().items() if name not in apart}

    def _checkpointing(self, data: TrainingData, held_out: Validation | None, recipe: Recipe) -> Checkpointing | None:
        if self.checkpoint is None:
            return None
        settings = self.json_settings() | {"seed": recipe.seed}  # the one that was drawn
        del settings["devices"]  # another number of processes may go on
        fingerprint = data.fingerprint()
        if held_out is not None:
            fingerprint |= {f"validation_{name}": value for name, value in held_out.fingerprint().items()}
        identity = {"settings": {"method": self.method_name, **settings}, "data": fingerprint}
        return Checkpointing(Path(self.checkpoint), identity)

    def _keep(self, trained: TrainingResult) -> None:
        self.method_.to("cpu", torch.float32)
        self.method_.load_state_dict(trained.weights)
        self.method_.zero_grad(set_to_none=True)
        self.method_.eval()
        self.history_ = trained.history
        self.best_epoch_ = trained.best_epoch
        self.interrupted_ = trained.interrupted
        self.n_iter_ = max(1, len(trained.history))
        if trained.interrupted:
            warnings.warn(
                f"interrupted after {len(trained.history)} of {trained.n_epochs} epochs; "
                "the model is what it had learned",
                stacklevel=3,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _gold_uses(data: TrainingData, held_out: Validation | None) -> str:
    """In words, for the result to say."""
    chooses = held_out is not None and held_out.uses_gold
    uses = ["training"] if (data.gold >= 0).any() else []
    return " and ".join(uses + ["choosing the epoch"] * chooses) or "nothing"


def _describe(value: Any) -> Any:
    """A setting as JSON can hold it; a module by its layers, other objects by their name."""
    if isinstance(value, torch.nn.Module):
        return repr(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [_describe(part) for part in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", type(value).__qualname__)
