"""Folders of images with one folder per class, such as ImageNet: list and split the images, measure distances.

`ImageFiles` reads the images from their files when they are needed.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.checks.choices import check_choice
from crowdfuse.io.files import atomic_file
from crowdfuse.io.image_files import ImageFiles, find_unreadable
from crowdfuse.io.images import IMAGE_ENDINGS
from crowdfuse.labels.ids import format_count, format_names

SPLIT_FOLDERS = ("train", "val")
SPLIT_RATIO = (25, 1, 1)  # training, validation, test, as in the paper
DISTANCE_SIDE_PIXELS = 224
IMAGENET_STD = (0.229, 0.224, 0.225)  # per channel, on pixels from 0 to 1
IMAGES_PER_BLOCK = 64  # 77 MB as float64


@dataclass(frozen=True)
class ImageFolder:
    """Image files with their classes.

    Parameters
    ----------
    paths : tuple of Path
        The image files.
    class_names : tuple of str
        The names of the classes, sorted.
    y : ndarray of shape (n_images,), int64
        The class of each image, as a position in `class_names`.
    unreadable : tuple of Path, default=()
        Files that were skipped because they cannot be decoded.
    """

    paths: tuple[Path, ...]
    class_names: tuple[str, ...]
    y: NDArray[np.int64]
    unreadable: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def files(self, size: int, *, workers: int = 0) -> ImageFiles:
        """Return the images as inputs of a classifier.

        Parameters
        ----------
        size : int
            Height and width of the images in pixels.
        workers : int, default=0
            Number of worker processes that decode images in advance. If 0, the calling process decodes them.

        Returns
        -------
        files : ImageFiles
        """
        return ImageFiles(self.paths, size, workers=workers)


class ImageFolderSplit(NamedTuple):
    """Training, validation and test images of an `ImageFolder`, as positions in its `paths`.

    Parameters
    ----------
    train, validation, test : ndarray of int64
        Positions, ascending.
    """

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def read_image_folder(folder: Path, *, on_unreadable: str = "error", workers: int = 0) -> ImageFolder:
    """List the images in a folder with one subfolder per class.

    The images of a class are in ``folder/CLASS/`` and its subfolders. Files are ignored if their name begins with a dot
    or does not have an image extension such as ``.png``. The class folders may also be in ``folder/train`` and
    ``folder/val``, or in only one of these two. The images of both are then listed together, and other subfolders of
    ``folder`` are ignored.

    Parameters
    ----------
    folder : Path
        The folder.
    on_unreadable : {'error', 'skip'}, default='error'
        'error': files are not checked here; an unreadable file raises an error later, when it is decoded. 'skip': all
        files are checked here, and unreadable files are skipped with a warning.
    workers : int, default=0
        Number of worker processes that check files. If 0, the calling process checks them.

    Returns
    -------
    images : ImageFolder

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If there are no images, if there are fewer than two classes, or if a class folder has no images.

    Examples
    --------
    >>> read_image_folder(Path("nowhere"))
    Traceback (most recent call last):
    ...
    FileNotFoundError: nowhere: no such folder; expected a folder with one folder of images per class
    """
    check_choice("on_unreadable", on_unreadable, ("error", "skip"))
    folder = Path(folder)
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "no such folder"
        raise FileNotFoundError(f"{folder}: {what}; expected a folder with one folder of images per class")
    listed = [(path, name) for part in _parts(folder) for name, paths in _classes(part).items() for path in paths]
    if not listed:
        raise ValueError(f"{folder} has no images ({', '.join(sorted(IMAGE_ENDINGS))}) in class folders")
    class_names = tuple(sorted({name for _, name in listed}))
    if len(class_names) < 2:
        raise ValueError(
            f"{folder} has only the class {class_names[0]!r}, but at least two are needed; "
            "did you mean its parent folder?"
        )
    position = {name: k for k, name in enumerate(class_names)}
    found = ImageFolder(
        tuple(path for path, _ in listed), class_names, np.array([position[name] for _, name in listed], np.int64)
    )
    return found if on_unreadable == "error" else _skip_unreadable(folder, found, workers)


def _parts(folder: Path) -> list[Path]:
    """The folders `train` and `val`, or the folder itself if they hold images directly (they are classes then)."""
    parts = [
        folder / name for name in SPLIT_FOLDERS if _folders(folder / name) and not _images(folder / name, deep=False)
    ]
    if len(parts) == len(SPLIT_FOLDERS):
        train, val = ({path.name for path in _folders(part)} for part in parts)
        if val - train:
            raise ValueError(
                f"{parts[1]} has class folders that {parts[0]} does not have: {format_names(sorted(val - train))}; "
                "both must have one folder per class"
            )
    return parts or [folder]


def _classes(folder: Path) -> dict[str, list[Path]]:
    """The images of each class, sorted."""
    found = {path.name: _images(path) for path in _folders(folder)}
    empty = [name for name, paths in found.items() if not paths]
    if empty:
        raise ValueError(
            f"{folder}: no images ({', '.join(sorted(IMAGE_ENDINGS))}) in the class folders {format_names(empty)}; "
            "remove these folders, or put images in them"
        )
    return found


def _folders(folder: Path) -> list[Path]:
    """The visible subfolders, sorted."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images(folder: Path, *, deep: bool = True) -> list[Path]:
    """The images in a folder and, if `deep`, in its subfolders, sorted."""
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if deep and not name.startswith(".")]
        of_images = [name for name in names if Path(name).suffix.lower() in IMAGE_ENDINGS and name[0] != "."]
        found += [Path(at, name) for name in of_images]
    return sorted(found)


