"""The command line: a thin shell. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, cast

import typer
from rich.console import Console
from rich.table import Table

from crowdfuse.ids import few
from crowdfuse.registry import ESTIMATORS

if TYPE_CHECKING:
    from crowdfuse.datasets.two_moons import Split

P = ParamSpec("P")
R = TypeVar("R")

app = typer.Typer(
    help="Train a classifier from annotators who disagree, and see whom to believe, on which item, and why.",
    epilog="Example: crowdfuse demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
reproduce = typer.Typer(
    help="The paper's experiments, its numbers beside ours.",
    epilog="Example: crowdfuse reproduce twomoon --seeds 0,1,2,3,4 --json out.json",
    no_args_is_help=True,
)
app.add_typer(reproduce, name="reproduce")

Threads = Annotated[int, typer.Option(help="CPU threads. More than one pays only on an idle machine.", min=1)]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Seed = Annotated[int, typer.Option(help="The one seed of everything random.", min=0)]


def friendly(command: Callable[P, R]) -> Callable[P, R]:
    """What is wrong with the input is said in one message, not in a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError) as error:
            # echo, not rich: names of people's files and classes may hold what rich takes for markup
            typer.echo(f"{typer.style('error:', fg='red')} {error}", err=True)
            raise typer.Exit(2) from error

    return run


