"""What all commands share: options, errors in one message, refusals before any work."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer

from crowdfuse.training.distributed import is_reported_by_rank_zero

P = ParamSpec("P")
R = TypeVar("R")

Threads = Annotated[int, typer.Option(help="CPU threads. More than one pays only on an idle machine.", min=1)]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Data = Annotated[Path | None, typer.Option(help="Where the data is; not given, the folder in CROWDFUSE_DATA.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch the data if it is not there.")]
Seed = Annotated[int, typer.Option(help="The one seed of everything random.", min=0)]

LABELS_HELP = (
    "CSV, TSV or Parquet: item, annotator, label; or an export of Label Studio, Argilla or Prodigy (JSON, JSONL)."
)
OnMissing = Annotated[
    str, typer.Option(help="Items without labels or without inputs: error, or drop (go on without them).")
]
ImageSize = Annotated[int | None, typer.Option(help="Resize images to this many pixels a side.", min=16)]


def print_errors(command: Callable[P, R]) -> Callable[P, R]:
    """What is wrong with the input is said in one message, not in a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ValueError, OSError) as error:
            if not is_reported_by_rank_zero(error):
                # echo, not rich: names of people's files and classes may hold what rich takes for markup
                typer.echo(f"{typer.style('error:', fg='red')} {error}", err=True)
            raise typer.Exit(2) from error

    return run


def use_threads(count: int) -> None:
    """How many CPU threads torch may use."""
    import torch

    torch.set_num_threads(count)


def refuse_outputs(folder: Path, marker: str, json_file: Path | None, force: bool) -> None:
    """What could not be written in the end is refused before any work."""
    from crowdfuse.io.files import refuse_existing, refuse_foreign

    refuse_existing(folder, force=force)
    refuse_foreign(folder, marker)
    refuse_json(json_file, force)


def refuse_same(output: Path | None, given: Path | None) -> None:
    """What a command reads is never what it writes, not even with --force."""
    if output is not None and given is not None and output.resolve() == given.resolve():
        raise ValueError(f"{output} would be overwritten, and it is also read; choose another name for the output")


def refuse_json(path: Path | None, force: bool) -> None:
    """A file of figures that exists is not overwritten, unless the user says so."""
    from crowdfuse.io.files import refuse_existing

    if path is not None:
        if path.is_dir():
            raise IsADirectoryError(f"--json {path} is a folder; name a file to write")
        refuse_existing(path, force=force)


def integers(text: str, name: str) -> list[int]:
    """Whole numbers separated by commas, none of them twice."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{name} must be whole numbers separated by commas, got {text!r}") from error
    if any(not 0 <= value < 2**31 for value in values):
        raise ValueError(f"{name} must be from 0 to {2**31 - 1:,}, got {text!r}")
    if len(set(values)) < len(values):
        raise ValueError(f"{name} names a number twice: {text!r}")
    return values


def numbers(text: str, name: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{name} must be numbers separated by commas, got {text!r}") from error


def parse_names(text: str, name: str) -> list[str]:
    """Names separated by commas, none of them twice."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(set(parts)) < len(parts):
        raise ValueError(f"{name} must be names separated by commas, each once, got {text!r}")
    return parts
