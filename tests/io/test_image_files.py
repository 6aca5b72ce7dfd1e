"""Images in their files: decoding of a row, limited prefetching, and training equal to that on arrays."""

from __future__ import annotations

import hashlib
import multiprocessing
import pickle
import tracemalloc
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor, nn

from crowdfuse import FusionClassifier, MajorityVoteClassifier, MBEMClassifier
from crowdfuse.io import image_files
from crowdfuse.io.image_cropping import crop_centre_square
from crowdfuse.io.image_files import ImageFiles, find_unreadable, results_in_order
from crowdfuse.io.inputs import check_inputs
from crowdfuse.methods.data import fingerprint
from crowdfuse.nets import standardize
from crowdfuse.nets.standardize import Standardize
from crowdfuse.training import loop as training

N, SIZE = 42, 16


def noise(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Smooth enough to survive JPEG."""
    small = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def cut_short(path: Path) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of several sizes, some of them grey."""
    folder = tmp_path_factory.mktemp("images")
    made = []
    for i in range(N):
        image = Image.fromarray(noise(20 + i % 5, 17 + i % 7, i))
        made.append(folder / f"{i:02}.{'png' if i % 4 else 'jpg'}")
        (image.convert("L") if i % 3 == 0 else image).save(made[-1])
    return made


@pytest.fixture(scope="module")
def labels() -> NDArray[np.int64]:
    generator = np.random.default_rng(0)
    said = np.arange(N)[:, None] % 3 * np.ones((1, 3), int)
    return np.where(generator.random((N, 3)) < 0.3, generator.integers(0, 3, (N, 3)), said)


def digest(files: ImageFiles) -> str:
    return fingerprint(files)["inputs"]


# ---- a row -------------------------------------------------------------------------------------


def one(path: Path, size: int) -> NDArray[np.float32]:
    rows = ImageFiles([path], size).rows(np.array([0]))
    assert rows.shape == (1, 3, size, size)
    assert rows.dtype == np.float32
    row: NDArray[np.float32] = rows[0]
    return row


def test_row_is_the_resized_centre_square_of_the_image(tmp_path: Path) -> None:
    pixels = noise(40, 20)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(one(tmp_path / "a.png", 20), pixels[:, 10:30].transpose(2, 0, 1))
    for size in (10, 60):
        whole = np.asarray(Image.fromarray(pixels).resize((2 * size, size), Image.Resampling.BILINEAR), float)
        inside = slice(size // 10, -size // 10)  # without the border, where resizing sees only the crop
        cropped = whole[:, size // 2 : size // 2 + size].transpose(2, 0, 1)
        assert np.abs(one(tmp_path / "a.png", size) - cropped)[..., inside].max() <= 1


def test_large_jpegs_are_decoded_at_a_fraction_and_look_the_same(tmp_path: Path) -> None:
    pixels = noise(640, 500)
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=95)
    exact = ImageOps.fit(Image.fromarray(pixels), (32, 32), Image.Resampling.BILINEAR)
    assert np.abs(one(tmp_path / "a.jpg", 32) - np.asarray(exact, float).transpose(2, 0, 1)).max() < 6


@pytest.mark.parametrize("mode", ["L", "1", "LA", "P", "RGBA", "CMYK", "YCbCr", "I;16"])
def test_every_kind_of_image_becomes_rgb(tmp_path: Path, mode: str) -> None:
    colour: dict[str, Any] = {"L": 200, "1": 1, "LA": (200, 9), "RGBA": (10, 200, 30, 128), "CMYK": (0, 255, 255, 0)}
    shown = {"1": [255] * 3, "RGBA": [10, 200, 30], "CMYK": [255, 0, 0], "YCbCr": [255, 0, 0], "P": [255, 0, 0]}
    if mode == "I;16":
        image = Image.fromarray(np.full((9, 9), 200 * 256 + 77, np.uint16))
    elif mode in colour:
        image = Image.new(mode, (9, 9), colour[mode])
    else:
        image = Image.new("RGB", (9, 9), (255, 0, 0)).convert(mode)
    path = tmp_path / ("a.tif" if mode in ("CMYK", "YCbCr") else "a.png")
    extra: dict[str, Any] = {"transparency": bytes([0, 255])} if mode == "P" else {}
    image.save(path, **extra)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row = one(path, 8)
    assert np.abs(row[:, 4, 4] - shown.get(mode, [200] * 3)).max() <= 1


def test_a_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    Image.new("CMYK", (40, 40), (0, 255, 255, 0)).save(tmp_path / "a.jpg")
    assert np.abs(one(tmp_path / "a.jpg", 8)[:, 4, 4] - [255, 0, 0]).max() < 8


def test_images_are_rotated_by_exif(tmp_path: Path) -> None:
    upper = np.zeros((16, 16, 3), np.uint8)
    upper[:8] = 255
    for orientation, turn in ((3, 2), (6, 3), (8, 1)):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(np.rot90(upper, -turn).copy()).save(tmp_path / "a.jpg", exif=exif, quality=95)
        row = one(tmp_path / "a.jpg", 16)
        assert row[:, :6].min() > 240, orientation
        assert row[:, 10:].max() < 15


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (33, 2), (301, 47)])
def test_odd_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    Image.new("RGB", size, (1, 2, 3)).save(tmp_path / "a.png")
    assert one(tmp_path / "a.png", 12)[:, 6, 6].tolist() == [1, 2, 3]


