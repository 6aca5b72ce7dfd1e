"""`crowdfuse reproduce published`: published results of other methods, with their numbers beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfuse.cli.grids import Cluster, Jobs, Plan, Show, format_command, run_grid_command
from crowdfuse.cli.options import Data, Force, Json, Quiet, parse_integers, parse_names, print_errors

if TYPE_CHECKING:
    from crowdfuse.experiments.store import Record


@print_errors
def published(
    values: Annotated[
        str | None, typer.Option(help="Data sets, separated by commas: music, labelme. Default: both.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Rows of the table, separated by commas. Default: all; --plan lists them."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas. Default: 0 to 9.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the data, 50 as published. Lower it for a trial.", min=1)
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    data: Data = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the finished runs and the table.")] = Path(
        "published"
    ),
    plan: Plan = False,
    show: Show = False,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Not in Gao et al. (2022): the protocol of the Annot-mix paper, with its results beside ours.

    All methods share one network and one training recipe, and the last epoch is evaluated. On Music, the inputs are
    those of the paper, and the table says which of our results agree with the published ones. On LabelMe, our features
    differ from those of the paper. Finished runs are kept and not repeated.
    """
    from crowdfuse.experiments.published import EXPERIMENT_NAME, PublishedExecutor, published_cells
    from crowdfuse.experiments.published_tables import published_table, render_markdown, write_published_report

    cells = published_cells(
        parse_names(values, "--values") if values else (),
        parse_names(methods, "--methods") if methods else (),
        parse_integers(seeds, "--seeds") if seeds else (),
        epochs,
    )

    def write_report(records: Sequence[Record]) -> tuple[str, dict[str, Any]] | None:
        table = published_table(cells, records)
        if not table.entries:
            return None
        options = {"--values": values, "--methods": methods, "--seeds": seeds, "--epochs": epochs}
        command = format_command(EXPERIMENT_NAME, options)
        numbers = write_published_report(table, folder, command)
        return render_markdown(table, command), numbers

    run_grid_command(
        cells,
        PublishedExecutor(data),
        write_report,
        folder,
        name=EXPERIMENT_NAME,
        title="Published results",
        jobs=jobs,
        cluster=cluster,
        plan=plan,
        show=show,
        json_file=json_file,
        force=force,
        quiet=quiet,
    )
