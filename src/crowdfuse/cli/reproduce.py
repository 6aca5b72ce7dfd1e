"""`crowdfuse reproduce`: the paper's experiments, its numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from crowdfuse.choices import one_of
from crowdfuse.cli.grids import (
    Cluster,
    Jobs,
    Methods,
    Plan,
    Show,
    finished_before,
    leave,
    missing,
    open_store,
    refuse_own,
    run_cells,
    say_plan,
)
from crowdfuse.cli.shell import (
    Data,
    Download,
    Force,
    Json,
    Quiet,
    Threads,
    friendly,
    integers,
    names,
    refuse_json,
    refuse_outputs,
    use_threads,
)

if TYPE_CHECKING:
    from crowdfuse.datasets.two_moons import Split

Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas; they drive the annotators and the training.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data; not given, the paper's.", min=1)]
Out = Annotated[Path | None, typer.Option("--out", help="The folder of the store, the table and the figures.")]
Values = Annotated[str | None, typer.Option(help="Values, separated by commas; not given, the experiment's.")]

GRIDS = {
    "table1": "Table 1: MNIST, three annotators with a weakness, over epsilon. More rows that --methods can name: "
    "fusion-shared-heads, mbem-any-epoch.",
    "supp1": "Supplement A: MNIST, five annotators, each right on 3 classes and wrong on the others (hammer-spammer).",
    "crowd": "Beyond the paper: MNIST at epsilon 30 with one to eight annotators.",
    "table2": "Table 2 at desk size: CIFAR-100 as frozen features, three annotators with a weakness, over epsilon.",
    "supp2": "Supplement B at desk size: fusion with weights alone, with confusions alone, with both.",
    "supp3": "Supplement B at desk size: networks as annotators, of their own training items and of unseen ones.",
    "ablation-lambda": "Supplement B at desk size: the penalty over lambda.",
    "ablation-bases": "Supplement B at desk size: the number M of permutations.",
}


def grid_command(name: str) -> Callable[..., None]:
    """The command that runs what is missing of a grid, and shows the table as far as it is there."""

    @friendly
    def command(
        values: Values = None,
        methods: Methods = None,
        seeds: Seeds = "0",
        epochs: Epochs = None,
        jobs: Jobs = None,
        cluster: Cluster = None,
        data: Data = None,
        download: Download = False,
        folder: Out = None,
        plan: Plan = False,
        show: Show = False,
        json_file: Json = None,
        force: Force = False,
        quiet: Quiet = False,
    ) -> None:
        from crowdfuse.experiments.catalog import EXPERIMENTS
        from crowdfuse.experiments.tables import make_table
        from crowdfuse.files import write_json
        from crowdfuse.report.grid import markdown, write_grid_report

        experiment = EXPERIMENTS[name]
        changes = {} if epochs is None else {"epochs": epochs}
        cells = experiment.cells(
            values=names(values, "--values") if values else (),
            methods=names(methods, "--methods") if methods else (),
            seeds=integers(seeds, "--seeds"),
            **changes,
        )
        folder = folder or Path(name)
        refuse_json(json_file, force)
        refuse_own(json_file, folder)
        store = open_store(folder)
        if plan:
            say_plan(experiment.title, store, cells)
            return
        if show:
            finished = finished_before(store, cells)
        else:
            work = experiment.work(data)
            work.check([cell.run for cell in missing(store, cells)], download=download)
            finished = run_cells(cells, work, store, jobs=jobs, cluster=cluster, title=name, quiet=quiet)
        table = make_table(cells, finished.records, "test accuracy", experiment.paper_numbers())
        if table.entries:
            typed = _as_typed(name, values, methods, seeds, epochs)
            figures = write_grid_report(experiment, table, folder, typed)
            typer.echo(markdown(experiment, table, typed))
            if json_file is not None:
                write_json(json_file, figures)
            typer.echo(f"table and figures: {folder}")
        elif show:
            typer.echo(f"{folder} holds no finished run of this grid")
        leave(finished)

    command.__doc__ = f"{GRIDS[name]} Finished runs are kept, and not made again."
    return command


def _as_typed(name: str, values: str | None, methods: str | None, seeds: str, epochs: int | None) -> str:
    """What makes this table, as people would type it."""
    options = {"--values": values, "--methods": methods, "--seeds": seeds, "--epochs": epochs}
    given = [f"{option} {value}" for option, value in options.items() if value is not None]
    return " ".join(["crowdfuse reproduce", name, *given])


@friendly
def twomoon(
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2,3,4",
    folder: Annotated[Path, typer.Option("--out", help="Where figures and table go.")] = Path("twomoon"),
    split: Annotated[str, typer.Option(help="text: train on 4 of 5, as the paper says; code: on 1 of 5.")] = "text",
    epochs: Annotated[int, typer.Option(help="Steps of full-batch SGD.", min=1)] = 400,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Two moons: both annotators alone, their fusion, and what the penalty and the basis do."""
    from crowdfuse.experiments.twomoon import run_all
    from crowdfuse.files import write_json
    from crowdfuse.report.twomoon import markdown, write_twomoon_report

    chosen = cast("Split", one_of("--split", split, ("text", "code")))
    use_threads(threads)
    refuse_outputs(folder, "twomoon.json", json_file, force)
    runs = run_all(integers(seeds, "--seeds"), chosen, epochs, verbose=0 if quiet else 1)
    figures = write_twomoon_report(runs, folder, split=chosen, epochs=epochs, force=force)
    typer.echo(markdown(runs, chosen, epochs))
    if json_file is not None:
        write_json(json_file, figures)
    typer.echo(f"figures: {folder}")
