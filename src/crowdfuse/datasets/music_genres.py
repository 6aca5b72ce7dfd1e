"""Music genres (Rodrigues et al., 2013): 700 songs labelled by 44 annotators, and 300 test songs.

Each song has 124 features, computed with the software Marsyas. The ten genres are the genres of the data set GTZAN.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.arrays import read_arrays, refuse_other_lengths
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.csv_rows import read_rows
from crowdfuse.datasets.data_folder import data_folder, refuse_missing
from crowdfuse.labels.annotations import Annotations

FOLDER = "music_genre_classification"  # as in the authors' archive
GOLD, LABELS, TEST = "music_genre_gold.csv", "music_genre_mturk.csv", "music_genre_test.csv"
ARRAYS_FOLDER, ARRAYS_FILE = "music_genre", "music_genre.npz"  # the same data as arrays
ARRAYS = ("x_train", "y_train", "x_test", "y_test", "answers", "class_names")
PUBLISHED = (
    "The files are in mturk-datasets.tar.gz, which the authors of 'Learning from multiple annotators: distinguishing "
    "good from random labelers' publish at http://fprodrigues.com"
)
GENRES = ("blues", "classical", "country", "disco", "hiphop", "jazz", "metal", "pop", "reggae", "rock")


class _Songs(NamedTuple):
    """The names of the features, and the id, features and genre of each song."""

    features: list[str]
    ids: list[str]
    X: NDArray[np.float32]
    y: NDArray[np.int64]


def load_music_genres(folder: Path | None = None) -> CrowdDataset:
    """Load the music genres: songs with 124 features each, labelled with ten genres.

    Features are not scaled. The data set is read from three CSV files. If their folder does not exist, an ``.npz`` file
    is read instead. In data from the CSV files, songs are in the order of ``music_genre_gold.csv``, and item ids are
    the names of the songs. If an annotator labelled a song twice, the first label is used. In data from the ``.npz``
    file, item ids and annotator ids are numbers.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder
        ``music_genre_classification`` has the files of the authors' archive: ``music_genre_gold.csv``,
        ``music_genre_mturk.csv`` and ``music_genre_test.csv``. If there is no such subfolder,
        ``music_genre/music_genre.npz`` is read. This file has the arrays ``x_train``, ``y_train``, ``x_test``,
        ``y_test``, ``answers`` (one row per song, one column per annotator, -1 for no label) and ``class_names``.

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
    F. Rodrigues, F. Pereira and B. Ribeiro, "Learning from multiple annotators: distinguishing good from random
    labelers", Pattern Recognition Letters, 2013.

    Examples
    --------
    >>> load_music_genres(Path("nowhere"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    FileNotFoundError: music genres: no music_genre_gold.csv, ...
    """
    data = data_folder(folder, "music genres", f"{FOLDER}/ with {GOLD}, {LABELS} and {TEST}")
    place, arrays = data / FOLDER, data / ARRAYS_FOLDER
    if not place.exists() and (arrays / ARRAYS_FILE).is_file():
        return _read_arrays_file(arrays)
    refuse_missing(place, (GOLD, LABELS, TEST), "music genres", PUBLISHED)
    train, test = _read_songs(place / GOLD), _read_songs(place / TEST)
    if train.features != test.features:
        both = zip_longest(test.features, train.features, fillvalue="nothing")
        column, (own, other) = next((i, pair) for i, pair in enumerate(both, 1) if pair[0] != pair[1])
        raise ValueError(
            f"{place / TEST}, line 1: its {len(test.features)} features differ from the {len(train.features)} "
            f"features of {GOLD}: feature {column} is {own!r} here, but {other!r} in {GOLD}"
        )
    ann = _read_labels(place / LABELS, train.ids).align(train.ids)
    return CrowdDataset(train.X, ann, train.y, test.X, test.y, class_names=GENRES)


def _read_arrays_file(place: Path) -> CrowdDataset:
    """The data set from the file of arrays."""
    arrays = read_arrays(place, {ARRAYS_FILE: ARRAYS}, PUBLISHED)
    refuse_other_lengths(place, arrays, (("x_train", "y_train"), ("x_train", "answers"), ("x_test", "y_test")))
    if arrays["answers"].ndim != 2:
        raise ValueError(
            f"{place / ARRAYS_FILE}: answers must have one row per song and one column per annotator, "
            f"got shape {arrays['answers'].shape}"
        )
    names = tuple(name.decode() if isinstance(name, bytes) else str(name) for name in arrays["class_names"].tolist())
    for key in ("answers", "y_train", "y_test"):
        if arrays[key].size and arrays[key].max() >= len(names):
            raise ValueError(
                f"{place / ARRAYS_FILE}: {key} has class {arrays[key].max()}, but class_names has {len(names)} names"
            )
    return CrowdDataset(
        arrays["x_train"].astype(np.float32),
        Annotations.from_matrix(arrays["answers"].astype(np.int64), classes=range(len(names))),
        arrays["y_train"].astype(np.int64),
        arrays["x_test"].astype(np.float32),
        arrays["y_test"].astype(np.int64),
        class_names=names,
    )


def _read_songs(path: Path) -> _Songs:
    """The songs in a file."""
    lines: dict[str, int] = {}
    X, y = [], []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        header, rows = read_rows(file, str(path), ("id", "class"))
        song, genre = header.index("id"), header.index("class")
        measured = [at for at in range(len(header)) if at not in (song, genre)]
        if not measured:
            raise ValueError(f"{path}, line 1 has an id and a class, but no features")
        for line, row in rows:
            if row[song] in lines:
                raise ValueError(f"{path}, line {line}: song {row[song]!r} is already in line {lines[row[song]]}")
            lines[row[song]] = line
            X.append([_number(row[at], f"{path}, line {line}: {header[at]}") for at in measured])
            y.append(_genre(row[genre], path, line))
    return _Songs([header[at] for at in measured], list(lines), np.array(X, np.float32), np.array(y, np.int64))


def _read_labels(path: Path, songs: list[str]) -> Annotations:
    """The labels of the songs."""
    known = set(songs)
    triples: list[tuple[str, str, int]] = []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        header, rows = read_rows(file, str(path), ("id", "annotator", "class"))
        song, annotator, genre = (header.index(name) for name in ("id", "annotator", "class"))
        for line, row in rows:
            if row[song] not in known:
                raise ValueError(f"{path}, line {line}: song {row[song]!r} is not in {GOLD}")
            if not row[annotator].strip():
                raise ValueError(f"{path}, line {line}: the annotator is empty")
            triples.append((row[song], row[annotator], _genre(row[genre], path, line)))
    item, name, label = zip(*triples, strict=True)
    table = {"item": list(item), "annotator": list(name), "label": list(label)}
    return Annotations.from_table(table, classes=range(len(GENRES)), on_conflict="first")


def _genre(text: str, path: Path, line: int) -> int:
    """The class number of a genre."""
    if text not in GENRES:
        raise ValueError(f"{path}, line {line}: class {text!r} is not one of {', '.join(GENRES)}")
    return GENRES.index(text)


def _number(text: str, where: str) -> float:
    """A finite number from text."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where} {text!r} is not a finite number")
    return number
