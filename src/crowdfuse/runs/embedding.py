"""Compute the features of a folder of images with a frozen network, and write them to an `.npz` for `fit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import nn

from crowdfuse.checks.choices import check_choice
from crowdfuse.encoders.frozen_network import IMAGENET_MEAN, IMAGENET_STD, FrozenNetwork
from crowdfuse.io.files import atomic_file, refuse_existing
from crowdfuse.io.image_files import ImageFiles, find_unreadable
from crowdfuse.io.images import check_image_folder, find_images, image_names
from crowdfuse.io.picture_folder import PICTURE_FOLDER_ARRAY, relative_picture_folder
from crowdfuse.labels.ids import format_count, format_count_with_verb, format_names
from crowdfuse.training.progress import make_progress_bar, print_message
from crowdfuse.training.recipes import DEVICES


class EmbeddingSummary(NamedTuple):
    """Result of `embed`: numbers of images and features, and the images that were left out.

    Parameters
    ----------
    n_images : int
        Number of images whose features were written.
    n_features : int
        Number of features per image.
    left_out : tuple of str
        Images that cannot be read, as paths relative to the folder.
    """

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
) -> EmbeddingSummary:
    """Compute features of all images below a folder, and write them to an `.npz` file.

    The file holds four arrays: `X` of shape (n_images, n_features), `items` (the path of each image relative to the
    folder), `short_names` (the same paths without file extension) and `image_folder` (the path of the folder relative
    to the folder of the `.npz` file). If you train on the `.npz` file, the item ids in the file of labels must be the
    image paths in `items` or `short_names`. The report and the review page of the run then show the images.

    All files are first read once, so that errors appear before any feature is computed. Images are decoded in batches,
    so they need not all fit into memory.

    Parameters
    ----------
    folder : Path
        Folder of images. Subfolders are included.
    out : Path
        The `.npz` file to write.
    backbone : torch.nn.Module or callable
        A network, or a function without arguments that returns a network. The network maps N images, as a tensor of
        shape (N, 3, image_size, image_size), to features of shape (N, D), where D is the number of features per image.
        Features of shape (N, D, H, W), with height H and width W, are averaged over H and W. The network is put into
        evaluation mode and moved to the device.
    image_size : int, default=224
        Each image is cropped to its central square and resized to this many pixels per side.
    mean : sequence of float, default=(0.485, 0.456, 0.406)
        Mean to subtract from the pixel values, which range from 0 to 1: one number, or one for each of red, green and
        blue.
    std : sequence of float, default=(0.229, 0.224, 0.225)
        Number by which pixel values are divided after `mean` is subtracted: one number, or one for each of red, green
        and blue. Usually the standard deviation of the pixel values.
    batch_size : int, default=64
        Number of images per batch.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Device that computes the features. "auto" chooses the device that training would use.
    workers : int, default=0
        Number of processes that decode images. If 0, the main process decodes them.
    on_unreadable : {"error", "skip"}, default="error"
        What to do if files cannot be read: raise an error, or leave them out.
    force : bool, default=False
        Whether to replace `out` if it exists.
    verbose : int, default=0
        Whether to show progress: 0 (no) or 1 (yes).

    Returns
    -------
    summary : EmbeddingSummary
        How many images and features were written, and which images were left out.

    Raises
    ------
    FileNotFoundError
        If `folder` does not exist.
    FileExistsError
        If `out` exists and `force` is false.
    ValueError
        If an option is invalid, if images cannot be read and `on_unreadable` is "error", if none can be read, or if the
        output of the backbone does not have shape (N, D) or (N, D, H, W).

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as name:
    ...     for color in ("red", "blue"):
    ...         Image.new("RGB", (8, 8), color).save(Path(name, f"{color}.png"))
    ...     out = Path(name, "features.npz")
    ...     summary = embed(Path(name), out, nn.Identity(), image_size=8, mean=[0], std=[1])
    ...     X, items = np.load(out)["X"], np.load(out)["items"]
    >>> summary.n_images, items.tolist(), X[1].tolist()
    (2, ['blue.png', 'red.png'], [1.0, 0.0, 0.0])
    """
    check_choice("on_unreadable", on_unreadable, ("error", "skip"))
    shift, scale = _channels("mean", mean), _channels("std", std)
    if (scale <= 0).any():
        raise ValueError(f"std must be greater than 0, got {format_names(scale)}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    _refuse_output(out, force)
    check_image_folder(folder)
    paths = find_images(folder)
    files = ImageFiles(paths, image_size, workers=workers)
    torch_device = _find_device(device)
    frozen = FrozenNetwork(backbone if isinstance(backbone, nn.Module) else backbone(), torch_device, shift, scale)
    n_features = frozen(np.zeros((min(batch_size, len(files)), *files.item_shape), np.float32)).shape[1]
    with atomic_file(out) as temporary:  # fails now if the file cannot be written
        counts = f"{format_count(len(files), 'image')}, {format_count(n_features, 'feature')} each, on {torch_device}"
        print_message(verbose, f"{counts}; first checking that all files can be read")
        rows, left_out = _readable_rows(folder, paths, workers, on_unreadable)
        names, short_names = image_names(folder, [paths[row] for row in rows])
        X = _compute_features(frozen, files.take(rows), names, n_features, batch_size, verbose)
        with temporary.open("wb") as file:
            arrays = {"X": X, "items": names.astype(str), "short_names": short_names.astype(str)}
            arrays[PICTURE_FOLDER_ARRAY] = np.array(relative_picture_folder(folder, out))
            np.savez(file, allow_pickle=False, **arrays)
    return EmbeddingSummary(len(X), n_features, left_out)


def _compute_features(
    frozen: FrozenNetwork, files: ImageFiles, names: NDArray[Any], n_features: int, batch_size: int, verbose: int
) -> NDArray[np.float32]:
    """Return the features of all images, of shape (n_images, n_features)."""
    X = np.empty((len(files), n_features), np.float32)
    rows = np.arange(len(files))
    # the last batch, which may be shorter, is computed first: if the network cannot handle it, the error comes at once
    batches = [rows[start : start + batch_size] for start in reversed(range(0, len(files), batch_size))]
    with make_progress_bar(verbose) as progress, closing(files.stream(batches)) as blocks:
        task = progress.add_task("embedding", total=len(files))
        for batch, pixels in zip(batches, blocks, strict=True):
            features = frozen(pixels)
            if features.shape[1] != n_features:
                raise ValueError(
                    f"the backbone returns {n_features:,} features per image, but {features.shape[1]:,} per image in a "
                    f"batch of {len(batch)}; it must return the same number of features for all batches"
                )
            bad = ~np.isfinite(features).all(1)
            if bad.any():
                raise ValueError(
                    f"the features of {format_names(names[batch[bad]])} are NaN, infinite, or too large for float32; "
                    "check the image, and whether the backbone expects pixel values in another range (--mean, --std)"
                )
            X[batch] = features
            progress.advance(task, len(batch))
    return X


def _readable_rows(
    folder: Path, paths: Sequence[Path], workers: int, on_unreadable: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the rows of the images that can be read, and the names of the others."""
    bad = find_unreadable(paths, workers=workers)
    rows = np.setdiff1d(np.arange(len(paths)), list(bad))
    left_out = tuple(paths[row].relative_to(folder).as_posix() for row in bad)
    if bad and (on_unreadable == "error" or not len(rows)):
        advice = ", or leave them out with --on-unreadable skip (in Python: on_unreadable='skip')" if len(rows) else ""
        raise ValueError(
            f"{folder}: {format_count_with_verb(len(bad), 'image')} not readable: {format_names(left_out)}. Error for "
            f"the first image: {next(iter(bad.values()))}. Repair or remove these files{advice}"
        )
    return rows, left_out


def _refuse_output(out: Path, force: bool) -> None:
    """Raise an error if the features cannot be written to `out`."""
    if out.suffix.lower() != ".npz":
        raise ValueError(f"features are written to an .npz file, got {out}; give a name such as features.npz")
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder; give the name of a file")
    refuse_existing(out, force=force)


def _find_device(name: str) -> torch.device:
    """Return the device with this name; "auto" chooses the same device as training."""
    check_choice("device", name, DEVICES)
    try:
        return Fabric(accelerator=name, devices=1).device
    except RuntimeError as error:
        raise ValueError(f"device {name!r} is not available: {error}") from error


def _channels(name: str, values: Sequence[float]) -> NDArray[np.float32]:
    """Return one number per channel, of shape (3,)."""
    given = np.asarray(values, np.float32)
    if given.shape not in ((1,), (3,)) or not np.isfinite(given).all():
        raise ValueError(f"{name} must be one number or three (red, green, blue), got {format_names(np.ravel(given))}")
    return np.broadcast_to(given, 3).copy()
