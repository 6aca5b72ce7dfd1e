"""The rule of Gao et al. (2022): each annotator is wrong on all items similar to one image, called the weakness."""

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

N_CANDIDATES = 512  # weaknesses are chosen among this many random rows of X


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
    """Create annotators who are each wrong on all items near one row of X, the annotator's weakness.

    Near means within distance `epsilon`. On all other items, the annotator is right. Gao et al. (2022) simulate
    annotators by this rule. `wrong` sets which labels the items near the weakness get.

    Parameters
    ----------
    X : array-like of shape (n_items, ...), default=None
        Pixels or other numeric features.
    y : array-like of shape (n_items,)
        True classes. Required.
    weakness : sequence of int, default=None
        For each annotator, the index of the row of X that is the annotator's weakness.
    epsilon : float or sequence of float
        Annotators are wrong on items within this Euclidean distance of their weakness. Either a single value for all
        annotators, or one value per annotator.
    distances : array-like of shape (n_items, n_annotators), default=None
        Distance of each item to the weakness of each annotator. Pass `distances` instead of `X` and `accuracies`.
    accuracies : sequence of float, default=None
        Target accuracy of each annotator. Pass `accuracies` instead of `weakness` to choose the weaknesses
        automatically among 512 random rows of X. For each of these rows, the share of items that are farther than
        `epsilon` from the row is the accuracy of an annotator with this weakness. Each annotator gets the row whose
        accuracy is closest to the annotator's target. No row is used twice. The attribute `weakness` of the result
        holds the chosen rows. Passing the chosen rows as `weakness` gives the same labels.
    wrong : str, default="uniform"
        How the labels within `epsilon` of the weakness are chosen. K is the number of classes.

        - "uniform": a class drawn uniformly from the K - 1 wrong classes, as in Gao et al. (2022).
        - "any": a class drawn uniformly from all K classes, so that on average 1 of K labels is right by chance.
        - "looks": the class of the annotator's weakness. Items of this class therefore keep a right label. If you pass
          `distances`, also pass `weakness`, because the distances do not tell the class of the weakness.
        - "shift": the index of the true class plus a fixed shift, modulo K. Each annotator has a single shift from 1 to
          K - 1, drawn at random. A shift is used again only after all others were used.
        - "neighbour": the class that is most similar to the true class, the same for all annotators. You can name this
          class in `confusable`. By default, it is the class whose mean is nearest to the mean of the true class; see
          `inputs`.
        - "copy": one wrong class per item, drawn uniformly. All annotators who are wrong on the item give this class.
    inputs : array-like of shape (n_items, ...), default=None
        Inputs from which the class means are computed; by default X. Allowed only if `wrong` is "neighbour".
    confusable : mapping of class to class, default=None
        For each true class, the wrong class that annotators give instead. Allowed only if `wrong` is "neighbour".
    missing : float, default=0.0
        Share of the labels to leave out at random; every item keeps at least one label. Which labels are left out does
        not depend on `wrong`.
    annotators : sequence, default=None
        Annotator ids; by default 0, 1, 2, ...
    seed : int, default=0
        Seed of all random draws.

    Returns
    -------
    SyntheticCrowd
        The attribute `weakness` holds the row number of each annotator's weakness, or None if `distances` is given
        without `weakness`.

    Raises
    ------
    TypeError
        If `y` is missing.
    ValueError
        If arguments contradict each other or are out of range.

    Warns
    -----
    UserWarning
        If an annotator is right on all items or wrong on all items.

    Examples
    --------
    >>> X, y = np.arange(6.0)[:, None], [0, 1, 0, 1, 0, 1]
    >>> crowd = weakness_annotators(X, y, weakness=[0, 5], epsilon=1)
    >>> crowd.is_correct.T.astype(int).tolist(), crowd.all_wrong_share
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
    # separate streams, so that labels do not depend on how rows were chosen, and missing labels not on `wrong`
    for_rows, for_mistakes = generator.spawn(2)
    rows: IntArray | None = None
    if distances is not None:
        if X is not None or accuracies is not None:
            raise ValueError("distances= cannot be combined with X or accuracies=; leave out X and accuracies=")
        distance = _check_distances(np.asarray(distances, np.float64), len(truth))
        reach = _check_epsilon(epsilon, distance.shape[1])
        if weakness is not None:
            rows = _check_weakness(weakness, len(truth))
            if len(rows) != len(reach):
                raise ValueError(
                    f"weakness has {len(rows):,} row numbers, but distances has {len(reach):,} columns; both must "
                    "have one per annotator"
                )
        elif wrong == "looks":
            raise ValueError(
                "wrong='looks' gives items the class of the annotator's weakness image, but distances= does not tell "
                "which image this is; also pass weakness=, with one row number of X per annotator"
            )
    else:
        if X is None:
            raise ValueError(
                "weakness_annotators needs X or distances=. If you pass X, also pass weakness= or accuracies="
            )
        images = as_rows(X, len(truth))
        if weakness is not None and accuracies is None:
            rows = _check_weakness(weakness, len(images))
            reach = _check_epsilon(epsilon, len(rows))
        elif accuracies is not None and weakness is None:
            wanted = _check_accuracies(accuracies, len(images))
            reach = _check_epsilon(epsilon, len(wanted))
            rows = _choose_rows(images, wanted, reach, for_rows)
        else:
            raise ValueError("pass exactly one of weakness= (rows of X) and accuracies= (shares of right labels)")
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


def _choose_rows(
    inputs: NDArray[Any], accuracies: NDArray[np.float64], reach: NDArray[np.float64], generator: np.random.Generator
) -> IntArray:
    """One row per annotator: among random candidates, the row with the accuracy closest to the target."""
    drawn = generator.choice(len(inputs), min(len(inputs), max(N_CANDIDATES, len(accuracies))), replace=False)
    # |a - b|^2 = |a|^2 - 2ab + |b|^2, centred on the candidates, to avoid cancellation
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
    """Warn about annotators who are always right or always wrong."""
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
            f"annotators {'; '.join(found)} (shares of right labels: {shares} %). Use a smaller epsilon for fewer "
            "wrong labels, or a larger epsilon for more",
            stacklevel=3,
        )


# ---- checks of the arguments --------------------------------------------------------------------------


def _check_confusable(
    wrong: WrongLabelKind, X: ArrayLike | None, inputs: ArrayLike | None, confusable: Mapping[Any, Any] | None
) -> None:
    """Raise an error unless there is one source of confusable classes if it is needed, and none if it is not."""
    for name, value in (("inputs", inputs), ("confusable", confusable)):
        if value is not None and wrong != "neighbour":
            raise ValueError(f"{name}= can be used only with wrong='neighbour', got wrong={wrong!r}; leave out {name}=")
    if inputs is not None and confusable is not None:
        raise ValueError(
            "inputs= cannot be combined with confusable=: inputs= serves to find the most similar class for each "
            "class, and confusable= already names it; leave out inputs="
        )
    if wrong == "neighbour" and X is None and inputs is None and confusable is None:
        raise ValueError(
            "wrong='neighbour' needs to know which classes are similar, and distances= does not contain this. Pass "
            "inputs=, to compute the class means, or confusable={true class: similar class}"
        )


def _check_distances(distance: NDArray[np.float64], n_items: int) -> NDArray[np.float64]:
    """The distances (N, R), if they are complete and not negative."""
    if distance.ndim != 2 or len(distance) != n_items or not distance.shape[1]:
        raise ValueError(
            f"distances must have one row per item and one column per annotator, got shape {distance.shape}; "
            f"the number of items is {n_items:,}"
        )
    usable = distance >= 0  # false for NaN
    if not usable.all():
        item, annotator = np.argwhere(~usable)[0]
        raise ValueError(
            f"row {item}: the distance to the weakness of annotator {annotator} is {distance[item, annotator]}, but "
            "it must be 0 or more. Correct this distance; if it was computed from X, replace NaN and infinity in this "
            "row of X and in the annotator's weakness"
        )
    return distance


def _check_epsilon(epsilon: float | Sequence[float], n_annotators: int) -> NDArray[np.float64]:
    """The radius of each annotator, broadcast to (R,)."""
    given = np.asarray(epsilon, np.float64)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != n_annotators):
        raise ValueError(f"epsilon must be one number, or one for each of the {n_annotators} annotators, got {epsilon}")
    if not (given >= 0).all():
        raise ValueError(f"epsilon must be a distance, 0 or more, got {epsilon}")
    return np.broadcast_to(given, n_annotators)


def _check_weakness(weakness: Sequence[int], n_items: int) -> IntArray:
    """The rows of X, if they exist."""
    rows = np.asarray(weakness)
    if rows.ndim != 1 or not len(rows) or rows.dtype.kind not in "iu":
        raise ValueError(f"weakness must be one row number of X for each annotator, got {weakness!r}")
    outside = rows[(rows < 0) | (rows >= n_items)]
    if len(outside):
        raise ValueError(
            f"weakness must hold row numbers of X, from 0 to {n_items - 1:,}, but it contains {format_names(outside)}"
        )
    return rows.astype(np.int64)


def _check_accuracies(accuracies: Sequence[float], n_items: int) -> NDArray[np.float64]:
    wanted = np.asarray(accuracies, np.float64)
    if wanted.ndim != 1 or not len(wanted) or not ((wanted >= 0) & (wanted <= 1)).all():
        raise ValueError(
            f"accuracies must hold one share of right labels per annotator, from 0 to 1, got {wanted.tolist()}"
        )
    if len(wanted) > n_items:
        raise ValueError(
            f"each of the {len(wanted):,} accuracies needs a row of X of its own, but X has "
            f"{n_items:,} rows; give fewer accuracies"
        )
    return wanted
