"""The paper's rule: an annotator cannot read what looks like one image, its weakness."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.ids import IntArray, few
from crowdfuse.synthesis.made_up import MadeUp, annotate, check_missing, true_classes, wrong_labels

N_CANDIDATES = 512
BLOCK = 1 << 18  # values of X worked on at a time: 2 MB of float64, which the cache holds


def weakness_annotators(
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    weakness: Sequence[int] | None = None,
    epsilon: float | Sequence[float],
    distances: ArrayLike | None = None,
    skills: Sequence[float] | None = None,
    missing: float = 0.0,
    annotators: Sequence[Any] | None = None,
    seed: int = 0,
) -> MadeUp:
    """The paper's rule: annotator r cannot read what looks like image `weakness[r]`.

    Items within Euclidean distance `epsilon` (one for all, or one each) of that row of X get a class drawn
    uniformly from the wrong ones, all others the right one. X is pixels or any other features, (N, ...); instead
    of X and `weakness` there may be ready `distances`, (N, R). A share `missing` of the labels is left out at
    random, never an item's last one.

    Instead of `weakness` there may be `skills`, the share of right labels that each annotator should have: then,
    among 512 rows drawn by the seed, each annotator in turn gets the one whose share comes closest. The rows are in
    `weakness` of the result. Giving them as `weakness` makes the same labels again.

    >>> X, y = np.arange(6.0)[:, None], [0, 1, 0, 1, 0, 1]
    >>> made = weakness_annotators(X, y, weakness=[0, 5], epsilon=1)
    >>> made.right.T.astype(int).tolist()
    [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]
    >>> weakness_annotators(X, y, skills=[1/2, 2/3], epsilon=1).accuracy.round(2).tolist()
    [0.5, 0.67]
    """
    check_missing(missing)
    if y is None:
        raise TypeError("weakness_annotators needs y=, the true class of each item")
    classes, truth = true_classes(y)
    generator = np.random.default_rng(seed)
    rows: IntArray | None = None
    if distances is not None:
        if X is not None or weakness is not None or skills is not None:
            raise ValueError("distances already say how far each item is: leave out X, weakness and skills")
        distance = _check_distances(np.asarray(distances, np.float64), len(truth))
        reach = _check_epsilon(epsilon, distance.shape[1])
    else:
        if X is None:
            raise ValueError("weakness_annotators needs inputs X with weakness= or skills=, or ready distances=")
        inputs = _rows(X, len(truth))
        if weakness is not None and skills is None:
            rows = _check_weakness(weakness, len(inputs))
            reach = _check_epsilon(epsilon, len(rows))
        elif skills is not None and weakness is None:
            wanted = _check_skills(skills, len(inputs))
            reach = _check_epsilon(epsilon, len(wanted))
            # a stream of its own, so that the labels do not depend on how the rows were chosen
            rows = _choose(inputs, wanted, reach, generator.spawn(1)[0])
        else:
            raise ValueError("give either weakness= (rows of X) or skills= (shares of right labels), and not both")
        distance = _distances(inputs, rows)
    right = distance > reach
    said = np.where(right, truth[:, None], wrong_labels(truth, len(reach), len(classes), generator))
    made = MadeUp(annotate(said, classes, missing, annotators, generator), right, truth, weakness=rows)
    _warn_of_extremes(made)
    return made


def _distances(inputs: NDArray[Any], rows: IntArray) -> NDArray[np.float64]:
    """Euclidean distance of every row to these rows, (N, R)."""
    weak = inputs[rows].astype(np.float64)
    distance = np.empty((len(inputs), len(rows)))
    for block in _blocks(inputs):
        values = inputs[block].astype(np.float64)
        for r in range(len(rows)):
            distance[block, r] = np.linalg.norm(values - weak[r], axis=1)
    return _check_distances(distance, len(inputs))


def _choose(
    inputs: NDArray[Any], skills: NDArray[np.float64], reach: NDArray[np.float64], generator: np.random.Generator
) -> IntArray:
    """For each annotator the row, among some drawn at random, with the share of right labels closest to its skill."""
    drawn = generator.choice(len(inputs), min(len(inputs), max(N_CANDIDATES, len(skills))), replace=False)
    # |a - b|^2 = |a|^2 - 2ab + |b|^2, from the middle of the candidates: far from it the terms would cancel
    candidates = inputs[drawn].astype(np.float64)
    middle = candidates.mean(0)
    candidates -= middle
    lengths = (candidates**2).sum(1)
    inside = np.zeros((len(reach), len(drawn)))
    for block in _blocks(inputs):
        values = inputs[block].astype(np.float64) - middle
        squared = (values**2).sum(1)[:, None] - 2 * (values @ candidates.T) + lengths
        for r, radius in enumerate(reach):
            inside[r] += (squared <= radius**2).sum(0)
    off = np.abs(1 - inside / len(inputs) - skills[:, None])
    chosen: list[int] = []
    for gap in off:
        gap[chosen] = np.inf
        chosen.append(int(gap.argmin()))
    return drawn[chosen]


def _blocks(inputs: NDArray[Any]) -> Iterator[slice]:
    size = max(1, BLOCK // max(1, inputs.shape[1]))
    return (slice(start, start + size) for start in range(0, len(inputs), size))


def _warn_of_extremes(made: MadeUp) -> None:
    share = made.right.mean(0)
    names = made.annotations.annotators
    found = [
        f"always {word}: {few(names[share == value])}" for word, value in (("right", 1), ("wrong", 0)) if value in share
    ]
    if found:
        shares = ", ".join(f"{100 * value:.1f}" for value in share[:20]) + (", ..." if len(share) > 20 else "")
        warnings.warn(
            f"annotators {'; '.join(found)} (shares of right labels: {shares} %). "
            "A smaller epsilon makes annotators better, a larger one worse",
            stacklevel=3,
        )


# ---- what goes in --------------------------------------------------------------------------


def _rows(X: ArrayLike, n_items: int) -> NDArray[Any]:
    inputs = np.asarray(X)
    if inputs.dtype.kind not in "fiub":
        raise ValueError(f"X must be numbers, got dtype {inputs.dtype}")
    if not inputs.ndim or len(inputs) != n_items:
        raise ValueError(f"X and y must have one row an item, got shape {inputs.shape} and {n_items:,} true classes")
    return inputs.reshape(n_items, -1)


def _check_distances(distance: NDArray[np.float64], n_items: int) -> NDArray[np.float64]:
    if distance.ndim != 2 or len(distance) != n_items or not distance.shape[1]:
        raise ValueError(
            f"distances must have one row an item and one column an annotator, got shape {distance.shape} "
            f"and {n_items:,} true classes"
        )
    usable = distance >= 0  # NaN is not
    if not usable.all():
        item, annotator = np.argwhere(~usable)[0]
        raise ValueError(
            f"row {item}: its distance to the weakness of annotator {annotator} is {distance[item, annotator]}; "
            "inputs must not hold NaN or infinity, nor distances be negative"
        )
    return distance


def _check_epsilon(epsilon: float | Sequence[float], n_annotators: int) -> NDArray[np.float64]:
    given = np.asarray(epsilon, np.float64)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != n_annotators):
        raise ValueError(f"epsilon must be one number, or one for each of the {n_annotators} annotators, got {epsilon}")
    if not (given >= 0).all():
        raise ValueError(f"epsilon must be a distance, 0 or more, got {epsilon}")
    return np.broadcast_to(given, n_annotators)


def _check_weakness(weakness: Sequence[int], n_items: int) -> IntArray:
    rows = np.asarray(weakness)
    if rows.ndim != 1 or not len(rows) or rows.dtype.kind not in "iu":
        raise ValueError(f"weakness must name one row of X for each annotator, got {weakness!r}")
    outside = rows[(rows < 0) | (rows >= n_items)]
    if len(outside):
        raise ValueError(f"weakness {few(outside)} is not a row of X, whose rows are 0 to {n_items - 1:,}")
    return rows.astype(np.int64)


def _check_skills(skills: Sequence[float], n_items: int) -> NDArray[np.float64]:
    wanted = np.asarray(skills, np.float64)
    if wanted.ndim != 1 or not len(wanted) or not ((wanted >= 0) & (wanted <= 1)).all():
        raise ValueError(
            f"skills must be the share of right labels of each annotator, from 0 to 1, got {wanted.tolist()}"
        )
    if len(wanted) > n_items:
        raise ValueError(f"skills asks for {len(wanted):,} annotators with a row each, but X has {n_items:,} rows")
    return wanted
