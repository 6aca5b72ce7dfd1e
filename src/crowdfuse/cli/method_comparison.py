"""`crowdfuse reproduce mnist-kinds` and `crowds --tune`: all methods under equal rules, at defaults and tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfuse.cli.grids import Cluster, Jobs, Plan, Show, format_command, run_grid_command
from crowdfuse.cli.options import Data, Force, Json, Quiet, parse_integers, parse_names, print_errors

if TYPE_CHECKING:
    from crowdfuse.experiments.store import Record

SEEDS = "0,1,2,3,4"


@print_errors
def mnist_kinds(
    tune: Annotated[
        int,
        typer.Option(
            help="Number of combinations of settings to try per method, the defaults first. 1 means that nothing is "
            "tuned.",
            min=1,
        ),
    ] = 1,
    values: Annotated[
        str | None,
        typer.Option(
            help="Data sets, separated by commas. Default: all (uniform, any, looks, shift, neighbour, copy, "
            "hammer-spammer, two classes)."
        ),
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Methods, separated by commas. Default: all.")] = None,
    seeds: Annotated[
        str,
        typer.Option(
            help="Random seeds, separated by commas. Every method is run once per seed. The seed determines the "
            "simulated annotators, the data split, the settings that --tune tries, and the training."
        ),
    ] = SEEDS,
    jobs: Jobs = None,
    cluster: Cluster = None,
    data: Data = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder for the finished runs, the table and the figures.")
    ] = Path("mnist-kinds"),
    plan: Plan = False,
    show: Show = False,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Not in Gao et al. (2022): compare all methods on several kinds of wrong labels, under equal rules.

    All methods train the same small network on 10,000 MNIST images, with five seeds. There are two sets of results: in
    the first, each method chooses its epoch as it does by default; in the second, all methods choose their epoch by
    held-out labels. If --tune is given, settings are chosen twice: once by the labels of the annotators, and once by
    gold labels. Finished runs are kept and not repeated.
    """
    run_method_comparison(
        "mnist-kinds", tune, values, methods, seeds, jobs, cluster, data, folder, plan, show, json_file, force, quiet
    )


def run_method_comparison(
    group: str,
    draws: int,
    values: str | None,
    methods: str | None,
    seeds: str,
    jobs: int | None,
    cluster: str | None,
    data: Path | None,
    folder: Path,
    plan: bool,
    show: bool,
    json_file: Path | None,
    force: bool,
    quiet: bool,
) -> None:
    """Run the missing cells of a group of data sets, and print the tables of the finished cells."""
    from crowdfuse.experiments.method_comparison import DATASET_GROUPS, MethodComparisonExecutor, comparison_cells
    from crowdfuse.experiments.method_comparison_tables import render_markdown, write_method_comparison
    from crowdfuse.experiments.protocols import select_runs

    datasets = DATASET_GROUPS[group]
    cells = comparison_cells(
        datasets,
        draws,
        parse_names(values, "--values") if values else (),
        parse_names(methods, "--methods") if methods else (),
        parse_integers(seeds, "--seeds"),
    )

    def write_report(records: Sequence[Record]) -> tuple[str, dict[str, Any]] | None:
        if not records:
            return None
        options = {"--tune": draws, "--values": values, "--methods": methods, "--seeds": seeds}
        command = format_command(group, options)
        numbers = write_method_comparison(datasets, cells, records, folder, command)
        return render_markdown(datasets, select_runs(cells, records), command), numbers

    run_grid_command(
        cells,
        MethodComparisonExecutor(data),
        write_report,
        folder,
        name=group,
        title="All methods under the same rules",
        jobs=jobs,
        cluster=cluster,
        plan=plan,
        show=show,
        json_file=json_file,
        force=force,
        quiet=quiet,
    )
