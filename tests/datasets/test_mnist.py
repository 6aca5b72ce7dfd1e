"""The reader, on files of a few pixels whose checksums stand in for the published ones."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfuse.datasets import download, mnist
from crowdfuse.datasets.download import checksum
from crowdfuse.datasets.mnist import SOURCES, load_mnist
from tests.datasets.test_idx import idx

Contents = dict[str, bytes]


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> Contents:
    """Unzipped tiny files by stem, for which both data sets' checksums are set."""
    generator = np.random.default_rng(0)
    parts = {"train": 6, "t10k": 3}
    made = {}
    for part, count in parts.items():
        made[f"{part}-images-idx3-ubyte"] = idx(generator.integers(0, 256, (count, 28, 28), np.uint8))
        made[f"{part}-labels-idx1-ubyte"] = idx(generator.integers(0, 10, count, np.uint8))
    zipped = {stem: checksum(zip_(content), like="sha256:") for stem, content in made.items()}
    unzipped = {stem: checksum(content, like="sha256:") for stem, content in made.items()}
    monkeypatch.setattr(mnist, "SPLIT_SIZES", parts)
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], zipped=zipped, unzipped=unzipped))
    monkeypatch.setitem(SOURCES, "fashion-mnist", dataclasses.replace(SOURCES["fashion-mnist"], zipped=zipped))
    monkeypatch.delenv("CROWDFUSE_DATA", raising=False)
    return made


def zip_(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def put(folder: Path, contents: Contents, *, zipped: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, content in contents.items():
        (folder / (f"{stem}.gz" if zipped else stem)).write_bytes(zip_(content) if zipped else content)
    return folder


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("name", "below"),
    [("mnist", "mnist"), ("mnist", "MNIST/raw"), ("mnist", ""), ("fashion-mnist", "FashionMNIST/raw")],
)
def test_every_layout_gives_the_same_arrays(
    tmp_path: Path, contents: Contents, name: str, below: str, zipped: bool
) -> None:
    put(tmp_path / below, contents, zipped=zipped)
    data = load_mnist(tmp_path, name=name)
    pixels = np.frombuffer(contents["train-images-idx3-ubyte"], np.uint8, offset=16).reshape(6, 28, 28)
    mean, std = {"mnist": (0.1307, 0.3081), "fashion-mnist": (0.2860, 0.3530)}[name]
    np.testing.assert_allclose(data.X_train, (pixels / 255 - mean) / std, rtol=1e-6)
    assert data.X_train.dtype == np.float32
    np.testing.assert_array_equal(data.y_train, list(contents["train-labels-idx1-ubyte"][8:]))
    assert (data.y_train.dtype, data.X_test.shape, data.y_test.shape) == (np.dtype(np.int64), (3, 28, 28), (3,))


def test_the_environment_names_the_folder(tmp_path: Path, contents: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"mnist: no data folder given; pass folder= .* CROWDFUSE_DATA"):
        load_mnist()
    put(tmp_path / "mnist", contents)
    monkeypatch.setenv("CROWDFUSE_DATA", str(tmp_path))
    assert len(load_mnist().X_train) == 6


def test_missing_files_error_suggests_download_and_manual_copy(tmp_path: Path, contents: Contents) -> None:
    put(tmp_path / "mnist", contents)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError) as error:
        load_mnist(tmp_path)
    message = str(error.value)
    assert "no t10k-labels-idx1-ubyte (compressed or not)" in message
    assert "train" not in message.replace(str(tmp_path), "")
    for part in (tmp_path / "mnist", tmp_path / "MNIST/raw", "--download", "or put the", "CROWDFUSE_DATA"):
        assert str(part) in message


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="one of mnist, fashion-mnist, got 'fashion'; did you mean 'fashion-mnist'"):
        load_mnist(name="fashion")


@pytest.mark.parametrize("zipped", [True, False])
def test_wrong_checksum_error_shows_both_checksums(tmp_path: Path, contents: Contents, zipped: bool) -> None:
    put(tmp_path, contents, zipped=zipped)
    stem = "train-labels-idx1-ubyte"
    path = tmp_path / (f"{stem}.gz" if zipped else stem)
    source = SOURCES["mnist"]
    expected = source.zipped[stem] if zipped else source.unzipped[stem]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    found = checksum(path.read_bytes(), like="sha256:")
    with pytest.raises(ValueError, match=f"{path} has checksum {found}, but .* has {expected}.*emove it"):
        load_mnist(tmp_path, download=True)  # existing files of the user are never overwritten


