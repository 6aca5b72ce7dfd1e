"""`crowdfuse aggregate`: one consensus label per item from labels alone, and the accuracy of each annotator."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfuse.aggregation import AGGREGATORS, ITERATIVE, Aggregate
from crowdfuse.checks.choices import check_choice
from crowdfuse.cli.options import (
    LABELS_HELP,
    Force,
    Json,
    Quiet,
    Seed,
    print_errors,
    refuse_json,
    refuse_same,
)
from crowdfuse.cli.reading_options import DEFAULT_READING, with_reading_options
from crowdfuse.labels.ids import format_count, format_names, positions_of
from crowdfuse.labels.number_format import format_percent
from crowdfuse.labels.reading import Reading

if TYPE_CHECKING:
    from crowdfuse import Annotations


@print_errors
@with_reading_options
def aggregate(
    labels: Annotated[Path, typer.Argument(help=LABELS_HELP)],
    out: Annotated[
        Path, typer.Option("--out", help="CSV file to write, with the columns item, label, confidence and n_labels.")
    ],
    method: Annotated[str, typer.Option(help=f"Aggregation method, one of: {', '.join(AGGREGATORS)}.")] = "dawid-skene",
    proba: Annotated[bool, typer.Option("--proba", help="Also write one probability column per class.")] = False,
    annotators: Annotated[
        Path | None,
        typer.Option(
            help="Also write one row per annotator to this CSV file: number of labels, and estimated accuracy with its "
            "95 % interval. The rows are sorted by the upper end of the interval, lowest first."
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="File of gold (trusted) labels, with the columns item and label. They are used only to score the "
            "result."
        ),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Maximum number of iterations of an iterative method. Default: 100.", min=1)
    ] = None,
    seed: Seed = 0,
    reading: Reading = DEFAULT_READING,
    json_file: Json = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Estimate the consensus label of each item and the accuracy of each annotator from labels alone."""
    from crowdfuse.io.files import write_csv, write_json
    from crowdfuse.io.labels import read_labels

    check_choice("--method", method, AGGREGATORS)
    if iterations is not None and method not in ITERATIVE:
        raise ValueError(
            f"--iterations cannot be used with --method {method}, which is not iterative; leave out --iterations"
        )
    _refuse_outputs([out, annotators, json_file], [labels, gold], force)
    refuse_json(json_file, force)
    ann = read_labels(labels, reading)  # without the warnings of Annotations.read: notes are printed below
    truth = None if gold is None else read_truth(gold, ann, reading)
    result = _run(method, ann, iterations, seed, quiet)

    notes = [line for line in str(ann.summary()).splitlines() if line.startswith("note: ")]
    if not result.converged:
        notes.append(
            f"note: stopped after {format_count(result.n_iter, 'iteration')} before convergence; raise --iterations"
        )
    figures: dict[str, Any] = {
        "method": result.method,
        "items": ann.n_items,
        "annotators": ann.n_annotators,
        "labels": ann.n_labels,
        "classes": ann.classes.tolist(),
        "iterations": result.n_iter,
        "converged": result.converged,
        "log_likelihood": list(result.log_likelihood),
        "notes": [note.removeprefix("note: ") for note in notes],
    }
    for note in notes:
        typer.echo(note)
    typer.echo(
        f"{method}: {ann.n_items:,} items, {ann.n_annotators:,} annotators, {ann.n_labels:,} labels, "
        f"{ann.n_classes:,} classes ({format_names(ann.classes)})"
    )
    if truth is not None:
        with_labels = truth[truth[:, 0] >= 0]
        judged = with_labels[result.consensus_codes[with_labels[:, 0]] >= 0]
        right = result.consensus_codes[judged[:, 0]] == judged[:, 1]
        figures |= {
            "gold_items": len(judged),
            "gold_items_without_labels": len(truth) - len(judged),
            "accuracy": float(right.mean()) if len(judged) else None,
        }
        share = format_percent(right.mean()) if len(judged) else "unknown"
        n_unlabelled = len(truth) - len(judged)
        more = f"; {format_count(n_unlabelled, 'more item')} with gold but no annotator labels" if n_unlabelled else ""
        typer.echo(f"accuracy: {share} of {format_count(len(judged), 'item')} with gold{more}")
        for warning in _gold_warnings(ann, result, with_labels):
            typer.echo(f"warning: {warning}")
    write_csv(out, _header(result, proba), _rows(result, proba))
    if annotators is not None:
        columns = _annotator_columns(ann, result)
        write_csv(annotators, list(columns), zip(*columns.values(), strict=True))
    if json_file is not None:
        write_json(json_file, figures)
    typer.echo(f"{format_count(ann.n_items, 'item')}: {out}")


