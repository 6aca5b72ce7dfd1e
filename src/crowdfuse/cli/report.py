"""`crowdfuse report`: an HTML report of a run folder, or of labels alone."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.checks.choices import check_choice
from crowdfuse.cli.aggregate import read_truth
from crowdfuse.cli.options import (
    Force,
    Json,
    Threads,
    print_errors,
    refuse_json,
    refuse_same,
    use_threads,
)
from crowdfuse.cli.reading_options import DEFAULT_READING, option_name, with_reading_options
from crowdfuse.labels.ids import format_count
from crowdfuse.labels.reading import Reading

if TYPE_CHECKING:
    from crowdfuse.report import Report


@print_errors
@with_reading_options
def report(
    run: Annotated[Path, typer.Argument(help="Run folder written by 'crowdfuse fit', or a file of labels.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="HTML file to write. A Markdown file and a JSON file with the same name are written to the same "
            "folder. Default for a run folder: report.html in the run folder. Default for a file of labels, such as "
            "labels.csv: labels-report.html in the folder of this file.",
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="File of gold (trusted) labels, with the columns item and label. They are used only for scoring."
        ),
    ] = None,
    items: Annotated[int, typer.Option(help="Number of disputed items to show, at most 200.", min=1, max=200)] = 30,
    sensitivity: Annotated[
        float,
        typer.Option(
            help="Sensitivity (recall of the positive class) to reach. The report shows the decision threshold that "
            "reaches it, and the specificity and precision at this threshold. Only for two classes, if there are "
            "gold labels.",
            min=0,
            max=1,
        ),
    ] = 0.95,
    positive: Annotated[
        str | None, typer.Option(help="Name of the positive class. Only for two classes. Default: the second class.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"Aggregation method ({', '.join(AGGREGATORS)}). Only for a file of labels. Default: dawid-skene."
        ),
    ] = None,
    reading: Reading = DEFAULT_READING,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
) -> None:
    """Write a report on the accuracy of the model and of each annotator, and on the items to check.

    For a file of labels, the report contains only what can be computed without inputs and a model. --method and the
    options for reading labels apply only to a file of labels. A run folder stores how its labels were read.
    """
    from crowdfuse.io.files import write_text
    from crowdfuse.report.report import refuse_overwriting, report_files
    from crowdfuse.runs.folder import is_finished

    if not run.exists():
        raise FileNotFoundError(f"{run}: there is no such run folder or file of labels")
    if method is not None:
        check_choice("--method", method, AGGREGATORS)
    if run.is_dir():
        _refuse_reading(run, ([] if method is None else ["method"]) + list(reading.changed_options()))
    page = out or (run / "report.html" if run.is_dir() else run.with_name(f"{run.stem}-report.html"))
    own = [path for path in run.glob("*") if path.stem != "report"] if run.is_dir() else [run]
    for place in report_files(page):
        refuse_overwriting(place, force=force)
        for given in [gold, *own]:
            refuse_same(place, given)  # not even with --force
        refuse_same(json_file, place)
    refuse_json(json_file, force)
    for given in [gold, *([] if run.is_dir() else own)]:
        refuse_same(json_file, given)
    use_threads(threads)
    shown: dict[str, Any] = {"n_items": items, "sensitivity": sensitivity, "positive": positive}
    if run.is_dir():
        from crowdfuse.runs.reporting import report_run

        made = report_run(run, gold=gold, **shown)
    else:
        made = _report_labels(run, reading, gold, method=method or "dawid-skene", **shown)
    made.save(page, overwrite=force)
    if json_file is not None:
        write_text(json_file, made.to_json())
    for kind, key in (("note", "limitations"), ("warning", "warnings")):
        for line in made.facts[key]:
            typer.echo(f"{kind}: {line}")
    typer.echo(f"report: {page}")
    if run.is_dir() and not is_finished(run):
        typer.echo(f"note: the run is not finished; continue it with: crowdfuse fit --resume {shlex.quote(str(run))}")
    elif run.is_dir() and made.facts["disputed"]["total"]:
        typer.echo(f"next: settle the disputed items with: crowdfuse review {shlex.quote(str(run))}", err=True)


def _refuse_reading(run: Path, options: list[str]) -> None:
    """Raise an error if options for reading labels are given together with a run folder, which stores these options."""
    if options:
        raise ValueError(
            f"{option_name(options[0])} cannot be used with the run folder {run}, because it already contains the "
            f"settings with which its labels were read. Leave out {option_name(options[0])}"
        )


def _report_labels(labels: Path, reading: Reading, gold: Path | None, *, method: str, **shown: Any) -> Report:
    """Return the report of a file of labels."""
    import numpy as np

    from crowdfuse.io.labels import read_labels
    from crowdfuse.report import report_labels

    ann = read_labels(labels, reading)  # without the warnings of Annotations.read: the report contains the notes
    lines = str(ann.summary()).splitlines()
    notes = [f"{line[6:7].upper()}{line[7:]}." for line in lines if line.startswith("note: ")]
    truth = None
    if gold is not None:
        rows, codes = read_truth(gold, ann, reading).T
        known = rows >= 0
        truth = np.full(len(ann), None, object)
        truth[rows[known]] = ann.classes[codes[known]]
        n_left_out = int((~known).sum())
        if n_left_out:
            notes.append(
                f"{format_count(n_left_out, 'item')} of {gold} {'was' if n_left_out == 1 else 'were'} left out "
                f"because {'it has' if n_left_out == 1 else 'they have'} no labels."
            )
    return report_labels(ann, method=method, gold=truth, notes=notes, title=f"{labels.name}: {method}", **shown)
