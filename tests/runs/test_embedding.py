"""Frozen features: the written file, reproducibility, and matching of ids with labels."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from crowdfuse.cli import app
from crowdfuse.encoders.frozen_network import IMAGENET_MEAN, IMAGENET_STD
from crowdfuse.io.features import read_features
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.run_folder import read_run
from crowdfuse.runs import report_run
from crowdfuse.runs.embedding import embed

N, SIZE = 10, 16


@pytest.fixture(autouse=True)
def _path_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())  # the command adds the current folder


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """N images in folders: dark red in a/, bright green in b/; of the size they are read at."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "images"
    for i in range(N):
        colour = np.array([200, 30, 60] if i % 2 else [40, 180, 90])
        pixels = (colour + generator.integers(-20, 20, (SIZE, SIZE, 3))).astype(np.uint8)
        path = folder / "ba"[i % 2] / f"{i}.{'png' if i % 3 else 'BMP'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "features.npz"


def network() -> nn.Module:
    """A network whose output differs in training mode: dropout, and batch norm with its own statistics."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    norm.running_mean = torch.linspace(-1, 1, 8)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), norm, nn.Dropout(0.5), nn.ReLU(), nn.Flatten(), nn.Linear(392, 5)
    )


def read(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as content:
        return dict(content)


def by_hand(folder: Path, names: NDArray[Any], mean: Any = IMAGENET_MEAN, std: Any = IMAGENET_STD) -> Tensor:
    pixels = np.stack([np.asarray(Image.open(folder / name), np.float64) for name in names])
    return torch.from_numpy((pixels / 255 - np.array(mean)) / np.array(std)).permute(0, 3, 1, 2).float()


class Recording(nn.Module):
    """Gives what `answer` makes of a batch, and remembers the batches."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer, self.batches = answer, list[tuple[int, ...]]()

    def forward(self, x: Tensor) -> Any:
        self.batches.append(tuple(x.shape))
        return self.answer(x)


# ---- the written file ---------------------------------------------------------------------------


def test_features_are_the_output_of_the_network_on_the_pixels(images: Path, out: Path) -> None:
    net = network().train()
    made = embed(images, out, net, image_size=SIZE, batch_size=4)
    found = read(out)
    assert set(found) == {"X", "items", "short_names", "image_folder"}
    assert found["items"].tolist() == ["a/1.png", "a/3.BMP", "a/5.png", "a/7.png", "a/9.BMP", *found["items"][5:]]
    assert found["short_names"].tolist() == [name.rpartition(".")[0] for name in found["items"]]
    with torch.no_grad():
        expected = network().eval()(by_hand(images, found["items"])).numpy()
    assert found["X"].dtype == np.float32
    np.testing.assert_allclose(found["X"], expected, atol=1e-5)
    assert (made.n_images, made.n_features, made.left_out) == (N, 5, ())