def _refuse_outputs(outputs: list[Path | None], inputs: list[Path | None], force: bool) -> None:
    """Raise an error if an output file exists, is also an input, or is given for two outputs."""
    from crowdfuse.io.files import refuse_existing

    for output in outputs:
        if output is not None:
            if output.is_dir():
                raise IsADirectoryError(f"{output} is a folder; give the name of a file to write")
            refuse_existing(output, force=force)
            for given in inputs:
                refuse_same(output, given)
    for one, other in combinations([path for path in outputs if path is not None], 2):
        if one.resolve() == other.resolve():
            raise ValueError(f"two outputs would be written to {one}; choose another name for one of them")


def read_truth(path: Path, ann: Annotations, reading: Reading) -> Any:
    """Return (item position, class position) of each gold label, shape (n, 2). An unknown item has position -1."""
    import numpy as np

    from crowdfuse.io.gold import read_gold_beside_labels

    ids, names = read_gold_beside_labels(path, reading)
    rows, codes = positions_of(ids, ann.items), positions_of(names, ann.classes)
    known = rows >= 0
    if not known.any():
        raise ValueError(
            f"no item of {path} has labels: its items are {format_names(ids, 3)}, but the labelled items are "
            f"{format_names(ann.items, 3)}; use the same item ids in both files"
        )
    outside = known & (codes < 0)
    if outside.any():
        raise ValueError(
            f"{path}: item {format_names(ids[outside][:1])} has gold {format_names(names[outside][:1])}, which is "
            f"not one of the {ann.n_classes:,} classes ({format_names(ann.classes)}); correct it, or list all classes "
            "with --classes"
        )
    return np.column_stack([rows, codes])


def _run(method: str, ann: Annotations, iterations: int | None, seed: int, quiet: bool) -> Aggregate:
    """Return the result of an aggregation method, with progress if it is iterative."""
    from crowdfuse.training.progress import make_progress_bar

    if method not in ITERATIVE:
        return AGGREGATORS[method](ann, seed=seed)
    max_iter = iterations or 100
    with make_progress_bar(0 if quiet else 1) as progress:
        task = progress.add_task(method, total=max_iter)
        return AGGREGATORS[method](
            ann, max_iter=max_iter, seed=seed, on_iteration=lambda number, _: progress.update(task, completed=number)
        )


def _header(result: Aggregate, proba: bool) -> list[str]:
    """Return the column names of the CSV file."""
    header = ["item", "label", "confidence", "n_labels"]
    return header + [f"p_{name}" for name in result.classes] if proba else header


def _rows(result: Aggregate, proba: bool) -> Any:
    """Yield one row per item; label and confidence are empty for items without labels."""
    confidence = result.confidence
    for n, (name, k, count) in enumerate(
        zip(result.items, result.consensus_codes, result.labels_per_item, strict=True)
    ):
        classes = result.class_probabilities[n] if proba else ()
        if k < 0:
            yield (name, "", "", count, *("" for _ in classes))
        else:
            yield (name, result.classes[k], f"{confidence[n]:.6f}", count, *(f"{p:.6f}" for p in classes))


def _gold_warnings(ann: Annotations, result: Aggregate, truth: Any) -> list[str]:
    """Return what gold says against the result; `truth` is the result of `read_truth`, without unknown items."""
    import numpy as np

    from crowdfuse.quality.aggregate_consensus import consensus_of_aggregate
    from crowdfuse.quality.gold_tests import gold_contradictions

    gold = np.full(ann.n_items, -1)
    gold[truth[:, 0]] = truth[:, 1]
    return [finding.message for finding in gold_contradictions(consensus_of_aggregate(ann, result), gold)]


def _annotator_columns(ann: Annotations, result: Aggregate) -> dict[str, list[Any]]:
    """Return the columns of the table of annotators, as in `annotators.csv` of a run; fractions have six decimals."""
    from crowdfuse.quality.aggregate_consensus import consensus_of_aggregate

    columns: dict[str, list[Any]] = consensus_of_aggregate(ann, result).annotator_table().to_pydict()
    return {
        name: [f"{value:.6f}" if isinstance(value, float) else value for value in values]
        for name, values in columns.items()
    }
