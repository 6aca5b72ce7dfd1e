"""The loaders of real crowds, on files with the same layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.label_only import load_label_only
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.sentiment import load_sentiment
from tests.crowd_files import BAD, GOOD, write_cifar10n, write_label_only, write_labelme, write_sentiment


def test_labelme_has_labels_and_missing_labels(tmp_path: Path) -> None:
    write_labelme(tmp_path)
    crowd = load_labelme(tmp_path)
    assert crowd.X.shape == (60, 4)
    assert crowd.X.dtype == np.float32
    assert crowd.annotations.shape == (60, 6)
    assert crowd.annotations.n_labels == 60 * 5
    assert crowd.annotations.by_row
    assert len(crowd.X_test) == len(crowd.y_test) == 30
    assert crowd.classes == [0, 1, 2]


def test_class_without_labels_is_listed(tmp_path: Path) -> None:
    y = np.arange(30) % 3
    y[4] = 5
    write_labelme(tmp_path, y_test=y)
    assert load_labelme(tmp_path).classes == [0, 1, 2, 5]


def test_annotators_of_cifar10n_are_the_workers(tmp_path: Path) -> None:
    answers = np.tile(np.array([0, 1, 2], np.uint8), (60, 1))
    workers = np.tile(np.array([7, 300, 12], np.int16), (60, 1))
    workers[1] = [7, 7, 12]  # the first label of a worker on an image is used
    workers[2] = [12, 7, 12]
    write_cifar10n(tmp_path, answers=answers, workers=workers)
    crowd = load_cifar10n(tmp_path)
    assert crowd.annotations.annotators.tolist() == [7, 12, 300]
    assert crowd.annotations.to_matrix()[:4].tolist() == [[0, 2, 1], [0, 2, -1], [1, 0, -1], [0, 2, 1]]
    assert crowd.annotations.by_row
    assert crowd.X.dtype == np.float32
    write_cifar10n(tmp_path, workers=workers[:, :2])
    with pytest.raises(ValueError, match=r"workers must have the shape of answers, \(60, 3\), got \(60, 2\)"):
        load_cifar10n(tmp_path)


def test_annotators_of_cifar10n_without_workers_are_slots(tmp_path: Path) -> None:
    write_cifar10n(tmp_path, workers=None)
    assert load_cifar10n(tmp_path).annotations.annotators.tolist() == ["slot-1", "slot-2", "slot-3"]
    write_cifar10n(tmp_path, answers=np.zeros((60, 4), np.uint8), workers=None)
    with pytest.raises(ValueError, match=r"answers must have one row per image and 3 columns, got shape \(60, 4\)"):
        load_cifar10n(tmp_path)


def test_arrays_of_different_lengths_are_refused(tmp_path: Path) -> None:
    write_labelme(tmp_path, answers=np.zeros((59, 6), int))
    with pytest.raises(ValueError, match="x_train has 60 rows, but answers has 59"):
        load_labelme(tmp_path)


def test_held_out_sentences_depend_on_seed_and_do_not_affect_features(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    data = load_sentiment(tmp_path)
    assert data.texts[1] == f"{GOOD} , number 1\nindeed"
    assert data.annotations.shape == (50, 4)
    one, other, again = data.split(0), data.split(1), data.split(0)
    assert (len(one.X), len(one.X_test)) == (40, 10)
    assert (one.X == again.X).all()
    assert one.y.tolist() != other.y.tolist() or not np.array_equal(one.annotations.items, other.annotations.items)
    kept = one.annotations.items  # the sentence's number is a word of its own: once each
    numbers = np.flatnonzero((one.X > 0).sum(0) == 1)
    assert len(numbers) >= len(kept)
    assert not one.X_test[:, numbers].any()  # words that occur only in held-out sentences have no column
    said = data.annotations.to_matrix()[kept]
    assert (one.annotations.to_matrix() == said).all()
    assert (one.y == np.asarray(kept) % 2).all()
    assert one.external_test is not None
    X, y = one.external_test
    assert y.tolist() == [1, 0, 1]
    assert X[0].any()
    assert not X[2].any()
    assert BAD in data.external_texts


def test_label_without_sentence_is_refused(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    with (tmp_path / "sentiment_polarity" / "labels.csv").open("a") as file:
        file.write("99,0,1\n")
    with pytest.raises(ValueError, match=r"train_text.csv has no text for 1 labelled task: 99"):
        load_sentiment(tmp_path)


def test_missing_sentiment_files_and_columns_are_named(tmp_path: Path) -> None:
    write_sentiment(tmp_path)
    place = tmp_path / "sentiment_polarity"
    (place / "train_text.csv").write_text("task,text,gold\n0,good,great\n")
    with pytest.raises(ValueError, match=r"train_text.csv: gold must hold integers: .*'great'"):
        load_sentiment(tmp_path)
    (place / "test_text.csv").write_text("text\ngood\n")
    with pytest.raises(ValueError, match=r"test_text.csv must have the columns text, gold, but has no gold"):
        load_sentiment(tmp_path)
    (place / "test_text.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"test_text.csv is missing.*or leave out sentiment: .*--values"):
        load_sentiment(tmp_path)


def test_label_only_data_lists_items_with_gold_labels(tmp_path: Path) -> None:
    write_label_only(tmp_path, "dog")
    crowd = load_label_only("dog", tmp_path)
    truth = np.random.default_rng(7).integers(0, 3, 30)
    assert crowd.annotations.n_labels == 150  # the second label of one pair does not count
    assert crowd.annotations.dropped_conflicts == 1
    assert (crowd.annotations.items[crowd.judged] == np.arange(25)).all()
    assert (crowd.annotations.classes[crowd.truth] == truth[:25]).all()


def test_gold_class_without_labels_counts_and_unlabelled_items_do_not(tmp_path: Path) -> None:
    write_label_only(tmp_path, "dog")
    gold = tmp_path / "labels_only" / "dog" / "gold.csv"
    gold.write_text("task,label\n0,8\n1,2\n77,1\n")
    crowd = load_label_only("dog", tmp_path)
    assert crowd.judged.tolist() == [0, 1]
    assert crowd.truth.tolist() == [-1, 2]
    gold.write_text("task,label\n77,1\n")
    with pytest.raises(ValueError, match=r"no item has both .* such as 77, the labels for items such as 0, 1, 2"):
        load_label_only("dog", tmp_path)
    gold.unlink()
    with pytest.raises(FileNotFoundError, match=r"gold.csv is missing.*or leave out dog: .*--values"):
        load_label_only("dog", tmp_path)


def test_missing_data_folder_error_names_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDFUSE_DATA", raising=False)
    for load in (load_labelme, load_cifar10n, load_sentiment, lambda: load_label_only("dog")):
        with pytest.raises(FileNotFoundError, match="CROWDFUSE_DATA"):
            load()
