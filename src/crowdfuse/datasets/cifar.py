"""Load CIFAR-100 and CIFAR-10 from the official archive or the unpacked folder. No pickle is executed."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.checks.choices import check_choice
from crowdfuse.datasets.data_folder import DATA_FOLDER_VARIABLE, data_folder
from crowdfuse.datasets.download import checksum, fetch
from crowdfuse.datasets.plain_pickle import read_plain_pickle

SHAPE = (3, 32, 32)  # red, green and blue; one row of `data` per image
MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)


@dataclass(frozen=True)
class CifarData:
    """Images of CIFAR-10 or CIFAR-100, with their classes.

    Parameters
    ----------
    X_train, X_test : ndarray of shape (n_images, 3, 32, 32), uint8
        Images with pixel values from 0 to 255, as in the files (not scaled).
    y_train, y_test : ndarray of shape (n_images,), int64
        Class numbers, as positions in `class_names`.
    class_names : tuple of str
        The name of each class.
    """

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """One of the two data sets, in the layout that its authors publish for Python."""

    archive: str
    archive_sum: str
    """The published checksum of the archive; there are no checksums of the files in it."""
    folder: str
    """The folder in the archive."""
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    """The key of the class numbers in the image files."""
    names: str
    """The key of the class names in `meta`."""
    n_classes: int

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the data set."""
        return (*self.train, self.test, self.meta)


SOURCES = {
    "cifar100": Source(
        archive="cifar-100-python.tar.gz",
        archive_sum="md5:eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
        train=("train",),
        test="test",
        meta="meta",
        labels="fine_labels",
        names="fine_label_names",
        n_classes=100,
    ),
    "cifar10": Source(
        archive="cifar-10-python.tar.gz",
        archive_sum="md5:c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
        train=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test="test_batch",
        meta="batches.meta",
        labels="labels",
        names="label_names",
        n_classes=10,
    ),
}


class _File(NamedTuple):
    """The content of a file, and its name for messages."""

    where: str
    content: Any


def load_cifar(folder: Path | None = None, *, name: str = "cifar100", download: bool = False) -> CifarData:
    """Load CIFAR-100 with its 100 fine classes, or CIFAR-10.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. One of the following is
        expected:

        - The data folder contains the unpacked folder ``cifar-100-python/`` (for CIFAR-10, ``cifar-10-batches-py/``).
        - The data folder is this unpacked folder itself.
        - The data folder contains the official archive. The archive is read without unpacking it, after its checksum
          was verified.

        An unpacked folder may contain fewer images than the official data set.
    name : {'cifar100', 'cifar10'}, default='cifar100'
        The data set.
    download : bool, default=False
        Whether to download missing files.

    Returns
    -------
    data : CifarData
        Images and classes in the order of the files.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says where to get them.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Examples
    --------
    >>> load_cifar(Path("nowhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: cifar100: nowhere/cifar-100-python does not contain train, test, meta, and nowhere does not ...
    """
    source = SOURCES[check_choice("name", name, SOURCES)]
    place = _find(data_folder(folder, name, f"{source.folder}/ or {source.archive}"), source, name, download=download)
    files = _read_folder(place, source) if place.is_dir() else _read_archive(place, source)
    X_train, y_train = _join([_images(files[file], source) for file in source.train])
    X_test, y_test = _join([_images(files[source.test], source)])
    return CifarData(X_train, y_train, X_test, y_test, _class_names(files[source.meta], source))


def _find(base: Path, source: Source, name: str, *, download: bool) -> Path:
    """The folder with all files, or the archive. If there is neither, download the archive or raise an error."""
    folders = (base / source.folder, base)
    missing = {folder: [file for file in source.files if not (folder / file).is_file()] for folder in folders}
    folder = min(folders, key=lambda folder: len(missing[folder]))
    if not missing[folder]:
        return folder
    archive = base / source.archive
    if archive.is_file():
        return archive
    if not download:
        raise FileNotFoundError(
            f"{name}: {folder} does not contain {', '.join(missing[folder])}, and {base} does not contain "
            f"{source.archive}. Download the archive with --download (download=True), or put it in {base}. To use "
            f"another data folder, pass --data (folder=) or set {DATA_FOLDER_VARIABLE}"
        )
    fetch(source.archive, MIRRORS, archive, source.archive_sum)
    return archive


def _read_folder(folder: Path, source: Source) -> dict[str, _File]:
    """The files of an unpacked folder."""
    paths = {file: folder / file for file in source.files}
    return {file: _parse(path.read_bytes(), str(path)) for file, path in paths.items()}


def _read_archive(path: Path, source: Source) -> dict[str, _File]:
    """The files in the archive, read in one pass without writing anything to disk."""
    archive = path.read_bytes()
    found = checksum(archive, like=source.archive_sum)
    if found != source.archive_sum:
        raise ValueError(
            f"{path} has checksum {found}, but the published file has {source.archive_sum}, so this file is damaged "
            "or a different one. Remove it and download it again (--download, or download=True)"
        )
    members = {f"{source.folder}/{file}": file for file in source.files}
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r|gz") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.name in members and member.isfile() else None
            if content is not None:
                files[members[member.name]] = _parse(content.read(), f"{path}, {member.name}")
    return files


def _parse(content: bytes, where: str) -> _File:
    """The content of one file."""
    return _File(where, read_plain_pickle(content, where))


def _join(parts: list[tuple[NDArray[np.uint8], NDArray[np.int64]]]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The parts joined in new arrays, because arrays from a pickle are read-only."""
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def _images(file: _File, source: Source) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images and classes of one file."""
    pixels, labels = _entry(file, "data"), _entry(file, source.labels)
    width = int(np.prod(SHAPE))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (width,):
        what = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ValueError(
            f"{file.where}: 'data' must be an array of bytes (uint8) of shape (images, {width}); found {what}"
        )
    if isinstance(labels, list) and all(type(label) is int and label.bit_length() < 64 for label in labels):
        labels = np.array(labels, np.int64)
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.shape != (len(pixels),):
        what = f"{labels.dtype} {labels.shape}" if isinstance(labels, np.ndarray) else f"a {type(labels).__name__}"
        raise ValueError(
            f"{file.where}: {source.labels!r} must be {len(pixels):,} integers, one per image; found {what}"
        )
    if not len(pixels):
        raise ValueError(f"{file.where}: has no images; download the file again")
    wrong = np.flatnonzero((labels < 0) | (labels >= source.n_classes))
    if len(wrong):
        raise ValueError(
            f"{file.where}: label {labels[wrong[0]]} of image {wrong[0]} is not one of the classes 0 to "
            f"{source.n_classes - 1}"
        )
    return pixels.reshape(-1, *SHAPE), labels.astype(np.int64)


def _class_names(file: _File, source: Source) -> tuple[str, ...]:
    """The names of the classes."""
    written = _entry(file, source.names)
    entries = written if isinstance(written, list) else []
    names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in entries]
    if len(names) != source.n_classes or not all(isinstance(name, str) for name in names):
        what = f"{len(names)} entries" if isinstance(written, list) else f"a {type(written).__name__}"
        raise ValueError(f"{file.where}: {source.names!r} must be a list of {source.n_classes} names, found {what}")
    return tuple(names)


def _entry(file: _File, key: str) -> Any:
    """An entry of a file; an error if it is missing."""
    if not isinstance(file.content, dict) or key not in file.content:
        found = ", ".join(file.content) if isinstance(file.content, dict) else f"a {type(file.content).__name__}"
        raise ValueError(f"{file.where}: has no entry {key!r}; found {found:.200}. Is it a file of another data set?")
    return file.content[key]
