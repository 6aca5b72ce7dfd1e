"""Annotators with habits (Gao et al., 2022, Figure 1): they give label b to items of class a that look like class b."""

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
    """Create annotators who confuse similar classes: items of class a that look like class b get the label b.

    Such a confusion of class a with class b is called a habit. An item looks like class b if its input is near the mean
    of class b. All other labels are right. For example, with images of digits, one annotator labels some 5s as 6 (as
    in Figure 1 of Gao et al., 2022). Only two things are random: the habits, if `habits` is None, and the labels that
    are left out, if `missing` is above 0.

    Parameters
    ----------
    X : array-like of shape (n_items, ...)
        Numeric inputs.
    y : array-like of shape (n_items,)
        True classes.
    habits : sequence of sequences of pairs, default=None
        For each annotator, a sequence of pairs of classes (a, b). The annotator labels some items of class a as b: the
        items nearest to the mean of class b (see `share`). If two pairs (a, b) and (a, c) of an annotator apply to the
        same item, the label is b or c, whichever has the nearer mean. By default, habits are drawn at random.
    n_annotators : int, default=None
        Number of annotators if `habits` is not given; None means 3.
    n_habits : int, default=None
        Number of habits per annotator if `habits` is not given. None means as many habits as classes. Each habit (a, b)
        of an annotator has a different class a. The class b is drawn uniformly from all classes except a.
    share : float or sequence of float, default=0.5
        For each habit (a, b), the share of the items of class a that get the label b. The number of these items is
        rounded. Either a single value for all annotators, or one value per annotator.
    missing : float, default=0.0
        Share of the labels to leave out at random. Every item keeps at least one label.
    annotators : sequence, default=None
        Annotator ids; by default 0, 1, 2, ...
    seed : int, default=0
        Seed of all random draws.

    Returns
    -------
    SyntheticCrowd
        The attribute `habit` holds the habits of each annotator.

    Raises
    ------
    ValueError
        If a setting is out of range, or if a habit has an unknown class.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0], [8.0], [9.0]]), ["a", "a", "a", "a", "b", "b"]
    >>> crowd = habit_annotators(X, y, habits=[[("a", "b")], [("b", "a")]])
    >>> crowd.annotations.to_matrix().T.tolist()
    [['a', 'a', 'b', 'b', 'b', 'b'], ['a', 'a', 'a', 'a', 'a', 'b']]
    >>> crowd.accuracy.round(2).tolist(), crowd.all_wrong_share
    ([0.67, 0.83], 0.0)
    """
    check_missing(missing)
    classes, truth = true_classes(y)
    inputs = as_rows(X, len(truth))
    generator = np.random.default_rng(seed)
    if habits is None:
        pairs = _draw_habits(3 if n_annotators is None else n_annotators, n_habits, len(classes), generator.spawn(1)[0])
    elif n_annotators is None and n_habits is None:
        pairs = _check_habits(habits, classes)
    else:
        raise ValueError(
            "n_annotators and n_habits cannot be combined with habits, which already lists the habits of every "
            "annotator; leave out n_annotators and n_habits"
        )
    shares = _check_share(share, len(pairs))

    means = class_means(inputs, truth, len(classes))
    labels = np.repeat(truth[:, None], len(pairs), axis=1)
    habit = np.zeros((len(pairs), len(classes), len(classes)), bool)
    for r, own in enumerate(pairs):
        nearest = np.full(len(truth), np.inf)
        for a, b in own:
            habit[r, a, b] = True
            items = np.flatnonzero(truth == a)
            distance = distances_to(inputs[items], means[b : b + 1])[:, 0]
            alike = np.argsort(distance, kind="stable")[: round(shares[r] * len(items))]
            alike = alike[distance[alike] < nearest[items[alike]]]
            nearest[items[alike]] = distance[alike]
            labels[items[alike], r] = b
    return SyntheticCrowd(
        annotate(labels, classes, missing, annotators, generator), labels == truth[:, None], truth, habit=habit
    )


def _draw_habits(
    n_annotators: int, n_habits: int | None, n_classes: int, generator: np.random.Generator
) -> list[IntArray]:
    """Random pairs (true, label) of class positions (H, 2) per annotator; each class at most once as true."""
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


def _check_habits(habits: Sequence[Sequence[tuple[Any, Any]]], classes: NDArray[Any]) -> list[IntArray]:
    """The given pairs as class positions (H, 2) per annotator; an annotator without habits is always right."""
    if not len(habits):
        raise ValueError("habits is empty; give each annotator a list of pairs (true class, label given instead)")
    pairs: list[IntArray] = []
    for r, own in enumerate(habits):
        what = f"habits[{r}]"
        if not _is_list(own) or not all(_is_list(pair) and len(pair) == 2 for pair in own):
            raise ValueError(f"{what} must be a list of pairs (true class, label given instead), got {own!r}")
        found = class_positions([name for pair in own for name in pair], classes, what).reshape(-1, 2)
        if (found[:, 0] == found[:, 1]).any():
            raise ValueError(
                f"{what} confuses class {format_names(classes[found[found[:, 0] == found[:, 1], 0]])} with itself; "
                "give another class"
            )
        pairs.append(found)
    return pairs


def _is_list(value: Any) -> bool:
    """Whether a value is a list, tuple or array, but not a string."""
    return hasattr(value, "__len__") and not isinstance(value, str)


def _check_share(share: float | Sequence[float], n_annotators: int) -> NDArray[np.float64]:
    """The share of each annotator, broadcast to (R,)."""
    given = np.asarray(share, np.float64)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != n_annotators):
        raise ValueError(f"share must be one number, or one for each of the {n_annotators} annotators, got {share}")
    if not ((given >= 0) & (given <= 1)).all():
        raise ValueError(f"share must be from 0 to 1, got {share}")
    return np.broadcast_to(given, n_annotators)
