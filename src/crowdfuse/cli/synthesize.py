"""`crowdfuse synthesize`: made-up annotators for a known data set, as a file for any tool."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.cli.options import (
    Data,
    Download,
    Force,
    Json,
    Seed,
    integers,
    numbers,
    print_errors,
    refuse_json,
    refuse_same,
)


@print_errors
def synthesize(
    dataset: Annotated[str, typer.Argument(help="mnist, fashion-mnist, or digits (which is built in).")],
    out: Annotated[Path, typer.Option("--out", help="The CSV to write: item, annotator, label.")],
    rule: Annotated[str, typer.Option(help="weakness, hammer-spammer, or habit.")] = "weakness",
    epsilon: Annotated[
        str | None, typer.Option(help="weakness: distance up to which an annotator errs; one, or one each.")
    ] = None,
    weakness: Annotated[str | None, typer.Option(help="weakness: the row that each annotator cannot read.")] = None,
    skills: Annotated[
        str | None, typer.Option(help="weakness: instead of rows, shares of right labels to come close to.")
    ] = None,
    wrong: Annotated[
        str | None,
        typer.Option(
            help="weakness: what is said there: uniform (one of the wrong classes, the paper's), any (one of all), "
            "looks (the row's class), shift (always so many classes on), neighbour (the most confusable), copy (the "
            "same by all)."
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(help="hammer-spammer: class, or annotator (whole annotators).")] = None,
    n_correct: Annotated[
        int | None, typer.Option(help="hammer-spammer by class: how many classes each is right on.", min=0)
    ] = None,
    n_hammers: Annotated[
        int | None, typer.Option(help="hammer-spammer by annotator: how many are right.", min=0)
    ] = None,
    p: Annotated[float | None, typer.Option(help="hammer-spammer: chance of being a hammer instead.")] = None,
    habits: Annotated[
        str | None,
        typer.Option(
            help="habit: whose class is taken for which: 5:6+3:8,1:2 are two annotators, of two habits and one."
        ),
    ] = None,
    n_habits: Annotated[
        int | None, typer.Option(help="habit: instead of naming them, how many each has, drawn at random.", min=1)
    ] = None,
    share: Annotated[
        str | None, typer.Option(help="habit: which part of a class looks enough like the other; one, or one each.")
    ] = None,
    n_annotators: Annotated[
        int | None, typer.Option(help="hammer-spammer and habit: how many annotators.", min=1)
    ] = None,
    missing: Annotated[float, typer.Option(help="Share of the labels to leave out.")] = 0.0,
    items: Annotated[int | None, typer.Option(help="Only the first so many items.", min=2)] = None,
    gold: Annotated[Path | None, typer.Option(help="Also write the truth: item, label.")] = None,
    seed: Seed = 0,
    data: Data = None,
    download: Download = False,
    json_file: Json = None,
    force: Force = False,
) -> None:
    """Make up annotators for a known data set, by the paper's rules and others, and write who said what."""
    from crowdfuse.io.files import write_json
    from crowdfuse.synthesis.label_files import write_labels

    refuse_json(json_file, force)
    for other in (out, gold):
        refuse_same(json_file, other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        made = write_labels(
            dataset,
            rule=rule,
            out=out,
            gold=gold,
            data=data,
            download=download,
            items=items,
            epsilon=None if epsilon is None else _one_or_each(numbers(epsilon, "--epsilon")),
            weakness=None if weakness is None else integers(weakness, "--weakness"),
            accuracies=None if skills is None else numbers(skills, "--skills"),
            wrong=wrong,
            by=by,
            n_correct=n_correct,
            n_hammers=n_hammers,
            p=p,
            habits=None if habits is None else _pairs(habits),
            n_habits=n_habits,
            share=None if share is None else _one_or_each(numbers(share, "--share")),
            n_annotators=n_annotators,
            missing=missing,
            seed=seed,
            force=force,
        )
    for warning in caught:
        typer.echo(f"note: {warning.message}", err=True)
    for row in made["annotators"]:
        typer.echo(f"{row['annotator']}: {row['labels']:,} labels, {100 * row['right']:.1f} % right")
    typer.echo(f"nobody is right on {100 * made['nobody_right']:.1f} % of the items")
    if json_file is not None:
        write_json(json_file, made)
    typer.echo(f"{made['labels']:,} labels of {made['items']:,} items: {out}")


def _pairs(text: str) -> list[list[tuple[int, int]]]:
    """Annotators separated by commas, the habits of one by plus signs."""
    try:
        return [[_pair(habit) for habit in one.split("+")] for one in text.split(",")]
    except ValueError as error:
        raise ValueError(
            f"--habits must be pairs of classes such as 5:6, an annotator's joined by +, annotators separated by "
            f"commas, got {text!r}"
        ) from error


def _pair(text: str) -> tuple[int, int]:
    a, b = text.split(":")
    return int(a), int(b)


def _one_or_each(values: list[float]) -> float | list[float]:
    return values[0] if len(values) == 1 else values