def test_decompressed_files_without_published_checksums_are_checked_by_content(
    tmp_path: Path, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, labels = "fashion-mnist", tmp_path / "t10k-labels-idx1-ubyte"
    put(tmp_path, contents, zipped=False)
    labels.write_bytes(idx(np.array([0, 10, 2], np.uint8)))
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte: label 10 is not one of the classes 0 to 9"):
        load_mnist(tmp_path, name=name)
    labels.write_bytes(idx(np.zeros(4, np.uint8)))
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte: has shape 4, expected 3"):
        load_mnist(tmp_path, name=name)
    of_mnist = frozenset(SOURCES["mnist"].unzipped.values())
    monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], other_dataset_checksums=of_mnist))
    with pytest.raises(ValueError, match="train-images-idx3-ubyte is a file of MNIST"):
        load_mnist(tmp_path, name=name)


class Mirrors:
    """Replacement for the network: the answer of each mirror, and a record of the requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Contents | Exception]) -> None:
        self.asked: list[str] = []
        self.answers = answers
        source = dataclasses.replace(SOURCES["mnist"], mirrors=tuple(answers))
        monkeypatch.setitem(SOURCES, "mnist", source)
        monkeypatch.setattr(download, "urlopen", self.open)

    def open(self, url: str, timeout: float) -> Any:
        assert timeout > 0
        self.asked.append(url)
        mirror, name = os.path.split(url)
        answer = self.answers[f"{mirror}/"]
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(zip_(answer[name.removesuffix(".gz")]))


def test_only_missing_files_are_downloaded_from_the_first_working_mirror(
    tmp_path: Path, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors = Mirrors(monkeypatch, {"http://down/": TimeoutError("timed out"), "http://up/": contents})
    put(tmp_path / "MNIST/raw", {stem: content for stem, content in contents.items() if "train" in stem})
    assert len(load_mnist(tmp_path, download=True).X_test) == 3
    wanted = ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
    assert sorted(path.name for path in (tmp_path / "mnist").iterdir()) == wanted
    assert mirrors.asked == [f"http://{mirror}/{file}" for file in wanted for mirror in ("down", "up")]
    load_mnist(tmp_path, download=True)
    assert len(mirrors.asked) == 4


def test_download_error_says_where_to_put_the_file(
    tmp_path: Path, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mirrors(monkeypatch, {"http://a/": OSError("no route"), "http://b/": IncompleteRead(b"")})
    target = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    with pytest.raises(OSError, match=rf"http://a/.*no route; http://b/.*IncompleteRead.*\).*put it at {target}"):
        load_mnist(tmp_path, download=True)
    assert not list(target.parent.iterdir())


def test_download_with_wrong_checksum_leaves_no_file(
    tmp_path: Path, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    login_page = dict.fromkeys(contents, b"<html>please log in</html>")
    Mirrors(monkeypatch, {"http://captive/": login_page})
    expected = SOURCES["mnist"].zipped["train-images-idx3-ubyte"]
    found = checksum(zip_(b"<html>please log in</html>"), like="sha256:")
    with pytest.raises(OSError, match=f"the downloaded file has checksum {found}, not the published {expected}"):
        load_mnist(tmp_path, download=True)
    assert not list((tmp_path / "mnist").iterdir())


def test_a_local_mirror_by_its_address(tmp_path: Path, contents: Contents) -> None:
    put(tmp_path / "mirror", contents)
    name = "t10k-labels-idx1-ubyte.gz"
    mirrors = [f"{(tmp_path / folder).as_uri()}/" for folder in ("absent", "mirror")]
    download.fetch(name, mirrors, tmp_path / "got", SOURCES["mnist"].zipped[name.removesuffix(".gz")])
    assert (tmp_path / "got").read_bytes() == (tmp_path / "mirror" / name).read_bytes()


def test_the_published_files() -> None:
    folder = os.environ.get("CROWDFUSE_DATA")
    if not folder or not (Path(folder) / "mnist").is_dir():
        pytest.skip("CROWDFUSE_DATA has no mnist")
    data = load_mnist()
    assert (data.X_train.shape, data.X_test.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert data.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert abs(data.X_train.mean(dtype=np.float64)) < 1e-3
    assert abs(data.X_train.std(dtype=np.float64) - 1) < 1e-3
