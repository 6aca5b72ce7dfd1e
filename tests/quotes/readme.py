"""Texts of README.md with figures, filled in from the stored results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crowdfuse.experiments.method_results import load_method_results
from crowdfuse.experiments.method_results_table import describe_default
from tests.quotes.numbers import (
    EPSILONS,
    FEATURE_EPSILONS,
    SENTIMENT,
    count_agreements,
    gains_on_kinds,
    includes_zero,
    interval,
    percent,
    published_results,
    stored,
)
from tests.stored_results import Difference, load_benchmark, read_json


def on_labelme() -> Iterator[str]:
    by_epochs = {one["epochs"]: one["methods"] for one in read_json("labelme.json")}
    vote, fusion = by_epochs[40]["majority-vote"], by_epochs[40]["fusion"]
    gain, ends = fusion["gain_over_soft_vote"], Difference(0, *fusion["interval"])
    yield (
        f"soft majority vote {vote['mean']:.1f} %, fusion {fusion['mean']:.1f} %, which is {gain:.1f} points higher "
        f"(95 % interval over seeds: {interval(ends)})"
    )
    early = {f"{row['mean']:.0f}" for row in by_epochs[5].values()}
    yield f"After 5 epochs both have {early.pop()} %"
    assert not early
    yield f"Gated has {stored('crowds').mean('gated', 'LabelMe'):.1f} % over ten seeds"


def on_published_results() -> Iterator[str]:
    rows = published_results()
    ours = {name: f"{rows[name]['mean']:.1f}" for name in rows}
    theirs = {name: f"{of['published']['mean']:.1f}" for name, of in rows.items() if of["published"]}
    yield f"On Music, {count_agreements()} of our results agree with the published ones"
    yield (
        f"Annot-mix {ours['annot-mix']} %, in print {theirs['annot-mix']}; MaDL {ours['madl']} and {theirs['madl']}; "
        f"crowd layer {ours['crowd-layer']} and {theirs['crowd-layer']}."
    )


def on_table1() -> Iterator[str]:
    table = stored("table1")
    rows = {
        "fusion": "fusion",
        "soft majority vote": "majority-vote",
        "TraceReg": "trace-reg",
        "MBEM": "mbem",
        "WDN": "wdn",
        "the best annotator alone": "annotator-1",
        "true labels": "true-label",
    }
    for title, method in rows.items():
        cells = [f"{table.mean(method, value):.1f} ({table.paper(method, value):.1f})" for value in ("30", "34")]
        means = f"{table.overall(method, EPSILONS):.1f} ({table.overall_paper(method, EPSILONS):.1f})"
        yield f"| {title} | {' | '.join(cells)} | {means} |"
    one = table.difference("fusion", "majority-vote")
    yield (
        f"Fusion is {one.mean:.1f} points above soft vote in the mean of six epsilons and three seeds; the 95 % "
        f"interval over seeds, {interval(one)}, {includes_zero(one)}."
    )
    below = [value for value in EPSILONS if table.gain("fusion", "majority-vote", value) < 0]
    yield f"At epsilon {', '.join(below)} it is not above soft vote."


def on_table2() -> Iterator[str]:
    table = stored("table2")
    rows = {
        "fusion": "fusion",
        "TraceReg, initialised as in the paper's code": "trace-reg",
        "TraceReg, initialised as in crowdfuse": "trace-reg-start-0.75",
        "MBEM": "mbem",
        "WDN": "wdn",
        "soft majority vote": "majority-vote-soft",
        "true labels": "true-label",
    }
    for title, method in rows.items():
        means = [table.mean(method, "20"), table.mean(method, "24"), table.overall(method, FEATURE_EPSILONS)]
        yield f"| {title} | {' | '.join(f'{mean:.1f}' for mean in means)} |"
    alone = [max(table.mean(f"annotator-{r}", value) for r in (1, 2, 3)) for value in FEATURE_EPSILONS]
    yield f"| the best annotator alone | {alone[0]:.1f} | {alone[-1]:.1f} | {np.mean(alone):.1f} |"
    yield f"and {-table.difference('fusion', 'trace-reg-start-0.75').mean:.2f} points below TraceReg if"


def on_crowds() -> Iterator[str]:
    table = stored("crowds")
    rows = {
        "gated (ours)": "gated",
        "fusion": "fusion",
        "WDN": "wdn",
        "two-stage Dawid-Skene": "two-stage",
        "MBEM": "mbem",
        "TraceReg": "trace-reg",
        "soft majority vote": "majority-vote",
        "true labels": "true-label",
    }
    for title, method in rows.items():
        yield f"| {title} | {table.mean(method, 'LabelMe'):.1f} | {table.mean(method, SENTIMENT):.1f} |"
    gains = [table.gain("fusion", "majority-vote", dataset) for dataset in ("LabelMe", SENTIMENT)]
    yield f"Fusion is above soft vote on both crowds, by {gains[0]:.1f} and {gains[1]:.1f} points."
    vote, wdn = (table.mean(f"{method} (held-out)", "LabelMe") for method in ("majority-vote", "wdn"))
    yield f"soft vote reaches {vote:.1f} on LabelMe, and WDN {wdn:.1f}"


def on_noise_types() -> Iterator[str]:
    uniform, odd = stored("uniform"), stored("odd-even")
    for value, note in (("30", "annotators right on {}, {} and {} % of the items"), ("35", "{}, {} and {} %")):
        shares = note.format(*percent(uniform.annotator_accuracy[value]))
        vote, gated = (f"{uniform.mean(method, value):.1f}" for method in ("majority-vote", "gated"))
        yield f"| ten classes, epsilon {value} ({shares}) | {vote} | {gated} | |"
    for value in ("30", "32"):
        shares = "{}, {} and {} %".format(*percent(odd.annotator_accuracy[value]))
        cells = [f"{odd.mean(method, value):.1f}" for method in ("majority-vote", "gated", "gated 50 gold")]
        yield f"| two classes, odd or even, epsilon {value} ({shares}) | {' | '.join(cells)} |"
    lowest, highest = gains_on_kinds()
    yield (
        f"Gated was never more than {-lowest:.2f} points below soft vote in the mean of three seeds, and up to "
        f"{highest:.0f} above"
    )


def on_the_loss() -> Iterator[str]:
    benchmark = load_benchmark("fusion_loss")
    for row in read_json("fusion_loss.json")[:3]:
        size = ", ".join(str(row[name]) for name in ("batch", "annotators", "classes", "bases"))
        kinds = ("ours", "textbook", "two-step", "backbone")
        yield f"| {size} | {' | '.join(benchmark.format_cell(row[kind], row['ours']) for kind in kinds)} |"


def on_the_default_method() -> Iterator[str]:
    yield describe_default(load_method_results())
