"""Annotators who are hammers (always right) or spammers (wrong or guessing), per class or on all items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.synthesis.synthetic_crowd import SyntheticCrowd, annotate, check_missing, true_classes
from crowdfuse.synthesis.wrong_label_kinds import draw_wrong_labels

By = Literal["class", "annotator"]


def hammer_spammer_annotators(
    y: ArrayLike,
    *,
    n_annotators: int = 5,
    by: By = "class",
    n_correct: int | None = None,
    n_hammers: int | None = None,
    p: float | None = None,
    missing: float = 0.0,
    annotators: Sequence[Any] | None = None,
    seed: int = 0,
) -> SyntheticCrowd:
    """Create annotators who are hammers (always right) or spammers (wrong or guessing), per class or on all items.

    There are three rules. The arguments select the rule:

    - `n_correct`: each annotator is a hammer on `n_correct` classes, drawn at random. On the other classes, the
      annotator is always wrong: the label is drawn uniformly from the wrong classes. The supplement of Gao et al.
      (2022) uses this rule with 5 annotators, 10 classes and `n_correct=3`.
    - `p`: each annotator is a hammer on each class with probability `p`. On the other classes, the annotator is always
      wrong, as with `n_correct`. By chance, an annotator can be wrong on all classes. This rule is used by Khetan et
      al. (2018, MBEM) and Tanno et al. (2019, TraceReg).
    - `by="annotator"` together with `p` or `n_hammers`: a hammer is right on every item. A spammer draws each label
      uniformly from all K classes, so on average 1 of K labels is right by chance. The main text of Gao et al. (2022)
      describes this rule.

    Parameters
    ----------
    y : array-like of shape (n_items,)
        True classes.
    n_annotators : int, default=5
        Number of annotators.
    by : {"class", "annotator"}, default="class"
        "class": each annotator is a hammer on some of the classes. "annotator": each annotator is a hammer or a spammer
        on all items.
    n_correct : int, default=None
        Number of classes on which each annotator is a hammer. Allowed only if `by` is "class".
    n_hammers : int, default=None
        Number of annotators who are hammers. Allowed only if `by` is "annotator".
    p : float, default=None
        Probability of being a hammer: for each class of each annotator separately if `by` is "class", for each
        annotator if `by` is "annotator". Pass `p` instead of `n_correct` or `n_hammers`.
    missing : float, default=0.0
        Share of the labels to leave out at random; every item keeps at least one label.
    annotators : sequence, default=None
        Annotator ids; by default 0, 1, 2, ...
    seed : int, default=0
        Seed of all random draws.

    Returns
    -------
    SyntheticCrowd
        The attribute `hammer` says on which classes each annotator is a hammer. The attribute `is_correct` is True for
        every label that is the true class, even if a spammer guessed it.

    Raises
    ------
    ValueError
        If none or several of `n_correct`, `n_hammers` and `p` are given, if `n_correct` or `n_hammers` is not allowed
        with the given `by`, or if a setting is out of range.

    Examples
    --------
    >>> crowd = hammer_spammer_annotators(np.arange(20) % 4, n_annotators=2, n_correct=1)
    >>> crowd.accuracy.tolist(), crowd.hammer.sum(1).tolist()
    ([0.25, 0.25], [1, 1])
    >>> crowd = hammer_spammer_annotators(np.arange(20) % 4, n_annotators=3, by="annotator", n_hammers=2)
    >>> sorted(crowd.hammer.all(1).tolist())
    [False, True, True]
    """
    check_missing(missing)
    classes, truth = true_classes(y)
    K = len(classes)
    if by not in ("class", "annotator"):
        raise ValueError(f"by must be 'class' or 'annotator', got {by!r}")
    if n_annotators < 1:
        raise ValueError(f"n_annotators must be at least 1, got {n_annotators}")
    _check_rule(by, n_correct, n_hammers, p, K, n_annotators)
    generator = np.random.default_rng(seed)
    if by == "class":
        hammer = _hammers(generator.random((n_annotators, K)), n_correct, p)
        label = draw_wrong_labels(truth, n_annotators, K, generator)
    else:
        hammer = np.repeat(_hammers(generator.random(n_annotators), n_hammers, p)[:, None], K, axis=1)
        label = generator.integers(0, K, (len(truth), n_annotators))
    label = np.where(hammer.T[truth], truth[:, None], label)
    return SyntheticCrowd(
        annotate(label, classes, missing, annotators, generator), label == truth[:, None], truth, hammer=hammer
    )


def _hammers(draws: NDArray[np.float64], number: int | None, p: float | None) -> NDArray[np.bool_]:
    """Which draws are hammers: the `number` lowest draws along the last axis, or the draws below p."""
    hammers: NDArray[np.bool_] = draws < (p or 0.0) if number is None else draws.argsort(-1).argsort(-1) < number
    return hammers


def _check_rule(
    by: By, n_correct: int | None, n_hammers: int | None, p: float | None, n_classes: int, n_annotators: int
) -> None:
    """Raise an error unless exactly one of the settings allowed with `by` is given, and is in range."""
    name, number, most = (
        ("n_correct", n_correct, n_classes) if by == "class" else ("n_hammers", n_hammers, n_annotators)
    )
    other, given = ("n_hammers", n_hammers) if by == "class" else ("n_correct", n_correct)
    if given is not None:
        raise ValueError(f"{other}= cannot be used with by={by!r}; pass {name}= or p= instead")
    if (number is None) == (p is None):
        raise ValueError(f"give exactly one of {name} and p with by={by!r}")
    if number is not None and not 0 <= number <= most:
        raise ValueError(f"{name} must be from 0 to {most}, got {number}")
    if p is not None and not 0 <= p <= 1:
        raise ValueError(f"p must be a probability from 0 to 1, got {p}")
