from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crowdfuse.experiments.crowds import crowd_cells
from crowdfuse.experiments.crowds_tables import (
    CrowdTables,
    collect_numbers,
    crowd_tables,
    over_items,
    over_seeds,
    render_markdown,
    verdicts,
)
from crowdfuse.experiments.store import Record

CROWD = {"items": 10, "annotators": 3, "labels": 30, "classes": 2, "right labels": 0.8}


def trained(accuracies: dict[str, list[float]], value: str = "labelme") -> CrowdTables:
    """A list of accuracies over seeds by method."""
    seeds = range(len(next(iter(accuracies.values()))))
    made = crowd_cells([value], list(accuracies), list(seeds))
    records = [
        Record(cell.run, {"accuracy": accuracies[cell.row][cell.seed], "judged": 100, "crowd": CROWD}, 1.0)
        for cell in made
    ]
    return crowd_tables(made, records)


def alone(right: dict[str, list[list[bool]]]) -> CrowdTables:
    """By method and seed, which items are right."""
    made = crowd_cells(["dog"], list(right), list(range(len(next(iter(right.values()))))))
    records = []
    for cell in made:
        bits = np.array(right[cell.row][cell.seed])
        packed = np.packbits(bits).tobytes().hex()
        result = {"accuracy": float(bits.mean()), "judged": len(bits), "right": packed, "crowd": CROWD}
        records.append(Record(cell.run, result, 1.0))
    return crowd_tables(made, records)


def test_differences_are_of_the_method_minus_the_reference() -> None:
    table = trained({"fusion": [0.8, 0.9, 0.9], "majority-vote": [0.7, 0.75, 0.85], "true-label": [1, 1, 1]}).trained
    (one,) = over_seeds(table, "majority-vote")["LabelMe"]
    by_hand = stats.ttest_rel([80, 90, 90], [70, 75, 85])
    low, high = by_hand.confidence_interval(0.95)
    assert (one.method, one.baseline, one.pairs) == ("fusion", "majority-vote", 3)
    assert (one.mean, one.low, one.high) == pytest.approx((10, low, high))
    assert over_seeds(table, "two-stage") == {}


def test_of_labels_alone_differences_are_over_items() -> None:
    generator = np.random.default_rng(0)
    vote, mace = generator.random((2, 2, 50)) < 0.7
    table = alone({"majority-vote": vote.tolist(), "mace": mace.tolist()}).alone
    (one,) = over_items(table, "majority-vote")["dog"]
    by_hand = stats.ttest_rel(100 * mace.mean(0), 100 * vote.mean(0))
    low, high = by_hand.confidence_interval(0.95)
    assert one.pairs == 50
    assert (one.mean, one.low, one.high) == pytest.approx((100 * (mace.mean() - vote.mean()), low, high))


@pytest.mark.parametrize(
    ("fusion", "said"),
    [
        ([0.80, 0.81, 0.80], "better on LabelMe"),
        ([0.60, 0.61, 0.60], "worse on LabelMe"),
        ([0.60, 0.81, 0.70], "not told apart on LabelMe"),
        ([0.90], "not judged (one seed) on LabelMe"),
    ],
)
def test_the_text_says_where_fusion_does_not_win(fusion: list[float], said: str) -> None:
    tables = trained({"fusion": fusion, "majority-vote": [0.7] * len(fusion)})
    assert verdicts(tables.trained) == [f"- Against soft vote, fusion is {said}."]
    assert said in render_markdown(tables, "crowdfuse reproduce crowds")


def test_the_table_says_how_many_seeds_and_how_sure() -> None:
    tables = trained({"fusion": [0.8, 0.9], "majority-vote": [0.7, 0.7], "true-label": [1, 1]})
    facts = collect_numbers(tables)["sets"]["LabelMe"]
    assert facts["seeds"] == "2"
    assert facts["standard error"] == pytest.approx(100 * (0.85 * 0.15 / 100) ** 0.5)  # of the best, the bound apart
    assert facts["epochs"] == "40"
    text = render_markdown(tables, "crowdfuse reproduce crowds")
    assert "| fusion | 85.00 ± 7.07 |" in text
    assert text.index("| fusion |") < text.index("| true-label |")


def test_nothing_has_run_yet() -> None:
    assert not crowd_tables(crowd_cells(["dog"]), [])
