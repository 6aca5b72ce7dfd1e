"""Frozen features: a folder of images through any network, once, into an `.npz` that `fit` reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from crowdfuse.checks.choices import check_choice
from crowdfuse.io.files import atomic_file, refuse_existing
from crowdfuse.io.image_files import ImageFiles, find_unreadable
from crowdfuse.io.images import find_images, image_names
from crowdfuse.labels.ids import format_count, format_count_with_verb, format_names
from crowdfuse.training.progress import make_progress_bar, print_message
from crowdfuse.training.recipes import DEVICES

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of pixels from 0 to 1: what most published weights expect
IMAGENET_STD = (0.229, 0.224, 0.225)


class Embedded(NamedTuple):
    """What was written, and which images were not."""

    n_images: int
    n_features: int
    left_out: tuple[str, ...]


def embed(
    folder: Path,
    out: Path,
    backbone: nn.Module | Callable[[], nn.Module],
    *,
    image_size: int = 224,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    batch_size: int = 64,
    device: str = "auto",
    workers: int = 0,
    on_unreadable: str = "error",
    force: bool = False,
    verbose: int = 0,
) -> Embedded:
    """Write the features that `backbone` gives of the images below `folder`: `X`, `items` and `short_names`.

    An image is what `ImageFiles` makes of it at `image_size`, divided by 255, less `mean`, over `std` (one number, or
    one for each of red, green, blue). The backbone, in evaluation mode, turns (N, 3, size, size) into (N, D); of
    (N, D, H, W) the mean over height and width is taken. It is used as it is, and ends up on the device.

    `items` are the paths of the images below the folder, and `short_names` the same without the ending: labels that
    meet the folder meet the features. All files are tried before the work; such as cannot be read are an error, or
    left out with `on_unreadable="skip"`. Images are decoded in `workers` processes, and never all in memory.
    """
    check_choice("on_unreadable", on_unreadable, ("error", "skip"))
    shift, scale = _channels("mean", mean), _channels("std", std)
    if (scale <= 0).any():
        raise ValueError(f"std must be above 0, got {format_names(scale)}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    _refuse_output(out, force)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: {'a file, not a folder' if folder.exists() else 'no such folder'} of images"
        )
    paths = find_images(folder)
    files = ImageFiles(paths, image_size, workers=workers)
    place = _find_device(device)
    frozen = _Frozen(backbone if isinstance(backbone, nn.Module) else backbone(), place, shift, scale)
    n_features = frozen(np.zeros((min(batch_size, len(files)), *files.item_shape), np.float32)).shape[1]
    with atomic_file(out) as temporary:  # from here on it is known that the file can be written
        counts = f"{format_count(len(files), 'image')}, {format_count(n_features, 'feature')} each, on {place}"
        print_message(verbose, f"{counts}; all files are tried first")
        kept, left_out = _readable(folder, paths, workers, on_unreadable)
        names, short_names = image_names(folder, [paths[row] for row in kept])
        X = _run(frozen, files.take(kept), names, n_features, batch_size, verbose)
        with temporary.open("wb") as file:
            np.savez(file, X=X, items=names.astype(str), short_names=short_names.astype(str))
    return Embedded(len(X), n_features, left_out)


def _run(
    frozen: _Frozen, files: ImageFiles, names: NDArray[Any], n_features: int, batch_size: int, verbose: int
) -> NDArray[np.float32]:
    X = np.empty((len(files), n_features), np.float32)
    rows = np.arange(len(files))
    # the short batch at the end comes first: a network that cannot take it says so before the work, not after
    batches = [rows[start : start + batch_size] for start in reversed(range(0, len(files), batch_size))]
    with make_progress_bar(verbose) as progress, closing(files.stream(batches)) as blocks:
        task = progress.add_task("embedding", total=len(files))
        for batch, pixels in zip(batches, blocks, strict=True):
            features = frozen(pixels)
            if features.shape[1] != n_features:
                raise ValueError(
                    f"the backbone gives {n_features:,} features an image, but {features.shape[1]:,} in a batch of "
                    f"{len(batch)}; it must give the same number always"
                )
            bad = ~np.isfinite(features).all(1)
            if bad.any():
                raise ValueError(
                    f"the features of {format_names(names[batch[bad]])} are NaN, infinite, or too large for float32; "
                    "look at "
                    "the image and at the backbone, which may expect pixels of another range (--mean, --std)"
                )
            X[batch] = features
            progress.advance(task, len(batch))
    return X


class _Frozen:
    """A network that no longer learns, from pixels to features."""

    def __init__(
        self, module: nn.Module, device: torch.device, mean: NDArray[np.float32], std: NDArray[np.float32]
    ) -> None:
        self.module, self.device = module.to(device), device
        try:
            module.eval()
        except NotImplementedError:  # exported modules refuse, since they stay as they were exported
            for part in module.modules():
                part.training = False
        self.mean, self.std = (torch.from_numpy(values).to(device)[:, None, None] for values in (mean, std))
        weights = [*module.parameters(), *module.buffers()]
        self.dtype = next((values.dtype for values in weights if values.is_floating_point()), torch.float32)

    def __call__(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features (N, D) of pixels (N, 3, size, size) from 0 to 255."""
        with torch.inference_mode():
            x = ((torch.from_numpy(pixels).to(self.device) / 255 - self.mean) / self.std).to(self.dtype)
            try:
                features = self.module(x)
            except Exception as error:  # a network may raise anything
                raise ValueError(
                    f"the backbone cannot read a batch of shape {pixels.shape}: {type(error).__name__}: {error}. "
                    "--image-size and --batch-size change the shape"
                ) from error
            return _as_rows(features, len(pixels)).float().cpu().numpy()


