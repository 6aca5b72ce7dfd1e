"""`crowdfuse embed`: frozen features of a folder of images, so that training on them takes seconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.cli.fit import parse_pairs
from crowdfuse.cli.options import Force, Quiet, Threads, numbers, print_errors, use_threads
from crowdfuse.labels.ids import format_count_with_verb, format_names


@print_errors
def embed(
    images: Annotated[Path, typer.Argument(help="A folder of images; they may lie in folders below it.")],
    backbone: Annotated[
        str,
        typer.Option(
            help="module:callable. The module is imported, which runs its code; the current folder is looked in "
            "first. The callable returns a torch.nn.Module that gives features, so one without a classifier's head; "
            "of features with height and width the mean is taken. Or a .pt2 file, with --trust-model."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The .npz to write, for fit --inputs.")] = Path("features.npz"),
    arguments: Annotated[
        list[str] | None,
        typer.Option("--with", help="An argument of the callable, as name=value; may be repeated."),
    ] = None,
    trust_model: Annotated[
        bool,
        typer.Option("--trust-model", help="Load a .pt2 file. Loading one can run code that is hidden in it."),
    ] = False,
    image_size: Annotated[
        int, typer.Option(help="Of each image the square in the middle, at this many pixels a side.", min=1)
    ] = 224,
    mean: Annotated[
        str, typer.Option(help="Taken from red, green, blue, which go from 0 to 1; ImageNet's if not given.")
    ] = "0.485,0.456,0.406",
    std: Annotated[
        str, typer.Option(help="What they are then divided by. --mean 0 --std 1 leaves them from 0 to 1.")
    ] = "0.229,0.224,0.225",
    batch_size: Annotated[int, typer.Option(help="Images in one go.", min=1)] = 64,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    workers: Annotated[int, typer.Option(help="Processes that decode images; 0 decodes in turn.", min=0)] = 0,
    on_unreadable: Annotated[
        str, typer.Option(help="Files that cannot be read: error, or skip (go on without them).")
    ] = "error",
    threads: Threads = 1,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Turn images into features, by any network you can import, frozen; fit then trains on these in seconds."""
    given = parse_pairs(arguments or [], "--with")
    settings = {"mean": numbers(mean, "--mean"), "std": numbers(std, "--std")}

    from crowdfuse.nets.external_backbones import load_backbone
    from crowdfuse.runs import embedding

    use_threads(threads)
    made = embedding.embed(
        images,
        out,
        partial(load_backbone, backbone, given, trust_model=trust_model),
        image_size=image_size,
        batch_size=batch_size,
        device=device,
        workers=workers,
        on_unreadable=on_unreadable,
        force=force,
        verbose=0 if quiet else 1,
        **settings,
    )
    if made.left_out:
        typer.echo(
            f"note: {format_count_with_verb(len(made.left_out), 'image')} not readable and left out: "
            f"{format_names(made.left_out)}"
        )
    typer.echo(f"{made.n_images:,} images, {made.n_features:,} features each: {out}")