def _skip_unreadable(folder: Path, found: ImageFolder, workers: int) -> ImageFolder:
    """The folder without unreadable images; an error if a class has no readable image."""
    bad = find_unreadable(found.paths, workers=workers)
    if not bad:
        return found
    kept = np.setdiff1d(np.arange(len(found)), list(bad))
    lost = np.setdiff1d(np.arange(len(found.class_names)), found.y[kept])
    out = tuple(found.paths[row] for row in bad)
    names = format_names([path.relative_to(folder).as_posix() for path in out])
    if len(lost):
        raise ValueError(
            f"{folder}: no image of the classes {format_names(found.class_names[k] for k in lost)} can be read. "
            f"Unreadable files: {names}. The first error: {next(iter(bad.values()))}"
        )
    warnings.warn(f"{folder}: {format_count(len(bad), 'unreadable image')} left out: {names}", stacklevel=3)
    return ImageFolder(tuple(found.paths[row] for row in kept), found.class_names, found.y[kept], out)


def split_image_folder(folder: ImageFolder, seed: int) -> ImageFolderSplit:
    """Split a folder at random into training, validation and test images, in the ratio 25:1:1 within each class.

    Each of the three parts gets at least one image of each class.

    Parameters
    ----------
    folder : ImageFolder
        The images.
    seed : int
        Seed of the split.

    Returns
    -------
    split : ImageFolderSplit

    Raises
    ------
    ValueError
        If a class has fewer than three images.

    Examples
    --------
    >>> names = [Path(f"{k}/{i}.jpg") for k in "ab" for i in range(54)]
    >>> [len(rows) for rows in split_image_folder(ImageFolder(tuple(names), ("a", "b"), np.repeat([0, 1], 54)), seed=0)]
    [100, 4, 4]
    """
    generator = np.random.default_rng(seed)
    parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for k, name in enumerate(folder.class_names):
        rows = generator.permutation(np.flatnonzero(folder.y == k))
        if len(rows) < len(parts):
            raise ValueError(
                f"class {name!r} has {format_count(len(rows), 'image')}: too few for training, validation and test; "
                "add images, or remove the folder of this class"
            )
        n_validation, n_test = (max(1, round(len(rows) * share / sum(SPLIT_RATIO))) for share in SPLIT_RATIO[1:])
        cuts = np.cumsum([n_validation, n_test])
        for part, chosen in zip((parts[1], parts[2], parts[0]), np.split(rows, cuts), strict=True):
            part.append(chosen)
    train, validation, test = (np.sort(np.concatenate(part)) for part in parts)
    return ImageFolderSplit(train, validation, test)


