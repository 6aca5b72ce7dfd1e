"""CIFAR-10H's reader, on a few trials in the authors' layout, with a few images in CIFAR-10's."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse.datasets import cifar10h, download
from crowdfuse.datasets.cifar10h import load_cifar10h, load_cifar10h_labels
from crowdfuse.datasets.download import checksum
from tests.datasets.test_cifar import made, put

HEADER = [
    "annotator_id",
    "trial_index",
    "image_filename",
    "true_category",
    "chosen_category",
    "true_label",
    "chosen_label",
    "correct_guess",
    "cifar10_test_test_idx",
    "is_attn_check",
    "subcategory",
    "reaction_time",
    "time_elapsed",
]
IMAGES = made("cifar10")
TRUTH: list[int] = IMAGES["test_batch"][b"labels"]  # of two images


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDFUSE_DATA", raising=False)


def trial(who: int, image: int, said: int, **changes: Any) -> list[Any]:
    true = TRUTH[image] if image < len(TRUTH) else 0
    row = [who, 0, "x_s_000114.png", "a", "b", true, said, int(true == said), image, 0, "x", 1023.5, 9000]
    return [changes.get(name, value) for name, value in zip(HEADER, row, strict=True)]


ATTENTION = trial(0, 0, 3, cifar10_test_test_idx=-99999, is_attn_check=1)
TRIALS = [trial(0, 1, 9), ATTENTION, trial(0, 0, TRUTH[0]), trial(7, 1, TRUTH[1])]


def text(rows: list[list[Any]], header: list[str] = HEADER) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return file.getvalue()


def write(folder: Path, rows: list[list[Any]], header: list[str] = HEADER) -> Path:
    path = folder / "cifar10h" / "cifar10h-raw.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(rows, header))
    put(folder / "cifar-10-batches-py", IMAGES)
    return path


def packed(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The archive, whose checksum is made the published one."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("cifar10h-raw.csv", text(TRIALS))
    monkeypatch.setattr(cifar10h, "ARCHIVE_SUM", checksum(file.getvalue(), like="sha256:"))
    return file.getvalue()


@pytest.mark.parametrize("layout", ["ours", "clone", "itself", "archive", "environment"])
def test_every_layout_gives_the_same_crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    path = write(tmp_path, TRIALS)
    if layout == "clone":
        (tmp_path / "cifar-10h" / "data").mkdir(parents=True)
        path.rename(tmp_path / "cifar-10h" / "data" / path.name)
    elif layout == "itself":
        path.rename(tmp_path / path.name)
    elif layout == "archive":
        path.with_suffix(".zip").write_bytes(packed(monkeypatch))
        path.unlink()
    elif layout == "environment":
        monkeypatch.setenv("CROWDFUSE_DATA", str(tmp_path))
    crowd = load_cifar10h(None if layout == "environment" else tmp_path)
    assert crowd.annotations.to_matrix().tolist() == [[TRUTH[0], -1], [9, TRUTH[1]]]  # no attention check
    assert crowd.annotations.by_row
    assert crowd.annotations.annotators.tolist() == [0, 7]
    np.testing.assert_array_equal(crowd.X.reshape(2, -1), IMAGES["test_batch"][b"data"])
    assert crowd.X.dtype == np.uint8
    assert crowd.y.tolist() == TRUTH
    assert crowd.classes == list(range(10))
    assert crowd.class_names == tuple(f"class {k}" for k in range(10))
    np.testing.assert_array_equal(crowd.X_test[0].ravel(), IMAGES["data_batch_1"][b"data"][0])  # training images judge
    assert len(crowd.X_test) == len(crowd.y_test) == 15


def test_labels_can_be_loaded_without_images(tmp_path: Path) -> None:
    path = write(tmp_path, [*TRIALS, trial(7, 9_000, 4)])
    (tmp_path / "cifar-10-batches-py" / "test_batch").unlink()
    crowd = load_cifar10h_labels(tmp_path)
    assert crowd.annotations.items.tolist() == [0, 1, 9_000]
    assert crowd.annotations.n_labels == 4
    assert crowd.annotations.classes[crowd.truth].tolist() == [*TRUTH, 0]
    assert crowd.judged.tolist() == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match=r"does not contain test_batch, and .* not contain cifar-10-python"):
        load_cifar10h(tmp_path)
    path.unlink()
    with pytest.raises(
        FileNotFoundError, match=r"no cifar10h-raw.csv and no cifar10h-raw.zip in .*jcpeterson/cifar-10h"
    ):
        load_cifar10h_labels(tmp_path)
    with pytest.raises(FileNotFoundError, match="CROWDFUSE_DATA"):
        load_cifar10h()


def test_first_of_two_labels_on_an_image_counts(tmp_path: Path) -> None:
    write(tmp_path, [*TRIALS, trial(7, 1, 8), trial(7, 1, 9)])
    assert load_cifar10h(tmp_path).annotations.to_matrix()[1].tolist() == [9, TRUTH[1]]


def test_an_archive_with_another_checksum_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, TRIALS)
    path.unlink()
    path.with_suffix(".zip").write_bytes(b"PK, or so")
    with pytest.raises(
        ValueError, match=r"cifar10h-raw.zip has checksum sha256:.*published file has sha256:4b0283f9.*move"
    ):
        load_cifar10h(tmp_path, download=True)  # existing files of the user are never overwritten
    assert path.with_suffix(".zip").read_bytes() == b"PK, or so"


def test_the_archive_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, content = [], packed(monkeypatch)

    def answer(url: str, timeout: float) -> Any:
        asked.append(url)
        return io.BytesIO(content)

    monkeypatch.setattr(download, "urlopen", answer)
    for _ in range(2):
        assert load_cifar10h_labels(tmp_path, download=True).annotations.n_labels == 3
    assert asked == ["https://github.com/jcpeterson/cifar-10h/raw/master/data/cifar10h-raw.zip"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([trial(0, 0, 10)], r"cifar10h-raw.csv, line 2: chosen_label '10' is not an integer from 0 to 9"),
        ([*TRIALS, trial(0, 0, 3, chosen_label="cat")], "line 6: chosen_label 'cat' is not"),
        ([trial(0, 0, 3, annotator_id="")], "line 2: annotator_id '' is not"),
        ([trial(0, 0, 3, is_attn_check="no")], "line 2: is_attn_check 'no' is not an integer from 0 to 1"),
        ([trial(0, 0, 3, cifar10_test_test_idx=-99999)], "line 2: cifar10_test_test_idx '-99999' is not"),
        ([trial(0, 10_000, 3)], "cifar10_test_test_idx '10000' is not an integer from 0 to 9999"),
        (
            [trial(0, 2, 3)],
            "line 2: the column cifar10_test_test_idx names image 2, but the test file of CIFAR-10 has only 2 images",
        ),
        (
            [trial(0, 0, 3, true_label=(TRUTH[0] + 1) % 10)],
            rf"line 2: true_label of image 0 is {(TRUTH[0] + 1) % 10}, but CIFAR-10's own .*order, says {TRUTH[0]}",
        ),
        (
            [trial(0, 2, 3), trial(1, 2, 3, true_label=5)],
            "line 2: true_label of image 2 is 0, but another row .* says 5",
        ),
        ([ATTENTION], "every row is an attention check"),
        ([TRIALS[0][:5]], "line 2: 5 values, but the header has 13"),
        ([], "has a header but no rows"),
    ],
)
def test_invalid_rows_are_refused_with_their_line(tmp_path: Path, rows: list[list[Any]], said: str) -> None:
    write(tmp_path, rows)
    with pytest.raises(ValueError, match=said):
        load_cifar10h(tmp_path)


def test_file_of_another_data_set_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [[0, 1]], ["task", "label"])
    with pytest.raises(
        ValueError,
        match=r"line 1: expected the columns .*, but the header \('task', 'label'.*\) lacks cifar10_test_test_idx",
    ):
        load_cifar10h_labels(tmp_path)
