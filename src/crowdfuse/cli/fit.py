"""`crowdfuse fit` and `crowdfuse predict`: train on a user's own files, and predict the classes of new items."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from crowdfuse.checks.choices import check_choice
from crowdfuse.checks.durations import format_duration
from crowdfuse.cli.options import (
    INPUTS_HELP,
    LABELS_HELP,
    Encoder,
    Force,
    ImageSize,
    Json,
    OnMissing,
    Quiet,
    Seed,
    Threads,
    parse_settings,
    print_errors,
    refuse_json,
    refuse_same,
    use_threads,
)
from crowdfuse.cli.reading_options import DEFAULT_READING, with_reading_options
from crowdfuse.estimators.registry import DEFAULT_METHOD, ESTIMATORS
from crowdfuse.labels.ids import format_count, format_names
from crowdfuse.labels.number_format import format_confidence, format_percent
from crowdfuse.labels.reading import Reading
from crowdfuse.training.distributed import is_rank_zero, launched_processes, raise_in_all_processes

if TYPE_CHECKING:
    from crowdfuse.estimators.base import CrowdClassifier
    from crowdfuse.runs import Job, JobData


@print_errors
@with_reading_options
def fit(
    context: typer.Context,
    labels: Annotated[Path | None, typer.Argument(help=LABELS_HELP)] = None,
    inputs: Annotated[Path | None, typer.Option(help=INPUTS_HELP)] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Run folder to create.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the interrupted run in this folder, with its stored options.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"Method, one of: {', '.join(ESTIMATORS)}. Default: {DEFAULT_METHOD} (see 'crowdfuse methods')."
        ),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(
            help="File of gold (trusted) labels used to choose the best epoch, with the columns item and label."
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(help="File of gold labels used to score the trained model, with the columns item and label."),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="File of gold labels used for training, with the columns item and label. Required by the method "
            "true-label."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the data. Default: as many as the method needs.", min=1)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Number of items per training step. Default: 64.", min=1)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Network that turns inputs into features: auto (mlp for tables, lenet for images), mlp, "
            "lenet, resnet18, or identity (use the inputs as they are)."
        ),
    ] = None,
    encoder: Encoder = None,
    effort: Annotated[
        str,
        typer.Option(
            help="normal, or low. low trains only one model, without cross-fitting: it is faster, but less accurate, "
            "and the confidence may be too high."
        ),
    ] = "normal",
    max_time: Annotated[
        str | None,
        typer.Option(
            help="Time limit of all training runs together (the model and the folds), such as 90s, 10m or 2h. Each "
            "training run gets a share of the time, and fewer epochs if it would take longer. Default: no limit."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Number of cross-fitting folds: for the consensus, each item is predicted by a model that was "
            "trained without its fold. If 0, there is no cross-fitting, and the confidence may be too high. Default: "
            "5.",
            min=0,
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes that train folds at the same time.", min=1)] = 1,
    seed: Seed = 0,
    device: Annotated[
        str | None, typer.Option(help="Device to train on: auto, cpu, cuda or mps. Default: auto.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set any other parameter of the classifier, as name=value. May be repeated."),
    ] = None,
    reading: Reading = DEFAULT_READING,
    on_missing: OnMissing = "error",
    image_size: ImageSize = None,
    threads: Threads = 1,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier on labels and inputs, and write everything to a run folder.

    The folder contains the model, the consensus of each item with its confidence, the accuracy of each annotator, and
    the labels that are most likely wrong.
    """
    from crowdfuse import runs
    from crowdfuse.runs.time_limits import with_time_limit

    verbose = 0 if quiet or not is_rank_zero() else 1
    shown: list[str] = []  # notes that were printed before the training
    if resume is not None:
        with raise_in_all_processes():
            _refuse_beside_resume(context)
            _refuse_jobs(jobs)
            refuse_json(json_file, force)
            finished = runs.is_finished(resume)
        if finished and is_rank_zero():
            typer.echo(f"{resume} is already finished; nothing to resume")
        on_ready = partial(_print_start, is_default=False, shown=shown)
        _print_summary(runs.resume(resume, verbose=verbose, jobs=jobs, on_ready=on_ready), resume, json_file, shown)
        return
    with raise_in_all_processes():
        absent = [name for name, value in (("LABELS", labels), ("--out", folder)) if value is None]
        if labels is None or folder is None:
            raise ValueError(f"'crowdfuse fit' needs {' and '.join(absent)}; see 'crowdfuse fit --help' for an example")
        _refuse_jobs(jobs)
        if folds == 1:
            raise ValueError("--folds must be 0 or at least 2, got 1: with one fold, no items are left for training")
        if folds and effort == "low":
            raise ValueError(
                f"--effort low trains no folds, so it cannot be combined with --folds {folds}; leave out one of the two"
            )
        refuse_json(json_file, force)
        for given in (labels, inputs, validation, test, gold):
            refuse_same(json_file, given)
        chosen = {
            "epochs": epochs,
            "batch_size": batch_size,
            "backbone": backbone,
            "encoder": encoder,
            "device": device,
            "random_state": seed,
            "max_time": max_time,
        }
        job = runs.Job(
            labels=str(labels),
            inputs=None if inputs is None else str(inputs),
            method=method or DEFAULT_METHOD,
            settings=parse_settings(
                {name: value for name, value in chosen.items() if value is not None}, settings or []
            ),
            validation=None if validation is None else str(validation),
            test=None if test is None else str(test),
            gold=None if gold is None else str(gold),
            reading=reading,
            on_missing=check_choice("--on-missing", on_missing, ("error", "drop")),
            image_size=image_size,
            folds=5 if folds is None else folds,
            effort=check_choice("--effort", effort, ("normal", "low")),
            threads=threads,
        )
        if max_time is not None:
            job = with_time_limit(job, max_time)
    on_ready = partial(_print_start, is_default=method is None, shown=shown)
    summary = runs.start(job, folder, force=force, verbose=verbose, jobs=jobs, on_ready=on_ready)
    _print_summary(summary, folder, json_file, shown)


