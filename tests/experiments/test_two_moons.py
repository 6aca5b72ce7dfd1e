from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crowdfuse.datasets.two_moons import make_two_moons
from crowdfuse.experiments import two_moons as twomoon
from crowdfuse.experiments.two_moons_tables import write_twomoon_report
from crowdfuse.synthesis import two_moon_annotators


def test_the_data_have_the_papers_sizes() -> None:
    data = make_two_moons(0)
    X = np.concatenate([data.X_train, data.X_test])
    np.testing.assert_allclose(X.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(0), 1, atol=1e-12)
    assert not {tuple(p) for p in data.X_train} & {tuple(p) for p in data.X_test}
    assert len(make_two_moons(0, split="code").X_test) == 16_000


def test_regions_are_where_exactly_one_annotator_is_right() -> None:
    data = make_two_moons(1)
    where = twomoon.region_names(data.X_train, data.y_train)
    said = two_moon_annotators(data.X_train).to_matrix()
    right = said == data.y_train[:, None]
    np.testing.assert_array_equal(where != "", right[:, 0] != right[:, 1])
    np.testing.assert_array_equal(np.isin(where, ["A", "D"]), right[:, 0] & ~right[:, 1])
    centres = {name: data.X_train[where == name].mean(0) for name in "ABCD"}
    assert centres["A"][0] < 0 < centres["B"][0]  # left and right of the upper moon
    assert centres["C"][0] < 0 < centres["D"][0]  # left and right of the lower moon
    # what a network that copies an annotator must score
    assert 0.65 < right[:, 0].mean() < 0.68
    assert 0.83 < right[:, 1].mean() < 0.85


def test_a_short_run_writes_table_figures_and_numbers(tmp_path: Path) -> None:
    out = tmp_path / "twomoon"
    runs = twomoon.train_all_variants([0, 1], "text", epochs=3, verbose=0, n_points=500)
    write_twomoon_report(runs, out, split="text", epochs=3, force=False)
    assert {p.name for p in out.iterdir()} == {"setup.png", "heatmaps.png", "twomoon.md", "twomoon.json"}
    for name in ("setup.png", "heatmaps.png"):
        assert np.asarray(Image.open(out / name)).std() > 10  # not blank
    figures = json.loads((out / "twomoon.json").read_text())
    assert len(figures["runs"]) == 2 * len(twomoon.VARIANTS)
    assert [row["paper_accuracy"] for row in figures["summary"][:3]] == [66.51, 83.67, 86.70]
    regions = next(run for run in figures["runs"] if run["variant"] == "fusion")["regions"]
    assert set(regions) == set("ABCD")
    accuracies = [run["accuracy"] for run in figures["runs"] if run["variant"] == "fusion"]
    assert f"{np.mean(accuracies):.2f}" in (out / "twomoon.md").read_text()
    with pytest.raises(FileExistsError, match="exists"):
        write_twomoon_report(runs, out, split="text", epochs=3, force=False)


def test_a_win_is_better_than_both_annotators() -> None:
    def one(variant: str, seed: int, accuracy: float) -> twomoon.TwoMoonsRun:
        return twomoon.TwoMoonsRun(variant, seed, {"accuracy": accuracy}, classifier=None, data=None)  # type: ignore[arg-type]  # not used

    runs = [one("annotator-1", s, 60.0) for s in range(3)] + [one("annotator-2", s, 80.0 + s) for s in range(3)]
    runs += [one("fusion", 0, 81.0), one("fusion", 1, 81.0), one("fusion", 2, 70.0)]
    assert twomoon.count_fusion_wins(runs) == (1, 3)


def test_lambda_0_with_free_matrices_collapses_and_lambda_1_does_not() -> None:
    """The paper's trivial solution: matrices that send every label to one class, at no cost."""
    collapsed = twomoon.train_variant("fusion, full, lambda 0", seed=0, epochs=400, n_points=2000).metrics
    kept = twomoon.train_variant("fusion, full", seed=0, epochs=400, n_points=2000).metrics
    assert collapsed["mean_diagonal"] < 0.7
    assert collapsed["final_loss"] < 0.02
    assert kept["mean_diagonal"] > 0.85
    assert kept["accuracy"] > collapsed["accuracy"] + 10
