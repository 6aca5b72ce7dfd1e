"""What commands that run a grid share: its options, its store, its plan, its end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfuse.cli.options import refuse_same
from crowdfuse.estimators.registry import ESTIMATORS

if TYPE_CHECKING:
    from crowdfuse.experiments.grid import Cell
    from crowdfuse.experiments.runner import Backend, GridResult, RunExecutor
    from crowdfuse.experiments.store import Store

STORE_FILE = "runs.jsonl"


def _cluster(address: str | None) -> str | None:
    """An address that Ray could have, and Ray to call it by."""
    if address is None:
        return None
    if address not in ("local", "auto") and not re.fullmatch(r"ray://[^/\s]+:\d+", address):
        raise typer.BadParameter(f"{address!r} is neither ray://host:port nor local nor auto")
    needed = ("ray",) if address in ("local", "auto") else ("ray", "grpc")
    if any(find_spec(name) is None for name in needed):
        raise typer.BadParameter(f"{address} needs Ray: pip install 'crowdfuse[cluster]'")
    return address


Methods = Annotated[
    str | None,
    typer.Option(help=f"Methods, separated by commas; not given, a good choice. All: {', '.join(ESTIMATORS)}."),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Runs at a time, each in a process of one thread; not given, 1, or as many as a running cluster has CPUs.",
        min=1,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Make the runs on Ray: at ray://host:port, on the Ray that runs here already (auto), or on one of --jobs "
        "CPUs started for this (local).",
        callback=_cluster,
    ),
]
Plan = Annotated[bool, typer.Option("--plan", help="Only say which runs would be made.")]
Show = Annotated[bool, typer.Option("--show", help="Make no runs: the table of what is finished.")]
MAX_LISTED_RUNS = 100  # runs of a plan


def open_store(folder: Path) -> Store:
    """The store in a folder of ours, or in a new one; what it holds of other versions is said."""
    from crowdfuse.experiments.store import Store
    from crowdfuse.io.files import refuse_foreign

    refuse_foreign(folder, STORE_FILE)
    store = Store(folder / STORE_FILE)
    for remark in store.read()[1]:
        typer.echo(f"note: {remark}", err=True)
    return store


def refuse_own(json_file: Path | None, folder: Path) -> None:
    """The figures may go anywhere but over the store and its table."""
    for name in (STORE_FILE, "table.json", "table.md"):
        refuse_same(json_file, folder / name)


def missing_cells(store: Store, cells: Sequence[Cell]) -> list[Cell]:
    """Cells without a finished run, each run once."""
    from crowdfuse.experiments.store import run_key

    found, _ = store.read()
    once: dict[str, Cell] = {}
    for cell in cells:
        once.setdefault(run_key(cell.run), cell)
    return [cell for key, cell in once.items() if key not in found]


def finished_before(store: Store, cells: Sequence[Cell]) -> GridResult:
    """What is in the store already, as if it had been run."""
    from crowdfuse.experiments.runner import GridResult
    from crowdfuse.experiments.store import run_key

    found, _ = store.read()
    keys = dict.fromkeys(run_key(cell.run) for cell in cells)
    return GridResult([found[key] for key in keys if key in found], [], False)


def print_plan(title: str, store: Store, cells: Sequence[Cell]) -> None:
    """Which runs would be made."""
    from crowdfuse.experiments.store import run_key

    left = missing_cells(store, cells)
    done = len({run_key(cell.run) for cell in cells}) - len(left)
    typer.echo(f"{title}: {done} runs are finished, {len(left)} to make")
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
    """Make the runs that the store lacks, here or on a cluster, with progress."""
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
        jobs=jobs,
        backend=where,
        title=title,
        name=lambda run: named[run_key(run)],
        verbose=0 if quiet else 1,
    )


def exit_with_status(finished: GridResult) -> None:
    """Say what failed; the exit code tells scripts."""
    for failure in finished.failed:
        typer.echo(f"failed: {failure}", err=True)
    if finished.interrupted:
        typer.echo("interrupted; the same command goes on where this one stopped", err=True)
        raise typer.Exit(130)
    if finished.failed:
        raise typer.Exit(1)
