"""Weaker models as annotators: what they predict is what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.encoding import unknown_class_message
from crowdfuse.labels.ids import IntArray, format_names, normalize_ids, positions_of, refuse_repeats
from crowdfuse.synthesis.synthetic_crowd import SyntheticCrowd, annotate, check_missing, true_classes


class Predictor(Protocol):
    """Anything fitted, ours or scikit-learn's."""

    def predict(self, X: Any) -> Any: ...


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
    """Each model labels the items: an annotator that errs as models do, on what is hard.

    A model has `predict(X)`, or is itself called with X; either gives a class name an item. A dict names the
    annotators by its keys. What the models were trained on is up to you: less data, a smaller network, other
    items. `classes` lists all classes where models know some that are not in `y`. A share `missing` of the labels is
    left out at random, never an item's last one.

    >>> X, y = np.array([[1.0], [2.0], [3.0]]), ["low", "low", "high"]
    >>> made = network_annotators({"bold": lambda X: np.where(X[:, 0] > 1, "high", "low")}, X, y)
    >>> made.annotations.to_matrix().ravel().tolist(), made.is_correct.ravel().tolist()
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
            raise TypeError(f"model {name!r} has no predict(X) and cannot be called, got {type(model).__name__}")
    said = np.stack([_say(model, X, f"model {name!r}", names, len(truth)) for name, model in named.items()], axis=1)
    generator = np.random.default_rng(seed)
    return SyntheticCrowd(annotate(said, names, missing, list(named), generator), said == truth[:, None], truth)


def _say(model: Model, X: Any, who: str, classes: NDArray[Any], n_items: int) -> IntArray:
    """What a model predicts, as positions among the classes."""
    predicted = np.asarray(model.predict(X) if hasattr(model, "predict") else model(X))
    if predicted.shape != (n_items,):
        hint = "; take the argmax, and give class names" if predicted.ndim == 2 else ""
        raise ValueError(
            f"{who} must give one class name for each of the {n_items:,} items, got shape {predicted.shape}{hint}"
        )
    code = positions_of(normalize_ids(predicted, f"labels of {who}"), classes)
    if (code < 0).any():
        item = int(np.argmax(code < 0))
        raise ValueError(f"{who}, item {item}: {unknown_class_message(format_names([predicted[item]]), classes)}")
    return code