def _print_start(classifier: CrowdClassifier, data: JobData, job: Job, *, is_default: bool, shown: list[str]) -> None:
    """Print what was read and what is trained, before the training; add the notes that were printed to `shown`."""
    from crowdfuse.runs.fold_trainings import training_costs

    ann = data.train_annotations
    n_items = int((np.diff(ann.indptr) > 0).sum())
    typer.echo(
        f"data: {format_count(n_items, 'item')}, {format_count(data.all_annotations.n_annotators, 'annotator')}, "
        f"{format_count(ann.n_labels, 'label')}, classes {format_names(ann.classes)}"
    )
    for note in data.notes:
        typer.echo(f"note: {note}")
        shown.append(note)
    advice = " (default; see 'crowdfuse methods')" if is_default else ""
    typer.echo(f"method: {classifier.method_name}{advice}")
    if classifier.encoder_ is not None:
        typer.echo(f"encoder: {classifier.encoder_.describe()}, {classifier.n_features_in_:,} features per item")
    typer.echo(f"network: {_describe_network(classifier)}")
    typer.echo(f"effort: {_describe_effort(job, len(training_costs(classifier, job, data)))}")
    if classifier.encoder_ is None and data.loaded.short_names is not None and len(classifier.input_shape_) == 3:
        typer.echo(
            "note: this network is trained from scratch on your images. On photographs, a frozen pretrained encoder is "
            "usually better: add --encoder torchvision/resnet50 to this command (after 'pip install torchvision "
            "--no-deps'), or see 'crowdfuse fit --help'"
        )


def _print_summary(summary: dict[str, Any], run: Path, json_file: Path | None, shown: list[str]) -> None:
    """Print the summary of a run, without the notes in `shown`; exit with code 130 if Ctrl-C ended the run.

    Only the process of rank 0 prints.
    """
    from crowdfuse.io.files import write_json

    if not is_rank_zero():
        return
    if summary["gold_used_for"] != "nothing":
        typer.echo(f"gold labels were used for {summary['gold_used_for']}")
    for kind in ("note", "warning"):
        for message in (line for line in summary[f"{kind}s"] if line not in shown):
            typer.echo(f"{kind}: {message}")
    if "test_accuracy" in summary:
        n_items = format_count(summary["n_test_items"], "item")
        typer.echo(f"test accuracy: {format_percent(summary['test_accuracy'])} of {n_items}")
    if json_file is not None:
        write_json(json_file, summary)
    if not summary["interrupted"]:
        typer.echo(f"result: {_describe_result(summary)}")
    else:
        done = f"after {summary['n_epochs']} epochs" if summary["n_epochs"] else "before the model was trained"
        typer.echo(f"interrupted {done}; continue with: crowdfuse fit --resume {run}")
    typer.echo(f"run folder: {run}")
    if summary["interrupted"]:
        raise typer.Exit(130)
    typer.echo(f"next: crowdfuse report {shlex.quote(str(run))}", err=True)


