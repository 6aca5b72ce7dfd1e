from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crowdfuse.experiments.correct_items import encode_correct
from crowdfuse.experiments.crowds import crowd_cells
from crowdfuse.experiments.crowds_tables import (
    CrowdTables,
    collect_numbers,
    crowd_tables,
    differences_from,
    fusion_verdicts,
    render_markdown,
)
from crowdfuse.experiments.store import Record
from crowdfuse.labels.intervals import seeds_and_items_half_width

CROWD = {"n_items": 10, "n_annotators": 3, "n_labels": 30, "n_classes": 2, "label_accuracy": 0.8}


def trained(accuracies: dict[str, list[float]], value: str = "labelme") -> CrowdTables:
    """Return tables from accuracies over seeds, by method."""
    seeds = range(len(next(iter(accuracies.values()))))
    made = crowd_cells([value], list(accuracies), list(seeds))
    records = [
        Record(cell.run, {"accuracy": accuracies[cell.row][cell.seed], "n_evaluated": 100, "crowd_summary": CROWD}, 1.0)
        for cell in made
    ]
    return crowd_tables(made, records)


def alone(right: dict[str, list[list[bool]]]) -> CrowdTables:
    """Return tables from the correct items by method and seed."""
    made = crowd_cells(["dog"], list(right), list(range(len(next(iter(right.values()))))))
    records = []
    for cell in made:
        bits = np.array(right[cell.row][cell.seed])
        packed = np.packbits(bits).tobytes().hex()
        result = {
            "accuracy": float(bits.mean()),
            "n_evaluated": len(bits),
            "correct_items_hex": packed,
            "crowd_summary": CROWD,
        }
        records.append(Record(cell.run, result, 1.0))
    return crowd_tables(made, records)


def test_differences_are_of_the_method_minus_the_reference() -> None:
    table = trained({"fusion": [0.8, 0.9, 0.9], "majority-vote": [0.7, 0.75, 0.85], "true-label": [1, 1, 1]}).trained
    (one,) = differences_from(table, "majority-vote")["LabelMe"]
    by_hand = stats.ttest_rel([80, 90, 90], [70, 75, 85])
    low, high = by_hand.confidence_interval(0.95)
    assert (one.method, one.baseline, one.n_pairs) == ("fusion", "majority-vote", 3)
    assert (one.mean, one.low, one.high) == pytest.approx((10, low, high))
    assert differences_from(table, "two-stage") == {}


def test_differences_without_inputs_cover_seeds_and_items() -> None:
    generator = np.random.default_rng(0)
    vote, mace = generator.random((2, 2, 50)) < 0.7
    table = alone({"majority-vote": vote.tolist(), "mace": mace.tolist()}).labels_only
    (one,) = differences_from(table, "majority-vote")["dog"]
    difference = 100.0 * mace - 100.0 * vote
    half = seeds_and_items_half_width(difference)
    assert (one.n_pairs, one.interval_over) == (2, "seeds and items")
    assert (one.mean, one.low, one.high) == pytest.approx(
        (difference.mean(), difference.mean() - half, difference.mean() + half)
    )


def test_test_items_that_the_seed_draws_are_not_taken_for_a_fixed_test_set() -> None:
    seeds = {"fusion": [0.8, 0.9, 0.7], "majority-vote": [0.7, 0.7, 0.7]}
    assert _intervals(seeds, "labelme") == {"seeds and items"}
    assert _intervals(seeds, "sentiment") == {"seeds"}


def _intervals(accuracies: dict[str, list[float]], value: str) -> set[str]:
    """Return what the intervals of a data set cover, for runs that store which items are right."""
    made = crowd_cells([value], list(accuracies), [0, 1, 2])
    records = [
        Record(
            cell.run,
            {
                "accuracy": accuracies[cell.row][cell.seed],
                "crowd_summary": CROWD,
                **encode_correct(np.arange(10) < 10 * accuracies[cell.row][cell.seed]),
            },
            1.0,
        )
        for cell in made
    ]
    tables = crowd_tables(made, records)
    return {one.interval_over for of in differences_from(tables.trained, "majority-vote").values() for one in of}


@pytest.mark.parametrize(
    ("fusion", "said"),
    [
        ([0.80, 0.81, 0.80], "better on LabelMe"),
        ([0.60, 0.61, 0.60], "worse on LabelMe"),
        ([0.60, 0.81, 0.70], "not significantly different on LabelMe"),
        ([0.90], "without a verdict (one seed) on LabelMe"),
    ],
)
def test_the_report_states_where_fusion_does_not_win(fusion: list[float], said: str) -> None:
    tables = trained({"fusion": fusion, "majority-vote": [0.7] * len(fusion)})
    assert fusion_verdicts(tables.trained) == [f"- Against soft vote, fusion is {said}."]
    assert said in render_markdown(tables, "crowdfuse reproduce crowds")


def test_the_table_states_seeds_and_standard_error() -> None:
    tables = trained({"fusion": [0.8, 0.9], "majority-vote": [0.7, 0.7], "true-label": [1, 1]})
    facts = collect_numbers(tables)["datasets"]["LabelMe"]
    assert facts["n_seeds"] == "2"
    assert facts["standard_error"] == pytest.approx(100 * (0.85 * 0.15 / 100) ** 0.5)  # of the best, the bound apart
    assert facts["epochs"] == "40"
    text = render_markdown(tables, "crowdfuse reproduce crowds")
    assert "| fusion | 85.00 ± 7.07 |" in text
    assert text.index("| fusion |") < text.index("| true-label |")


def test_tables_without_runs_are_empty() -> None:
    assert not crowd_tables(crowd_cells(["dog"]), [])


def test_paired_differences_in_json_say_what_their_interval_covers() -> None:
    trained_tables = trained({"fusion": [0.8, 0.9, 0.9], "majority-vote": [0.7, 0.75, 0.85]})
    (over_seeds,) = collect_numbers(trained_tables)["paired_differences"]
    assert (over_seeds["dataset"], over_seeds["interval_over"]) == ("LabelMe", "seeds")
    label_tables = alone({"majority-vote": [[True, False, True]] * 2, "mace": [[True, True, True]] * 2})
    (over_items,) = collect_numbers(label_tables)["paired_differences"]
    assert (over_items["dataset"], over_items["interval_over"]) == ("dog", "seeds and items")
