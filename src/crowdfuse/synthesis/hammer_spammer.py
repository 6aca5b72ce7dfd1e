"""Hammers, who are right, and spammers, who are not: by class, or whole annotators."""

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
    """Each annotator is a hammer, always right, or a spammer; one of three rules, told apart by what is given.

    - `n_correct`: by class, the paper's own (supplement: 5 annotators, `n_correct=3` of 10 classes). Each annotator
      is a hammer on that many classes drawn at random, and a spammer on the others: always wrong there, with a class
      drawn uniformly from the wrong ones.
    - `p`: by class, as MBEM and TraceReg have it. The same, but each annotator is a hammer on each class with
      probability p, so that one may be wrong everywhere.
    - `by="annotator"` with `p` or `n_hammers`: whole annotators, as the paper's text describes the rule. A hammer is
      right on every item; a spammer draws from all K classes uniformly, and so is right on 1 of K by chance. Each
      annotator is a hammer with probability p, or `n_hammers` of them are, drawn at random.

    A share `missing` of the labels is left out at random, never an item's last one. Who is a hammer on what is in
    `hammer` of the result; `right` says whether the label is the true class, be it by skill or by chance.

    >>> made = hammer_spammer_annotators(np.arange(20) % 4, n_annotators=2, n_correct=1)
    >>> made.accuracy.tolist(), made.hammer.sum(1).tolist()
    ([0.25, 0.25], [1, 1])
    >>> made = hammer_spammer_annotators(np.arange(20) % 4, n_annotators=3, by="annotator", n_hammers=2)
    >>> sorted(made.hammer.all(1).tolist())
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
        said = draw_wrong_labels(truth, n_annotators, K, generator)
    else:
        hammer = np.repeat(_hammers(generator.random(n_annotators), n_hammers, p)[:, None], K, axis=1)
        said = generator.integers(0, K, (len(truth), n_annotators))
    said = np.where(hammer.T[truth], truth[:, None], said)
    return SyntheticCrowd(
        annotate(said, classes, missing, annotators, generator), said == truth[:, None], truth, hammer=hammer
    )


def _hammers(luck: NDArray[np.float64], number: int | None, p: float | None) -> NDArray[np.bool_]:
    """The luckiest `number` along the last axis, or everyone with probability p."""
    hammers: NDArray[np.bool_] = luck < (p or 0.0) if number is None else luck.argsort(-1).argsort(-1) < number
    return hammers


def _check_rule(
    by: By, n_correct: int | None, n_hammers: int | None, p: float | None, n_classes: int, n_annotators: int
) -> None:
    """Exactly one of the numbers that make sense with `by`, and within its bounds."""
    name, number, most = (
        ("n_correct", n_correct, n_classes) if by == "class" else ("n_hammers", n_hammers, n_annotators)
    )
    other, given = ("n_hammers", n_hammers) if by == "class" else ("n_correct", n_correct)
    if given is not None:
        raise ValueError(f"{other} does not go with by={by!r}; give {name} or p")
    if (number is None) == (p is None):
        raise ValueError(f"give either {name} or p with by={by!r}")
    if number is not None and not 0 <= number <= most:
        raise ValueError(f"{name} must be from 0 to {most}, got {number}")
    if p is not None and not 0 <= p <= 1:
        raise ValueError(f"p must be a probability from 0 to 1, got {p}")
