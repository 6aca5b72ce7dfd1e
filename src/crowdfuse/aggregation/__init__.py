"""Labels without inputs: what the labels of each item amount to, and how good each annotator is.

Every method takes `Annotations` and returns an `Aggregate`. Work and memory grow with the number of labels, never with
items x annotators; what is large is done block by block.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdfuse.aggregation.dawid_skene import dawid_skene
from crowdfuse.aggregation.glad import glad
from crowdfuse.aggregation.mace import mace
from crowdfuse.aggregation.majority_vote import majority_vote
from crowdfuse.aggregation.one_coin import one_coin
from crowdfuse.aggregation.result import Aggregate
from crowdfuse.aggregation.wawa import wawa

__all__ = ["AGGREGATORS", "ITERATIVE", "Aggregate", "dawid_skene", "glad", "mace", "majority_vote", "one_coin", "wawa"]

ITERATIVE: dict[str, Callable[..., Aggregate]] = {
    "dawid-skene": dawid_skene,
    "one-coin": one_coin,
    "glad": glad,
    "mace": mace,
}
"""Those that take `n_iter`, `tol` and `on_iteration`, by the names of the command line."""

AGGREGATORS: dict[str, Callable[..., Aggregate]] = {"majority-vote": majority_vote, "wawa": wawa, **ITERATIVE}