def test_files_that_cannot_be_decoded_are_named(tmp_path: Path) -> None:
    good = tmp_path / "good.jpg"
    Image.fromarray(noise(90, 90)).save(good)
    short = tmp_path / "short.jpg"
    short.write_bytes(good.read_bytes())
    (tmp_path / "text.jpg").write_text("no image")
    Image.fromarray(np.zeros((5, 5), np.float32)).save(tmp_path / "float.tif")
    bad = {cut_short(short): "truncated", tmp_path / "text.jpg": "cannot identify", tmp_path / "float.tif": "32 bits"}
    bad[tmp_path / "gone.png"] = "No such file"
    for path, why in bad.items():
        with pytest.raises(ValueError, match=rf"{path.name}: not a readable image \(.*{why}.*on_unreadable='skip'"):
            ImageFiles([good, path], 8).rows(np.array([0, 1]))
    found = find_unreadable([good, *bad, good])
    assert list(found) == [1, 2, 3, 4]
    assert all(path.name in found[row] and why in found[row] for row, (path, why) in enumerate(bad.items(), 1))
    assert find_unreadable([*bad, *[good] * 70], workers=2) == find_unreadable([*bad, *[good] * 70])


def test_invalid_settings_are_refused(paths: list[Path]) -> None:
    with pytest.raises(ValueError, match="size must be an integer of at least 1, got 0"):
        ImageFiles(paths, 0)
    with pytest.raises(ValueError, match="workers must be an integer of at least 0, got -1"):
        ImageFiles(paths, 8, workers=-1)
    with pytest.raises(ValueError, match="list of files is empty"):
        ImageFiles([], 8)
    with pytest.raises(TypeError, match=r"takes a list of files, got .*images"):
        ImageFiles(paths[0].parent, 8)  # type: ignore[arg-type]


# ---- as inputs ---------------------------------------------------------------------------------


def test_rows_can_be_taken_and_asked_for_in_any_order(paths: list[Path]) -> None:
    files = ImageFiles(paths, SIZE, workers=1)
    everything = files.rows(np.arange(N))
    assert (len(files), files.item_shape, everything.shape) == (N, (3, SIZE, SIZE), (N, 3, SIZE, SIZE))
    assert np.array_equal(files.rows(np.array([5, 3, 5])), everything[[5, 3, 5]])
    part = files.take(np.array([7, 2]))
    assert (len(part), part.workers) == (2, 1)
    assert np.array_equal(part.rows(np.array([1])), everything[[2]])
    assert files.resized(5).rows(np.array([0])).shape == (1, 3, 5, 5)
    assert check_inputs(files) is files


def test_hash_depends_on_names_lengths_and_size_but_not_on_the_folder(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        for name in ("a/1.png", "b/2.png"):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True)
            Image.fromarray(noise(9, 9)).save(path)

    def at(folder: str, size: int = 8) -> ImageFiles:
        return ImageFiles([tmp_path / folder / "a/1.png", tmp_path / folder / "b/2.png"], size)

    known = digest(at("here"))
    assert digest(at("there")) == known
    assert digest(pickle.loads(pickle.dumps(at("here")))) == known
    assert digest(at("here", 9)) != known
    first, second = (at("here").take(np.array([row])) for row in (0, 1))
    assert digest(first) != digest(second)
    assert digest(at("there").take(np.array([0]))) == digest(first)
    (tmp_path / "there/a/1.png").open("ab").write(b"more")
    assert digest(at("there")) != known
    (tmp_path / "there/a/1.png").unlink()
    with pytest.raises(ValueError, match=r"1\.png: not a readable image"):
        at("there").hash_into(hashlib.blake2b())


