"""CIFAR-10H (Peterson et al., ICCV 2019): the test images of CIFAR-10, each labelled by about 51 of 2,571 people.

The authors' file has one row per trial. In a trial, one person labels one image. Attention checks, which show other
images, are skipped.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.cifar import CifarData, load_cifar
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.csv_rows import parse_index, read_rows
from crowdfuse.datasets.data_folder import DATA_FOLDER_VARIABLE, data_folder
from crowdfuse.datasets.download import checksum, fetch
from crowdfuse.datasets.label_only import LabelOnly
from crowdfuse.labels.annotations import Annotations

FOLDERS = ("cifar10h", "cifar-10h/data")  # our name, and a clone of the authors' repository
FILE, ARCHIVE = "cifar10h-raw.csv", "cifar10h-raw.zip"
ARCHIVE_SUM = "sha256:4b0283f9b2ae72a616eeb4a2a38474cc2a238eb041bfb8df5ead3a8a47f35aa3"
MIRRORS = ("https://github.com/jcpeterson/cifar-10h/raw/master/data/",)
N_CLASSES = 10
N_IMAGES = 10_000
ANNOTATOR_ID_LIMIT = 10**9
ATTENTION_CHECK_COLUMN = "is_attn_check"
COLUMNS = {
    "cifar10_test_test_idx": N_IMAGES,
    "annotator_id": ANNOTATOR_ID_LIMIT,
    "chosen_label": N_CLASSES,
    "true_label": N_CLASSES,
}


class _Trials(NamedTuple):
    """The trials, without attention checks: image, annotator, label, true class and line number of each trial."""

    where: str
    image: NDArray[np.int64]
    annotator: NDArray[np.int64]
    said: NDArray[np.int64]
    truth: NDArray[np.int64]
    line: NDArray[np.int64]

    def annotations(self, n_images: int) -> Annotations:
        """The labels, aligned with the images. If an annotator labelled an image twice, the first label is used."""
        table = {"item": self.image, "annotator": self.annotator, "label": self.said}
        return Annotations.from_table(table, classes=range(N_CLASSES), on_conflict="first").align(np.arange(n_images))


def load_cifar10h(folder: Path | None = None, *, download: bool = False) -> CrowdDataset:
    """Load CIFAR-10H with the images of CIFAR-10.

    People labelled the test images of CIFAR-10. The training set therefore consists of these 10,000 test images, and
    the test set consists of the 50,000 training images of CIFAR-10.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. It contains
        ``cifar10h-raw.csv`` or the published ``cifar10h-raw.zip``. The file is in the data folder itself, in its
        subfolder ``cifar10h``, or in its subfolder ``cifar-10h/data`` (a clone of the authors' repository). The files
        of CIFAR-10 must be in the same data folder, where `load_cifar` expects them.
    download : bool, default=False
        Whether to download missing files.

    Returns
    -------
    data : CrowdDataset
        Images of shape (n_images, 3, 32, 32), uint8; labels and gold labels are the class numbers of CIFAR-10.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says where to get them.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    J. C. Peterson et al., "Human Uncertainty Makes Classification More Robust", ICCV 2019.

    Examples
    --------
    >>> load_cifar10h(Path("nowhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: cifar10h: no cifar10h-raw.csv and no cifar10h-raw.zip in nowhere/cifar10h, ...
    """
    base = _base(folder)
    trials = _read(_find(base, download=download))
    data = load_cifar(base, name="cifar10", download=download)
    _refuse_other_images(trials, data)
    ann = trials.annotations(len(data.y_test))
    return CrowdDataset(data.X_test, ann, data.y_test, data.X_train, data.y_train, class_names=data.class_names)


def load_cifar10h_labels(folder: Path | None = None, *, download: bool = False) -> LabelOnly:
    """Load CIFAR-10H without the images.

    Parameters
    ----------
    folder : Path, default=None
        The data folder, as in `load_cifar10h`; by default the value of the environment variable ``CROWDFUSE_DATA``.
    download : bool, default=False
        Whether to download missing files.

    Returns
    -------
    data : LabelOnly
        The labels of all images with at least one label. All these images have a gold label.

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says where to get them.
    ValueError
        If a file is damaged; the message says where, and what is wrong.
    """
    trials = _read(_find(_base(folder), download=download))
    ann = trials.annotations(N_IMAGES)
    truth = np.full(N_IMAGES, -1)
    truth[trials.image] = trials.truth
    labelled = np.flatnonzero(truth >= 0)
    return LabelOnly(ann[labelled], np.arange(len(labelled)), truth[labelled])


def _base(folder: Path | None) -> Path:
    """The data folder."""
    return data_folder(folder, "cifar10h", f"cifar10h/{FILE} (or {ARCHIVE})")


def _find(base: Path, *, download: bool) -> Path:
    """The file or the archive. If both are missing and `download` is true, the archive is downloaded."""
    folders = [*(base / below for below in FOLDERS), base]
    for path in (folder / name for folder in folders for name in (FILE, ARCHIVE)):
        if path.is_file():
            return path
    if not download:
        raise FileNotFoundError(
            f"cifar10h: no {FILE} and no {ARCHIVE} in {', '.join(map(str, folders))}. Download the "
            "archive with download=True, or get it from https://github.com/jcpeterson/cifar-10h (folder data). To use "
            f"another data folder, pass folder= or set {DATA_FOLDER_VARIABLE}"
        )
    target = folders[0] / ARCHIVE
    fetch(ARCHIVE, MIRRORS, target, ARCHIVE_SUM)
    return target


def _read(path: Path) -> _Trials:
    """The trials in the file or the archive."""
    if path.name == FILE:
        with path.open(newline="", encoding="utf-8", errors="replace") as lines:
            return _parse(lines, str(path))
    content = path.read_bytes()
    found = checksum(content, like=ARCHIVE_SUM)
    if found != ARCHIVE_SUM:
        raise ValueError(
            f"{path} has checksum {found}, but the published file has {ARCHIVE_SUM}, so this file is damaged or a "
            "different one. Remove it and download it again (download=True)"
        )
    with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(FILE) as packed:
        return _parse(io.TextIOWrapper(packed, "utf-8", "replace", newline=""), f"{path}, {FILE}")


def _parse(lines: Iterable[str], where: str) -> _Trials:
    """The trials in the lines of the file."""
    header, rows = read_rows(lines, where, (*COLUMNS, ATTENTION_CHECK_COLUMN))
    checked = header.index(ATTENTION_CHECK_COLUMN)
    places = [(header.index(name), below, name) for name, below in COLUMNS.items()]
    trials = [
        [*(parse_index(row[at], below, where, line, name) for at, below, name in places), line]
        for line, row in rows
        if parse_index(row[checked], 2, where, line, ATTENTION_CHECK_COLUMN) == 0
    ]
    if not trials:
        raise ValueError(
            f"{where}: every row is an attention check ({ATTENTION_CHECK_COLUMN} is 1); download the file again"
        )
    found = _Trials(where, *np.array(trials, np.int64).T)
    truth = np.zeros(N_IMAGES, np.int64)
    truth[found.image] = found.truth
    _refuse_other_truth(found, truth, "another row of the file")
    return found


def _refuse_other_images(trials: _Trials, data: CifarData) -> None:
    """Raise an error unless the labels belong to these images in this order."""
    beyond = np.flatnonzero(trials.image >= len(data.y_test))
    if len(beyond):
        raise ValueError(
            f"{trials.where}, line {trials.line[beyond[0]]}: the column cifar10_test_test_idx names image "
            f"{trials.image[beyond[0]]}, but the test file of CIFAR-10 has only {len(data.y_test):,} images. Download "
            f"the official files of CIFAR-10 again; they have {N_IMAGES:,} test images"
        )
    _refuse_other_truth(trials, data.y_test, "CIFAR-10's own test file, whose images may be in another order,")


def _refuse_other_truth(trials: _Trials, truth: NDArray[np.int64], whose: str) -> None:
    """Raise an error if the true class of a trial differs from `truth`."""
    wrong = np.flatnonzero(truth[trials.image] != trials.truth)
    if len(wrong):
        at = wrong[0]
        raise ValueError(
            f"{trials.where}, line {trials.line[at]}: true_label of image {trials.image[at]} is {trials.truth[at]}, "
            f"but {whose} says {truth[trials.image[at]]}; use the official files"
        )
