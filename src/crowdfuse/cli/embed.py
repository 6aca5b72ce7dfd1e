"""`crowdfuse embed`: compute features of images once with a frozen network, so that training takes seconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crowdfuse.cli.options import Force, Quiet, Threads, parse_numbers, parse_pairs, print_errors, use_threads
from crowdfuse.labels.ids import format_count_with_verb, format_names


@print_errors
def embed(
    images: Annotated[Path, typer.Argument(help="Folder of images; subfolders are included.")],
    backbone: Annotated[
        str,
        typer.Option(
            help="Network, as module:callable or as a .pt2 file (requires --trust-model). For example, mynets:resnet50 "
            "stands for the function resnet50 in mynets.py. The module is looked up in the current folder first, and "
            "importing it runs its code. The callable returns a torch.nn.Module that outputs features (without a "
            "classification head). Feature maps are averaged over height and width."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help=".npz file to write. Pass it to fit as --inputs.")] = Path(
        "features.npz"
    ),
    arguments: Annotated[
        list[str] | None,
        typer.Option("--with", help="Keyword argument of the callable, as name=value. May be repeated."),
    ] = None,
    trust_model: Annotated[
        bool,
        typer.Option("--trust-model", help="Allow loading a .pt2 file. Loading can run code hidden in the file."),
    ] = False,
    image_size: Annotated[
        int,
        typer.Option(help="Crop the central square of each image and resize it to this many pixels per side.", min=1),
    ] = 224,
    mean: Annotated[
        str,
        typer.Option(
            help="Mean to subtract from the pixel values, which range from 0 to 1: one number, or three for red, green "
            "and blue, separated by commas. Default: the mean of ImageNet."
        ),
    ] = "0.485,0.456,0.406",
    std: Annotated[
        str,
        typer.Option(
            help="Standard deviation by which the pixel values are divided after --mean is subtracted: one number or "
            "three. Default: the standard deviation of ImageNet. --mean 0 --std 1 keeps the range 0 to 1."
        ),
    ] = "0.229,0.224,0.225",
    batch_size: Annotated[int, typer.Option(help="Number of images per batch.", min=1)] = 64,
    device: Annotated[str, typer.Option(help="Device to run the network on: auto, cpu, cuda or mps.")] = "auto",
    workers: Annotated[
        int, typer.Option(help="Number of processes that decode images. If 0, the main process decodes them.", min=0)
    ] = 0,
    on_unreadable: Annotated[
        str, typer.Option(help="What to do with images that cannot be read: error (stop) or skip (leave them out).")
    ] = "error",
    threads: Threads = 1,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compute features of images with a frozen network and write them to an .npz file. Training on features is fast."""
    given = parse_pairs(arguments or [], "--with")
    settings = {"mean": parse_numbers(mean, "--mean"), "std": parse_numbers(std, "--std")}

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
            f"note: {format_count_with_verb(len(made.left_out), 'image')} not readable and therefore left out: "
            f"{format_names(made.left_out)}"
        )
    typer.echo(f"{made.n_images:,} images, {made.n_features:,} features each: {out}")
