"""The paper's rule: an annotator cannot read what looks like one image, its weakness."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.checks.choices import check_choice
from crowdfuse.labels.ids import IntArray, format_names
from crowdfuse.synthesis.distances import as_rows, blocks, distances_to
from crowdfuse.synthesis.synthetic_crowd import SyntheticCrowd, annotate, check_missing, true_classes
from crowdfuse.synthesis.wrong_label_kinds import (
    WRONG_LABEL_KINDS,
    WrongLabelKind,
    confusable_classes,
    draw_wrong_labels,
    shifts,
)

N_CANDIDATES = 512


def weakness_annotators(
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    weakness: Sequence[int] | None = None,
    epsilon: float | Sequence[float],
    distances: ArrayLike | None = None,
    accuracies: Sequence[float] | None = None,
    wrong: WrongLabelKind = "uniform",
    inputs: ArrayLike | None = None,
    confusable: Mapping[Any, Any] | None = None,
    missing: float = 0.0,
    annotators: Sequence[Any] | None = None,
    seed: int = 0,
) -> SyntheticCrowd:
    """The paper's rule: annotator r cannot read what looks like image `weakness[r]`.

    Items within Euclidean distance `epsilon` (one for all, or one each) of that row of X get a wrong label, all
    others the right one. X is pixels or any other features, (N, ...); instead of X there may be ready `distances`,
    (N, R). A share `missing` of the labels is left out at random, never an item's last one.

    `wrong` says what is said inside that distance:

    - "uniform": a class drawn uniformly from the K - 1 wrong ones, the paper's.
    - "any": a class drawn uniformly from all K, and so on 1 of K items the right one by chance.
    - "looks": the class of the weakness image. Items of that very class are then right, inside as outside. Ready
      `distances` need `weakness` beside them, to say which row's class it is.
    - "shift": annotator r says the class `s_r` further on, always, in the order of the classes and round again;
      s_r is drawn once from 1 to K - 1, and no two annotators have the same before all are taken.
    - "neighbour": the most confusable class, the same for everybody: the one whose mean is nearest to the mean of
      the true class, in `inputs`, or in X where none are given; or what a table `confusable` (class: class) says.
    - "copy": one wrong class an item, drawn uniformly, that all who are wrong there say.

    At one seed all kinds leave out the same labels.

    Instead of `weakness` there may be `accuracies`, the share of right labels that each annotator should have: then,
    among 512 rows drawn by the seed, each annotator in turn gets the one whose share comes closest, if all is wrong
    inside (with "any" and "looks" more is right). The rows are in `weakness` of the result. Giving them as
    `weakness` makes the same labels again.

    >>> X, y = np.arange(6.0)[:, None], [0, 1, 0, 1, 0, 1]
    >>> made = weakness_annotators(X, y, weakness=[0, 5], epsilon=1)
    >>> made.is_correct.T.astype(int).tolist(), made.all_wrong_share
    ([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]], 0.0)
    >>> weakness_annotators(X, y, accuracies=[1/2, 2/3], epsilon=1).accuracy.round(2).tolist()
    [0.5, 0.67]
    >>> weakness_annotators(X, y, weakness=[0, 5], epsilon=2, wrong="looks").annotations.to_matrix().T.tolist()
    [[0, 0, 0, 1, 0, 1], [0, 1, 0, 1, 1, 1]]
    """
    check_missing(missing)
    check_choice("wrong", wrong, WRONG_LABEL_KINDS)
    if y is None:
        raise TypeError("weakness_annotators needs y=, the true class of each item")
    _check_confusable(wrong, X, inputs, confusable)
    classes, truth = true_classes(y)
    K = len(classes)
    generator = np.random.default_rng(seed)
    # streams of their own: labels do not depend on how rows were chosen, nor what is missing on the kind of mistake
    for_rows, for_mistakes = generator.spawn(2)
    rows: IntArray | None = None
    if distances is not None:
        if X is not None or accuracies is not None:
            raise ValueError("distances already say how far each item is: leave out X and accuracies")
        distance = _check_distances(np.asarray(distances, np.float64), len(truth))
        reach = _check_epsilon(epsilon, distance.shape[1])
        if weakness is not None:
            rows = _check_weakness(weakness, len(truth))
            if len(rows) != len(reach):
                raise ValueError(f"weakness names {len(rows):,} rows, but distances has {len(reach):,} columns")
        elif wrong == "looks":
            raise ValueError(
                "wrong='looks' says the class of the weakness image, which distances do not tell: name its row for "
                "each annotator, weakness=[...]"
            )
    else:
        if X is None:
            raise ValueError("weakness_annotators needs inputs X with weakness= or accuracies=, or ready distances=")
        images = as_rows(X, len(truth))
        if weakness is not None and accuracies is None:
            rows = _check_weakness(weakness, len(images))
            reach = _check_epsilon(epsilon, len(rows))
        elif accuracies is not None and weakness is None:
            wanted = _check_accuracies(accuracies, len(images))
            reach = _check_epsilon(epsilon, len(wanted))
            rows = _choose(images, wanted, reach, for_rows)
        else:
            raise ValueError("give either weakness= (rows of X) or accuracies= (shares of right labels), and not both")
        distance = _check_distances(distances_to(images, images[rows].astype(np.float64)), len(images))

    mistake = draw_wrong_labels(truth, len(reach), K, generator)
    if wrong == "any":
        mistake = for_mistakes.integers(0, K, mistake.shape)
    elif wrong == "looks":
        mistake = truth[rows]
    elif wrong == "shift":
        mistake = (truth[:, None] + shifts(len(reach), K, for_mistakes)) % K
    elif wrong == "neighbour":
        given, name = (X, "X") if inputs is None else (inputs, "inputs")
        mistake = confusable_classes(confusable, given, truth, classes, name)[truth][:, None]
    elif wrong == "copy":
        mistake = mistake[:, :1]
    said = np.where(distance > reach, truth[:, None], mistake)
    made = SyntheticCrowd(
        annotate(said, classes, missing, annotators, generator), said == truth[:, None], truth, weakness=rows
    )
    _warn_of_extremes(made)
    return made


def _choose(
    inputs: NDArray[Any], accuracies: NDArray[np.float64], reach: NDArray[np.float64], generator: np.random.Generator
) -> IntArray:
    """For each annotator the row, among some drawn at random, with the share of right labels closest to its skill."""
    drawn = generator.choice(len(inputs), min(len(inputs), max(N_CANDIDATES, len(accuracies))), replace=False)
    # |a - b|^2 = |a|^2 - 2ab + |b|^2, from the middle of the candidates: far from it the terms would cancel
    candidates = inputs[drawn].astype(np.float64)
    middle = candidates.mean(0)
    candidates -= middle
    lengths = (candidates**2).sum(1)
    inside = np.zeros((len(reach), len(drawn)))
    for block in blocks(inputs):
        values = inputs[block].astype(np.float64) - middle
        squared = (values**2).sum(1)[:, None] - 2 * (values @ candidates.T) + lengths
        for r, radius in enumerate(reach):
            inside[r] += (squared <= radius**2).sum(0)
    off = np.abs(1 - inside / len(inputs) - accuracies[:, None])
    chosen: list[int] = []
    for gap in off:
        gap[chosen] = np.inf
        chosen.append(int(gap.argmin()))
    return drawn[chosen]


def _warn_of_extremes(made: SyntheticCrowd) -> None:
    share = made.is_correct.mean(0)
    names = made.annotations.annotators
    found = [
        f"always {word}: {format_names(names[share == value])}"
        for word, value in (("right", 1), ("wrong", 0))
        if value in share
    ]
    if found:
        shares = ", ".join(f"{100 * value:.1f}" for value in share[:20]) + (", ..." if len(share) > 20 else "")
        warnings.warn(
            f"annotators {'; '.join(found)} (shares of right labels: {shares} %). "
            "A smaller epsilon makes annotators better, a larger one worse",
            stacklevel=3,
        )


# ---- what goes in --------------------------------------------------------------------------


def _check_confusable(
    wrong: WrongLabelKind, X: ArrayLike | None, inputs: ArrayLike | None, confusable: Mapping[Any, Any] | None
) -> None:
    """What says which class is most confusable is there where it is needed, once, and nowhere else."""
    for name, value in (("inputs", inputs), ("confusable", confusable)):
        if value is not None and wrong != "neighbour":
            raise ValueError(f"{name}= goes with wrong='neighbour' only, got wrong={wrong!r}; leave it out")
    if inputs is not None and confusable is not None:
        raise ValueError("confusable already says which class is taken for which: leave out inputs")
    if wrong == "neighbour" and X is None and inputs is None and confusable is None:
        raise ValueError(
            "wrong='neighbour' says the most confusable class, which distances do not tell: give inputs= for the means "
            "of the classes, or a table confusable={class: class}"
        )


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
        raise ValueError(f"weakness {format_names(outside)} is not a row of X, whose rows are 0 to {n_items - 1:,}")
    return rows.astype(np.int64)


def _check_accuracies(accuracies: Sequence[float], n_items: int) -> NDArray[np.float64]:
    wanted = np.asarray(accuracies, np.float64)
    if wanted.ndim != 1 or not len(wanted) or not ((wanted >= 0) & (wanted <= 1)).all():
        raise ValueError(
            f"accuracies must be the share of right labels of each annotator, from 0 to 1, got {wanted.tolist()}"
        )
    if len(wanted) > n_items:
        raise ValueError(f"accuracies asks for {len(wanted):,} annotators with a row each, but X has {n_items:,} rows")
    return wanted
