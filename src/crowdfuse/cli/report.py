"""`crowdfuse report`: a run folder as a page to look at."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.cli.shell import Force, Json, Threads, friendly, refuse_json, refuse_same, use_threads


@friendly
def report(
    run: Annotated[Path, typer.Argument(help="A run folder, as crowdfuse fit makes it.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The .html file to write; .md and .json go beside it.")
    ] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold (item, label) to judge by; trains nothing.")] = None,
    items: Annotated[int, typer.Option(help="Disputed items to show, at most 200.", min=1, max=200)] = 30,
    sensitivity: Annotated[
        float, typer.Option(help="Of two classes: the share of the positive one to be found.", min=0, max=1)
    ] = 0.95,
    positive: Annotated[str | None, typer.Option(help="Of two classes: the one to be found; else the second.")] = None,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
) -> None:
    """Show a run: is the model good, who are the annotators, where do they fail, what to look at again."""
    from crowdfuse.files import write_text
    from crowdfuse.report.run_report import faces, refuse_overwriting
    from crowdfuse.runs.reporting import report_run

    page = run / "report.html" if out is None else out
    for place in faces(page):
        refuse_overwriting(place, force=force)
        for given in [gold, *(path for path in run.glob("*") if path.stem != "report")]:
            refuse_same(place, given)  # with --force neither
        refuse_same(json_file, place)
    refuse_json(json_file, force)
    refuse_same(json_file, gold)
    use_threads(threads)
    made = report_run(run, gold=gold, n_items=items, sensitivity=sensitivity, positive=positive)
    made.save(page, overwrite=force)
    if json_file is not None:
        write_text(json_file, made.to_json())
    for line in made.facts["missing"]:
        typer.echo(f"note: {line}")
    typer.echo(f"report: {page}")
    if made.facts["disputed"]["total"]:
        typer.echo(f"settle what is disputed with: crowdfuse review {shlex.quote(str(run))}", err=True)