def _describe_result(summary: dict[str, Any]) -> str:
    """Return the result of a run in one line."""
    n_items = summary.get("n_consensus_items", summary["n_labelled_items"])  # runs of earlier versions lack the first
    line = f"consensus for {format_count(n_items, 'item')}"
    if summary.get("mean_confidence") is not None:  # a run of an earlier version does not have it
        line += f", mean confidence {format_confidence(summary['mean_confidence'])}"
    if summary.get("n_estimated_annotators"):
        n_annotators = format_count(summary["n_estimated_annotators"], "annotator")
        line += f"; {summary['n_inaccurate_annotators']:,} of {n_annotators} with an estimated accuracy below 60 %"
    return line


def _describe_effort(job: Job, n_trainings: int) -> str:
    """Return the effort of a job, how often it trains, and its time limit: 'normal (6 trainings: ...)'."""
    from crowdfuse.runs.time_limits import total_time_limit

    parts = ["1 training"]
    if n_trainings > 1:
        parts = [f"{n_trainings} training runs: the model, and {n_trainings - 1} on folds, for the consensus"]
    elif job.effort == "low" or not job.folds:
        parts.append("no cross-fitting, so the confidence may be too high")
    seconds = total_time_limit(job)
    if seconds is not None:
        parts.append(f"at most {format_duration(seconds)}")
    elif n_trainings > 1:
        parts.append("--effort low trains once, --max-time limits the time")
    return f"{job.effort} ({'; '.join(parts)})"


def _describe_network(classifier: CrowdClassifier) -> str:
    """Return the name of the network, the widths of its hidden layers and its inputs: 'mlp (128) on 20 features'."""
    from crowdfuse.nets import choose_augmentation

    name, shape = classifier.backbone, classifier.input_shape_
    if not isinstance(name, str):
        name = "custom"
    elif name == "auto":
        name = "mlp" if len(shape) == 1 else "lenet"
    if name in ("mlp", "identity") and classifier.hidden:
        name = f"{name} ({', '.join(map(str, classifier.hidden))})"
    if len(shape) == 1:
        return f"{name} on {format_count(shape[0], 'feature')}"
    words = f"{name} on images of {shape[-1]} x {shape[-2]} pixels"
    augmentation = choose_augmentation(classifier.augment, classifier.backbone, shape)
    return words if augmentation is None else f"{words}, augmentation: {augmentation}"


def _refuse_jobs(jobs: int) -> None:
    """Raise an error if --jobs is given and torchrun launched several processes, which already share the machine."""
    if jobs > 1 and launched_processes() not in (None, (1, 1)):
        raise ValueError(
            f"--jobs {jobs} cannot be combined with torchrun, because each process of torchrun would start further "
            "processes; leave out --jobs"
        )


def _refuse_beside_resume(context: typer.Context) -> None:
    """Raise an error if other options are given with --resume: a resumed run keeps its stored options."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    allowed = ("resume", "jobs", "json_file", "force", "quiet")
    given = [
        options[name]
        for name in context.params
        if name not in allowed and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise ValueError(f"--resume uses the options that are stored in the run folder; leave out {', '.join(given)}")


@print_errors
def predict(
    run: Annotated[Path, typer.Argument(help="Run folder written by 'crowdfuse fit', or the model folder inside it.")],
    inputs: Annotated[
        Path,
        typer.Argument(
            help="New inputs in the format that was used for fit: a file of features or texts, or a folder of images."
        ),
    ],
    file: Annotated[Path, typer.Option("--out", help="CSV file to write.")] = Path("predictions.csv"),
    proba: Annotated[bool, typer.Option("--proba", help="Also write one probability column per class.")] = False,
    item: Annotated[
        str | None,
        typer.Option(
            help="Name of the item column. Default: the name that was given with --item in fit, if the inputs have "
            "this column; otherwise a column with a usual name, such as item or task."
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="Name of the column of texts. Default: the name that was given with --text in fit, if the inputs have "
            "this column; otherwise the column is detected by its name, such as text, or by its content."
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(help="Resize images to this many pixels per side. Default: the size used in training.", min=16),
    ] = None,
    threads: Threads = 1,
    force: Force = False,
) -> None:
    """Predict the class of new items, and write a CSV file with the columns item, label and confidence."""
    from crowdfuse.runs import predict_file

    use_threads(threads)
    written = predict_file(run, inputs, file, proba=proba, item=item, text=text, image_size=image_size, force=force)
    if written.limitations:
        typer.echo(f"note: {' '.join(written.limitations)}")
    typer.echo(f"{format_count(written.n_items, 'prediction')}: {file}")
