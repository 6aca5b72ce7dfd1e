from __future__ import annotations

import numpy as np
import pytest

from crowdfuse import FusionClassifier
from crowdfuse.experiments.correct_items import encode_correct
from crowdfuse.experiments.grid import Cell, Experiment, Scale
from crowdfuse.experiments.paper import paper_table
from crowdfuse.experiments.result_table import Table, bootstrapped_difference, make_table
from crowdfuse.experiments.store import Record

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


def test_differences_are_paired_over_common_cells() -> None:
    made = table(
        {
            ("fusion", "30", 0): 0.9,
            ("fusion", "30", 1): 0.8,
            ("fusion", "31", 0): 0.7,
            ("mbem", "30", 0): 0.8,
            ("mbem", "31", 0): 0.5,
            ("mbem", "31", 1): 0.1,
        }
    )
    (one,) = made.paired_differences("fusion")
    assert (one.baseline, one.n_pairs) == ("mbem", 2)
    assert one.mean == pytest.approx(15)
    assert one.low == pytest.approx(15 - 12.706 * 5, abs=0.01)  # t of one degree of freedom, standard error 5
    assert one.high == pytest.approx(15 + 12.706 * 5, abs=0.01)


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


def test_the_bootstrap_also_draws_items() -> None:
    """Compare the bootstrap interval over seeds and items with its theoretical variance."""
    generator = np.random.default_rng(0)
    of_items = generator.choice([-100.0, 0.0, 100.0], 4000) + 1.0
    found = bootstrapped_difference("one", "other", 5, np.tile(of_items, (5, 1)))
    error = of_items.std() / np.sqrt(4000)  # seeds are all the same: no luck but that of items
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.08)
    seeds = np.repeat(np.array([[-2.0], [0.0], [1.0], [3.0]]), 50, axis=1)  # no luck but that of seeds
    found = bootstrapped_difference("one", "other", 4, seeds)
    assert found.mean == 0.5
    assert (found.low, found.high) == pytest.approx((-1.25, 2.25), abs=0.3)


def test_runs_with_correct_items_have_the_wider_interval() -> None:
    cells = [Cell(row, "30", seed, {"row": row, "seed": seed}) for row in ("gated", "mbem") for seed in (0, 1, 2)]
    rights = {"gated": np.arange(100) < 90, "mbem": np.arange(100) >= 20}
    records = [
        Record(cell.run, {"test_accuracy": float(rights[cell.row].mean()), **encode_correct(rights[cell.row])}, 1.0)
        for cell in cells
    ]
    (one,) = make_table(cells, records, "test_accuracy", {}).paired_differences("gated")
    assert one.interval_over == "seeds and items"
    assert one.mean == pytest.approx(10.0)
    assert one.low is not None
    assert one.low < 5  # of three equal seeds a t-interval would be a point
    other = [Record(r.run, r.result | {"test_accuracy": 0.5}, 1.0) for r in records]  # of something else
    (one,) = make_table(cells, other, "test_accuracy", {}).paired_differences("gated")
    assert one.interval_over == "seeds"