def _as_rows(features: Any, n_images: int) -> Tensor:
    """(N, D), or a message on what was given instead."""
    wrap = "wrap it in a callable of your own whose forward"
    if not isinstance(features, Tensor):
        raise ValueError(
            f"the backbone must give one tensor of features, got {type(features).__name__}{_parts(features)}; "
            f"{wrap} returns one of its parts"
        )
    shape = tuple(features.shape)
    if not features.is_floating_point():
        raise ValueError(f"the backbone must give floating-point features, got {features.dtype}")
    if len(shape) == 3:
        raise ValueError(
            f"the backbone gives {shape}, which looks like (N, tokens, D); {wrap} returns one token, such as "
            "features[:, 0], or their mean, features.mean(1)"
        )
    if len(shape) not in (2, 4) or shape[0] != n_images or 0 in shape:
        raise ValueError(
            f"the backbone must give ({n_images}, D) or ({n_images}, D, H, W) for {format_count(n_images, 'image')}, "
            f"got {shape}; {wrap} returns that"
        )
    return features if len(shape) == 2 else features.mean((2, 3))


def _parts(features: Any) -> str:
    if isinstance(features, dict):
        return f" with {format_names(features)}"
    return f" of {len(features)}" if isinstance(features, tuple | list) else ""


def _readable(
    folder: Path, paths: Sequence[Path], workers: int, on_unreadable: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The rows that can be read, and the names of the others."""
    bad = find_unreadable(paths, workers=workers)
    kept = np.setdiff1d(np.arange(len(paths)), list(bad))
    left_out = tuple(paths[row].relative_to(folder).as_posix() for row in bad)
    if bad and (on_unreadable == "error" or not len(kept)):
        way_out = ", or go on without them by --on-unreadable skip (on_unreadable='skip')" if len(kept) else ""
        raise ValueError(
            f"{folder}: {format_count_with_verb(len(bad), 'image')} not readable: {format_names(left_out)}. The first: "
            f"{next(iter(bad.values()))}. Repair or remove what is broken{way_out}"
        )
    return kept, left_out


def _refuse_output(out: Path, force: bool) -> None:
    if out.suffix.lower() != ".npz":
        raise ValueError(f"features are written to an .npz file, got {out}; name one such as features.npz")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; name a file to write")
    refuse_existing(out, force=force)


def _find_device(name: str) -> torch.device:
    """Where to run; auto is what it is in training."""
    check_choice("device", name, DEVICES)
    try:
        return Fabric(accelerator=name, devices=1).device
    except RuntimeError as error:
        raise ValueError(f"device {name!r} is not to be had here: {error}") from error


def _channels(name: str, values: Sequence[float]) -> NDArray[np.float32]:
    """One number for all three channels, or three."""
    given = np.asarray(values, np.float32)
    if given.shape not in ((1,), (3,)) or not np.isfinite(given).all():
        raise ValueError(f"{name} must be one number or three (red, green, blue), got {format_names(np.ravel(given))}")
    return np.broadcast_to(given, 3).copy()
