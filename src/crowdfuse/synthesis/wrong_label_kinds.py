"""Six kinds of wrong labels, from the uniform draw of Gao et al. (2022) to one mistake that all annotators share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.ids import IntArray, format_names
from crowdfuse.synthesis.distances import as_rows, nearest_classes
from crowdfuse.synthesis.synthetic_crowd import class_positions

WrongLabelKind = Literal["uniform", "any", "looks", "shift", "neighbour", "copy"]
WRONG_LABEL_KINDS: tuple[WrongLabelKind, ...] = ("uniform", "any", "looks", "shift", "neighbour", "copy")


def draw_wrong_labels(truth: IntArray, n_annotators: int, n_classes: int, generator: np.random.Generator) -> IntArray:
    """Return a class drawn uniformly from the wrong classes, for each item and annotator, (N, R)."""
    shift = generator.integers(1, n_classes, (len(truth), n_annotators))  # a shift of 0 would be the true class
    wrong: IntArray = (truth[:, None] + shift) % n_classes
    return wrong


def shifts(n_annotators: int, n_classes: int, generator: np.random.Generator) -> IntArray:
    """Return one random shift from 1 to K - 1 per annotator, (R,). A shift repeats only after all others were used.

    Examples
    --------
    >>> sorted(shifts(4, 5, np.random.default_rng(0)).tolist()), shifts(3, 2, np.random.default_rng(0)).tolist()
    ([1, 2, 3, 4], [1, 1, 1])
    """
    rounds = -(-n_annotators // (n_classes - 1))
    drawn: IntArray = np.concatenate([1 + generator.permutation(n_classes - 1) for _ in range(rounds)])
    return drawn[:n_annotators]


def confusable_classes(
    confusable: Mapping[Any, Any] | None, inputs: ArrayLike | None, truth: IntArray, classes: NDArray[Any], name: str
) -> IntArray:
    """Return for each class the class it is confused with, (K,): from a table, or the class with the nearest mean."""
    if confusable is None:
        assert inputs is not None
        return nearest_classes(as_rows(inputs, len(truth), name), truth, len(classes), name)
    true = class_positions(list(confusable), classes, "confusable")
    confused = class_positions(list(confusable.values()), classes, "confusable")
    if (true == confused).any():
        raise ValueError(
            f"confusable confuses class {format_names(classes[true[true == confused]])} with itself; give another "
            "class for it"
        )
    table = np.full(len(classes), -1)
    table[true] = confused
    if (table < 0).any():
        raise ValueError(
            f"confusable has no entry for class {format_names(classes[table < 0])}; add one for every class in y"
        )
    return table
