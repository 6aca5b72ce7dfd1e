"""Texts of docs/method.md with figures, filled in from the stored results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.quotes.numbers import (
    EPSILONS,
    FEATURE_EPSILONS,
    SENTIMENT,
    crowd_difference,
    gains_on_kinds,
    interval,
    listed,
    span,
    stored,
)
from tests.stored_results import read_json


def on_experiments() -> Iterator[str]:
    uniform, half, hammer, features = (stored(name) for name in ("uniform", "half-missing", "hammer", "features"))
    worst = min(min(uniform.by_seed("gated", value).values()) for value in EPSILONS)
    means = listed([uniform.mean("gated", value) for value in EPSILONS])
    yield f"| 98.0 at each, worst seed 97.0 | {means}; worst seed {worst:.1f} |"
    triples = stored("triples")
    yield f"| the same | {min(triples.mean('gated', value) for value in triples.values):.1f} and more |"
    worst, vote = min(half.by_seed("gated", "32").values()), half.mean("majority-vote", "32")
    yield f"{half.mean('gated', '32'):.1f}, worst seed {worst:.1f} (soft vote {vote:.1f})"
    yield f"{uniform.mean('gated', '0'):.1f}, true labels {uniform.mean('true-label', '0'):.1f}"
    gated, trace = hammer.by_seed("gated", "3"), hammer.by_seed("trace-reg", "3")
    (seed,) = (seed for seed in gated if trace[seed] > gated[seed])
    yield (
        f"| {hammer.mean('gated', '3'):.1f}; **on seed {seed} TraceReg is {trace[seed] - gated[seed]:.1f} above "
        f"({trace[seed]:.1f}, {gated[seed]:.1f})** |"
    )
    ahead = []
    for value in ("30", "31", "32", "33"):
        others = [uniform.by_seed(method, value)["0"] for method in ("fusion", "trace-reg", "mbem", "wdn")]
        ahead.append(max(others) - uniform.by_seed("majority-vote", value)["0"])
    highest = np.ceil(10 * max(ahead)) / 10
    yield f"one seed, epsilon 30 to 33: the best of them are within {highest:.1f} points of soft vote"
    lowest, _ = gains_on_kinds()
    yield f"at least soft vote - {-lowest:.2f} in each of the 18"
    gains = [features.gain("gated", "fusion", value) for value in FEATURE_EPSILONS]
    below = sum(gain < 0 for gain in features.gains("gated", "fusion", "20"))
    assert below == 2
    yield f"above by {listed(gains[:4])} and {gains[4]:.1f}; at 20 below on two seeds of five"


def on_two_classes() -> Iterator[str]:
    odd, rare = stored("odd-even"), stored("rare")
    gains = [gain for value in odd.values for gain in odd.gains("gated", "majority-vote", value)]
    with_gold = [odd.mean("gated 50 gold", value) for value in odd.values]
    yield f"from {max(gains):.1f} above to **{-min(gains):.2f} below**; {min(with_gold):.1f} and more with 50 gold"
    yield (
        f"at most {-min(gains):.2f} points below soft vote without gold, level on average, and {span(with_gold, 1)} "
        "with fifty gold items"
    )
    assert abs(odd.difference("gated", "majority-vote").mean) < 0.1
    gains = [gain for value in rare.values for gain in rare.gains("gated", "majority-vote", value)]
    yield f"from {max(gains):.1f} above to {-min(gains):.1f} below; with 50 gold items"
    gold_gains = {
        (seed, value): gain
        for value in rare.values
        for seed, gain in enumerate(rare.gains("gated 50 gold", "majority-vote", value))
    }
    ((seed, value),) = (place for place, gain in gold_gains.items() if gain < 0)
    yield (
        f"with 50 gold items above on {len(gold_gains) - 1} of {len(gold_gains)} runs. On seed {seed} the fifty "
        f"have no positive, and **at epsilon {value} it is {-gold_gains[seed, value]:.1f} below**"
    )


def on_crowds() -> Iterator[str]:
    labelme, sentiment = (crowd_difference("gated", "wdn", dataset) for dataset in ("LabelMe", SENTIMENT))
    to_two_stage = [crowd_difference("gated", "two-stage", dataset).mean for dataset in ("LabelMe", SENTIMENT)]
    yield f"to WDN {labelme.mean:+.2f} ({interval(labelme, '+.2f')}), to two-stage {to_two_stage[0]:+.2f} |"
    yield f"to WDN {sentiment.mean:+.2f} ({interval(sentiment, '+.2f')}), to two-stage {to_two_stage[1]:+.2f} |"


def on_gold() -> Iterator[str]:
    labelme, kinds, odd = stored("crowds"), stored("kinds"), stored("odd-even")
    rows = ("gated", "gated 10 gold", "gated 50 gold", "gated 200 gold")
    cells = [f"{labelme.mean(row, 'LabelMe'):.1f}" for row in rows]
    yield f"| LabelMe, ten seeds | {' | '.join(cells)} |"
    for value in ("looks 30", "copy 30", "uniform 32"):
        cells = [f"{kinds.by_seed(row, value)['0']:.1f}" for row in rows]
        yield f"| {value}, seed 0 | {' | '.join(cells)} |"
    cells = [f"{odd.by_seed(row, '30')['0']:.1f}" for row in rows]
    yield f"| odd or even, epsilon 30, seed 0 | {' | '.join(cells)} |"


def on_choosing() -> Iterator[str]:
    runs = read_json("choosing_methods.json")
    titles = {"digits, simulated": "digits, synthetic annotators"}
    for dataset in dict.fromkeys(run["data"] for run in runs):
        of = [run for run in runs if run["data"] == dataset]
        chosen = [
            np.mean([run["test_accuracy"][run["chosen_by"][how]] for run in of])
            for how in ("likelihood", "agreement", "gold")
        ]
        ends = [np.mean([end(run["test_accuracy"].values()) for run in of]) for end in (max, min)]
        yield f"| {titles.get(dataset, dataset)} | {' | '.join(f'{value:.1f}' for value in [*chosen, *ends])} |"
