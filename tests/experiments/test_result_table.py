from __future__ import annotations

import numpy as np
import pytest

from crowdfuse import FusionClassifier
from crowdfuse.experiments.correct_items import encode_correct
from crowdfuse.experiments.grid import Cell, Experiment, Scale
from crowdfuse.experiments.paper import paper_table
from crowdfuse.experiments.result_table import Table, make_table
from crowdfuse.experiments.store import Record
from crowdfuse.labels.intervals import t_interval_half_width

EXPERIMENT = Experiment(
    name="toy",
    description="toys",
    parameter="epsilon",
    values=(30, 31),
    methods=("fusion", "single-annotator", "true-label"),
    scale=Scale(
        title="Toy",
        data={"name": "toy"},
        annotators={"names": ["ann", "bob"]},
        recipe={"epochs": 3},
        executor=lambda folder: pytest.fail("nothing is run here"),
        protocol="The last epoch is kept.",
    ),
    annotators=lambda epsilon: {"epsilon": epsilon},
)


def cell(row: str, value: str, seed: int) -> Cell:
    return Cell(row, value, seed, {"method": row, "value": value, "seed": seed})


def table(accuracies: dict[tuple[str, str, int], float], paper: dict[tuple[str, str], float] | None = None) -> Table:
    cells = [cell(*place) for place in accuracies]
    records = [Record(one.run, {"accuracy": value}, 1.0) for one, value in zip(cells, accuracies.values(), strict=True)]
    return make_table(cells, records, "accuracy", paper or {})


def test_a_grid_is_methods_values_and_seeds() -> None:
    cells = EXPERIMENT.cells(seeds=(0, 1))
    assert len(cells) == 2 * 2 * 4
    assert [one.row for one in cells[:4]] == ["fusion", "ann", "bob", "true-label"]
    fusion, ann = cells[0].run, cells[1].run
    assert fusion["settings"] == {"epochs": 3, **FusionClassifier.paper_settings}
    assert fusion["annotators"] == {"epsilon": 30, "names": ["ann", "bob"]}
    assert ann["settings"] == {"epochs": 3, "annotator": "ann"}


def test_training_on_gold_runs_once_for_all_values() -> None:
    of_gold = [one.run for one in EXPERIMENT.cells(methods=["true-label"])]
    assert of_gold[0] == of_gold[1]
    assert "annotators" not in of_gold[0]


def test_part_of_a_grid_has_the_same_runs_as_the_whole() -> None:
    whole = [one.run for one in EXPERIMENT.cells()]
    part = EXPERIMENT.cells(values=[31.0], methods=["fusion"])
    assert [one.run for one in part] == [run for run in whole if run["method"] == "fusion"][1:]
    assert part[0].value == "31"
    assert EXPERIMENT.cells(epochs=9)[0].run["settings"]["epochs"] == 9


def test_values_below_zero_and_unknown_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="epsilon must be at least 0, got -3"):
        EXPERIMENT.cells(values=[-3])
    with pytest.raises(ValueError, match="unknown method 'fusoin'; did you mean 'fusion'"):
        EXPERIMENT.cells(methods=["fusoin"])


def test_mean_std_and_ranks() -> None:
    made = table(
        {
            ("fusion", "30", 0): 0.9,
            ("fusion", "30", 1): 0.8,
            ("mbem", "30", 0): 0.7,
            ("wdn", "30", 0): 0.7,
            ("true-label", "30", 0): 0.99,
        },
        {("30", "fusion"): 60.0, ("30", "mbem"): 70.0},
    )
    fusion, mbem, bound = (made.entries[row, "30"] for row in ("fusion", "mbem", "true-label"))
    assert fusion.mean == pytest.approx(85)
    assert fusion.std == pytest.approx(50**0.5)
    assert mbem.std is None
    assert [fusion.rank, mbem.rank, bound.rank] == [1, 2, None]
    assert made.entries["wdn", "30"].rank is None  # not in the paper, so not among its rivals
    assert [fusion.paper_rank, mbem.paper_rank, made.entries["wdn", "30"].paper_rank] == [2, 1, None]


