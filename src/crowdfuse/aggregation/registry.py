"""The aggregation methods, by the names that are used on the command line."""

from __future__ import annotations

from collections.abc import Callable

from crowdfuse.aggregation.dawid_skene import dawid_skene
from crowdfuse.aggregation.glad import glad
from crowdfuse.aggregation.mace import mace
from crowdfuse.aggregation.majority_vote import majority_vote
from crowdfuse.aggregation.one_coin import one_coin
from crowdfuse.aggregation.result import Aggregate
from crowdfuse.aggregation.wawa import wawa

ITERATIVE: dict[str, Callable[..., Aggregate]] = {
    "dawid-skene": dawid_skene,
    "one-coin": one_coin,
    "glad": glad,
    "mace": mace,
}
"""Methods that take `max_iter`, `tol` and `on_iteration`."""

AGGREGATORS: dict[str, Callable[..., Aggregate]] = {"majority-vote": majority_vote, "wawa": wawa, **ITERATIVE}
"""All methods; each takes `Annotations` and `seed`."""
