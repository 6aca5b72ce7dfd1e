"""`crowdfuse review`: the page where people settle what annotators dispute."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.cli.options import Force, Threads, print_errors, refuse_same, use_threads


@print_errors
def review(
    run: Annotated[Path, typer.Argument(help="A run folder of crowdfuse fit.")],
    export: Annotated[
        Path | None, typer.Option(help="Write what is settled to this CSV (item, label), and start no page.")
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="Your name beside each decision; not given, your login.")] = None,
    port: Annotated[int, typer.Option(help="The first port to try.", min=1024, max=65535)] = 8765,
    threads: Threads = 1,
    force: Force = False,
) -> None:
    """Settle disputed items on a page, the least sure first; only this machine's browser can open it (extra: web)."""
    if export is not None:
        _export(run, export, force)
        return
    from crowdfuse.review.folder import read_run
    from crowdfuse.review.item_inputs import ItemInputs
    from crowdfuse.review.refit import Refit
    from crowdfuse.review.server import serve
    from crowdfuse.review.session import ReviewSession

    use_threads(threads)
    folder = read_run(run)
    desk = ReviewSession(folder, ItemInputs(folder), reviewer or _login())
    about = desk.about()
    for note in about["notes"]:
        typer.echo(f"note: {note}")
    disputed = sum(folder.is_disputed(index) for index in range(len(folder.items)))
    settled = len(desk.decision_state().settled())
    typer.echo(f"{run}: {len(folder.items):,} items, {disputed:,} of them disputed, {settled:,} settled already")
    typer.echo(f"decisions go to {desk.ledger.path}, in the name of {desk.reviewer}")
    if desk.ledger.torn:
        typer.echo("note: the last line there was cut off in writing; it was never confirmed, and does not count")
    serve(desk, Refit(folder), port, typer.echo)


def _export(run: Path, out: Path, force: bool) -> None:
    from crowdfuse.io.files import refuse_existing, write_text
    from crowdfuse.review.session import gold_csv, read_gold_rows
    from crowdfuse.runs.folder import DECISIONS_FILE

    refuse_existing(out, force=force)
    if out.is_dir():
        raise IsADirectoryError(f"--export {out} is a folder; name a file to write")
    refuse_same(out, run / DECISIONS_FILE)
    if not (run / DECISIONS_FILE).exists():
        raise FileNotFoundError(
            f"{run / DECISIONS_FILE} is not there: nothing is settled yet. Begin by crowdfuse review {run}"
        )
    rows, last = read_gold_rows(run)
    if not rows:
        raise ValueError(f"{run / DECISIONS_FILE} holds no decision that was not undone: there is nothing to export")
    write_text(out, gold_csv(rows))
    typer.echo(f"{len(rows):,} decisions: {out} (the last line has the hash {last[:16]})")


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as nobody in particular
        return "somebody"
