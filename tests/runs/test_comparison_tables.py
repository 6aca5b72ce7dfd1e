"""The table of a comparison: order of the rows, width, baselines and conclusions, on made-up results."""

from __future__ import annotations

from typing import Any

from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.result_table import Table, make_table
from crowdfuse.experiments.store import Record
from crowdfuse.runs.comparison_baselines import LABEL_VOTE, MOST_FREQUENT, Baseline
from crowdfuse.runs.comparison_scores import GOLD_METRIC, HELD_OUT_METRIC
from crowdfuse.runs.comparison_tables import conclusions, pair_rows, render_text


def make(scores: dict[str, list[float]], metric: str = GOLD_METRIC, **results: dict[str, Any]) -> Table:
    """Return a table with the scores of each method by seed; `results` has more results by method."""
    cells, records = [], []
    for method, by_seed in scores.items():
        for seed, score in enumerate(by_seed):
            cells.append(Cell(method, "", seed, {"data": {}, "method": method, "settings": {}, "seed": seed}))
            result = {metric: score, "n_evaluated": 400, "predicted": [0, 1]} | results.get(method, {})
            records.append(Record(cells[-1].run, result, 1.0))
    return make_table(cells, records, metric, {})


def frequent(score: float, metric: str = GOLD_METRIC) -> list[Baseline]:
    return [Baseline(MOST_FREQUENT, {metric: score}), Baseline(LABEL_VOTE, {})]


def names_of_rows(text: str) -> list[str]:
    return [line.split("  ")[0] for line in text.splitlines()[3:]]


def test_rows_are_sorted_and_unknown_figures_come_last() -> None:
    table = make({"a": [0.4, 0.42], "single-annotator " + "x" * 90: [0.9, 0.9], "b": [0.8, 0.7]})
    text = render_text(table, GOLD_METRIC, frequent(0.5))
    assert all(len(line) <= 80 for line in text.splitlines())
    single, *others = names_of_rows(text)
    assert single.startswith("single-annotator xxx")
    assert single.endswith("…")
    assert others == ["b", MOST_FREQUENT, "a", LABEL_VOTE]
    assert "75.00 ± 2.17" in text  # the root of 75 * 25 / 400


def test_method_that_failed_a_check_is_last() -> None:
    table = make({"a": [0.9, 0.9], "b": [0.5, 0.6]}, HELD_OUT_METRIC, a={"failed_checks": ["predicts one class"]})
    baselines = frequent(0.56, HELD_OUT_METRIC)[:1]
    assert names_of_rows(render_text(table, HELD_OUT_METRIC, baselines)) == [MOST_FREQUENT, "b", "a"]
    said = " ".join(conclusions(table, HELD_OUT_METRIC, baselines))
    assert "a failed a sanity check, ranked last: predicts one class" in said
    assert "No method beats the trivial baseline" in said


def test_baseline_is_judged_by_the_standard_error() -> None:
    for score, said in ((0.60, "No method beats"), (0.64, "No method is clearly better than"), (0.70, "")):
        found = " ".join(conclusions(make({"a": [score]}), GOLD_METRIC, frequent(0.6)))
        assert ("No method" in found) == bool(said)
        assert said in found


def test_upper_bound_does_not_count_against_the_baseline() -> None:
    table = make({"a": [0.5, 0.5], "true-label": [0.9, 0.9]})
    assert any("No method beats" in one for one in conclusions(table, GOLD_METRIC, frequent(0.6)))


def test_every_pair_is_listed_once() -> None:
    pairs = pair_rows(make({"a": [0.5, 0.6], "b": [0.4, 0.4], "c": [0.7, 0.8]}))
    assert [(one.method, one.baseline) for one, _ in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [share for _, share in pairs] == [1.0, 1.0, 1.0]


def test_unfinished_seeds_are_stated() -> None:
    said = " ".join(conclusions(make({"a": [0.5, 0.6], "b": [0.4]}), GOLD_METRIC, []))
    assert "Not all of the 2 seeds are finished: b (1)." in said
