"""Small simulated crowds in the file layout of the real data sets."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs

from crowdfuse.datasets.label_only import LABEL_ONLY_DATASETS

GOOD, BAD = "a lovely warm film", "a dull long bore"


def write_crowds(folder: Path) -> Path:
    """All of them; annotators are right four times out of five."""
    write_labelme(folder)
    write_cifar10n(folder)
    write_sentiment(folder)
    for name in LABEL_ONLY_DATASETS:
        write_label_only(folder, name)
    return folder


def write_labelme(folder: Path, **changes: Any) -> None:
    X, y = make_blobs(90, centers=3, n_features=4, random_state=0)
    answers = _label_matrix(y[:60], 6)
    answers[np.arange(60), np.arange(60) % 6] = -1
    arrays = {"x_train": X[:60], "answers": answers, "y_train": y[:60], "x_test": X[60:], "y_test": y[60:]}
    _save(folder / "labelme" / "labelme_vgg_avg.npz", arrays | changes)


def write_cifar10n(folder: Path, **changes: Any) -> None:
    X, y = make_blobs(90, centers=3, n_features=4, random_state=1)
    _save(folder / "cifar10n" / "features.npz", {"x_train": X[:60].astype(np.float16), "x_test": X[60:]})
    workers = (np.arange(60)[:, None] // 10 + [0, 3, 7]) % 9  # three of nine people label ten images in a row
    labels = {"answers": _label_matrix(y[:60], 3).astype(np.uint8), "y_train": y[:60], "y_test": y[60:]}
    arrays = labels | {"workers": workers.astype(np.int16)} | changes
    _save(folder / "cifar10n" / "labels.npz", {name: array for name, array in arrays.items() if array is not None})


def write_sentiment(folder: Path) -> None:
    place = folder / "sentiment_polarity"
    y = np.arange(50) % 2
    texts = [f"{GOOD if k else BAD} , number {n}\nindeed" for n, k in enumerate(y)]
    _write(place / "train_text.csv", ("task", "text", "gold"), zip(range(50), texts, y, strict=True))
    _write(place / "test_text.csv", ("text", "gold"), [(GOOD, 1), (BAD, 0), ("quite another matter", 1)])
    _write(place / "labels.csv", ("task", "annotator", "label"), _triples(_label_matrix(y, 4)))


def write_label_only(folder: Path, name: str) -> None:
    y = np.random.default_rng(7).integers(0, 3, 30)
    triples = [*_triples(_label_matrix(y, 5)), (0, 0, int(y[0] + 1) % 3)]  # one annotator gives two different labels
    _write(folder / "labels_only" / name / "labels.csv", ("task", "annotator", "label"), triples)
    gold = [(n, int(y[n])) for n in range(25)]  # not all items have any
    _write(folder / "labels_only" / name / "gold.csv", ("task", "label"), gold)


def _label_matrix(y: Any, n_annotators: int) -> Any:
    generator = np.random.default_rng(5)
    wrong = generator.random((len(y), n_annotators)) < 0.2
    return np.where(wrong, (y[:, None] + 1) % (y.max() + 1), y[:, None])


def _triples(said: Any) -> list[tuple[int, int, int]]:
    return [(n, r, int(said[n, r])) for n in range(said.shape[0]) for r in range(said.shape[1])]


def _save(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def _write(path: Path, header: tuple[str, ...], rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
