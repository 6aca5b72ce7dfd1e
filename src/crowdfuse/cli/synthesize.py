"""`crowdfuse synthesize`: write labels of synthetic annotators for a known data set."""

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
    parse_integers,
    parse_numbers,
    print_errors,
    refuse_json,
    refuse_same,
)


@print_errors
def synthesize(
    dataset: Annotated[str, typer.Argument(help="mnist, fashion-mnist, or digits (built in).")],
    out: Annotated[Path, typer.Option("--out", help="CSV file to write, with the columns item, annotator and label.")],
    rule: Annotated[
        str,
        typer.Option(
            help="How annotators err. weakness: each annotator errs on all images that are similar to one image, the "
            "weakness image. hammer-spammer: an annotator is always right (hammer) or unreliable (spammer), "
            "either on all items or on some classes only (see --by). habit: each annotator confuses certain classes."
        ),
    ] = "weakness",
    epsilon: Annotated[
        str | None,
        typer.Option(
            help="For --rule weakness: annotators err on images within this Euclidean distance of their weakness "
            "image. One number, or one per annotator, separated by commas."
        ),
    ] = None,
    weakness: Annotated[
        str | None,
        typer.Option(
            help="For --rule weakness: row number of each annotator's weakness image in the data set, separated by "
            "commas."
        ),
    ] = None,
    accuracies: Annotated[
        str | None,
        typer.Option(
            help="For --rule weakness: target accuracy of each annotator, separated by commas; cannot be combined with "
            "--weakness."
        ),
    ] = None,
    wrong: Annotated[
        str | None,
        typer.Option(
            help="For --rule weakness: which wrong label is given. uniform: a random wrong class, as in Gao et al. "
            "(2022). any: a random class. looks: the class of the weakness image. shift: the class whose number is "
            "higher by a fixed amount (modulo the number of classes). neighbour: the most similar class. copy: the "
            "same wrong class for all annotators."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="For --rule hammer-spammer: class (each annotator is right on some classes and wrong on the others) "
            "or annotator (some annotators are always right, the others guess)."
        ),
    ] = None,
    n_correct: Annotated[
        int | None,
        typer.Option(
            help="For --rule hammer-spammer --by class: number of classes on which each annotator is right.", min=0
        ),
    ] = None,
    n_hammers: Annotated[
        int | None,
        typer.Option(
            help="For --rule hammer-spammer --by annotator: number of annotators who are always right (hammers).", min=0
        ),
    ] = None,
    p: Annotated[
        float | None,
        typer.Option(
            help="For --rule hammer-spammer: probability that an annotator is a hammer, drawn for each class or once "
            "for all items (see --by). Replaces --n-correct and --n-hammers."
        ),
    ] = None,
    habits: Annotated[
        str | None,
        typer.Option(
            help="For --rule habit: the classes that each annotator confuses. For example, 5:6+3:8,1:2 means two "
            "habits for the first annotator (5 with 6, and 3 with 8), and one for the second."
        ),
    ] = None,
    n_habits: Annotated[
        int | None,
        typer.Option(
            help="For --rule habit: number of random habits per annotator; cannot be combined with --habits.", min=1
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            help="For --rule habit: share of the items of a confused class that get the wrong label. One number, or "
            "one per annotator."
        ),
    ] = None,
    n_annotators: Annotated[
        int | None, typer.Option(help="For --rule hammer-spammer or habit: number of annotators.", min=1)
    ] = None,
    missing: Annotated[float, typer.Option(help="Share of the labels to remove at random.")] = 0.0,
    items: Annotated[
        int | None,
        typer.Option(
            help="Number of items to use, from the start of the data set. Default: all items (MNIST: the first "
            "55,000).",
            min=2,
        ),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Also write the true classes to this CSV file, with the columns item and label.")
    ] = None,
    seed: Seed = 0,
    data: Data = None,
    download: Download = False,
    json_file: Json = None,
    force: Force = False,
) -> None:
    """Simulate annotators who label a data set with known classes, and write their labels to a CSV file."""
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
            epsilon=None if epsilon is None else _one_or_each(parse_numbers(epsilon, "--epsilon")),
            weakness=None if weakness is None else parse_integers(weakness, "--weakness"),
            accuracies=None if accuracies is None else parse_numbers(accuracies, "--accuracies"),
            wrong=wrong,
            by=by,
            n_correct=n_correct,
            n_hammers=n_hammers,
            p=p,
            habits=None if habits is None else _pairs(habits),
            n_habits=n_habits,
            share=None if share is None else _one_or_each(parse_numbers(share, "--share")),
            n_annotators=n_annotators,
            missing=missing,
            seed=seed,
            force=force,
        )
    for warning in caught:
        typer.echo(f"note: {warning.message}", err=True)
    for row in made["annotators"]:
        typer.echo(f"{row['annotator']}: {row['labels']:,} labels, {100 * row['right']:.1f} % correct")
    typer.echo(f"on {100 * made['nobody_right']:.1f} % of the items, no annotator is right")
    if json_file is not None:
        write_json(json_file, made)
    typer.echo(f"{made['labels']:,} labels of {made['items']:,} items: {out}")


def _pairs(text: str) -> list[list[tuple[int, int]]]:
    """Return the habits of each annotator from text such as 5:6+3:8,1:2."""
    try:
        return [[_pair(habit) for habit in one.split("+")] for one in text.split(",")]
    except ValueError as error:
        raise ValueError(
            "--habits must be pairs of classes such as 5:6, with + between the pairs of one annotator and a comma "
            f"between annotators, got {text!r}"
        ) from error


def _pair(text: str) -> tuple[int, int]:
    """Return two classes from text such as 5:6."""
    a, b = text.split(":")
    return int(a), int(b)


def _one_or_each(values: list[float]) -> float | list[float]:
    """Return the number if there is only one, else the list."""
    return values[0] if len(values) == 1 else values
