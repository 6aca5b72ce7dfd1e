"""Options and steps shared by the commands that run a grid: storage, plan, running, results, exit status.

A grid is a table of experiments. Each cell of the grid is one training run, for example of one method with one seed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfuse.cli.options import refuse_json, refuse_same
from crowdfuse.estimators.registry import ESTIMATORS

if TYPE_CHECKING:
    from crowdfuse.experiments.grid import Cell
    from crowdfuse.experiments.runner import Backend, GridResult, RunExecutor
    from crowdfuse.experiments.store import Record, Store

STORE_FILE = "runs.jsonl"


def _cluster(address: str | None) -> str | None:
    """Return the address of a Ray cluster if it is valid and Ray is installed."""
    if address is None:
        return None
    if address not in ("local", "auto") and not re.fullmatch(r"ray://[^/\s]+:\d+", address):
        raise typer.BadParameter(f"must be ray://host:port, local or auto, got {address!r}")
    needed = ("ray",) if address in ("local", "auto") else ("ray", "grpc")
    if any(find_spec(name) is None for name in needed):
        raise typer.BadParameter(
            f"{address} requires Ray with its optional components; install it with: pip install 'crowdfuse[cluster]'"
        )
    return address


Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods to run, separated by commas. Default: the methods suited to the data or experiment. All "
        f"methods: {', '.join(ESTIMATORS)}."
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Number of runs in parallel. Each run is a process with one thread. Default: 1; on a running cluster, "
        "the number of its CPUs.",
        min=1,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Run on a Ray cluster: ray://host:port (a remote cluster), auto (a cluster that already runs on this "
        "machine), or local (a new cluster with --jobs CPUs).",
        callback=_cluster,
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="List the runs that are still missing, and exit.")]
Show = Annotated[bool, typer.Option("--show", help="Show the table of the finished runs, and exit.")]
MAX_LISTED_RUNS = 100


def open_store(folder: Path) -> Store:
    """Return the storage of runs in a folder, and print notes about runs of other versions."""
    from crowdfuse.experiments.store import Store
    from crowdfuse.io.files import refuse_foreign

    refuse_foreign(folder, STORE_FILE)
    store = Store(folder / STORE_FILE)
    for remark in store.read()[1]:
        typer.echo(f"note: {remark}", err=True)
    return store


def refuse_own(json_file: Path | None, folder: Path) -> None:
    """Raise an error if the --json file is one of the files that the command writes into the folder."""
    for name in (STORE_FILE, "table.json", "table.md"):
        refuse_same(json_file, folder / name)


def missing_cells(store: Store, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells whose run is not finished; cells that share a run are listed once."""
    from crowdfuse.experiments.store import run_key

    found, _ = store.read()
    once: dict[str, Cell] = {}
    for cell in cells:
        once.setdefault(run_key(cell.run), cell)
    return [cell for key, cell in once.items() if key not in found]


def finished_before(store: Store, cells: Sequence[Cell]) -> GridResult:
    """Return the finished runs in the storage as a grid result."""
    from crowdfuse.experiments.runner import GridResult
    from crowdfuse.experiments.store import run_key

    found, _ = store.read()
    keys = dict.fromkeys(run_key(cell.run) for cell in cells)
    return GridResult([found[key] for key in keys if key in found], [], False)


def print_plan(title: str, store: Store, cells: Sequence[Cell]) -> None:
    """Print how many runs are finished and which are missing."""
    from crowdfuse.experiments.store import run_key

    left = missing_cells(store, cells)
    done = len({run_key(cell.run) for cell in cells}) - len(left)
    typer.echo(f"{title}: {done} runs finished, {len(left)} missing")
    for cell in left[:MAX_LISTED_RUNS]:
        typer.echo(f"  {cell.name}")
    if len(left) > MAX_LISTED_RUNS:
        typer.echo(f"  and {len(left) - MAX_LISTED_RUNS} more")


def run_cells(
    cells: Sequence[Cell],
    work: RunExecutor,
    store: Store,
    *,
    jobs: int | None,
    cluster: str | None,
    title: str,
    quiet: bool,
) -> GridResult:
    """Run the cells that are not finished, on this machine or on a cluster, and show progress."""
    from crowdfuse.experiments.runner import run_grid, run_locally
    from crowdfuse.experiments.store import run_key

    where: Backend = run_locally
    if cluster is not None:
        from crowdfuse.experiments.cluster import make_ray_backend

        where = make_ray_backend(cluster)
    named = {run_key(cell.run): cell.name for cell in cells}
    return run_grid(
        [cell.run for cell in cells],
        work,
        store,
        n_jobs=jobs,
        backend=where,
        title=title,
        describe_run=lambda run: named[run_key(run)],
        verbose=0 if quiet else 1,
    )


def exit_with_status(finished: GridResult) -> None:
    """Print failures and exit: 0 if all runs finished, 1 if some failed, 130 after Ctrl-C."""
    for failure in finished.failures:
        typer.echo(f"failed: {failure}", err=True)
    if finished.interrupted:
        typer.echo("interrupted; run the same command again to continue", err=True)
        raise typer.Exit(130)
    if finished.failures:
        raise typer.Exit(1)


def format_command(name: str, options: Mapping[str, object]) -> str:
    """Return the `crowdfuse reproduce` command with the options that are not None, quoted for a shell."""
    given = [f"{option} {shlex.quote(str(value))}" for option, value in options.items() if value is not None]
    return " ".join(["crowdfuse reproduce", name, *given])


def run_grid_command(
    cells: Sequence[Cell],
    work: RunExecutor,
    write_report: Callable[[Sequence[Record]], tuple[str, dict[str, Any]] | None],
    folder: Path,
    *,
    name: str,
    title: str,
    jobs: int | None,
    cluster: str | None,
    plan: bool,
    show: bool,
    json_file: Path | None,
    force: bool,
    quiet: bool,
) -> None:
    """Run the missing cells, then write and print the report of the finished cells.

    `write_report` writes the files of the report and returns its Markdown and its numbers, or None if there is nothing
    to report. If `plan` is true, the missing runs are only listed. If `show` is true, the report is made without
    running anything.
    """
    from crowdfuse.io.files import write_json

    refuse_json(json_file, force)
    refuse_own(json_file, folder)
    store = open_store(folder)
    if plan:
        print_plan(title, store, cells)
        return
    if show:
        finished = finished_before(store, cells)
    else:
        work.check([cell.run for cell in missing_cells(store, cells)], download=False)
        finished = run_cells(cells, work, store, jobs=jobs, cluster=cluster, title=name, quiet=quiet)
    report = write_report(finished.records)
    if report is not None:
        markdown, numbers = report
        typer.echo(markdown)
        if json_file is not None:
            write_json(json_file, numbers)
        typer.echo(f"tables and figures: {folder}")
    elif show:
        typer.echo(f"{folder} contains no finished run of this grid; run the command without --show to start the grid")
    exit_with_status(finished)
