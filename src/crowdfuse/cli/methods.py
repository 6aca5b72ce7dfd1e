"""`crowdfuse methods`: what each method assumes and costs, and where it won."""

from __future__ import annotations

from typing import Annotated

import typer

from crowdfuse.cli.options import Force, Json, print_errors, refuse_json
from crowdfuse.estimators.registry import ESTIMATORS


@print_errors
def methods(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Methods to say all of; not given, a little of each: {', '.join(ESTIMATORS)}."),
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Print the page of the docs, as Markdown, on all methods.")
    ] = False,
    json_file: Json = None,
    force: Force = False,
) -> None:
    """Which method? What each assumes, needs and costs, and where it won, from stored results."""
    from crowdfuse.estimators.registry import estimator_class
    from crowdfuse.experiments import methods_page as report
    from crowdfuse.experiments.comparison_results import load_comparison_results
    from crowdfuse.io.files import write_json

    refuse_json(json_file, force)
    if page and names:
        raise ValueError(f"--page is about all methods; leave out {', '.join(names)}")
    for name in names or ():
        estimator_class(name)
    evidence = load_comparison_results()
    facts = report.method_facts(evidence, list(dict.fromkeys(names or ())))
    if page:
        typer.echo(report.page(evidence))
    else:
        typer.echo((report.details if names else report.overview)(facts, evidence))
    if json_file is not None:
        write_json(json_file, facts)