def weakness_distances(
    files: ImageFiles, rows: ArrayLike, weakness_rows: Sequence[int], cache: Path | None = None
) -> NDArray[np.float32]:
    """Measure the distances that `weakness_annotators` needs: from each image to each annotator's weakness image.

    `crowdfuse.synthesis.weakness_annotators` simulates annotators. Each of them is wrong on the images that are similar
    to one image, the annotator's weakness image. Distances are Euclidean, between pixel values. For this, all images
    are resized to 224 x 224 pixels and standardized as for ImageNet, whatever image size is set in `files`.

    Parameters
    ----------
    files : ImageFiles
        The images.
    rows : array-like of shape (n_items,)
        Row numbers, in `files`, of the images whose distances are measured.
    weakness_rows : sequence of int
        For each annotator, the row number of the weakness image in `files`.
    cache : Path, default=None
        An ``.npz`` file that stores the result. If the file holds distances of the same files and rows, these distances
        are returned. Otherwise, the distances are measured and the file is replaced.

    Returns
    -------
    distances : ndarray of shape (n_items, n_annotators), float32

    Raises
    ------
    ValueError
        If rows are not row numbers of `files`, or if `cache` exists but does not hold distances.
    """
    of, weak = _check_rows("rows", rows, len(files)), _check_rows("weakness_rows", weakness_rows, len(files))
    files = files.resized(DISTANCE_SIDE_PIXELS)
    key = _key(files, of, weak)
    if cache is not None:
        kept = _read_cache(Path(cache), key)
        if kept is not None:
            return kept
    distances = _measure(files, of, weak)
    if cache is not None:
        with atomic_file(Path(cache)) as temporary, temporary.open("wb") as out:
            np.savez(out, key=np.array(key), distances=distances)
    return distances


def _measure(files: ImageFiles, rows: NDArray[np.int64], weak: NDArray[np.int64]) -> NDArray[np.float32]:
    """The distances of rows to weakness rows."""
    scale = (
        255 * np.array(IMAGENET_STD)[:, None, None]
    )  # the channel means are not needed, because they cancel in differences
    targets = files.rows(weak) / scale
    distances = np.empty((len(rows), len(weak)), np.float32)
    starts = range(0, len(rows), IMAGES_PER_BLOCK)
    with closing(files.stream([rows[start : start + IMAGES_PER_BLOCK] for start in starts])) as blocks:
        for start, block in zip(starts, blocks, strict=True):
            values = block / scale
            for r, target in enumerate(targets):
                distances[start : start + IMAGES_PER_BLOCK, r] = np.sqrt(((values - target) ** 2).sum((1, 2, 3)))
    return distances


def _key(files: ImageFiles, rows: NDArray[np.int64], weak: NDArray[np.int64]) -> str:
    """A hash of everything that determines the distances."""
    digest = hashlib.blake2b(digest_size=16)
    files.hash_into(digest)
    for part in (rows, weak):
        digest.update(f"{len(part)}".encode() + part.tobytes())
    return digest.hexdigest()


def _read_cache(path: Path, key: str) -> NDArray[np.float32] | None:
    """The cached distances if they have this key, else None."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as kept:
            distances: NDArray[np.float32] = kept["distances"]
            return distances if str(kept["key"]) == key else None
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise ValueError(
            f"{path} exists but is not a cache of distances ({error}); remove it, or choose another cache"
        ) from error


def _check_rows(name: str, rows: ArrayLike, n_files: int) -> NDArray[np.int64]:
    """The row numbers as an array, checked."""
    given = np.asarray(rows)
    if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be one or more positions in the list of files, got {format_names(np.ravel(given)) or 'none'}"
        )
    outside = given[(given < 0) | (given >= n_files)]
    if len(outside):
        raise ValueError(
            f"{name} must be row numbers of the files, from 0 to {n_files - 1:,}, but it contains "
            f"{format_names(outside)}"
        )
    return given.astype(np.int64)
