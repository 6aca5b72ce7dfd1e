"""`crowdfuse report`: a run folder, or labels alone, as a page to look at."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfuse.aggregation import AGGREGATORS
from crowdfuse.checks.choices import check_choice
from crowdfuse.cli.aggregate import read_truth
from crowdfuse.cli.fit import parse_classes
from crowdfuse.cli.shell import (
    AnnotatorColumn,
    Classes,
    Force,
    Format,
    ItemColumn,
    Json,
    LabelColumn,
    OnBad,
    OnConflict,
    Question,
    Threads,
    friendly,
    refuse_json,
    refuse_same,
    use_threads,
)
from crowdfuse.labels.annotations import FORMATS
from crowdfuse.labels.ids import format_count

if TYPE_CHECKING:
    from crowdfuse.io.labels import Reading
    from crowdfuse.report.run_report import Report


@friendly
def report(
    run: Annotated[
        Path, typer.Argument(help="A run folder, as crowdfuse fit makes it; or a file of labels, without inputs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The .html file to write; .md and .json go beside it. If not given: report.html in the run folder, "
            "labels-report.html beside labels.csv.",
        ),
    ] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold (item, label) to judge by; trains nothing.")] = None,
    items: Annotated[int, typer.Option(help="Disputed items to show, at most 200.", min=1, max=200)] = 30,
    sensitivity: Annotated[
        float, typer.Option(help="Of two classes: the share of the positive one to be found.", min=0, max=1)
    ] = 0.95,
    positive: Annotated[str | None, typer.Option(help="Of two classes: the one to be found; else the second.")] = None,
    method: Annotated[
        str | None, typer.Option(help=f"Of labels alone: {', '.join(AGGREGATORS)}; if not given, dawid-skene.")
    ] = None,
    item: ItemColumn = None,
    annotator: AnnotatorColumn = None,
    label: LabelColumn = None,
    format: Format = "auto",
    question: Question = None,
    classes: Classes = None,
    on_conflict: OnConflict = "error",
    on_bad: OnBad = "error",
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
) -> None:
    """Show a run: is the model good, who are the annotators, where do they fail, what to look at again.

    Of a file of labels it shows the same, as far as it can be told without inputs and a model. How labels are read,
    --method and what follows it, goes with such a file; a run knows how it read its own.
    """
    from crowdfuse.io.files import write_text
    from crowdfuse.report.run_report import faces, refuse_overwriting

    if not run.exists():
        raise FileNotFoundError(f"{run}: no such run folder, and no such file of labels")
    if method is not None:
        check_choice("--method", method, AGGREGATORS)
    check_choice("--on-conflict", on_conflict, ("error", "first", "last", "drop"))
    check_choice("--on-bad", on_bad, ("error", "drop"))
    check_choice("--format", format, FORMATS)
    how: dict[str, Any] = {"item": item, "annotator": annotator, "label": label, "format": format, "question": question}
    how |= {"classes": classes, "on_conflict": on_conflict, "on_bad": on_bad}
    if run.is_dir():
        _refuse_reading(run, {"method": method} | how)
    page = out or (run / "report.html" if run.is_dir() else run.with_name(f"{run.stem}-report.html"))
    own = [path for path in run.glob("*") if path.stem != "report"] if run.is_dir() else [run]
    for place in faces(page):
        refuse_overwriting(place, force=force)
        for given in [gold, *own]:
            refuse_same(place, given)  # with --force neither
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
        from crowdfuse.io.labels import Reading

        reading = Reading(**how | {"classes": None if classes is None else parse_classes(classes)})
        made = _report_labels(run, reading, gold, method=method or "dawid-skene", **shown)
    made.save(page, overwrite=force)
    if json_file is not None:
        write_text(json_file, made.to_json())
    for line in made.facts["missing"]:
        typer.echo(f"note: {line}")
    typer.echo(f"report: {page}")
    if run.is_dir() and made.facts["disputed"]["total"]:
        typer.echo(f"settle what is disputed with: crowdfuse review {shlex.quote(str(run))}", err=True)


def _refuse_reading(run: Path, how: dict[str, Any]) -> None:
    """A run has read its labels: to read them otherwise would be another run."""
    usual = {"format": "auto", "on_conflict": "error", "on_bad": "error"}
    for name, value in how.items():
        if value != usual.get(name):
            raise ValueError(
                f"--{name.replace('_', '-')} goes with a file of labels, and {run} is a folder: a run knows how it "
                "read its own; leave it out"
            )


def _report_labels(labels: Path, how: Reading, gold: Path | None, *, method: str, **shown: Any) -> Report:
    import numpy as np

    from crowdfuse.io.labels import read_labels
    from crowdfuse.report.labels_report import report_labels

    ann = read_labels(labels, how)  # unlike Annotations.read it does not warn: the report has the notes
    lines = str(ann.summary()).splitlines()
    notes = [f"{line[6:7].upper()}{line[7:]}." for line in lines if line.startswith("note: ")]
    truth = None
    if gold is not None:
        rows, codes = read_truth(gold, ann, item=how.item, label=how.label, question=how.question, on_bad=how.on_bad).T
        known = rows >= 0
        truth = np.full(len(ann), None, object)
        truth[rows[known]] = ann.classes[codes[known]]
        if not known.all():
            notes.append(f"{format_count(int((~known).sum()), 'item')} of {gold} without labels, left out.")
    return report_labels(ann, method=method, gold=truth, notes=notes, title=f"{labels.name}: {method}", **shown)
