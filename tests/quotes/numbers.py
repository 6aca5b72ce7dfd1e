"""Numbers of the stored results that several pages quote, and their form in texts."""

from __future__ import annotations

from functools import cache
from typing import Any

from crowdfuse.experiments.crowds import crowd_cells
from crowdfuse.experiments.crowds_tables import crowd_tables
from crowdfuse.experiments.store import Record
from tests.stored_results import Difference, StoredTable, read_json, read_lines

EPSILONS = ["30", "31", "32", "33", "34", "35"]  # MNIST
FEATURE_EPSILONS = ["20", "21", "22", "23", "24"]  # features of CIFAR-100
SENTIMENT = "Sentiment Polarity"


@cache
def stored(folder: str) -> StoredTable:
    """Return the numbers of a stored table."""
    return StoredTable(folder)


def listed(values: list[float], digits: int = 1) -> str:
    """Return numbers separated by commas."""
    return ", ".join(f"{value:.{digits}f}" for value in values)


def span(values: list[float], digits: int = 2) -> str:
    """Return the range of numbers, such as "0.70 to 0.94"."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def interval(one: Difference, form: str = ".1f") -> str:
    """Return the ends of an interval."""
    return f"{one.low:{form}} to {one.high:{form}}"


def percent(shares: list[float]) -> list[str]:
    """Return shares as whole percents."""
    return [f"{100 * share:.0f}" for share in shares]


def includes_zero(one: Difference) -> str:
    """Return whether an interval includes 0, as text."""
    return "includes 0" if one.low <= 0 <= one.high else "does not include 0"


def gains_on_kinds() -> tuple[float, float]:
    """Return the smallest and the largest gain of gated over soft vote, over the kinds of wrong labels."""
    table = stored("kinds")
    gains = [table.gain("gated", "majority-vote", value) for value in table.values]
    return min(gains), max(gains)


@cache
def crowd_difference(method: str, other: str, dataset: str) -> Difference:
    """Return the difference of two methods on a real crowd, computed from the stored runs."""
    records = [Record(one["run"], one["result"], one["seconds"]) for one in read_lines("crowds/runs.jsonl")]
    trained = crowd_tables(crowd_cells(), records).trained
    found = trained.paired_differences(method, [dataset], same_test_items=dataset != SENTIMENT)
    (one,) = (one for one in found if one.baseline == other)
    assert one.low is not None
    assert one.high is not None
    return Difference(one.mean, one.low, one.high)


def published_results() -> dict[str, dict[str, Any]]:
    """Return the entries of the table of published results on Music, by row."""
    entries = read_json("published/table.json")["table"]
    return {entry["method"]: entry for entry in entries if entry["dataset"] == "music"}


def count_agreements() -> str:
    """Return how many of our results on Music agree with print, in words."""
    differences = [entry["difference"] for entry in published_results().values() if entry["difference"]]
    n_agreeing = sum(found["low"] <= 0 <= found["high"] for found in differences)
    words = {11: "eleven", 12: "twelve"}
    return f"{words[n_agreeing]} of {words[len(differences)]}"
