"""Methods that compute a consensus from the labels alone, without inputs.

Every method takes `Annotations` and returns an `Aggregate`: consensus labels, class probabilities and annotator
accuracies. Time and memory grow with the number of labels, not with the product of the numbers of items and annotators.
Large arrays are processed in blocks.
"""

from __future__ import annotations

from crowdfuse.aggregation.dawid_skene import dawid_skene
from crowdfuse.aggregation.glad import glad
from crowdfuse.aggregation.mace import mace
from crowdfuse.aggregation.majority_vote import majority_vote
from crowdfuse.aggregation.one_coin import one_coin
from crowdfuse.aggregation.registry import AGGREGATORS, ITERATIVE
from crowdfuse.aggregation.result import Aggregate
from crowdfuse.aggregation.wawa import wawa

__all__ = ["AGGREGATORS", "ITERATIVE", "Aggregate", "dawid_skene", "glad", "mace", "majority_vote", "one_coin", "wawa"]
