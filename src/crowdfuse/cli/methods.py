"""`crowdfuse methods`: what each method assumes and costs, and where it performed best."""

from __future__ import annotations

from typing import Annotated

import typer

from crowdfuse.cli.options import Force, Json, print_errors, refuse_json
from crowdfuse.estimators.registry import ESTIMATORS


@print_errors
def methods(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Methods to describe in detail. Default: an overview of all methods ({', '.join(ESTIMATORS)})."
        ),
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Print the documentation page about all methods as Markdown.")
    ] = False,
    json_file: Json = None,
    force: Force = False,
) -> None:
    """Show what each method assumes, needs and costs, and where it performed best in our comparison of all methods."""
    from crowdfuse.estimators.registry import estimator_class
    from crowdfuse.experiments import methods_page as report
    from crowdfuse.experiments.method_results import load_method_results
    from crowdfuse.io.files import write_json

    refuse_json(json_file, force)
    if page and names:
        raise ValueError(f"--page covers all methods; leave out {', '.join(names)}")
    for name in names or ():
        estimator_class(name)
    results = load_method_results()
    facts = report.method_facts(results, list(dict.fromkeys(names or ())))
    if page:
        typer.echo(report.render_methods_page(results))
    else:
        typer.echo((report.format_details if names else report.format_overview)(facts, results))
    if json_file is not None:
        write_json(json_file, facts)
