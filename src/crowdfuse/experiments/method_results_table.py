"""Markdown tables of the results of all methods: accuracy by data set, means, and differences from the default."""

from __future__ import annotations

from crowdfuse.estimators.registry import DEFAULT_METHOD
from crowdfuse.experiments.method_results import MIN_DATASET_SHARE, Difference, MethodResults
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.labels.ids import format_count
from crowdfuse.report.markdown import markdown_table

NOT_RUN = "—"
COMMAND = "python benchmarks/default_method.py"
EQUAL_TERMS_TEXT = (
    "All methods have the same labels, test items and network (one hidden layer of 128 units). Each has its default "
    "settings, with its own number of training steps and its own regularization. No method sees gold, except "
    f"{UPPER_BOUND}, which is not ranked. "
)
DEVELOPMENT_TEXT = (
    "Our methods gated and consensus-training were developed on these data sets with a view of the test accuracy, and "
    "the default was chosen by these figures. So their figures are optimistic compared with those of the other methods."
)


def describe_default(results: MethodResults, default: str = DEFAULT_METHOD) -> str:
    """Return sentences on how the default method compares with the others.

    Examples
    --------
    >>> from crowdfuse.experiments.method_results import Dataset, collect_results
    >>> runs = [{"arena": "dogs", "method": "gated", "seed": 0, "accuracy": 90.0},
    ...         {"arena": "dogs", "method": "madl", "seed": 0, "accuracy": 80.0}]
    >>> describe_default(collect_results(runs, [Dataset("dogs", "real crowds", "")]), "gated")
    'Of 2 methods compared, it has the highest mean accuracy, 90.0 % over 1 data set; madl is second with 80.0 %.'
    """
    mean = {method: value for method, value in results.mean("accuracy").items() if method in results.compared}
    if default not in mean:
        n_run = sum(default in dataset.accuracy for dataset in results.datasets)
        return (
            f"It is not part of the stored comparison, because it has run on {n_run} of "
            f"{format_count(len(results.datasets), 'data set')}."
        )
    order = sorted(mean, key=lambda method: -mean[method])
    over = format_count(len(results.shared_datasets()), "data set")
    if len(order) == 1:
        return f"No other method was compared; its mean accuracy is {mean[default]:.1f} % over {over}."
    other = order[1] if order[0] == default else order[0]
    found = results.difference(default, other)
    assert found is not None  # both have the shared data sets
    if mean[default] >= mean[other]:
        text = (
            f"Of {len(order)} methods compared, it has the highest mean accuracy, {mean[default]:.1f} % over {over}; "
            f"{other} is second with {mean[other]:.1f} %{_interval_clause(found)}."
        )
    else:
        position = 1 + sum(value > mean[default] for value in mean.values())
        text = (
            f"It is not the best method on average: of {len(order)} methods compared, it is number {position} in mean "
            f"accuracy, with {mean[default]:.1f} % over {over}; {other} is first with {mean[other]:.1f} %"
            f"{_interval_clause(found)}."
        )
    points, name = results.distance_to_best(default)
    if points > 0:
        text += f" On single data sets it is up to {points:.1f} points behind the best method ({name})."
    return text


def _interval_clause(found: Difference) -> str:
    """Return a difference and its interval as a clause; empty without an interval."""
    if found.half_width is None:
        return ""
    low, high = found.mean - found.half_width, found.mean + found.half_width
    return f" (difference {found.mean:+.1f} points, 95 % interval over data sets {low:+.1f} to {high:+.1f})"


