"""`crowdfuse reproduce crowds`: every method on real crowds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.cli.grids import Cluster, Jobs, Plan, Show, format_command, run_grid_command
from crowdfuse.cli.method_comparison import SEEDS, run_method_comparison
from crowdfuse.cli.options import Data, Force, Json, Quiet, parse_integers, parse_names, print_errors

if TYPE_CHECKING:
    from crowdfuse.experiments.store import Record


@print_errors
def crowds(
    values: Annotated[str | None, typer.Option(help="Data sets, separated by commas. Default: all.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas. Default for data sets with inputs: gated, two-stage and the methods "
            "in Gao et al. (2022); if --tune is given, all methods. Default for data sets without inputs: "
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
            help="Tune each method: try this many combinations of settings, the defaults first. The best combination "
            "is chosen twice: by the annotators' labels, and by gold labels. Only the three data sets with "
            "inputs are used, with seeds 0 to 4 and the same protocol as in reproduce mnist-kinds.",
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
            help="Folder for the finished runs, the table and the figure. Default: crowds; if --tune is given, "
            "crowds-tuned.",
        ),
    ] = None,
    plan: Plan = False,
    show: Show = False,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Not in Gao et al. (2022): compare methods on labels of real crowds.

    Three data sets have inputs: LabelMe, Sentiment Polarity and CIFAR-10N. On these, gated, two-stage and the methods
    in Gao et al. (2022) are trained with the same small network (with --tune, every method). Six data sets have labels
    only: bluebird, dog, rte, web, product and zencrowd. On these, every aggregation method is run. Gold labels are used
    for scoring only. Finished runs are kept and not repeated.
    """
    folder = given_folder or Path("crowds" if tune is None else "crowds-tuned")
    if tune is not None:
        if epochs is not None:
            raise ValueError(
                "--epochs cannot be used with --tune: the comparison of tuned methods has a fixed number of epochs for "
                "each data set. Leave out --epochs"
            )
        run_method_comparison(
            "crowds", tune, values, methods, seeds or SEEDS, jobs, cluster, data, folder, plan, show, json_file, force,
            quiet,
        )  # fmt: skip
        return
    from crowdfuse.experiments.crowds import EXPERIMENT_NAME, CrowdsExecutor, crowd_cells
    from crowdfuse.experiments.crowds_tables import crowd_tables, render_markdown, write_crowds_report

    cells = crowd_cells(
        parse_names(values, "--values") if values else (),
        parse_names(methods, "--methods") if methods else (),
        parse_integers(seeds, "--seeds") if seeds else (),
        epochs,
    )

    def write_report(records: Sequence[Record]) -> tuple[str, dict[str, Any]] | None:
        tables = crowd_tables(cells, records)
        if not tables:
            return None
        options = {"--values": values, "--methods": methods, "--seeds": seeds, "--epochs": epochs}
        command = format_command(EXPERIMENT_NAME, options)
        numbers = write_crowds_report(tables, folder, command)
        return render_markdown(tables, command), numbers

    run_grid_command(
        cells,
        CrowdsExecutor(data),
        write_report,
        folder,
        name=EXPERIMENT_NAME,
        title="Real crowds",
        jobs=jobs,
        cluster=cluster,
        plan=plan,
        show=show,
        json_file=json_file,
        force=force,
        quiet=quiet,
    )