def test_seeds_are_the_units_of_an_interval() -> None:
    made = table(
        {
            (row, value, seed): accuracy
            for seed, gain in enumerate((0.10, 0.20, 0.30))
            for value, more in (("30", 0.05), ("31", -0.05))
            for row, accuracy in (("fusion", 0.5 + gain + more), ("mbem", 0.5))
        }
    )
    (one,) = made.paired_differences("fusion")
    half = 4.303 * 10 / 3**0.5  # t of two degrees of freedom; the differences of the seeds are 10, 20 and 30
    assert (one.baseline, one.n_pairs, one.n_seeds, one.interval_over) == ("mbem", 6, 3, "seeds")
    assert (one.mean, one.low, one.high) == pytest.approx((20, 20 - half, 20 + half), abs=0.01)
    (at_30,) = made.paired_differences("fusion", ["30"])
    assert (at_30.n_pairs, at_30.n_seeds) == (3, 3)
    assert at_30.mean == pytest.approx(25)


def test_a_single_seed_has_no_interval_at_any_number_of_values() -> None:
    made = table({(row, value, 0): 0.5 for row in ("fusion", "mbem") for value in ("30", "31", "32")})
    (one,) = made.paired_differences("fusion")
    assert (one.n_pairs, one.n_seeds, one.low, one.high) == (3, 1, None, None)


def test_all_seeds_of_a_difference_have_the_same_values() -> None:
    """Seed 2 has run at one value only, so it counts there and not in the difference over all values."""
    places = [("30", 0), ("30", 1), ("31", 0), ("31", 1), ("31", 2), ("32", 0), ("32", 1)]
    made = table(
        {(row, *place): accuracy for place in places for row, accuracy in (("fusion", 0.7), ("mbem", 0.5))}
        | {("fusion", "30", 3): 0.1}
    )
    (one,) = made.paired_differences("fusion")
    assert (one.n_pairs, one.n_seeds) == (6, 2)
    (at_31,) = made.paired_differences("fusion", ["31"])
    assert (at_31.n_pairs, at_31.n_seeds) == (3, 3)


def test_annotators_are_summarized_where_the_paper_does_so() -> None:
    accuracies = {(f"annotator-{r}", "3", seed): 0.1 * r + 0.01 * seed for r in (1, 2, 3) for seed in (0, 1)}
    made = table(accuracies, paper_table("supp-1"))
    means = {row: made.entries[row, "3"].mean for row in ("annotator-max", "annotator-mean", "annotator-min")}
    assert means == pytest.approx({"annotator-max": 30.5, "annotator-mean": 20.5, "annotator-min": 10.5})
    assert made.entries["annotator-max", "3"].paper_accuracy == 40.68
    assert set(made.rows) == set(means)


def test_every_number_of_table_1_is_stored() -> None:
    assert len(paper_table("1")) == 6 * 9
    assert paper_table("1")["35", "wdn"] == 32.0


def test_runs_with_correct_items_have_an_interval_over_seeds_and_items() -> None:
    cells = [Cell(row, "30", seed, {"row": row, "seed": seed}) for row in ("gated", "mbem") for seed in (0, 1, 2)]
    rights = {"gated": np.arange(100) < 90, "mbem": np.arange(100) >= 20}
    records = [
        Record(cell.run, {"test_accuracy": float(rights[cell.row].mean()), **encode_correct(rights[cell.row])}, 1.0)
        for cell in cells
    ]
    made = make_table(cells, records, "test_accuracy", {})
    (one,) = made.paired_differences("gated")
    half = t_interval_half_width(100.0 * rights["gated"] - 100.0 * rights["mbem"])  # the seeds are equal
    assert one.interval_over == "seeds and items"
    assert (one.mean, one.low, one.high) == pytest.approx((10, 10 - half, 10 + half))
    (one,) = made.paired_differences("gated", same_test_items=False)
    assert one.interval_over == "seeds"
    assert (one.low, one.high) == pytest.approx((10, 10))
    other = [Record(r.run, r.result | {"test_accuracy": 0.5}, 1.0) for r in records]  # of something else
    (one,) = make_table(cells, other, "test_accuracy", {}).paired_differences("gated")
    assert one.interval_over == "seeds"
