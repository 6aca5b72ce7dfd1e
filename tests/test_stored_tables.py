"""Every stored table follows from its stored runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from crowdfuse.experiments import two_moons_tables
from crowdfuse.experiments.two_moons import TwoMoonsRun, count_fusion_wins, summarize_runs
from tests.stored_results import RESULTS, load_benchmark, read_json, read_lines

STORED_TABLES = load_benchmark("stored_tables")
OTHER_FOLDERS = {"methods", "twomoon"}  # tested below, and in experiments/test_method_results.py


def assert_same(found: Any, stored: Any, place: str) -> None:
    """Compare two contents of JSON files; numbers may differ by rounding errors."""
    if isinstance(stored, dict):
        assert list(found) == list(stored), place
        for key in stored:
            assert_same(found[key], stored[key], f"{place}/{key}")
    elif isinstance(stored, list):
        assert len(found) == len(stored), place
        for i, value in enumerate(stored):
            assert_same(found[i], value, f"{place}/{i}")
    elif isinstance(stored, float):
        assert found == pytest.approx(stored, rel=1e-9, abs=1e-9), place
    else:
        assert found == stored, place


def test_every_folder_with_runs_is_tested() -> None:
    with_runs = {path.parent.name for path in RESULTS.glob("*/*.jsonl")}
    assert with_runs <= set(STORED_TABLES.stored_folders()) | OTHER_FOLDERS


@pytest.mark.parametrize("name", STORED_TABLES.stored_folders())
def test_the_table_follows_from_its_runs(name: str, tmp_path: Path) -> None:
    """If this fails, `python benchmarks/stored_tables.py` writes the tables again."""
    STORED_TABLES.remake_table(name, tmp_path)
    stored = RESULTS / name
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == (stored / "table.md").read_text(encoding="utf-8")
    assert_same(json.loads((tmp_path / "table.json").read_text()), read_json(f"{name}/table.json"), name)
    figures = {path.name for path in tmp_path.glob("*.png")}
    assert figures == {path.name for path in stored.glob("*.png")}


def test_two_moons_follow_from_their_runs() -> None:
    stored = read_json("twomoon/twomoon.json")
    unused = cast(Any, None)  # the tables need neither the classifier nor the data
    runs = [
        TwoMoonsRun(
            one["variant"], one["seed"], {k: v for k, v in one.items() if k not in ("variant", "seed")}, unused, unused
        )
        for one in stored["runs"]
    ]
    assert_same(summarize_runs(runs), stored["summary"], "summary")
    assert count_fusion_wins(runs) == tuple(stored["fusion_wins"].values())
    page = two_moons_tables.render_markdown(runs, stored["split"], stored["n_steps"])
    assert page == (RESULTS / "twomoon" / "twomoon.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("runs", ["consensus.jsonl", "consensus-training.jsonl"])
def test_the_page_on_the_consensus_follows_from_its_runs(runs: str) -> None:
    tables = load_benchmark("consensus").tables(read_lines(runs))
    page = (RESULTS / "consensus.md").read_text(encoding="utf-8")
    for section in tables.split("\n\n"):
        assert section in page


def test_the_page_on_texts_follows_from_its_runs() -> None:
    page = (RESULTS / "texts.md").read_text(encoding="utf-8")
    assert load_benchmark("sentiment").make_table(read_lines("sentiment.jsonl")) in page
    stored = read_json("large_texts.json")
    for name in ("fit", "predict_quarter", "predict"):
        figures = stored[name]
        assert f"| {figures['cpu_seconds']:.0f} | {figures['seconds']:.0f} | {figures['peak_mb']:,} |" in page


def test_the_page_on_labelme_follows_from_its_runs() -> None:
    page = (RESULTS / "labelme.md").read_text(encoding="utf-8")
    for result in read_json("labelme.json"):
        by_method = {name: row["accuracy"] for name, row in result["methods"].items()}
        for name, accuracy in by_method.items():
            over = ""
            if name != "majority-vote":
                mean, low, high = _mean_with_interval(np.subtract(accuracy, by_method["majority-vote"]))
                over = f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
            spread = np.std(accuracy, ddof=1)
            assert f"| {result['epochs']} | {name} | {np.mean(accuracy):.2f} ({spread:.2f}) | {over} |" in page


def test_the_page_on_wrong_and_next_labels_follows_from_its_runs() -> None:
    page = (RESULTS / "suspicion.md").read_text(encoding="utf-8")
    for name in ("next_labels", "next_labels_rte", "next_labels_web"):
        for crowd, result in read_json(f"{name}.json").items():
            curves = {strategy: np.array(curve) for strategy, curve in result["accuracy"].items()}
            lead, half = curves["next_labels"] - curves["random"], result["half"]
            leads = [_mean_with_interval(lead[:, 1:-1].mean(1)), _mean_with_interval(lead[:, half])]
            texts = [f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" for mean, low, high in leads]
            random, ours = curves["random"].mean(0), curves["next_labels"].mean(0)
            figures = f"{random[0]:.2f} | {random[half]:.2f} | {ours[half]:.2f} | {random[-1]:.2f}"
            assert f"| {crowd} | {figures} | {' | '.join(texts)} | {100 * result['saved']:.0f} % |" in page
    stored = read_json("suspicion.json")
    titles = {"consensus": "`quality`", "quality": "`quality`"}
    for method, of in stored["average_precision"].items():
        means = [float(np.mean(values)) for values in of.values()]
        row = " | ".join(f"{value:.4f}" for value in [*means, np.mean(means)])
        assert f"| {titles.get(method, method)} | {row} |" in page


def test_the_page_on_scikit_activeml_follows_from_its_runs() -> None:
    page = (RESULTS / "benchmarks.md").read_text(encoding="utf-8")
    for row in read_json("scikit_activeml.json"):
        points = 100 * np.subtract(row["accuracy"]["ours"], row["accuracy"]["theirs"])
        difference = "{:+.2f} ({:+.2f} to {:+.2f})".format(*_mean_with_interval(points))
        theirs = 100 * np.mean(row["accuracy"]["theirs"])
        place = f"| {row['annotators']:,} | {row['batch']:,} | {row['method']} |"
        (line,) = (line for line in page.splitlines() if line.startswith(place))
        assert line.endswith(f"| {theirs:.2f} | {difference} |")


def test_the_page_on_findings_follows_from_its_runs() -> None:
    page, stored = (RESULTS / "diagnostics.md").read_text(encoding="utf-8"), read_json("diagnostics.json")
    for kind in stored["false_alarms"]["none"]:
        alarms = [str(of[kind]) for of in stored["false_alarms"].values()]
        assert f"| `{kind}` | {' | '.join(alarms)} |" in page
    for row in stored["power"]:
        by_classes = [row["power_by_n_classes"].get(K) for K in ("2", "3", "10")]
        parts = ", ".join("-" if share is None else f"{100 * share:.0f}" for share in by_classes)
        place = f"| {row['fault']} | {row['classifier']} | {row['n_items']:,} | {row['n_crowds']} |"
        assert f"{place} {100 * row['power']:.0f} | {parts} | {100 * row['other_findings']:.0f} |" in page


def _mean_with_interval(values: Any) -> tuple[float, float, float]:
    """Return the mean over seeds and the ends of its t-interval, by scipy."""
    from scipy import stats

    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    return float(np.mean(values)), float(interval.low), float(interval.high)