def _threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def _version(value: bool) -> None:
    if value:
        from crowdfuse import __version__

        typer.echo(f"crowdfuse {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train a classifier from annotators who disagree, and see whom to believe, on which item, and why."""


@app.command(epilog="Example: crowdfuse demo --out demo-report")
@friendly
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the report goes.")] = Path("demo-report"),
    seed: Seed = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the data, for each method.", min=1)] = 40,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Everything on built-in data: scikit-learn's digits, five made-up annotators, a third of the labels missing."""
    from crowdfuse.experiments.demo import run_demo
    from crowdfuse.files import write_json
    from crowdfuse.report.demo import write_demo_report

    _threads(threads)
    _refuse_outputs(folder, "report.md", json_file, force)
    result = run_demo(seed=seed, epochs=epochs, verbose=0 if quiet else 1)
    console = Console(highlight=False)
    table = Table("method", "held-out accuracy", title=f"Digits, {result.n_test} held-out items")
    for method, accuracy in result.accuracy.items():
        table.add_row(method, f"{100 * accuracy:.1f} %")
    console.print(table)
    table = Table("annotator", "labels", "estimated reliability", "true", title="Whom to believe")
    for row in result.annotators:
        table.add_row(row["annotator"], str(row["labels"]), f"{row['estimated']:.3f}", f"{row['true']:.3f}")
    console.print(table)
    write_demo_report(result, folder, force=force)
    if json_file is not None:
        write_json(json_file, result.figures())
    typer.echo(f"report: {folder / 'report.md'}")


@app.command(
    epilog="Example: crowdfuse fit labels.csv --inputs features.npz --out run/ "
    "--test gold.csv --on-missing drop   |   crowdfuse fit --resume run/"
)
@friendly
def fit(
    context: typer.Context,
    labels: Annotated[Path | None, typer.Argument(help="CSV, TSV or Parquet: item, annotator, label.")] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="Features (.npy, .npz, .csv, .tsv, .parquet) or a folder of images.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="The run folder to make.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder; nothing else is needed.")] = None,
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(ESTIMATORS)}.")] = "fusion",
    validation: Annotated[Path | None, typer.Option(help="Gold (item, label) that chooses the epoch.")] = None,
    test: Annotated[Path | None, typer.Option(help="Gold (item, label) that the trained model is scored on.")] = None,
    gold: Annotated[Path | None, typer.Option(help="Gold to train on; true-label needs it.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; 40 if not given.", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Items a step; 64 if not given.", min=1)] = None,
    backbone: Annotated[str | None, typer.Option(help="auto, mlp, lenet or identity.")] = None,
    seed: Seed = 0,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting of the classifier, as name=value; may be repeated."),
    ] = None,
    item: Annotated[str | None, typer.Option(help="Name of the item column.")] = None,
    annotator: Annotated[str | None, typer.Option(help="Name of the annotator column.")] = None,
    label: Annotated[str | None, typer.Option(help="Name of the label column.")] = None,
    classes: Annotated[str | None, typer.Option(help="All classes, separated by commas.")] = None,
    on_missing: Annotated[
        str, typer.Option(help="Items without labels or without inputs: error, or drop (go on without them).")
    ] = "error",
    on_conflict: Annotated[
        str, typer.Option(help="Two labels of one annotator on one item: error, first, last or drop.")
    ] = "error",
    image_size: Annotated[int | None, typer.Option(help="Resize images to this many pixels a side.", min=16)] = None,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Train on your own labels and inputs; writes a run folder with model, fused labels and annotators."""
    from crowdfuse import runs

    verbose = 0 if quiet else 1
    if resume is not None:
        _refuse_beside_resume(context)
        _refuse_json(json_file, force)
        if runs.is_finished(resume):
            typer.echo(f"{resume} is finished already; there is nothing to go on with")
        _report(runs.resume(resume, verbose=verbose), resume, json_file)
        return
    absent = [name for name, value in (("LABELS", labels), ("--inputs", inputs), ("--out", folder)) if value is None]
    if labels is None or inputs is None or folder is None:
        raise ValueError(f"fit needs {', '.join(absent)}; see crowdfuse fit --help for an example")
    _refuse_json(json_file, force)
    for given in (labels, inputs, validation, test, gold):
        _refuse_same(json_file, given)
    chosen = {"epochs": epochs, "batch_size": batch_size, "backbone": backbone, "device": device, "random_state": seed}
    job = runs.Job(
        labels=str(labels),
        inputs=str(inputs),
        method=method,
        settings=_settings({name: value for name, value in chosen.items() if value is not None}, settings or []),
        validation=None if validation is None else str(validation),
        test=None if test is None else str(test),
        gold=None if gold is None else str(gold),
        columns={"item": item, "annotator": annotator, "label": label},
        classes=None if classes is None else _parse_classes(classes),
        on_conflict=_one_of("--on-conflict", on_conflict, ("error", "first", "last", "drop")),
        on_missing=_one_of("--on-missing", on_missing, ("error", "drop")),
        image_size=image_size,
        threads=threads,
    )
    _report(runs.start(job, folder, force=force, verbose=verbose), folder, json_file)


def _report(summary: dict[str, Any], run: Path, json_file: Path | None) -> None:
    """Say how a run went; one that Ctrl-C ended leaves with the exit code of that."""
    from crowdfuse.files import write_json

    for note in summary["notes"]:
        typer.echo(f"note: {note}")
    typer.echo(
        f"{summary['method']}: {summary['labelled items']:,} items, {summary['annotators']:,} annotators, "
        f"{summary['labels']:,} labels, {len(summary['classes']):,} classes ({few(summary['classes'])}); "
        f"gold was used for {summary['gold was used for']}"
    )
    if "test accuracy" in summary:
        typer.echo(f"test accuracy: {100 * summary['test accuracy']:.2f} % of {summary['test items']:,} items")
    if json_file is not None:
        write_json(json_file, summary)
    if summary["interrupted"]:
        typer.echo(f"interrupted after {summary['epochs']} epochs; go on with: crowdfuse fit --resume {run}")
    typer.echo(f"run: {run}")
    if summary["interrupted"]:
        raise typer.Exit(130)


def _refuse_beside_resume(context: typer.Context) -> None:
    """A resumed run goes on as it was started; an option that would change nothing is not taken in silence."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    allowed = ("resume", "json_file", "force", "quiet")
    given = [
        options[name]
        for name in context.params
        if name not in allowed and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise ValueError(f"--resume takes everything from the run folder; leave out {', '.join(given)}")


@app.command(epilog="Example: crowdfuse predict run/ images/ --out predictions.csv --proba")
@friendly
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder, or the model folder in it.")],
    inputs: Annotated[Path, typer.Argument(help="Features or a folder of images, as for fit.")],
    file: Annotated[Path, typer.Option("--out", help="The CSV to write.")] = Path("predictions.csv"),
    proba: Annotated[bool, typer.Option("--proba", help="A column of probability for every class as well.")] = False,
    item: Annotated[str | None, typer.Option(help="Name of the item column.")] = None,
    image_size: Annotated[
        int | None, typer.Option(help="As in fit; by itself what the model was trained on.", min=16)
    ] = None,
    threads: Threads = 1,
    force: Force = False,
) -> None:
    """Predict the class of new items: item, label, confidence."""
    from crowdfuse.runs import predict_file

    _threads(threads)
    count = predict_file(run, inputs, file, proba=proba, item=item, image_size=image_size, force=force)
    typer.echo(f"{count:,} predictions: {file}")


@reproduce.command(epilog="Example: crowdfuse reproduce twomoon --seeds 0,1,2,3,4 --json out.json")
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

    chosen = cast("Split", _one_of("--split", split, ("text", "code")))
    _threads(threads)
    _refuse_outputs(folder, "twomoon.json", json_file, force)
    runs = run_all(_integers(seeds, "--seeds"), chosen, epochs, verbose=0 if quiet else 1)
    figures = write_twomoon_report(runs, folder, split=chosen, epochs=epochs, force=force)
    typer.echo(markdown(runs, chosen, epochs))
    if json_file is not None:
        write_json(json_file, figures)
    typer.echo(f"figures: {folder}")


def _refuse_outputs(folder: Path, marker: str, json_file: Path | None, force: bool) -> None:
    """What could not be written in the end is refused before any work."""
    from crowdfuse.files import refuse_existing, refuse_foreign

    refuse_existing(folder, force=force)
    refuse_foreign(folder, marker)
    _refuse_json(json_file, force)


def _refuse_same(output: Path | None, given: Path | None) -> None:
    """What a command reads is never what it writes, not even with --force."""
    if output is not None and given is not None and output.resolve() == given.resolve():
        raise ValueError(f"{output} would be overwritten, and it is also read; choose another name for the output")


def _refuse_json(path: Path | None, force: bool) -> None:
    from crowdfuse.files import refuse_existing

    if path is not None:
        if path.is_dir():
            raise IsADirectoryError(f"--json {path} is a folder; name a file to write")
        refuse_existing(path, force=force)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return value


def _integers(text: str, name: str) -> list[int]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{name} must be whole numbers separated by commas, got {text!r}") from error
    if any(value < 0 for value in values):
        raise ValueError(f"{name} must not be negative, got {text!r}")
    if len(set(values)) < len(values):
        raise ValueError(f"{name} names a seed twice: {text!r}")
    return values


def _parse_classes(text: str) -> list[Any]:
    """Names separated by commas; all integers are integers, as they are in a table."""
    import numpy as np

    from crowdfuse.ids import from_text, refuse_repeats

    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise ValueError(f"--classes must be names separated by commas, got {text!r}")
    refuse_repeats(np.array(names, dtype=object), "--classes")
    classes: list[Any] = from_text(np.array(names, dtype=object)).tolist()
    return classes


def _settings(options: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """Settings from options of their own and from `--set`, each given once."""
    settings = _parse_settings(pairs)
    twice = [name for name in settings if name in options and not (name == "random_state" and options[name] == 0)]
    if twice:
        option = "--seed" if twice[0] == "random_state" else f"--{twice[0].replace('_', '-')}"
        raise ValueError(f"{option} and --set {twice[0]} say the same thing twice; keep one")
    return options | settings


def _parse_settings(pairs: list[str]) -> dict[str, Any]:
    """`name=value` with the value as JSON where it is JSON, else as text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes name=value, got {pair!r}")
        name = name.strip().replace("-", "_")
        if name in settings:
            raise ValueError(f"--set {name} is given twice; keep one")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings
