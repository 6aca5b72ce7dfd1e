"""The overview of methods: what each assumes, needs and costs, and how accurate it is in the stored comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS, estimator_class
from crowdfuse.experiments.method_results import MethodResults
from crowdfuse.experiments.method_results_table import (
    DEVELOPMENT_TEXT,
    EQUAL_TERMS_TEXT,
    dataset_list,
    describe_default,
    describe_seeds,
)
from crowdfuse.labels.ids import format_count
from crowdfuse.report.markdown import markdown_table


def method_facts(results: MethodResults, methods: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the facts on each method, best mean accuracy first; methods without a mean come last.

    Parameters
    ----------
    results : MethodResults
        Stored results, as `load_method_results` returns them.
    methods : sequence of str, default=()
        Names of the methods. If empty, all methods.

    Returns
    -------
    list of dict
        One dictionary per method. `mean_accuracy` (percent) and `mean_rank` are over the data sets on which all
        compared methods have run. `mean_accuracy` is None for methods that have not run on all these data sets, and
        `mean_rank` is None for methods that are not compared.
    """
    mean, ranks, times = results.mean("accuracy"), results.mean_rank(), results.relative_time()
    facts = []
    for method in methods or ESTIMATORS:
        estimator = estimator_class(method)
        facts.append(
            {
                "method": method,
                "estimator": estimator.__name__,
                "default": method == DEFAULT_METHOD,
                "assumes": estimator.assumes,
                "needs": estimator.needs,
                "mean_accuracy": mean.get(method),
                "mean_rank": ranks.get(method),
                "relative_time": times.get(method),
                "first_on": results.first_on(method),
                "accuracy": {
                    dataset.name: dataset.accuracy[method] for dataset in results.datasets if method in dataset.accuracy
                },
            }
        )
    return sorted(facts, key=lambda fact: (fact["mean_rank"] is None, -(fact["mean_accuracy"] or 0.0)))


def format_overview(facts: Sequence[dict[str, Any]], results: MethodResults) -> str:
    """Return the overview for a terminal: two lines per method."""
    width = max(len(fact["method"]) for fact in facts)
    lines = [f"{'':{width}}  accuracy  rank  time"]
    for fact in facts:
        accuracy, rank, time = (_format(fact[name]) for name in ("mean_accuracy", "mean_rank", "relative_time"))
        said = ["the default"] if fact["default"] else []
        said += [f"first on {_join(fact['first_on'])}"] if fact["first_on"] else []
        figures = f"{fact['method']:{width}}  {accuracy:>8}  {rank:>4}  {time:>4}  {'; '.join(said)}"
        lines += [figures.rstrip(), f"    {fact['assumes']}{_needs(fact)}"]
    return "\n".join(lines) + (
        f"\n\n{_explain_figures(results)} 'crowdfuse methods gated max-mig' shows the accuracy of these two methods on "
        "each data set."
    )


def format_details(facts: Sequence[dict[str, Any]], results: MethodResults) -> str:
    """Return all facts on some methods, for a terminal."""
    parts = []
    for fact in facts:
        lines = [f"{fact['method']}  ({fact['estimator']}){'  the default' if fact['default'] else ''}"]
        lines.append(f"  assumes   {fact['assumes']}")
        if fact["needs"]:
            lines.append(f"  needs     {fact['needs']}")
        if fact["relative_time"] is not None:
            lines.append(f"  time      {fact['relative_time']:.1f} times that of soft vote")
        if fact["mean_accuracy"] is not None:
            rank = "" if fact["mean_rank"] is None else f", mean rank {fact['mean_rank']:.1f}"
            lines.append(f"  mean      {fact['mean_accuracy']:.1f} %{rank}")
        if fact["first_on"]:
            lines.append(f"  first on  {_join(fact['first_on'])}")
        if fact["accuracy"]:
            each = _join([f"{name} {value:.1f}" for name, value in fact["accuracy"].items()])
            lines.append(f"  accuracy  {each}")
        else:
            lines.append("  accuracy  not measured here")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + f"\n\n{_explain_figures(results)}"


def _explain_figures(results: MethodResults) -> str:
    """Return what the figures mean, and how the default compares with the other methods."""
    return (
        f"Without --method, 'crowdfuse fit' uses {DEFAULT_METHOD}. {describe_default(results)} {DEVELOPMENT_TEXT}\n"
        f"Accuracy (%) and rank (1 is the best) are means over {_datasets_and_seeds(results)}. Time is relative to "
        "soft vote with the same network.\n"
        "'crowdfuse methods --page' explains the data sets. 'crowdfuse compare' compares methods on your own data."
    )


def render_methods_page(results: MethodResults) -> str:
    """Return the page for the docs, as Markdown."""
    rows = [
        [
            f"{fact['method']} (the default)" if fact["default"] else fact["method"],
            *(_format(fact[name]) for name in ("mean_accuracy", "mean_rank", "relative_time")),
            _join(fact["first_on"]),
            fact["assumes"] + _needs(fact),
        ]
        for fact in method_facts(results)
    ]
    header = ["method", "mean accuracy (%)", "mean rank", "time", "first on", "what it assumes and needs"]
    groups = list(dict.fromkeys(dataset.group for dataset in results.datasets))
    parts = [
        "# Which method?",
        f"`crowdfuse fit` without `--method` uses **{DEFAULT_METHOD}**. {describe_default(results)} The best method "
        "depends on the errors that your annotators make: compare on your own data with `crowdfuse compare`, which "
        "needs no gold.",
        markdown_table(header, rows),
        f"Mean accuracy on test items and mean rank (1 is the best) are over {_datasets_and_seeds(results)}. Time is "
        "CPU time relative to soft vote (majority-vote), the median over data sets. *First on* lists the data sets on "
        "which the method has the highest accuracy. Methods without figures have not been run on enough data sets.",
        f"{EQUAL_TERMS_TEXT}{DEVELOPMENT_TEXT} Means over data sets hide that the best method differs between them: "
        "[all figures](results/methods/table.md), with intervals. More data and larger networks can change the order: "
        "[uniform](results/uniform/table.md) compares some methods on all of MNIST with LeNet.",
        "`python benchmarks/default_method.py` makes all figures of this page. `crowdfuse methods` shows most of it in "
        "a terminal, and `crowdfuse methods --json methods.json` writes it as data.",
        "## Data sets",
        *(f"{group[0].upper()}{group[1:]}:\n\n{dataset_list(results, group)}" for group in groups),
    ]
    return "\n\n".join(parts) + "\n"


def _datasets_and_seeds(results: MethodResults) -> str:
    """Return the numbers of data sets, compared methods and seeds of the means, as text."""
    datasets = format_count(len(results.shared_datasets()), "data set")
    return (
        f"{datasets} on which all {len(results.compared)} compared methods have run (seeds per data set: "
        f"{describe_seeds(results)})"
    )


def _needs(fact: dict[str, Any]) -> str:
    return f"; needs {fact['needs']}" if fact["needs"] else ""


def _format(value: float | None) -> str:
    """Return a figure as text, or nothing if it is unknown."""
    return "" if value is None else f"{value:.1f}"


def _join(names: Sequence[str]) -> str:
    """Return names as one text. Some contain commas, so semicolons separate them."""
    return "; ".join(names)
