"""Texts of docs/results/README.md with figures, filled in from the stored results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.quotes.numbers import (
    EPSILONS,
    count_agreements,
    gains_on_kinds,
    includes_zero,
    published_results,
    span,
    stored,
)
from tests.stored_results import read_json


def on_published_results() -> Iterator[str]:
    rows = published_results()
    yield f"On Music, {count_agreements()} results agree with print."
    yield f"UnionNet is {rows['union-net']['difference']['mean']:.1f} points above it"
    default = rows["consensus-training"]["mean"]
    assert default < min(rows[name]["mean"] for name in ("annot-mix", "madl"))
    yield f"our default method ({default:.1f} %) is below Annot-mix and MaDL"


def on_gated() -> Iterator[str]:
    hammer, triples, half, features = (stored(name) for name in ("hammer", "triples", "half-missing", "features"))
    others = {method: hammer.mean(method, "3") for method, _ in hammer.cells if method != "gated"}
    best = max(others, key=others.__getitem__)
    assert best == "trace-reg"
    yield f"Gated has {hammer.mean('gated', '3'):.1f} %; the best other method, TraceReg, has {others[best]:.1f} %."
    behind = [-gain for gain in hammer.gains("gated", best, "3") if gain < 0]
    assert len(behind) == 1
    yield f"On one seed of five, TraceReg is {behind[0]:.1f} points above gated"
    yield f"gated has {min(triples.mean('gated', value) for value in triples.values):.1f} % or more"
    yield f"with half of the labels, gated has {half.mean('gated', '32'):.1f} % at epsilon 32"
    lowest, highest = gains_on_kinds()
    yield (
        f"In the mean over three seeds, gated is never more than {-lowest:.2f} points below soft vote, and up to "
        f"{highest:.0f} points above it."
    )
    gains = [features.gain("gated", "fusion", value) for value in features.values]
    yield f"Gated is above fusion at every epsilon, by {span(gains, 1)} points (five seeds)"
    lowest_gated = min(stored("uniform").mean("gated", value) for value in EPSILONS)
    yield f"Gated stays above {np.floor(lowest_gated):.0f} % from epsilon 30 to 35"


def on_missing_labels() -> Iterator[str]:
    one = stored("missing").difference("fusion", "majority-vote")
    assert 0.4 < one.mean < 0.6
    assert includes_zero(one) == "includes 0"
    yield "fusion is half a point above soft vote over three seeds; the confidence interval includes 0"


def on_extremes() -> Iterator[str]:
    runs = read_json("extremes.json")
    mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    yield f"gated {mean['perfect_gated']:.1f}, true labels {mean['perfect_true_label']:.1f}"
    yield (
        f"gated {mean['four_and_adversary_gated']:.1f} ({mean['four_gated']:.1f} without that annotator; its estimated "
        f"confusion matrix gives the next class probability {mean['adversary_next_class_gated']:.2f}), TraceReg "
        f"{mean['four_and_adversary_trace_reg']:.1f}, soft vote {mean['four_and_adversary_majority_vote']:.1f}, "
        f"**fusion {mean['four_and_adversary_fusion']:.1f}**"
    )
