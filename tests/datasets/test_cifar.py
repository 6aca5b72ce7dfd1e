"""The reader, on folders and archives of a few images whose checksums stand in for the published ones."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse.datasets import download
from crowdfuse.datasets.cifar import SOURCES, load_cifar
from crowdfuse.datasets.download import checksum

Contents = dict[str, dict[bytes, Any]]
DATA = os.environ.get("CROWDFUSE_DATA")  # before the tests hide it
ROWS = {
    "cifar100": {"train": 7, "test": 3},
    "cifar10": {**{f"data_batch_{i}": i for i in range(1, 6)}, "test_batch": 2},
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDFUSE_DATA", raising=False)


def made(name: str) -> Contents:
    """What is in the files, by their names; the keys are bytes, as in the official ones."""
    generator, source = np.random.default_rng(0), SOURCES[name]
    contents: Contents = {
        source.meta: {source.names.encode(): [f"class {k}".encode() for k in range(source.n_classes)]}
    }
    for file, count in ROWS[name].items():
        labels = generator.integers(0, source.n_classes, count).tolist()
        pixels = generator.integers(0, 256, (count, 3072), np.uint8)
        contents[file] = {b"data": pixels, source.labels.encode(): labels, b"filenames": [b"a.png"] * count}
    return contents


def put(folder: Path, contents: Contents) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / file).write_bytes(pickle.dumps(content, 2))
    return folder


def pack(name: str, contents: Contents, monkeypatch: pytest.MonkeyPatch, extra: str | None = None) -> bytes:
    """The archive, whose checksum is made the published one."""
    source, packed = SOURCES[name], io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        folder = tarfile.TarInfo(source.folder)
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        files = {f"{source.folder}/{file}": pickle.dumps(content, 2) for file, content in contents.items()}
        for member, content in {**files, **({extra: b"outside"} if extra else {})}.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    found = checksum(packed.getvalue(), like="md5:")
    monkeypatch.setitem(SOURCES, name, dataclasses.replace(source, archive_sum=found))
    return packed.getvalue()


@pytest.mark.parametrize("layout", ["below", "itself", "archive", "environment"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_layout_gives_the_same_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, layout: str
) -> None:
    source, contents = SOURCES[name], made(name)
    if layout == "archive":
        (tmp_path / source.archive).write_bytes(pack(name, contents, monkeypatch))
    else:
        put(tmp_path if layout == "itself" else tmp_path / source.folder, contents)
    if layout == "environment":
        monkeypatch.setenv("CROWDFUSE_DATA", str(tmp_path))
    data = load_cifar(None if layout == "environment" else tmp_path, name=name)
    pixels = np.concatenate([contents[file][b"data"] for file in source.train])
    assert data.X_train.shape == (len(pixels), 3, 32, 32)
    assert (data.X_train.dtype, data.y_train.dtype) == (np.dtype(np.uint8), np.dtype(np.int64))
    np.testing.assert_array_equal(data.X_train[:, 1, 0, 2], pixels[:, 1024 + 2])  # green, row 0, column 2
    np.testing.assert_array_equal(data.X_train.reshape(pixels.shape), pixels)
    assert data.y_train.tolist() == [k for file in source.train for k in contents[file][source.labels.encode()]]
    assert data.y_test.tolist() == contents[source.test][source.labels.encode()]
    assert len(data.X_test) == len(data.y_test)
    assert data.class_names == tuple(f"class {k}" for k in range(source.n_classes))
    assert data.X_train.flags.writeable


def test_missing_data_error_suggests_download_and_manual_copy(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"cifar10: no data folder.* that contains cifar-10-batches-py/ or cifar-10-py"
    ):
        load_cifar(name="cifar10")
    with pytest.raises(ValueError, match="one of cifar100, cifar10, got 'cifar-10'; did you mean 'cifar10'"):
        load_cifar(tmp_path, name="cifar-10")
    folder = put(tmp_path / "cifar-100-python", made("cifar100"))
    (folder / "meta").unlink()
    with pytest.raises(FileNotFoundError) as error:
        load_cifar(tmp_path)
    for part in (f"{folder} does not contain meta", f"{tmp_path} does not contain cifar-", "--download", "or put"):
        assert part in str(error.value)


def test_an_archive_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / SOURCES["cifar100"].archive
    content = pack("cifar100", made("cifar100"), monkeypatch)
    path.write_bytes(content[:-1] + b"?")
    expected, found = SOURCES["cifar100"].archive_sum, checksum(path.read_bytes(), like="md5:")
    with pytest.raises(ValueError, match=f"{path} has checksum {found}, but .* has {expected}.*emove it"):
        load_cifar(tmp_path, download=True)  # existing files of the user are never overwritten


def test_nothing_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "data"
    below.mkdir()
    archive = below / SOURCES["cifar100"].archive
    archive.write_bytes(pack("cifar100", made("cifar100"), monkeypatch, extra="../outside"))
    load_cifar(below)
    assert sorted(tmp_path.rglob("*")) == [below, archive]


def test_the_archive_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, content = [], pack("cifar10", made("cifar10"), monkeypatch)

    def answer(url: str, timeout: float) -> Any:
        asked.append(url)
        return io.BytesIO(content)

    monkeypatch.setattr(download, "urlopen", answer)
    for _ in range(2):
        assert len(load_cifar(tmp_path, name="cifar10", download=True).X_train) == 15
    assert asked == ["https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"]
    content = b"<html>please log in</html>"
    with pytest.raises(OSError, match=r"the downloaded file has checksum .* put it at .*cifar-10-python.tar.gz"):
        load_cifar(tmp_path / "new", name="cifar10", download=True)
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (
            "train",
            {b"data": np.zeros((7, 3072), np.float32)},
            r"'data' must be an array of bytes .*found float32 \(7, 3072\)",
        ),
        ("train", {b"data": np.zeros((7, 3, 32, 32), np.uint8)}, r"found uint8 \(7, 3, 32, 32\)"),
        ("test", {b"data": [1, 2]}, "test: 'data' must be an array of bytes .*found list"),
        ("test", {b"data": np.zeros((0, 3072), np.uint8), b"fine_labels": []}, "test: has no images"),
        ("test", {b"fine_labels": [1, 2]}, r"'fine_labels' must be 3 integers, one per image; found int64 \(2,\)"),
        ("test", {b"fine_labels": [1, 2, "three"]}, "3 integers, one per image; found a list"),
        ("test", {b"fine_labels": [1, 2, 2**70]}, "3 integers, one per image; found a list"),
        ("test", {b"fine_labels": [1, 100, 2]}, "label 100 of image 1 is not one of the classes 0 to 99"),
        ("test", {b"fine_labels": np.array([-1, 0, 2])}, "label -1 of image 0"),
        (
            "meta",
            {b"fine_label_names": ["cat"]},
            "meta: 'fine_label_names' must be a list of 100 names, found 1 entries",
        ),
        ("meta", {b"fine_label_names": "x" * 100}, "must be a list of 100 names, found a str"),
    ],
)
def test_invalid_content_is_refused_with_its_place(
    tmp_path: Path, file: str, change: dict[bytes, Any], said: str
) -> None:
    contents = made("cifar100")
    contents[file] |= change
    put(tmp_path, contents)
    with pytest.raises(ValueError, match=said):
        load_cifar(tmp_path)


def test_file_of_another_data_set_is_refused(tmp_path: Path) -> None:
    contents = made("cifar100")
    contents["train"] = made("cifar10")["test_batch"]
    put(tmp_path, contents)
    with pytest.raises(
        ValueError, match=r"train: has no entry 'fine_labels'; found data, labels, filenames\. Is it a file"
    ):
        load_cifar(tmp_path)
    (tmp_path / "train").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(ValueError, match=r"train: has no entry 'data'; found a list"):
        load_cifar(tmp_path)


def test_pickle_that_calls_a_function_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "marker"), "w")

    contents = made("cifar100")
    contents["test"][b"fine_labels"] = Evil()
    put(tmp_path, contents)
    with pytest.raises(ValueError, match=f"{tmp_path}/test: refused, because it imports 'io.open'"):
        load_cifar(tmp_path)
    assert not (tmp_path / "marker").exists()


def test_real_images() -> None:
    if not DATA or not (Path(DATA) / "cifar-100-python").is_dir():
        pytest.skip("CROWDFUSE_DATA has no cifar-100-python")
    data = load_cifar(Path(DATA))
    assert len(data.X_train) == len(data.y_train)
    assert data.class_names[:2] == ("apple", "aquarium_fish")
    # neighbouring pixels of a photograph are alike, which they are not if planes and rows are mixed up
    step = np.abs(np.diff(data.X_train[:1000].astype(np.int16), axis=3)).mean()
    assert step < data.X_train[:1000].std() / 3
