"""Options that commands share, parsing of their values, error messages, and checks of output paths."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from crowdfuse.training.distributed import is_reported_by_rank_zero

P = ParamSpec("P")
R = TypeVar("R")

Threads = Annotated[
    int, typer.Option(help="Number of CPU threads. More than one is faster only on an idle machine.", min=1)
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the results to this JSON file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]
Data = Annotated[
    Path | None, typer.Option(help="Folder of the data sets. Default: the environment variable CROWDFUSE_DATA.")
]
Download = Annotated[bool, typer.Option("--download", help="Download the data set if it is missing.")]
Seed = Annotated[int, typer.Option(help="Random seed.", min=0)]

LABELS_HELP = (
    "File of labels. Either a table (CSV, TSV, Excel or Parquet) with the columns item, annotator and label; or an "
    "export of Label Studio, Argilla, Prodigy or doccano (JSON, JSONL, CSV, or a folder or zip file with one file "
    "per annotator)."
)
OnMissing = Annotated[
    str, typer.Option(help="What to do with items that lack labels or inputs: error (stop) or drop (leave them out).")
]
INPUTS_HELP = (
    "The inputs: a file of features (.npy, .npz, .csv, .tsv, .xlsx, .parquet), a table with an item column and a "
    "column of texts, or a folder of images. Default: the texts or images in the file of labels."
)
Encoder = Annotated[
    str | None,
    typer.Option(
        help="Encoder that turns texts or images into numbers. For texts: tfidf (default), sentence, or "
        "sentence:NAME (a model of sentence-transformers, or a folder). For images: torchvision/NAME or "
        "timm/NAME, a frozen pretrained network (default: none). For both: module:callable, your own function; "
        "importing its module runs the code in it."
    ),
]
ImageSize = Annotated[
    int | None,
    typer.Option(
        help="Resize images to this many pixels per side. Default: images keep their size if all have the same size "
        "and it is at most 96 x 96; otherwise they become 64 x 64. If --encoder is given, the default is the size that "
        "the encoder expects.",
        min=16,
    ),
]


def print_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command: an input error is printed as one message without a traceback, and the exit code is 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError) as error:
            if not is_reported_by_rank_zero(error):
                # typer.echo instead of rich, because rich would interpret brackets in file and class names as markup
                typer.echo(f"{typer.style('error:', fg='red')} {error}", err=True)
            raise typer.Exit(2) from error

    return run


def use_threads(count: int) -> None:
    """Set the number of CPU threads that torch uses."""
    import torch

    torch.set_num_threads(count)


def refuse_outputs(folder: Path, marker: str, json_file: Path | None, force: bool) -> None:
    """Raise an error if the outputs cannot be written; called before any work."""
    from crowdfuse.io.files import refuse_existing, refuse_foreign

    refuse_existing(folder, force=force)
    refuse_foreign(folder, marker)
    refuse_json(json_file, force)


def refuse_same(output: Path | None, given: Path | None) -> None:
    """Raise an error if a command would overwrite a file that it reads, even if --force is given."""
    if output is not None and given is not None and output.resolve() == given.resolve():
        raise ValueError(f"{output} is an input and would be overwritten; choose another name for the output")


def refuse_json(path: Path | None, force: bool) -> None:
    """Raise an error if the JSON file exists, unless `force` is set."""
    from crowdfuse.io.files import refuse_existing

    if path is not None:
        if path.is_dir():
            raise IsADirectoryError(f"--json {path} is a folder; give the name of a file")
        refuse_existing(path, force=force)


def parse_integers(text: str, name: str) -> list[int]:
    """Return distinct integers from text such as "0,1,2"."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{name} must be integers separated by commas, got {text!r}") from error
    if any(not 0 <= value < 2**31 for value in values):
        raise ValueError(f"{name} must be from 0 to {2**31 - 1:,}, got {text!r}")
    if len(set(values)) < len(values):
        raise ValueError(f"{name} contains a number twice: {text!r}; give each number once")
    return values


def parse_numbers(text: str, name: str) -> list[float]:
    """Return numbers from text such as "0.1,0.5"."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{name} must be numbers separated by commas, got {text!r}") from error


def parse_names(text: str, name: str) -> list[str]:
    """Return distinct names from text such as "a,b"."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(set(parts)) < len(parts):
        raise ValueError(f"{name} must be distinct names separated by commas, got {text!r}")
    return parts


def parse_settings(options: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """Return the settings from options such as `--epochs` and from `--set`; an error if a setting is in both."""
    settings = parse_pairs(pairs, "--set")
    twice = [name for name in settings if name in options and not (name == "random_state" and options[name] == 0)]
    if twice:
        option = "--seed" if twice[0] == "random_state" else f"--{twice[0].replace('_', '-')}"
        raise ValueError(f"{option} and --set {twice[0]} set the same parameter; keep one of them")
    return options | settings


def parse_pairs(pairs: list[str], option: str) -> dict[str, Any]:
    """Return settings from `name=value` pairs; a value that is not valid JSON is kept as text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{option} must have the form name=value, got {pair!r}")
        name = name.strip().replace("-", "_")
        if name in settings:
            raise ValueError(f"{option} {name} is given twice; keep one of them")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings
