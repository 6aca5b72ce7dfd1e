"""`crowdfuse review`: a local web page on which people decide the class of disputed items."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.cli.options import Force, Threads, print_errors, refuse_same, use_threads


@print_errors
def review(
    run: Annotated[Path, typer.Argument(help="Run folder written by 'crowdfuse fit'.")],
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write the decisions made so far to this CSV file, with the columns item and label, and exit."
        ),
    ] = None,
    reviewer: Annotated[
        str | None, typer.Option(help="Name stored with each decision. Default: your login name.")
    ] = None,
    port: Annotated[
        int,
        typer.Option(help="Port of the web page. If it is in use, the next free port is taken.", min=1024, max=65535),
    ] = 8765,
    threads: Threads = 1,
    force: Force = False,
) -> None:
    """Start a web page on which you decide the class of disputed items. Only this machine can open the page.

    An item is disputed if an annotator or the prediction disagrees with the consensus. The items with the lowest
    confidence come first.
    """
    if export is not None:
        _export(run, export, force)
        return
    from crowdfuse.review.item_inputs import ItemInputs
    from crowdfuse.review.refit import Refit
    from crowdfuse.review.run_folder import read_run
    from crowdfuse.review.server import serve
    from crowdfuse.review.session import ReviewSession

    use_threads(threads)
    folder = read_run(run)
    session = ReviewSession(folder, ItemInputs(folder), reviewer or _login())
    about = session.about()
    for note in about["notes"]:
        typer.echo(f"note: {note}")
    disputed = sum(folder.is_disputed(index) for index in range(len(folder.items)))
    settled = len(session.decision_state().settled())
    typer.echo(f"{run}: {len(folder.items):,} items, {disputed:,} of them disputed, {settled:,} already settled")
    typer.echo(f"decisions are stored in {session.ledger.path} under the name {session.reviewer}")
    if session.ledger.torn_bytes:
        typer.echo("note: the last line of this file is incomplete, so its decision is ignored; decide the item again")
    serve(session, Refit(folder), port, typer.echo)


def _export(run: Path, out: Path, force: bool) -> None:
    """Write the decisions to a CSV file."""
    from crowdfuse.io.files import refuse_existing, write_text
    from crowdfuse.review.session import gold_csv, read_gold_rows
    from crowdfuse.runs.folder import DECISIONS_FILE

    refuse_existing(out, force=force)
    if out.is_dir():
        raise IsADirectoryError(f"--export {out} is a folder; give the name of a file to write")
    refuse_same(out, run / DECISIONS_FILE)
    if not (run / DECISIONS_FILE).exists():
        raise FileNotFoundError(
            f"{run / DECISIONS_FILE} does not exist: nothing is settled yet. Start with: crowdfuse review {run}"
        )
    rows, last = read_gold_rows(run)
    if not rows:
        raise ValueError(
            f"there is nothing to export: {run / DECISIONS_FILE} has only skips and decisions that were undone; decide "
            f"items with: crowdfuse review {run}"
        )
    write_text(out, gold_csv(rows))
    typer.echo(f"wrote {len(rows):,} decisions to {out} (the last line of {DECISIONS_FILE} has the hash {last[:16]})")


def _login() -> str:
    """Return the login name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no user name
        return "unknown"
