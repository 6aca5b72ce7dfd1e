"""Folders of classes of images: both layouts, everything that can be wrong with them, the split, the distances."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from crowdfuse.datasets import image_folder
from crowdfuse.datasets.image_folder import ImageFolder, read_image_folder, split_image_folder, weakness_distances
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.synthesis import weakness_annotators


def put(folder: Path, *names: str) -> Path:
    """Small images, each of another colour."""
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L" if i % 3 == 2 else "RGB", (8 + i, 9), 40 * i % 256).save(path)
    return folder


def below(folder: Path, found: ImageFolder) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in found.paths]


def test_one_folder_per_class(tmp_path: Path) -> None:
    put(tmp_path, "dog/b.png", "cat/2.JPEG", "cat/10.jpg", "dog/deeper/a.webp", "cat/.hidden.jpg", ".git/x.png")
    (tmp_path / "cat/notes.txt").write_text("no image")
    found = read_image_folder(tmp_path)
    assert found.class_names == ("cat", "dog")
    assert below(tmp_path, found) == ["cat/10.jpg", "cat/2.JPEG", "dog/b.png", "dog/deeper/a.webp"]
    assert found.y.tolist() == [0, 0, 1, 1]
    assert found.y.dtype == np.int64
    assert (len(found), found.unreadable) == (4, ())
    files = found.files(12, workers=1)
    assert (len(files), files.item_shape, files.workers) == (4, (3, 12, 12), 1)


def test_train_and_val_are_read_together(tmp_path: Path) -> None:
    put(tmp_path, "train/b/1.jpg", "train/a/1.jpg", "val/a/1.jpg", "val/b/0.jpg", "test/unknown.jpg")
    found = read_image_folder(tmp_path)
    assert found.class_names == ("a", "b")
    assert below(tmp_path, found) == ["train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/b/0.jpg"]
    assert found.y.tolist() == [0, 1, 0, 1]


def test_train_may_be_the_name_of_a_class(tmp_path: Path) -> None:
    found = read_image_folder(put(tmp_path, "train/1.jpg", "plane/1.jpg"))
    assert found.class_names == ("plane", "train")


def test_invalid_folders_are_refused_with_their_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none: no such folder; expected a folder"):
        read_image_folder(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="file: this is a file; expected a folder"):
        read_image_folder(tmp_path / "file")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"empty has no images \(\.bmp, .*\) in class folders"):
        read_image_folder(empty)
    with pytest.raises(ValueError, match=r"flat has no images .* in class folders"):
        read_image_folder(put(tmp_path / "flat", "1.jpg", "2.jpg"))
    with pytest.raises(ValueError, match="alone has only the class 'cat'"):
        read_image_folder(put(tmp_path / "alone", "cat/1.jpg", "cat/2.jpg"))
    some = put(tmp_path / "some", "cat/1.jpg", "dog/1.jpg")
    (some / "cow").mkdir()
    with pytest.raises(ValueError, match=r"some: no images \(.*\) in the class folders 'cow'; remove"):
        read_image_folder(some)
    strange = put(tmp_path / "strange", "train/a/1.jpg", "train/b/1.jpg", "val/images/1.jpg")
    with pytest.raises(ValueError, match=r"val has class folders that .*train does not have: 'images'"):
        read_image_folder(strange)
    with pytest.raises(ValueError, match="on_unreadable must be one of error, skip, got 'skp'"):
        read_image_folder(some, on_unreadable="skp")


@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_files_are_skipped_only_on_request(tmp_path: Path, workers: int) -> None:
    put(tmp_path, *[f"{k}/{i}.jpg" for k in "ab" for i in range(4)])
    short = tmp_path / "a/2.jpg"
    Image.effect_noise((64, 64), 90).save(short)
    short.write_bytes(short.read_bytes()[:-40])  # the header is complete, and Pillow's verify raises no error
    with Image.open(short) as image:
        image.verify()
    (tmp_path / "b/0.jpg").write_bytes(b"")

    found = read_image_folder(tmp_path)
    assert len(found) == 8
    with pytest.raises(ValueError, match=r"2\.jpg: not a readable image \(image file is truncated"):
        found.files(8).rows(np.arange(8))

    with pytest.warns(UserWarning, match=r"2 unreadable images left out: 'a/2.jpg', 'b/0.jpg'"):
        found = read_image_folder(tmp_path, on_unreadable="skip", workers=workers)
    assert found.unreadable == (short, tmp_path / "b/0.jpg")
    assert below(tmp_path, found) == ["a/0.jpg", "a/1.jpg", "a/3.jpg", "b/1.jpg", "b/2.jpg", "b/3.jpg"]
    assert found.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.files(8).rows(np.arange(6)).shape == (6, 3, 8, 8)

    for path in (tmp_path / "b").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"no image of the classes 'b' can be read. Unreadable files: 'a/2.jpg', 'b/0"):
        read_image_folder(tmp_path, on_unreadable="skip")


def test_no_warning_if_all_files_are_readable(tmp_path: Path) -> None:
    put(tmp_path, "a/1.jpg", "b/1.jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_image_folder(tmp_path, on_unreadable="skip")) == 2


# ---- the split -----------------------------------------------------------------------------------


def made_up(*counts: int) -> ImageFolder:
    names = tuple("abcdefgh"[: len(counts)])
    y = np.repeat(np.arange(len(counts)), counts)
    return ImageFolder(tuple(Path(f"{names[k]}/{i}.jpg") for i, k in enumerate(y)), names, y)


def test_the_split_is_25_to_1_to_1_in_each_class(tmp_path: Path) -> None:
    folder = made_up(1350, 38, 3, 1300)
    parts = split_image_folder(folder, 0)
    assert sorted(np.concatenate(parts)) == list(range(len(folder)))
    of_class = np.array([np.bincount(folder.y[rows], minlength=4) for rows in parts]).T
    assert of_class.tolist() == [[1250, 50, 50], [36, 1, 1], [1, 1, 1], [1204, 48, 48]]
    assert all((np.diff(rows) > 0).all() for rows in parts)
    again, other = split_image_folder(folder, 0), split_image_folder(folder, 1)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert not np.array_equal(parts.validation, other.validation)
    with pytest.raises(ValueError, match="class 'b' has 2 images: too few"):
        split_image_folder(made_up(30, 2), 0)


# ---- distances -----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    generator = np.random.default_rng(0)
    paths = []
    for i in range(7):
        shape = (10 + i, 12, 3) if i % 2 else (9, 9 + i)
        paths.append(tmp_path / f"{i}.{'png' if i < 4 else 'jpg'}")
        Image.fromarray(generator.integers(0, 256, shape, np.uint8)).save(paths[-1])
    return ImageFiles(paths, 8)


def dense(files: ImageFiles, rows: Any, weak: Any) -> NDArray[np.float64]:
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    pixels = ImageFiles(files.paths, 224).rows(np.arange(len(files))).astype(np.float64) / 255
    normal = ((pixels - mean[:, None, None]) / std[:, None, None]).reshape(len(files), -1)
    return np.array([[np.linalg.norm(normal[n] - normal[r]) for r in weak] for n in rows])


@pytest.mark.parametrize("block", [2, 64])
def test_distances_are_euclidean_in_normalised_pixels(
    files: ImageFiles, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_folder, "IMAGES_PER_BLOCK", block)
    rows, weak = np.array([5, 0, 1, 3, 6]), [3, 4]
    distances = weakness_distances(files, rows, weak)
    assert distances.dtype == np.float32
    assert distances == pytest.approx(dense(files, rows, weak), rel=1e-6)
    assert distances[3, 0] == 0
    made = weakness_annotators(y=[0, 1, 0, 1, 1], distances=distances, epsilon=float(np.median(distances)))
    assert made.annotations.n_labels == 10


def test_cached_distances_are_used_for_the_same_files_and_rows(
    files: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, measured = tmp_path / "kept/distances.npz", 0
    original = image_folder._measure

    def count(*given: Any) -> NDArray[np.float32]:
        nonlocal measured
        measured += 1
        return original(*given)

    monkeypatch.setattr(image_folder, "_measure", count)
    rows = np.arange(6)
    first = weakness_distances(files, rows, [1, 2], cache)
    again = weakness_distances(files.resized(32), rows, [1, 2], cache)  # they are measured at 224 in any case
    assert np.array_equal(first, again)
    assert measured == 1
    assert [path.name for path in cache.parent.iterdir()] == ["distances.npz"]

    assert not np.array_equal(weakness_distances(files, rows, [1, 3], cache), first)
    weakness_distances(files, rows[:-1], [1, 3], cache)
    weakness_distances(files.take(np.arange(1, 7)), rows[:-1], [1, 3], cache)
    assert measured == 4
    assert weakness_distances(files, rows, [1, 2]).tolist() == first.tolist()
    assert measured == 5


def test_file_that_is_not_a_cache_is_never_replaced(files: ImageFiles, tmp_path: Path) -> None:
    cache = tmp_path / "mine.npz"
    np.savez(cache, X=np.eye(2))
    for content in (cache.read_bytes(), b"", b"text"):
        cache.write_bytes(content)
        with pytest.raises(ValueError, match=r"mine\.npz exists but is not a cache of distances"):
            weakness_distances(files, [0, 1], [1], cache)
        assert cache.read_bytes() == content
    np.save(tmp_path / "array.npy", np.eye(2))
    with pytest.raises(ValueError, match=r"array\.npy exists but is not a cache of distances"):
        weakness_distances(files, [0, 1], [1], tmp_path / "array.npy")


def test_invalid_row_numbers_are_refused(files: ImageFiles) -> None:
    with pytest.raises(ValueError, match=r"weakness_rows must be row numbers of the files, from 0 to 6, but .* 7"):
        weakness_distances(files, [0, 1], [7])
    with pytest.raises(ValueError, match="rows must be one or more positions in the list of files, got none"):
        weakness_distances(files, [], [0])
    with pytest.raises(ValueError, match=r"rows must be one or more positions in the list of files, got 0\.5"):
        weakness_distances(files, [0.5], [0])
