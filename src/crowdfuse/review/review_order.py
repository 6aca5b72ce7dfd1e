"""Which items are reviewed, and in which order: the filter, the first items, and when a skipped item comes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.review.decision_state import DecisionState
from crowdfuse.review.run_folder import RunFolder


@dataclass(frozen=True)
class ItemFilter:
    """Filter that selects the items to show on the review page. An item must meet all conditions of the filter.

    Parameters
    ----------
    disputed : bool, default=True
        Whether to select only disputed items. An item is disputed if one of its labels or the prediction differs from
        the consensus.
    annotator : int, default=None
        Position of an annotator in `ReviewSession.annotator_names`. An item is selected only if it has a label by this
        annotator. None: no condition on annotators.
    label : int, default=None
        Position of a class in `RunFolder.classes`. An item is selected only if its consensus, its prediction or one of
        its labels is this class. None: no condition on classes.
    """

    disputed: bool = True
    annotator: int | None = None
    label: int | None = None


def select_items(run: RunFolder, item_filter: ItemFilter, annotator: int | None) -> list[int]:
    """Return the positions of the items that pass a filter, the least confident first.

    Parameters
    ----------
    run : RunFolder
        The run. Its items are sorted by confidence, the least confident first.
    item_filter : ItemFilter
        The filter.
    annotator : int or None
        The annotator of the filter, as a position in the annotations of the run.

    Returns
    -------
    positions : list of int
        Positions in `run.items`.
    """
    consensus, ann = run.consensus, run.consensus.annotations

    def has_label(wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return whether each item to review has one of the wanted labels."""
        found = np.zeros(ann.n_items, bool)
        found[ann.item[wanted]] = True
        return found[run.rows]

    keep = run.disputed.copy() if item_filter.disputed else np.ones(len(run.items), bool)
    if item_filter.label is not None:
        has_class = has_label(ann.label == item_filter.label)
        has_class |= consensus.consensus_codes[run.rows] == item_filter.label
        if consensus.predicted_codes is not None:
            has_class |= consensus.predicted_codes[run.rows] == item_filter.label
        keep &= has_class
    if annotator is not None:
        keep &= has_label(ann.annotator == annotator)
    return [int(index) for index in np.flatnonzero(keep)]


def next_open_items(order: Sequence[int], names: Sequence[str], state: DecisionState, count: int) -> list[int]:
    """Return the next items to review: first those without a decision, then skipped items, the oldest skip first.

    Parameters
    ----------
    order : sequence of int
        Positions of the items in `names`, in the order in which they are reviewed.
    names : sequence of str
        Names of all items.
    state : DecisionState
        The current decisions.
    count : int
        Maximum number of items to return.

    Returns
    -------
    positions : list of int
        Positions in `names`.

    Examples
    --------
    >>> from crowdfuse.review.decision_state import replay
    >>> state = replay([{"line": 1, "action": "skip", "item": "a"}])
    >>> next_open_items([0, 1], ["a", "b"], state, 2)
    [1, 0]
    """
    untouched: list[int] = []
    skipped: list[tuple[Any, int]] = []
    for index in order:
        entry = state.decision_on(names[index])
        if entry is None:
            untouched.append(index)
            if len(untouched) == count:
                return untouched
        elif entry["action"] == "skip":
            skipped.append((entry["line"], index))
    return (untouched + [index for _, index in sorted(skipped)])[:count]