def test_requested_mean_and_std_are_used(images: Path, out: Path) -> None:
    for mean, std in (((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), ((0.5,), (0.25,)), ((0,), (1,))):
        embed(images, out, nn.Flatten(), image_size=SIZE, mean=mean, std=std, force=True)
        found = read(out)
        expected = by_hand(images, found["items"], mean, std).flatten(1).numpy()
        np.testing.assert_allclose(found["X"], expected, atol=1e-5)


def test_images_of_other_sizes_are_resized_to_the_requested_size(tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    pixels = np.zeros((40, 90, 3), np.uint8)
    pixels[:, 15:75] = (255, 0, 51)  # the square in the middle, and a little more for the filter
    Image.fromarray(pixels).save(folder / "a.png")
    embed(folder, out, nn.Identity(), image_size=8, mean=(0,), std=(1,))
    np.testing.assert_allclose(read(out)["X"], [[1, 0, 0.2]], atol=1e-6)


def test_neither_batches_nor_workers_change_the_features(images: Path, out: Path) -> None:
    found = {}
    for batch_size, workers in ((4, 0), (4, 2), (1, 0), (64, 0)):
        embed(images, out, network(), image_size=SIZE, batch_size=batch_size, workers=workers, force=True)
        found[batch_size, workers] = read(out)["X"]
    assert np.array_equal(found[4, 0], found[4, 2])
    for X in found.values():
        np.testing.assert_allclose(X, found[4, 0], atol=1e-5)


def test_features_with_height_and_width_are_averaged(images: Path, out: Path) -> None:
    embed(images, out, nn.Conv2d(3, 4, 3), image_size=SIZE)
    assert read(out)["X"].shape == (N, 4)
    net = Recording(lambda x: x)
    embed(images, out, net, image_size=SIZE, batch_size=4, force=True)
    found = read(out)
    np.testing.assert_allclose(found["X"], by_hand(images, found["items"]).mean((2, 3)).numpy(), atol=1e-5)
    # a trial of a whole batch, then the short one before all others, and never more images than in a batch
    assert [shape[0] for shape in net.batches] == [4, 2, 4, 4]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_inputs_are_converted_to_the_precision_of_the_network(images: Path, out: Path, dtype: torch.dtype) -> None:
    embed(images, out, network().to(dtype), image_size=SIZE)
    found = read(out)
    assert found["X"].dtype == np.float32
    with torch.no_grad():
        expected = network().eval()(by_hand(images, found["items"])).numpy()
    np.testing.assert_allclose(found["X"], expected, atol=1e-5 if dtype == torch.float64 else 0.1)


def test_an_exported_network_stays_as_it_was_exported(images: Path, out: Path, tmp_path: Path) -> None:
    example = (torch.zeros(4, 3, SIZE, SIZE),)
    exported = torch.export.export(network().eval(), example)
    torch.export.save(exported, tmp_path / "net.pt2")
    run = ["embed", str(images), "--out", str(out), "--backbone", str(tmp_path / "net.pt2"), "--image-size", str(SIZE)]
    assert "--trust-model" in refused(*run)
    # a network that accepts only batches of four fails before the work, although only the last batch is shorter
    text = refused(*run, "--trust-model", "--batch-size", "4")
    assert f"cannot read a batch of shape (2, 3, {SIZE}, {SIZE})" in text
    assert not out.exists()
    for path in list(images.rglob("*"))[-2:]:
        path.unlink()
    assert "8 images, 5 features each" in ok(*run, "--trust-model", "--batch-size", "4")
    found = read(out)
    with torch.no_grad():
        expected = network().eval()(by_hand(images, found["items"])).numpy()
    np.testing.assert_allclose(found["X"], expected, atol=1e-5)


# ---- the command, and fit on its features --------------------------------------------------------


def ok(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    return " ".join(result.output.split())


@pytest.mark.parametrize("named", ["in full", "without the ending"])
def test_labels_match_features_by_the_same_ids_as_the_images(images: Path, tmp_path: Path, named: str) -> None:
    paths = [path.relative_to(images) for path in sorted(images.rglob("*.*"))]
    names = [(path if named == "in full" else path.with_suffix("")).as_posix() for path in paths]
    rows = [f"{name},{who},{'red' if name[0] == 'a' else 'green'}" for name in names for who in "xyz"]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    gold = [f"{name},{'red' if name[0] == 'a' else 'green'}" for name in names[::3]]
    (tmp_path / "gold.csv").write_text("\n".join(["item,label", *gold]) + "\n")
    features = str(tmp_path / "features.npz")
    ok("embed", str(images), "--backbone", "torch.nn:Identity", "--image-size", "16", "--out", features)

    items = {}
    for inputs in (str(images), features):
        run = tmp_path / f"run-{Path(inputs).stem}"
        fit = ["fit", str(tmp_path / "labels.csv"), "--inputs", inputs, "--test", str(tmp_path / "gold.csv")]
        text = ok(*fit, "--method", "gated", "--out", str(run), "--epochs", "30", "--folds", "0", "--quiet")
        items[inputs] = sorted(row["item"] for row in csv.DictReader((run / "consensus.csv").open()))
    assert items[features] == items[str(images)] == sorted(names)
    assert "test accuracy: 100.0 % of 4 items" in text
    ok("predict", str(run), features, "--out", str(tmp_path / "predictions.csv"))
    predicted = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    assert all((row["label"] == "red") == (row["item"][0] == "a") for row in predicted)


def test_report_and_review_of_a_run_on_features_show_the_pictures(images: Path, tmp_path: Path) -> None:
    names = [path.relative_to(images).as_posix() for path in sorted(images.rglob("*.*"))]
    rows = [f"{name},{who},{label}" for name in names for who, label in (("x", "red"), ("y", "green"))]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    features, run = tmp_path / "features.npz", tmp_path / "run"
    ok("embed", str(images), "--backbone", "torch.nn:Identity", "--image-size", "16", "--out", str(features))
    fit = ["fit", str(tmp_path / "labels.csv"), "--inputs", str(features), "--method", "majority-vote"]
    ok(*fit, "--out", str(run), "--epochs", "1", "--folds", "0", "--quiet")
    assert "data:image/jpeg" in report_run(run).to_html()
    shown = ItemInputs(read_run(run))
    assert shown.describe(0)["kind"] == "image"
    assert shown.picture(0)[1] == "image/png"
    assert shown.notes == []

    (images / names[0]).unlink()  # values are shown instead
    shown = ItemInputs(read_run(run))
    kinds = {item: shown.describe(at)["kind"] for at, item in enumerate(read_run(run).items)}
    assert [item for item, kind in kinds.items() if kind == "values"] == names[:1]
    images.rename(tmp_path / "elsewhere")
    assert "data:image/jpeg" not in report_run(run).to_html()
    assert ItemInputs(read_run(run)).describe(0)["kind"] == "values"


def test_ids_that_fit_two_images_are_refused_as_in_the_folder(tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "twins"
    folder.mkdir()
    for name in ("a.png", "a.bmp", "7.png"):
        Image.new("RGB", (SIZE, SIZE)).save(folder / name)
    embed(folder, out, nn.Identity(), image_size=SIZE)
    for loaded in (read_features(folder), read_features(out)):
        assert loaded.rows_of(np.array(["a.png", "7"], object)).tolist() == [2, 0]
        assert loaded.rows_of(np.array([7])).tolist() == [0]
        with pytest.raises(ValueError, match="the id 'a' matches two images"):
            loaded.rows_of(np.array(["a"], object))


def test_a_module_in_the_current_folder_is_found_and_its_callable_gets_arguments(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_nets.py").write_text(
        "from torch import nn\ndef net(width, kind):\n    assert kind == 'x'\n    return nn.Conv2d(3, width, 3)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", str(tmp_path))])
    shown = ok("embed", "images", "--backbone", "my_own_nets:net", "--with", "width=6", "--with", "kind=x")
    assert "10 images, 6 features each: features.npz" in shown
    assert read(tmp_path / "features.npz")["X"].shape == (N, 6)


def test_a_killed_embedding_leaves_no_output(images: Path, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, signal\nfrom torch import nn\n"
        "class Net(nn.Flatten):\n    calls = 0\n    def forward(self, x):\n        self.calls += 1\n"
        "        if self.calls == 3:\n            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().forward(x)\n"
    )
    command = [sys.executable, "-m", "crowdfuse", "embed", "images", "--backbone", "deadly:Net", "--batch-size", "4"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment)
    assert done.returncode == -9, done.stderr
    assert list(tmp_path.glob("*.npz")) == []


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: (x, x), "one tensor of features, got tuple of 2; .* wrap it"),
        (lambda x: {"pooled": x, "last": x}, "got dict with 'pooled', 'last'; .* wrap it"),
        (lambda x: None, "got NoneType; .* wrap it"),
        (
            lambda x: x.flatten(2),
            r"returns shape \(10, 3, 256\), which looks like \(images, tokens.*features\[:, 0\]",
        ),
        (
            lambda x: x.mean((1, 2, 3)),
            r"must return features of shape \(10, D\) or \(10, D, H, W\) for 10 images, got \(10,\)",
        ),
        (lambda x: x.flatten(1)[:3], r"got \(3, 768\)"),
        (lambda x: x[..., None], r"got \(10, 3, 16, 16, 1\)"),
        (lambda x: x.flatten(1)[:, :0], r"got \(10, 0\)"),
        (lambda x: x.flatten(1).long(), r"floating-point features, got torch\.int64"),
        (
            lambda x: x @ torch.zeros(5, 5),
            r"cannot read a batch of shape \(10, 3, 16, 16\): RuntimeError.*--image-size",
        ),
        (lambda x: x.no_such_thing, "cannot read .*AttributeError"),
    ],
)
def test_networks_without_features_are_refused_before_the_work(
    images: Path, out: Path, answer: Any, words: str
) -> None:
    net = Recording(answer)
    with pytest.raises(ValueError, match=words):
        embed(images, out, net, image_size=SIZE)
    assert len(net.batches) == 1
    assert sorted(path.name for path in out.parent.iterdir()) == ["images"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_features_that_are_not_finite_name_the_image(images: Path, out: Path, value: float) -> None:
    def red_breaks(x: Tensor) -> Tensor:
        means = x.mean((2, 3)).double()
        means[means[:, 0] > 0] = value
        return means

    with pytest.raises(ValueError, match=r"features of .*'a/9\.BMP'.* NaN, infinite, or too large"):
        embed(images, out, Recording(red_breaks), image_size=SIZE, batch_size=8)
    assert sorted(path.name for path in out.parent.iterdir()) == ["images"]


def test_a_number_of_features_that_changes_is_refused(images: Path, out: Path) -> None:
    with pytest.raises(ValueError, match="returns 4 features per image, but 2 per image in a batch of 2"):
        embed(images, out, Recording(lambda x: x.flatten(1)[:, : len(x)]), image_size=SIZE, batch_size=4)


def test_unreadable_images_are_named_before_the_work_or_left_out(images: Path, out: Path) -> None:
    (images / "a" / "bad.jpg").write_text("no image")
    net = Recording(lambda x: x)
    with pytest.raises(
        ValueError, match=r"1 image is not readable: 'a/bad\.jpg'.*cannot identify.*--on-unreadable skip"
    ):
        embed(images, out, net, image_size=SIZE)
    assert len(net.batches) == 1
    assert not out.exists()
    run = ["embed", str(images), "--backbone", "torch.nn:Identity", "--image-size", "16", "--out", str(out)]
    assert "1 image is not readable" in refused(*run)
    text = ok(*run, "--on-unreadable", "skip")
    assert "1 image is not readable and therefore left out: 'a/bad.jpg'" in text
    assert len(read(out)["items"]) == N
    assert "a/bad.jpg" not in read(out)["items"]


def test_a_folder_where_nothing_can_be_read_is_refused(tmp_path: Path, out: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(ValueError, match=r"images has no images; expected files that end in \.bmp"):
        embed(tmp_path / "images", out, nn.Identity())
    (tmp_path / "images" / "a.png").write_text("no image")
    with pytest.raises(ValueError, match="1 image is not readable") as refusal:
        embed(tmp_path / "images", out, nn.Identity(), image_size=8, on_unreadable="skip")
    assert "skip" not in str(refusal.value)


def test_an_existing_file_is_replaced_only_with_force_and_after_success(images: Path, out: Path) -> None:
    out.write_text("mine")

    def unwanted() -> nn.Module:
        raise AssertionError("it was built, though the output could not be written")

    with pytest.raises(FileExistsError, match=r"features\.npz exists already.*--force"):
        embed(images, out, unwanted, image_size=SIZE)

    def stopped(x: Tensor) -> Tensor:
        if x.abs().sum() > 0 and len(x) == 4:
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt):
        embed(images, out, Recording(stopped), image_size=SIZE, batch_size=4, mean=(0,), std=(1,), force=True)
    assert out.read_text() == "mine"
    assert sorted(path.name for path in out.parent.iterdir()) == ["features.npz", "images"]
    embed(images, out, nn.Identity(), image_size=SIZE, force=True)
    assert read(out)["X"].shape == (N, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--out": "features.csv"}, "written to an .npz file, got features.csv"),
        ({"--out": "folder.npz"}, "folder.npz is a folder"),
        ({"IMAGES": "nowhere"}, "the folder of images nowhere does not exist"),
        ({"IMAGES": "file.txt"}, "file.txt is a file; pass the folder that holds the images"),
        ({"--backbone": "resnet50"}, "'resnet50' is not of the form module:callable"),
        ({"--backbone": "net.pth"}, "are pickles"),
        ({"--backbone": "torch.nn:Linear"}, "calling it with () failed: TypeError"),
        ({"--backbone": "torch.nn:Identitty"}, "did you mean 'Identity'?"),
        ({"--with": "width"}, "--with must have the form name=value, got 'width'"),
        ({"--mean": "1,2"}, "mean must be one number or three (red, green, blue), got 1.0, 2.0"),
        ({"--mean": "a"}, "--mean must be numbers"),
        ({"--mean": "nan"}, "mean must be one number or three"),
        ({"--std": "0"}, "std must be greater than 0"),
        ({"--device": "gpu"}, "device must be one of auto, cpu, cuda, mps, got 'gpu'"),
        ({"--on-unreadable": "skp"}, "on_unreadable must be one of error, skip, got 'skp'; did you mean 'skip'?"),
    ],
)
def test_bad_input_is_refused_in_one_message(
    images: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], words: str
) -> None:
    folder = images.parent
    monkeypatch.chdir(folder)
    (folder / "folder.npz").mkdir()
    (folder / "file.txt").touch()
    before = sorted(folder.rglob("*"))
    given = {"--backbone": "torch.nn:Identity", "--out": "f.npz", "IMAGES": "images", **changes}
    source = given.pop("IMAGES")
    assert words in refused("embed", source, *(part for pair in given.items() for part in pair))
    assert sorted(folder.rglob("*")) == before


def test_a_missing_device_is_refused(images: Path, out: Path) -> None:
    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(ValueError, match=f"device '{missing}' is not available"):
        embed(images, out, nn.Identity(), device=missing)


def test_progress_is_shown_unless_quiet(images: Path, out: Path) -> None:
    run = ["embed", str(images), "--backbone", "torch.nn:Identity", "--image-size", "16", "--out", str(out)]
    assert "10 images, 3 features each, on cpu" in CliRunner().invoke(app, [*run, "--device", "cpu"]).stderr
    assert CliRunner().invoke(app, [*run, "--force", "--quiet"]).stderr == ""
