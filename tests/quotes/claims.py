"""Texts of docs/results/claims.md with figures, filled in from the stored results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.quotes.numbers import (
    EPSILONS,
    FEATURE_EPSILONS,
    includes_zero,
    interval,
    listed,
    percent,
    span,
    stored,
)
from tests.stored_results import read_json, read_lines


def on_two_moons() -> Iterator[str]:
    table = read_json("twomoon/twomoon.json")
    by_variant = {one["variant"]: one for one in table["summary"]}
    for number in (1, 2):
        one = by_variant[f"annotator-{number}"]
        yield f"| {one['paper_accuracy']:.2f} | {one['mean']:.2f}, from {one['min']:.2f} to {one['max']:.2f} | yes |"
    one, wins = by_variant["fusion"], table["fusion_wins"]
    yield (
        f"| {one['paper_accuracy']:.2f} | {one['mean']:.2f} (spread {one['std']:.2f}), from {one['min']:.2f} to "
        f"{one['max']:.2f}; above both on {wins['n_wins']} of {wins['n_seeds']} seeds |"
    )
    lead = one["mean"] - by_variant["annotator-2"]["mean"]
    yield f"on average, by {lead:.1f} points over annotator 2; not on every seed"
    yield f"fusion's spread over seeds ({one['std']:.1f} points) is twice its lead over annotator 2 ({lead:.1f} points)"
    regions = {
        name: {
            measure: float(
                np.mean([run["regions"][name][measure] for run in table["runs"] if run["variant"] == "fusion"])
            )
            for measure in ("weight_annotator_1", "diagonal_annotator_1", "diagonal_annotator_2")
        }
        for name in "ABCD"
    }
    weight, diagonal = (
        {name: regions[name][measure] for name in "ABCD"} for measure in ("weight_annotator_1", "diagonal_annotator_1")
    )
    yield (
        f"mean {weight['B']:.3f} in B, {weight['C']:.3f} in C | no: they are lower than in A and D "
        f"({weight['A']:.3f}, {weight['D']:.3f})"
    )
    yield f"{weight['D']:.3f} in D, {weight['A']:.3f} in A"
    yield f"{diagonal['B']:.3f} and {diagonal['C']:.3f} against {diagonal['D']:.3f}; {diagonal['A']:.3f} in A"
    measures = ("diagonal_annotator_1", "diagonal_annotator_2")
    diagonals = [region[measure] for region in regions.values() for measure in measures]
    yield f"diagonals ({span(diagonals)} in every region)"
    free, basis = by_variant["fusion, full, lambda 0"], by_variant["fusion, lambda 0"]
    yield f"free matrices, lambda 0: {free['mean']:.2f} on average, from {free['min']:.0f} to {free['max']:.0f};"
    yield f"lambda 0 with the basis: {basis['mean']:.2f} on average, from {basis['min']:.0f} to {basis['max']:.0f};"
    yield f"free matrices ({by_variant['fusion, full']['mean']:.2f}) are as good as the basis ({one['mean']:.2f})"


def on_table1() -> Iterator[str]:
    table = stored("table1")
    mean = {row: table.overall(row, EPSILONS) for row, _ in table.cells}
    paper = {row: table.overall_paper(row, EPSILONS) for row in ("fusion", "majority-vote")}
    yield f"first at all six epsilons; mean {paper['fusion']:.1f}, vote {paper['majority-vote']:.1f}"
    first, second = table.mean("fusion", "35"), table.mean("majority-vote", "35")
    yield (
        f"mean {mean['fusion']:.1f}; soft vote {mean['majority-vote']:.1f}, annotator 1 alone "
        f"{mean['annotator-1']:.1f}, TraceReg {mean['trace-reg']:.1f}, MBEM {mean['mbem']:.1f}, WDN {mean['wdn']:.1f}; "
        f"fusion is first at 30 to 34; at 35 annotator 1 alone is first ({table.mean('annotator-1', '35'):.1f}), and "
        f"soft vote is above fusion ({second:.1f} and {first:.1f})"
    )
    rivals = sorted({row for row, _ in table.cells} - {"fusion", "true-label"})
    assert all(table.mean("fusion", at) > max(table.mean(row, at) for row in rivals) for at in EPSILONS[:5])
    one = table.difference("fusion", "majority-vote")
    gains = [gain for value in EPSILONS for gain in table.gains("fusion", "majority-vote", value)]
    n_positive = sum(gain > 0 for gain in gains)
    yield (
        f"above soft vote by {one.mean:.1f} points, at every epsilon except 35, and in {n_positive} of {len(gains)} "
        f"pairs; but the 95 % interval over three seeds, {interval(one)}, {includes_zero(one)}"
    )
    yield f"| {table.paper('true-label', '30'):.1f} | true labels {table.mean('true-label', '30'):.2f} |"
    ours, vote = (table.paper(row, "30") for row in ("fusion", "majority-vote"))
    yield f'achieves {ours - vote:.2f} % more accuracy compared to the second best" | {ours:.2f} against {vote:.2f} |'
    ours, vote = (table.mean(row, "30") for row in ("fusion", "majority-vote"))
    yield f"| {ours:.1f} against {vote:.1f}: {ours - vote:.1f} points |"
    yield f"annotator 3 at 35: {table.paper('annotator-3', '35'):.2f} | {table.mean('annotator-3', '35'):.1f} | yes |"
    assert all(
        table.mean(row, at) < table.mean("majority-vote", at) for at in EPSILONS for row in ("trace-reg", "mbem")
    )


def on_runs_of_table1() -> Iterator[str]:
    runs = [(one["run"], one["result"]) for one in read_lines("table1/runs.jsonl")]
    epsilon_of = [(run["annotators"]["epsilon"] if "annotators" in run else 0, run, result) for run, result in runs]
    best = {
        method: [
            result["best_epoch"] for epsilon, run, result in epsilon_of if run["method"] == method and epsilon >= 30
        ]
        for method in ("fusion", "majority-vote", "trace-reg", "single-annotator")
    }
    both = best["fusion"] + best["majority-vote"]
    assert {*best["trace-reg"], *best["single-annotator"]} == {1}
    yield (
        f"best epoch {min(both)} to {max(both)} for fusion and soft vote, 1 for TraceReg and the single annotators at "
        "every epsilon"
    )
    fusion = {epsilon: result for epsilon, run, result in epsilon_of if run["method"] == "fusion" and run["seed"] == 0}
    history = [100 * one["validation_accuracy"] for one in fusion[34]["history"]]
    yield f"fusion, at epsilon 34, seed 0, falls from {max(history):.1f} to {history[-1]:.1f} on validation"
    accuracy = {epsilon: 100 * fusion[epsilon]["test_accuracy"] for epsilon in (26, 27, 28, 29)}
    yield (
        f"fusion {accuracy[26]:.2f} at epsilon 26, {accuracy[27]:.2f} at 27, {accuracy[28]:.2f} at 28, "
        f"{accuracy[29]:.2f} at 29 (seed 0"
    )
    (gold,) = (result for _, run, result in epsilon_of if run["method"] == "true-label" and run["seed"] == 0)
    yield f"true labels {100 * gold['test_accuracy']:.2f}; one annotator's labels"
    shares = percent([fusion[epsilon]["true_annotator_accuracy"][0] for epsilon in (26, 27, 28, 29)])
    yield f"one annotator's labels alone are then {', '.join(shares[:3])} and {shares[3]} % right"
    below = stored("table1").mean("true-label", "30") - stored("table1").mean("fusion", "30")
    yield f"at 30, where the paper begins, it is {below:.1f} points below"


def on_validation_at_epsilon_30() -> Iterator[str]:
    history: dict[tuple[str, str | None, int], list[float]] = {}
    for line in read_lines("table1/runs.jsonl"):
        run = line["run"]
        if run.get("annotators", {}).get("epsilon") == 30 and run["seed"] in (0, 1, 2):
            key = run["method"], run["settings"].get("annotator"), run["seed"]
            history[key] = [100 * epoch["validation_accuracy"] for epoch in line["result"]["history"]]
    fusion, vote = ([history[method, None, seed] for seed in (0, 1, 2)] for method in ("fusion", "majority-vote"))
    leads = [np.subtract(ours, theirs) for ours, theirs in zip(fusion, vote, strict=True)]
    assert all((lead[4:8] > 0).all() for lead in leads)
    highest = sorted(lead[4:8].max() for lead in leads)
    yield (
        f"above soft vote from epoch 5 to 8 on all three seeds, by up to {highest[0]:.1f}, {highest[1]:.1f} and "
        f"{highest[2]:.1f} points"
    )
    ends = [listed([one[-1] for one in of]) for of in (fusion, vote)]
    yield f"{ends[0]} and {ends[1]} (three seeds) at epoch 40"
    second = history["single-annotator", "annotator-2", 0]
    paper = stored("table1").paper("annotator-2", "30")
    yield f"annotator 2 at 30: {listed(second[:3])} after one, two, three epochs; the paper has {paper:.1f}"
    trace, mbem = history["trace-reg", None, 0], history["mbem", None, 0]
    assert (int(np.argmax(trace)), int(np.argmax(mbem))) == (0, 1)
    yield (
        f"TraceReg {trace[0]:.1f} after epoch 1, MBEM {mbem[1]:.1f} after epoch 2), when soft vote is still at "
        f"{vote[0][0]:.0f}"
    )


def on_gaps_to_the_paper() -> Iterator[str]:
    table = stored("table1")
    gap = {place: table.mean(*place) - table.paper(*place) for place in table.cells}
    far = {place: value for place, value in gap.items() if abs(value) > 3}
    singles = {place: value for place, value in far.items() if place[0].startswith("annotator-")}
    assert set(far) - set(singles) == {("mbem", "33"), ("mbem", "34"), ("mbem", "35"), ("wdn", "34")}
    yield f"MBEM at 33, 34 and 35 ({listed([gap['mbem', value] for value in ('33', '34', '35')])})"
    yield f"and WDN at 34 ({gap['wdn', '34']:.1f}), all seed 0"
    assert all(value > 0 for value in singles.values())
    method, value = max(singles, key=singles.__getitem__)
    yield (
        f"in {len(singles)} of 18 cells by more than 3 points, and by up to {singles[method, value]:.1f} points "
        f"({method.replace('-', ' ')} at {value}: {table.mean(method, value):.1f} here, "
        f"{table.paper(method, value):.1f} in the paper)"
    )


def on_auroc() -> Iterator[str]:
    auroc = stored("table1").auroc
    by_annotator = {
        (kind, r): {value: [seed[r - 1] for seed in auroc[value][kind]] for value in EPSILONS}
        for kind in ("weights", "diagonals")
        for r in (1, 2, 3)
    }
    every = [one for r in (2, 3) for of in by_annotator["diagonals", r].values() for one in of]
    first = by_annotator["diagonals", 1]
    yield (
        f"{span(every)} for annotators 2 and 3 at every epsilon; for annotator 1 from {span(first['30'])} at epsilon "
        f"30 down to {span(first['35'])} at 35"
    )
    ends = [max(by_annotator["weights", 2]["30"]), min(min(of) for of in by_annotator["weights", 2].values())]
    third = [one for of in by_annotator["weights", 3].values() for one in of]
    yield (
        f"Weights: {span([one for of in by_annotator['weights', 1].values() for one in of])} for annotator 1, but "
        f"{ends[0]:.2f} down to {ends[1]:.2f} for annotator 2 and {max(third):.2f} down to {min(third):.2f} for "
        "annotator 3"
    )
    yield f"for annotator 2 it depends on the seed ({span(by_annotator['weights', 2]['30'])} at epsilon 30)"


def on_numbers_of_annotators() -> Iterator[str]:
    table = stored("crowd")
    yield f"44 to 71 % right labels: {listed([table.mean('fusion', str(n)) for n in range(1, 9)])}"
    drop = table.mean("fusion", "2") - table.mean("fusion", "3")
    yield f"the third, right on 43 % of the items, costs {drop:.1f} points"
    long = [one["result"] for one in read_lines("crowd/runs.jsonl") if one["run"]["settings"]["epochs"] == 40]
    accuracy, epochs = ([one[name] for one in long] for name in ("test_accuracy", "best_epoch"))
    yield (
        f"all 40 epochs (`--values 7,8`) give {100 * accuracy[0]:.1f} and {100 * accuracy[1]:.1f} (epochs {epochs[0]} "
        f"and {epochs[1]})"
    )


def on_hammers() -> Iterator[str]:
    table = stored("supp1")
    paper = {row: f"{table.paper(row, '3'):.2f}" for row, _ in table.cells}
    yield (
        f"{paper['mbem']}, {paper['wdn']}, {paper['fusion']}; vote {paper['majority-vote']}, TraceReg "
        f"{paper['trace-reg']}"
    )
    ours = {row: f"{table.mean(row, '3'):.1f}" for row, _ in table.cells}
    yield (
        f"MBEM {ours['mbem']}, TraceReg {ours['trace-reg']}, fusion {ours['fusion']}, WDN {ours['wdn']}, vote "
        f"{ours['majority-vote']}"
    )
    yield f"{ours['fusion']}, {table.mean('mbem', '3') - table.mean('fusion', '3'):.1f} below MBEM"
    yield (
        f"one annotator's labels alone: {paper['annotator-min']} to {paper['annotator-max']} | mean "
        f"{paper['annotator-mean']} | {ours['annotator-min']} to {ours['annotator-max']}, mean "
        f"{ours['annotator-mean']} |"
    )
    yield f'makes sense that our method is not outstanding" | {paper["fusion"]} |'


def on_table2() -> Iterator[str]:
    table = stored("table2")
    mean = {row: f"{table.overall(row, FEATURE_EPSILONS):.1f}" for row, _ in table.cells}
    paper = {
        row: f"{table.overall_paper(row, FEATURE_EPSILONS):.1f}"
        for row in ("fusion", "wdn", "mbem", "majority-vote", "trace-reg")
    }
    yield (
        f"mean {paper['fusion']}; WDN {paper['wdn']}, MBEM {paper['mbem']}, hard vote {paper['majority-vote']}, "
        f"TraceReg {paper['trace-reg']}"
    )
    alone = np.mean([max(table.mean(f"annotator-{r}", value) for r in (1, 2, 3)) for value in FEATURE_EPSILONS])
    yield (
        f"mean {mean['fusion']}; MBEM {mean['mbem']}, WDN {mean['wdn']}, soft vote {mean['majority-vote-soft']}, hard "
        f"vote {mean['majority-vote']}, best annotator alone {alone:.1f}, TraceReg {mean['trace-reg']}"
    )
    hard, soft, mbem = (table.difference("fusion", row) for row in ("majority-vote", "majority-vote-soft", "mbem"))
    yield (
        f"above hard vote by {hard.mean:.1f} points (95 % interval over three seeds {interval(hard)}), above soft vote "
        f"by {soft.mean:.1f} ({interval(soft)}), above MBEM by {mbem.mean:.1f} ({interval(mbem)})"
    )
    started = [table.mean("trace-reg-start-0.75", value) for value in FEATURE_EPSILONS]
    yield f"**But fusion is below TraceReg with a better initialization ({np.mean(started):.1f})**"
    yield f"TraceReg does not recover from that in 20 epochs ({mean['trace-reg']})"
    gold = table.paper("true-label", "20"), table.mean("true-label", "20")
    yield f"true labels: {gold[0]:.1f} in the paper, {gold[1]:.1f} here"
    yield f"its {table.paper('trace-reg', '20'):.1f} at epsilon 20 suggests a diagonal above"
    gap = table.difference("fusion", "trace-reg-start-0.75")
    yield (
        f"it reaches {listed(started[:4])} and {started[4]:.1f} for epsilon 20 to 24: **{-gap.mean:.2f} points above "
        f"fusion ({-gap.high:.2f} to {-gap.low:.2f} over three seeds)**"
    )
    rivals = {row for row, _ in table.cells} - {"true-label", "trace-reg-start-0.75"}
    assert all(started[i] > max(table.mean(row, at) for row in rivals) for i, at in enumerate(FEATURE_EPSILONS))


def on_supplement_b() -> Iterator[str]:
    parts, networks = stored("supp2"), stored("supp3")
    rows = ("fusion", "fusion-weights-only", "fusion-confusions-only")
    printed = [" / ".join(f"{parts.paper(row, value):.1f}" for row in rows) for value in ("22", "23")]
    yield f"{printed[0]} at epsilon 22 for both, weights only, confusions only; {printed[1]} at 23"
    by_epsilon = [" / ".join(f"{parts.mean(row, value):.1f}" for row in rows) for value in ("22", "23")]
    yield f"[table](supp2/table.md): {by_epsilon[0]} and {by_epsilon[1]}"
    confusions, weights = (parts.difference("fusion", row) for row in rows[1:])
    assert includes_zero(confusions) == "includes 0"
    yield (
        f"weights add {weights.mean:.1f} points to the confusions (95 % interval over three seeds "
        f"{interval(weights)}), confusions {confusions.mean:.1f} to the weights ({interval(confusions)}, so not shown)"
    )
    own = {row: f"{networks.mean(row, 'own'):.1f}" for row, value in networks.cells if value == "own"}
    unseen = {row: f"{networks.mean(row, 'unseen'):.1f}" for row, value in networks.cells if value == "unseen"}
    printed_own = {
        row: f"{networks.paper(row, 'own'):.1f}" for row in ("fusion", "wdn", "trace-reg", "majority-vote", "mbem")
    }
    yield (
        f"{printed_own['fusion']}; WDN {printed_own['wdn']}, TraceReg {printed_own['trace-reg']}, vote "
        f"{printed_own['majority-vote']}, MBEM {printed_own['mbem']}"
    )
    yield (
        f"fusion {own['fusion']}, WDN {own['wdn']}, MBEM {own['mbem']}, TraceReg {own['trace-reg-start-0.75']} (as "
        f"released {own['trace-reg']}), soft vote {own['majority-vote-soft']}"
    )
    yield (
        f"there fusion has {unseen['fusion']}, MBEM {unseen['mbem']}, soft vote {unseen['majority-vote-soft']}, "
        f"TraceReg {unseen['trace-reg-start-0.75']}, WDN {unseen['wdn']}"
    )
    for value, text in (("own", "right on {}, {} and {} % of these items"), ("unseen", "right on {}, {} and {} %; ")):
        shares = [f"{100 * share:.1f}" for share in networks.annotator_accuracy[value]]
        yield text.format(*shares).strip()
    ahead = [networks.gain("fusion", "trace-reg-start-0.75", value) for value in ("own", "unseen")]
    yield f"fusion stays ahead of it, by {ahead[0]:.1f} and {ahead[1]:.1f} points (seed 0)"


def on_ablations() -> Iterator[str]:
    penalty, bases = stored("ablation-lambda"), stored("ablation-bases")
    at_22 = listed([penalty.mean("fusion-epsilon-22", value) for value in penalty.values])
    yield f"{at_22} for {', '.join(penalty.values)} at epsilon 22"
    first, second = ([bases.mean(f"fusion-epsilon-{at}", value) for value in bases.values] for at in (22, 23))
    yield f"from {span(first, 1)} over M from 1 to 300 at epsilon 22, from {span(second, 1)} at 23"


def on_auroc_of_features() -> Iterator[str]:
    auroc = stored("table2").auroc
    by_place = {
        (kind, r): {value: float(np.mean([seed[r - 1] for seed in auroc[value][kind]])) for value in FEATURE_EPSILONS}
        for kind in ("weights", "diagonals")
        for r in (1, 2, 3)
    }
    first = by_place["weights", 1]
    yield (
        f"the weights have {span(list(by_place['weights', 2].values()))} for annotator 2 and "
        f"{span(list(by_place['weights', 3].values()))} for annotator 3 at every epsilon, and for annotator 1 from "
        f"{first['20']:.2f} at epsilon 20 down to {first['24']:.2f} at 24"
    )
    yield (
        f"the diagonals have {span(list(by_place['diagonals', 1].values()))} for annotator 1, but "
        f"{span(list(by_place['diagonals', 2].values()))} for annotator 2"
    )