def test_a_sample_is_enough_to_standardise(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    files = ImageFiles(paths, SIZE)
    of_array, of_files = Standardize(files.item_shape), Standardize(files.item_shape)
    everything = files.rows(np.arange(N))
    of_array.measure(check_inputs(everything), np.arange(N))
    of_files.measure(files, np.arange(N))
    assert torch.equal(of_array.mean, of_files.mean)
    assert torch.equal(of_array.scale, of_files.scale)

    monkeypatch.setattr(standardize, "MAX_ROWS_READ", 3)
    read: list[int] = []
    original = ImageFiles._paths_of

    def watch(self: ImageFiles, index: NDArray[Any]) -> list[str]:
        read.extend(index.tolist())
        return original(self, index)

    monkeypatch.setattr(ImageFiles, "_paths_of", watch)
    of_files.measure(files, np.arange(0, N, 2))
    assert read == [0, 20, 40]
    assert of_files.mean.flatten().numpy() == pytest.approx(everything[read].mean((0, 2, 3)), rel=1e-6)


# ---- ahead of need, and no further -------------------------------------------------------------


def batches(size: int = 5) -> list[NDArray[np.int64]]:
    order = np.random.default_rng(1).permutation(N)
    return [order[start : start + size] for start in range(0, N, size)]


def test_processes_decode_the_same_and_end_with_the_stream(paths: list[Path]) -> None:
    here, there = (list(ImageFiles(paths, SIZE, workers=n).stream(batches())) for n in (0, 2))
    assert len(here) == len(there) == 9
    for batch, a, b in zip(batches(), here, there, strict=True):
        assert a.dtype == b.dtype == np.float32
        assert b.flags.writeable
        assert np.array_equal(a, b)
        assert np.array_equal(a, ImageFiles(paths, SIZE).rows(batch))
    assert multiprocessing.active_children() == []


def test_no_process_is_started_for_a_single_batch(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(image_files, "ProcessPoolExecutor")
    (only,) = ImageFiles(paths, SIZE, workers=2).stream([np.arange(N)])
    assert np.array_equal(only, ImageFiles(paths, SIZE).rows(np.arange(N)))


def test_processes_end_when_the_stream_is_closed_early_or_meets_a_bad_file(paths: list[Path], tmp_path: Path) -> None:
    stream = ImageFiles(paths, SIZE, workers=2).stream(batches())
    next(stream)
    assert multiprocessing.active_children()  # a second process starts only if the first has no time
    stream.close()
    assert multiprocessing.active_children() == []

    (tmp_path / "bad.jpg").write_text("no image")
    stream = ImageFiles([*paths[:-1], tmp_path / "bad.jpg"], SIZE, workers=2).stream(batches())
    with pytest.raises(ValueError, match=r"bad\.jpg: not a readable image"):
        list(stream)
    assert multiprocessing.active_children() == []


def test_death_of_a_process_is_reported(paths: list[Path]) -> None:
    stream = ImageFiles(paths, SIZE, workers=1).stream(batches(1))
    next(stream)
    for process in multiprocessing.active_children():
        process.kill()
    with pytest.raises(ValueError, match="one of 1 processes that decode images has died"):
        list(stream)
    assert multiprocessing.active_children() == []


def test_number_of_pending_batches_is_limited() -> None:
    begun: list[int] = []

    def submit(task: int) -> Future[int]:
        begun.append(task)
        future: Future[int] = Future()
        future.set_result(10 * task)
        return future

    for done, result in enumerate(results_in_order(submit, iter(range(20)), 4), 1):
        assert result == 10 * (done - 1)
        assert len(begun) - done < 4
    assert begun == list(range(20))
    assert list(results_in_order(submit, iter(()), 4)) == []


def test_without_processes_nothing_is_decoded_ahead(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    original = crop_centre_square

    def watch(path: str, size: int) -> NDArray[np.uint8]:
        decoded.append(path)
        return original(path, size)

    monkeypatch.setattr(image_files, "crop_centre_square", watch)
    for done, block in enumerate(ImageFiles(paths, SIZE).stream(batches()), 1):
        assert len(block) <= 5
        assert len(decoded) == min(5 * done, N)


def test_stream_decodes_at_most_two_batches_per_worker_ahead(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0

    class Pool:
        """Works at once, right here."""

        def __init__(self, workers: int, *others: Any) -> None:
            assert workers == 3

        def submit(self, work: Callable[..., Any], *task: Any) -> Future[Any]:
            nonlocal begun
            begun += 1
            future: Future[Any] = Future()
            future.set_result(work(*task))
            return future

        def shutdown(self, **others: Any) -> None:
            pass

    monkeypatch.setattr(image_files, "ProcessPoolExecutor", Pool)
    for done, _ in enumerate(ImageFiles(paths, SIZE, workers=3).stream(batches(2)), 1):
        assert begun - done < 6
    assert begun == 21


# ---- training ----------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {"epochs": 2, "batch_size": 16, "random_state": 3, "dropout": 0.1, "hidden": (8,)}


def same_bits(a: Any, b: Any) -> bool:
    one, two = a.method_.state_dict(), b.method_.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("make", "workers"),
    [
        (lambda: FusionClassifier(**SETTINGS, backbone="mlp"), 0),
        (lambda: FusionClassifier(**SETTINGS, backbone="lenet", augment="crop-flip"), 2),
        (lambda: MBEMClassifier(**SETTINGS, backbone="mlp"), 0),
    ],
)
def test_training_on_files_equals_training_on_their_pixels(
    paths: list[Path], labels: NDArray[np.int64], make: Callable[[], Any], workers: int
) -> None:
    files = ImageFiles(paths, 28, workers=workers)
    X = files.rows(np.arange(N))
    truth = np.arange(8) % 3
    of_array = make().fit(X, labels, validation=(X[:8], truth))
    of_files = make().fit(files, labels, validation=(files.take(np.arange(8)), truth))
    assert same_bits(of_array, of_files)
    assert of_array.best_epoch_ == of_files.best_epoch_
    assert np.array_equal(of_array.predict_proba(X), of_files.predict_proba(files))
    assert of_files.score(files, np.arange(N) % 3) == of_array.score(X, np.arange(N) % 3)
    if make().method_name == "fusion":
        for look in ("annotator_weights", "confusion_matrices", "fused_labels"):
            given = () if look == "annotator_weights" else (labels,)
            assert np.array_equal(getattr(of_array, look)(X, *given), getattr(of_files, look)(files, *given))
    assert multiprocessing.active_children() == []


def test_a_share_of_the_files_can_be_held_out(paths: list[Path], labels: NDArray[np.int64]) -> None:
    files = ImageFiles(paths, SIZE)
    of_files, of_array = (
        MajorityVoteClassifier(**SETTINGS, backbone="mlp").fit(X, labels, validation=0.25)
        for X in (files, files.rows(np.arange(N)))
    )
    assert same_bits(of_array, of_files)


class StopError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("workers", [0, 1])
def test_interrupted_epoch_resumes_with_the_next_batch(
    paths: list[Path], labels: NDArray[np.int64], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    files = ImageFiles(paths, SIZE, workers=workers)

    def make(**more: Any) -> FusionClassifier:
        return FusionClassifier(**SETTINGS | {"batch_size": 6}, backbone="mlp", **more)

    whole = make().fit(files, labels)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    steps = 0
    original = torch.optim.Optimizer.zero_grad

    def count(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > 9:  # in the second epoch of 7 steps
            raise StopError
        original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", count)
    with pytest.raises(StopError):
        make(checkpoint=tmp_path).fit(files, labels)
    assert multiprocessing.active_children() == []
    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", original)

    streamed: list[int] = []
    stream = ImageFiles.stream

    def watch(self: ImageFiles, given: Any) -> Any:
        streamed.append(len(given))
        return stream(self, given)

    monkeypatch.setattr(ImageFiles, "stream", watch)
    resumed = make(checkpoint=tmp_path).fit(files, labels)
    assert streamed == [1, 5]  # to standardise; what was left of the second epoch
    assert same_bits(whole, resumed)


def test_a_bad_file_ends_a_training_with_its_name(paths: list[Path], labels: NDArray[np.int64], tmp_path: Path) -> None:
    bad = tmp_path / "bad.jpg"
    Image.fromarray(noise(90, 90)).save(bad)
    files = ImageFiles([*paths[:-1], cut_short(bad)], SIZE)
    with pytest.raises(ValueError, match=r"bad\.jpg: not a readable image \(image file is truncated"):
        FusionClassifier(**SETTINGS, backbone="mlp", standardize=False).fit(files, labels)


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    Image.fromarray(np.zeros((48, 48, 3), np.uint8)).save(path)

    def peak(n_images: int) -> int:
        files = ImageFiles([path] * n_images, size=48)
        model = MajorityVoteClassifier(backbone=MeanColour(), epochs=1, batch_size=16, classes=[0, 1])
        tracemalloc.start()
        model.fit(files, np.arange(n_images) % 2)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return held

    peak(16)  # modules that are loaded at first use
    assert peak(640) < 1.2 * peak(160)  # an image is 28 kB as it is handed out: 480 more would be 13 MB


class MeanColour(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))
