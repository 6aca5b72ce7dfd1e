"""LabelMe (Rodrigues and Pereira, 2018): 1,000 images with about 2.5 labels each by 59 annotators.

The items are loaded as VGG features, or as images that are read from their files when needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.arrays import read_arrays, refuse_other_lengths
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.csv_rows import parse_index
from crowdfuse.datasets.data_folder import data_folder, other_data_sets_advice, refuse_missing, refuse_missing_images
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.labels.annotations import Annotations

FILE = "labelme_vgg_avg.npz"
FOLDER, ANSWERS = "LabelMe", "answers.txt"  # as in the authors' archive
PUBLISHED = (
    "LabelMe is in deep_LabelMe.tar.gz, which the authors of 'Deep learning from crowds' publish at "
    "http://fprodrigues.com"
)
SCENES = ("highway", "insidecity", "tallbuilding", "street", "forest", "coast", "mountain", "opencountry")
MISSING = -1


def load_labelme(folder: Path | None = None) -> CrowdDataset:
    """Load LabelMe as features that a VGG network computed from the images.

    LabelMe also has validation images. They are not used.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder ``labelme``
        has ``labelme_vgg_avg.npz``.

    Returns
    -------
    data : CrowdDataset

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says which files are expected.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    F. Rodrigues and F. Pereira, "Deep Learning from Crowds", AAAI 2018.
    """
    place = data_folder(folder, "labelme", f"labelme/{FILE}") / "labelme"
    arrays = read_arrays(
        place, {FILE: ("x_train", "answers", "y_train", "x_test", "y_test")}, other_data_sets_advice("labelme")
    )
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_train", "answers"), ("x_test", "y_test")))
    return CrowdDataset(
        arrays["x_train"].astype(np.float32),
        Annotations.from_matrix(arrays["answers"]),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
    )


def load_labelme_images(folder: Path | None = None, *, size: int, workers: int = 0) -> CrowdDataset:
    """Load LabelMe as images that are read from their files when they are needed.

    Item ids are file names, and annotator ids are column numbers in ``answers.txt``. Of the 77 annotators in this file,
    18 have no labels and are left out, as in `load_labelme`. The validation images are not used.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder ``LabelMe``
        is the unpacked archive of Rodrigues and Pereira (see References). ``filenames_train.txt`` lists the training
        images, such as ``train/coast/coast_n203030.jpg``. ``labels_train.txt`` has their classes. ``answers.txt`` has
        one row per image and one column per annotator, with -1 for a missing label. ``filenames_test.txt`` and
        ``labels_test.txt`` describe the test images.
    size : int
        Height and width of the images in pixels.
    workers : int, default=0
        Number of worker processes that decode images in advance. If 0, the calling process decodes them.

    Returns
    -------
    data : CrowdDataset

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says where to get them.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    F. Rodrigues and F. Pereira, "Deep Learning from Crowds", AAAI 2018.

    Examples
    --------
    >>> load_labelme_images(Path("nowhere"), size=150)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: labelme: no answers.txt, filenames_train.txt, ... in nowhere/LabelMe. LabelMe is in deep_...
    """
    place = data_folder(folder, "labelme", f"{FOLDER}/ with {ANSWERS} and the images") / FOLDER
    lists = [f"{what}_{part}.txt" for part in ("train", "test") for what in ("filenames", "labels")]
    refuse_missing(place, (ANSWERS, *lists), "labelme", PUBLISHED)
    train, test = _read_part(place, "train"), _read_part(place, "test")
    answers = _read_answers(place / ANSWERS, len(train.names))
    labelled = np.flatnonzero((answers != MISSING).any(0))
    ann = Annotations.from_matrix(
        answers[:, labelled], items=train.names, annotators=labelled, classes=range(len(SCENES))
    )
    return CrowdDataset(
        ImageFiles(train.paths, size, workers=workers),
        ann.align(train.names),
        train.y,
        ImageFiles(test.paths, size, workers=workers),
        test.y,
        class_names=SCENES,
    )


class _Part(NamedTuple):
    """The images of one part."""

    names: list[str]
    paths: list[Path]
    y: NDArray[np.int64]


def _read_part(place: Path, part: str) -> _Part:
    """The images of one part, after a check that the classes agree with the file names."""
    listed, said = place / f"filenames_{part}.txt", place / f"labels_{part}.txt"
    names = _lines(listed)
    y = [parse_index(text, len(SCENES), str(said), line, "class") for line, text in enumerate(_lines(said), 1)]
    if len(y) != len(names):
        raise ValueError(
            f"{said} has {len(y):,} lines, but {listed.name} has {len(names):,}; both must have one line per image"
        )
    scenes = [name.partition("_")[0] for name in names]
    for line, (name, scene, k) in enumerate(zip(names, scenes, y, strict=True), 1):
        if scene not in SCENES:
            raise ValueError(f"{listed}, line {line}: {name!r} does not begin with one of {', '.join(SCENES)}")
        if k != SCENES.index(scene):
            raise ValueError(
                f"{said}, line {line}: the class is {k} ({SCENES[k]}), "
                f"but the file name {name!r} belongs to another class"
            )
    paths = [place / part / scene / name for name, scene in zip(names, scenes, strict=True)]
    refuse_missing_images(paths, "labelme", f"Unpack the whole archive. {PUBLISHED}")
    return _Part(names, paths, np.array(y, np.int64))


def _read_answers(path: Path, n_images: int) -> NDArray[np.int64]:
    """The label of each image by each annotator."""
    rows = [text.split() for text in _lines(path)]
    if len(rows) != n_images:
        raise ValueError(
            f"{path} has {len(rows):,} lines, but filenames_train.txt has {n_images:,}; both must have one line per "
            "image"
        )
    for line, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(f"{path}, line {line}: {len(row)} answers, but line 1 has {len(rows[0])}")
    codes = [
        [MISSING if text == "-1" else parse_index(text, len(SCENES), str(path), line, "answer") for text in row]
        for line, row in enumerate(rows, 1)
    ]
    return np.array(codes, np.int64)


def _lines(path: Path) -> list[str]:
    """The lines of a file, without a blank last line."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    found = [line.strip() for line in (lines[:-1] if not lines[-1].strip() else lines)]
    if not found:
        raise ValueError(f"{path} is empty; download it again. {PUBLISHED}")
    return found
