"""The paper's Figure 1: habits, by which an annotator takes one class for another where an item looks like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.ids import IntArray, format_names
from crowdfuse.synthesis.distances import as_rows, class_means, distances_to
from crowdfuse.synthesis.synthetic_crowd import SyntheticCrowd, annotate, check_missing, class_positions, true_classes


def habit_annotators(
    X: ArrayLike,
    y: ArrayLike,
    *,
    habits: Sequence[Sequence[tuple[Any, Any]]] | None = None,
    n_annotators: int | None = None,
    n_habits: int | None = None,
    share: float | Sequence[float] = 0.5,
    missing: float = 0.0,
    annotators: Sequence[Any] | None = None,
    seed: int = 0,
) -> SyntheticCrowd:
    """Each annotator calls class a b on the items of a that look like b, and is right on all others.

    That is the paper's Figure 1, where one annotator takes some 5 for a 6 and another some 1 for a 2. `habits` are
    each annotator's pairs (a, b). Of the items of class a, the `share` (one for all, or one each) nearest to the mean
    of class b in X are called b, rounded to whole items; where two habits of an annotator meet in an item, the class
    whose mean is nearer wins. Nothing else is random here: who is wrong where follows from X.

    Without `habits` they are drawn by the seed: `n_annotators` (3), each with a habit for `n_habits` of the classes
    (all of them), b drawn uniformly from the other classes. A share `missing` of the labels is left out at random,
    never an item's last one. The habits are in `habit` of the result.

    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0], [8.0], [9.0]]), ["a", "a", "a", "a", "b", "b"]
    >>> made = habit_annotators(X, y, habits=[[("a", "b")], [("b", "a")]])
    >>> made.annotations.to_matrix().T.tolist()
    [['a', 'a', 'b', 'b', 'b', 'b'], ['a', 'a', 'a', 'a', 'a', 'b']]
    >>> made.accuracy.round(2).tolist(), made.all_wrong_share
    ([0.67, 0.83], 0.0)
    """
    check_missing(missing)
    classes, truth = true_classes(y)
    inputs = as_rows(X, len(truth))
    generator = np.random.default_rng(seed)
    if habits is None:
        pairs = _drawn(3 if n_annotators is None else n_annotators, n_habits, len(classes), generator.spawn(1)[0])
    elif n_annotators is None and n_habits is None:
        pairs = _named(habits, classes)
    else:
        raise ValueError("habits already say who has which: leave out n_annotators and n_habits")
    shares = _check_share(share, len(pairs))

    means = class_means(inputs, truth, len(classes))
    said = np.repeat(truth[:, None], len(pairs), axis=1)
    habit = np.zeros((len(pairs), len(classes), len(classes)), bool)
    for r, mine in enumerate(pairs):
        nearest = np.full(len(truth), np.inf)
        for a, b in mine:
            habit[r, a, b] = True
            items = np.flatnonzero(truth == a)
            distance = distances_to(inputs[items], means[b : b + 1])[:, 0]
            alike = np.argsort(distance, kind="stable")[: round(shares[r] * len(items))]
            alike = alike[distance[alike] < nearest[items[alike]]]
            nearest[items[alike]] = distance[alike]
            said[items[alike], r] = b
    return SyntheticCrowd(
        annotate(said, classes, missing, annotators, generator), said == truth[:, None], truth, habit=habit
    )


def _drawn(n_annotators: int, n_habits: int | None, n_classes: int, generator: np.random.Generator) -> list[IntArray]:
    """Pairs of class positions (H, 2) for each annotator; no class twice with one of them."""
    if n_annotators < 1:
        raise ValueError(f"n_annotators must be at least 1, got {n_annotators}")
    count = n_classes if n_habits is None else n_habits
    if not 1 <= count <= n_classes:
        raise ValueError(f"n_habits must be from 1 to {n_classes}, the number of classes, got {count}")
    pairs: list[IntArray] = []
    for _ in range(n_annotators):
        a = generator.permutation(n_classes)[:count]
        pairs.append(np.stack([a, (a + generator.integers(1, n_classes, count)) % n_classes], axis=1))
    return pairs


def _named(habits: Sequence[Sequence[tuple[Any, Any]]], classes: NDArray[Any]) -> list[IntArray]:
    """Pairs of class positions (H, 2) for each annotator; one with no habit is always right."""
    if not len(habits):
        raise ValueError("habits is empty; give each annotator a list of pairs (class, class it is taken for)")
    pairs: list[IntArray] = []
    for r, mine in enumerate(habits):
        what = f"habits[{r}]"
        if not _is_list(mine) or not all(_is_list(pair) and len(pair) == 2 for pair in mine):
            raise ValueError(f"{what} must be a list of pairs (class, class it is taken for), got {mine!r}")
        found = class_positions([name for pair in mine for name in pair], classes, what).reshape(-1, 2)
        if (found[:, 0] == found[:, 1]).any():
            raise ValueError(
                f"{what} takes class {format_names(classes[found[found[:, 0] == found[:, 1], 0]])} for itself"
            )
        pairs.append(found)
    return pairs


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str)


def _check_share(share: float | Sequence[float], n_annotators: int) -> NDArray[np.float64]:
    given = np.asarray(share, np.float64)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != n_annotators):
        raise ValueError(f"share must be one number, or one for each of the {n_annotators} annotators, got {share}")
    if not ((given >= 0) & (given <= 1)).all():
        raise ValueError(f"share must be from 0 to 1, got {share}")
    return np.broadcast_to(given, n_annotators)