def describe_seeds(results: MethodResults) -> str:
    """Return the number of seeds per data set, as "5" or "3 to 5"."""
    counts = sorted({dataset.n_seeds for dataset in results.datasets} or {0})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def render_results_table(results: MethodResults) -> str:
    """Return all tables as Markdown."""
    groups = list(dict.fromkeys(dataset.group for dataset in results.datasets))
    left_out = [method for method in results.methods() if method not in results.compared and method != UPPER_BOUND]
    parts = [
        "# All methods at their defaults",
        f"`{COMMAND}` runs what is missing; with `--tables` it only writes this page, docs/methods.md and the results "
        "that `crowdfuse methods` shows, from the [stored runs](runs.jsonl).",
        f"{EQUAL_TERMS_TEXT}The number of seeds per data set is {describe_seeds(results)}. {DEVELOPMENT_TEXT}",
        f"The default is {DEFAULT_METHOD}. {describe_default(results)}",
        f"Cells with {NOT_RUN} have not been run at all seeds of the data set. Means and ranks are over the "
        f"{format_count(len(results.shared_datasets()), 'data set')} on which all compared methods have run."
        + (
            f" Not compared, because they have run on less than {100 * MIN_DATASET_SHARE:.0f} % of the data sets: "
            f"{', '.join(left_out)}."
            if left_out
            else ""
        ),
        f"## Means\n\n{_means_table(results, groups)}",
        f"## {DEFAULT_METHOD} minus each other method\n\n{_differences_table(results)}",
        *(
            f"## {group[0].upper()}{group[1:]}\n\nTest accuracy (%); the number of seeds is in brackets. The best "
            f"method of each data set is in bold.\n\n{_accuracy_table(results, group)}\n\n"
            f"{dataset_list(results, group)}"
            for group in groups
        ),
    ]
    return "\n\n".join(parts) + "\n"


def dataset_list(results: MethodResults, group: str) -> str:
    """Return a list that explains the data sets of a group."""
    names_by_note: dict[str, list[str]] = {}
    for dataset in results.datasets:
        if dataset.group == group:
            names_by_note.setdefault(dataset.note, []).append(f"*{dataset.name}*")
    return "\n".join(f"- {'; '.join(names)}: {note}" for note, names in names_by_note.items())


def _means_table(results: MethodResults, groups: list[str]) -> str:
    """Return means over the shared data sets."""
    columns = [results.mean("accuracy"), *(results.mean("accuracy", group) for group in groups)]
    balanced, log_loss = results.mean("balanced_accuracy"), results.mean("log_loss")
    ranks, times, steps = results.mean_rank(), results.relative_time(), results.mean("n_steps")
    best = [max((value for method, value in of.items() if method in results.compared), default=None) for of in columns]
    rows = []
    for method in results.methods():
        accuracies = []
        for of, highest in zip(columns, best, strict=True):
            text = _format(of.get(method))
            accuracies.append(f"**{text}**" if method in results.compared and of.get(method) == highest else text)
        others = [
            _format(of.get(method), digits)
            for of, digits in ((ranks, 1), (balanced, 1), (log_loss, 3), (times, 1), (steps, 0))
        ]
        rows.append([method, *accuracies, *others])
    header = [
        "method", "accuracy (%)", *groups, "mean rank", "balanced accuracy (%)", "log loss", "time over soft vote",
        "optimizer steps",
    ]  # fmt: skip
    return (
        f"{markdown_table(header, rows)}\n\nColumns with the name of a group show the accuracy on its data sets. Time "
        "is CPU time of training and prediction divided by that of majority-vote (soft), the median over data sets. "
        "Steps include those of all folds."
    )


def _differences_table(results: MethodResults) -> str:
    """Return the differences in accuracy of the default to all other methods."""
    rows = []
    for method in results.methods():
        found = results.difference(DEFAULT_METHOD, method)
        if method == DEFAULT_METHOD or found is None:
            continue
        half = "" if found.half_width is None else f" ± {found.half_width:.1f}"
        smallest = f"{found.smallest:+.1f} ({found.smallest_on})"
        rows.append([method, f"{found.mean:+.1f}{half}", str(found.n_datasets), smallest])
    if not rows:
        return f"{DEFAULT_METHOD} has not been run on these data sets."
    return (
        f"Test accuracy, in points, on the data sets and seeds that both have; mean ± half the 95 % t-interval over "
        f"data sets.\n\n{markdown_table(['method', 'difference', 'data sets', 'smallest difference'], rows)}"
    )


def _accuracy_table(results: MethodResults, group: str) -> str:
    """Return the test accuracy of each method on the data sets of a group."""
    datasets = [dataset for dataset in results.datasets if dataset.group == group]
    rows = []
    for method in results.methods():
        cells = []
        for dataset in datasets:
            text = _format(dataset.accuracy.get(method))
            cells.append(f"**{text}**" if method in dataset.best_methods() else text)
        rows.append([method, *cells])
    return markdown_table(["method", *(f"{dataset.name} ({dataset.n_seeds})" for dataset in datasets)], rows)


def _format(value: float | None, digits: int = 1) -> str:
    """Return a figure as text, or a dash if it is unknown."""
    return NOT_RUN if value is None else f"{value:.{digits}f}"
