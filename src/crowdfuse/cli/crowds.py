"""`crowdfuse reproduce crowds`: every method on real crowds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.cli.grids import (
    Cluster,
    Jobs,
    Plan,
    Show,
    exit_with_status,
    finished_before,
    missing_cells,
    open_store,
    print_plan,
    refuse_own,
    run_cells,
)
from crowdfuse.cli.method_comparison import SEEDS, run_method_comparison
from crowdfuse.cli.options import Data, Force, Json, Quiet, parse_integers, parse_names, print_errors, refuse_json


@print_errors
def crowds(
    values: Annotated[str | None, typer.Option(help="Data sets, separated by commas. Default: all.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas. Default for data sets with inputs: the paper's methods, gated and "
            "two-stage, or all methods with --tune. Default for data sets without inputs: "
            f"{', '.join(AGGREGATORS)}. --plan lists the runs."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds, separated by commas. Default: 0 to 9, but 0 to 2 for the large data set cifar10n."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the data. Lower it for a short trial.", min=1)
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            help="Tune each method: try this many settings, defaults first, and choose once by crowd labels "
            "and once by gold. Uses the three data sets with inputs, seeds 0 to 4, and the rules of mnist-kinds.",
            min=1,
        ),
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    data: Data = None,
    given_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the finished runs, the table and the figure. Default: crowds, or "
            "crowds-tuned with --tune.",
        ),
    ] = None,
    plan: Plan = False,
    show: Show = False,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Beyond the paper: compare methods on labels of real crowds.

    Three data sets have inputs: LabelMe, Sentiment Polarity and CIFAR-10N. On these, the paper's methods, gated and
    two-stage are trained with the same small network; --tune trains every method. Six data sets have labels only:
    bluebird, dog, rte, web, product and zencrowd. On these, every aggregation method is run. Gold labels are used for
    scoring only. Finished runs are kept and not repeated.
    """
    folder = given_folder or Path("crowds" if tune is None else "crowds-tuned")
    if tune is not None:
        if epochs is not None:
            raise ValueError("--epochs cannot be used with --tune: all methods have the same budget there")
        run_method_comparison(
            "crowds", tune, values, methods, seeds or SEEDS, jobs, cluster, data, folder, plan, show, json_file, force,
            quiet,
        )  # fmt: skip
        return
    from crowdfuse.experiments.crowds import EXPERIMENT_NAME, CrowdsExecutor, crowd_cells
    from crowdfuse.experiments.crowds_tables import crowd_tables, render_markdown, write_crowds_report
    from crowdfuse.io.files import write_json

    asked = crowd_cells(
        parse_names(values, "--values") if values else (),
        parse_names(methods, "--methods") if methods else (),
        parse_integers(seeds, "--seeds") if seeds else (),
        epochs,
    )
    refuse_json(json_file, force)
    refuse_own(json_file, folder)
    store = open_store(folder)
    if plan:
        print_plan("Real crowds", store, asked)
        return
    if show:
        finished = finished_before(store, asked)
    else:
        work = CrowdsExecutor(data)
        work.check([cell.run for cell in missing_cells(store, asked)])
        finished = run_cells(asked, work, store, jobs=jobs, cluster=cluster, title=EXPERIMENT_NAME, quiet=quiet)
    tables = crowd_tables(asked, finished.records)
    if tables:
        options = {"--values": values, "--methods": methods, "--seeds": seeds, "--epochs": epochs}
        given = [f"{option} {shlex.quote(str(value))}" for option, value in options.items() if value is not None]
        command = " ".join(["crowdfuse reproduce", EXPERIMENT_NAME, *given])
        figures = write_crowds_report(tables, folder, command)
        typer.echo(render_markdown(tables, command))
        if json_file is not None:
            write_json(json_file, figures)
        typer.echo(f"table and figure: {folder}")
    elif show:
        typer.echo(f"{folder} contains no finished run of this grid")
    exit_with_status(finished)
