"""Models as annotators: their predictions are the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.encoding import unknown_class_message
from crowdfuse.labels.ids import IntArray, format_names, normalize_ids, positions_of, refuse_repeats
from crowdfuse.synthesis.synthetic_crowd import SyntheticCrowd, annotate, check_missing, true_classes


class Predictor(Protocol):
    """A fitted model with a `predict` method."""

    def predict(self, X: Any) -> Any:
        """Return one class name per item."""


Model = Predictor | Callable[[Any], Any]


def network_annotators(
    models: Mapping[Any, Model] | Sequence[Model],
    X: Any,
    y: ArrayLike,
    *,
    classes: Sequence[Any] | None = None,
    missing: float = 0.0,
    seed: int = 0,
) -> SyntheticCrowd:
    """Use models as annotators: their predictions are the labels. Models make realistic errors on difficult items.

    Parameters
    ----------
    models : mapping or sequence of models
        Each model is an object with a `predict(X)` method, or a function of X. The method or function must return one
        class name per item. If `models` is a mapping, its keys are the annotator ids. For weaker annotators, use
        smaller networks, or train the models on fewer items or on other items.
    X : any
        Inputs, passed to the models.
    y : array-like of shape (n_items,)
        True classes.
    classes : sequence, default=None
        All class names. Required if models predict classes that are not in `y`.
    missing : float, default=0.0
        Share of the labels to leave out at random; every item keeps at least one label.
    seed : int, default=0
        Seed of all random draws.

    Returns
    -------
    SyntheticCrowd

    Raises
    ------
    ValueError
        If there are no models, or if a model predicts an unknown class or the wrong number of labels.
    TypeError
        If a model has no `predict` method and cannot be called.

    Examples
    --------
    >>> X, y = np.array([[1.0], [2.0], [3.0]]), ["low", "low", "high"]
    >>> crowd = network_annotators({"threshold": lambda X: np.where(X[:, 0] > 1, "high", "low")}, X, y)
    >>> crowd.annotations.to_matrix().ravel().tolist(), crowd.is_correct.ravel().tolist()
    (['low', 'high', 'high'], [True, False, True])
    """
    check_missing(missing)
    names, truth = true_classes(y)
    if classes is not None:
        known = normalize_ids(classes, "classes")
        refuse_repeats(known, "classes")
        position = positions_of(names, known)
        if (position < 0).any():
            raise ValueError(f"y: {unknown_class_message(format_names(names[position < 0]), known)}")
        names, truth = known, position[truth]
    named = dict(models) if isinstance(models, Mapping) else dict(enumerate(models))
    if not named:
        raise ValueError("models is empty; give at least one model")
    for name, model in named.items():
        if not callable(model) and not hasattr(model, "predict"):
            raise TypeError(f"model {name!r} must be callable or have a method predict(X), got {type(model).__name__}")
    codes = np.stack(
        [_predicted_codes(model, X, f"model {name!r}", names, len(truth)) for name, model in named.items()], axis=1
    )
    generator = np.random.default_rng(seed)
    return SyntheticCrowd(annotate(codes, names, missing, list(named), generator), codes == truth[:, None], truth)


def _predicted_codes(model: Model, X: Any, name: str, classes: NDArray[Any], n_items: int) -> IntArray:
    """The predictions of a model, as positions in `classes`."""
    predicted = np.asarray(model.predict(X) if hasattr(model, "predict") else model(X))
    if predicted.shape != (n_items,):
        hint = "; return the name of the class with the highest score" if predicted.ndim == 2 else ""
        raise ValueError(
            f"{name} must return one class name for each of the {n_items:,} items, got shape {predicted.shape}{hint}"
        )
    code = positions_of(normalize_ids(predicted, f"labels of {name}"), classes)
    if (code < 0).any():
        item = int(np.argmax(code < 0))
        raise ValueError(f"{name}, item {item}: {unknown_class_message(format_names([predicted[item]]), classes)}")
    return code
