"""`fit --encoder` on a folder of images: the run remembers the frozen network."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from crowdfuse import MajorityVoteClassifier, load
from crowdfuse.cli import app
from crowdfuse.encoders import ImageEncoder
from crowdfuse.encoders.pretrained import load_pretrained
from crowdfuse.io import ImageFiles, Inputs
from crowdfuse.nets import CropAndFlip

QUICK = ["--method", "majority-vote", "--epochs", "2", "--folds", "2", "--image-size", "16", "--quiet"]
NETWORK = "from torch import nn\n\ndef small():\n    return nn.Conv2d(3, 4, 5)\n"  # random weights with a fixed seed


def write_images(folder: Path, n: int, start: int = 0) -> None:
    folder.mkdir()
    generator = np.random.default_rng(start)
    for i in range(start, start + n):
        pixels = generator.integers(0, 80, (20, 24, 3)).astype(np.uint8)
        pixels[..., i % 2] += 150
        Image.fromarray(pixels).save(folder / f"{i}.png")


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`labels.csv`, `images/`, `new/` and a network in `nets20.py`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    write_images(tmp_path / "images", 24)
    write_images(tmp_path / "new", 6, start=100)
    rows = [f"{i},{name},{('red', 'green')[i % 2]}" for i in range(24) for name in ("ada", "bob")]
    rows += [f"{i},eve,{('red', 'green')[i % 3 % 2]}" for i in range(24)]
    Path("labels.csv").write_text("\n".join(["image,annotator,label", *rows]) + "\n")
    Path("nets20.py").write_text(NETWORK)
    sys.modules.pop("nets20", None)
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, result.output
    return result.output


def fail(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def test_new_images_are_encoded_as_in_training(crowd: Path) -> None:
    output = run("fit", "labels.csv", "--inputs", "images", "--encoder", "nets20:small", "--out", "run", *QUICK)
    assert "encoder: nets20:small, 4 features per item" in output
    assert "from scratch" not in output
    command = [sys.executable, "-m", "crowdfuse", "predict", "run", "new", "--proba"]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True)
    with open("predictions.csv", newline="") as file:
        found = list(csv.reader(file))[1:]
    names = sorted(path.name for path in Path("new").iterdir())
    assert [row[0] for row in found] == names
    expected = load("run").predict_proba(ImageFiles([crowd / "new" / name for name in names], 16))
    assert [row[3:] for row in found] == [[f"{p:.6f}" for p in row] for row in expected]
    run("report", "run")
    assert "data:image/jpeg" in Path("run/report.html").read_text()

    Path("images/3.png").unlink()  # the report says so, and shows the rest
    run("report", "run", "--force")
    assert "have changed since the run was fitted" in Path("run/report.html").read_text()

    Path("nets20.py").write_text(NETWORK.replace("3, 4, 5", "3, 4, 3"))
    sys.modules.pop("nets20", None)
    assert "nets20:small has changed since the model was trained" in fail("predict", "run", "new", "--out", "p.csv")
    Path("nets20.py").unlink()
    sys.modules.pop("nets20", None)
    assert "there is no module 'nets20'" in fail("predict", "run", "new", "--out", "p.csv")


def test_folds_in_processes_and_a_resumed_run_use_the_stored_features(crowd: Path) -> None:
    run("fit", "labels.csv", "--inputs", "images", "--encoder", "nets20:small", "--out", "one", *QUICK)
    run("fit", "labels.csv", "--inputs", "images", "--encoder", "nets20:small", "--out", "two", "--jobs", "2", *QUICK)
    consensus = Path("one/posterior.safetensors").read_bytes()
    assert Path("two/posterior.safetensors").read_bytes() == consensus

    Path("nets20.py").unlink()
    sys.modules.pop("nets20", None)
    for name in ("summary.json", "posterior.safetensors"):  # as if the run had been stopped
        Path("one", name).unlink()
    run("fit", "--resume", "one", "--quiet")
    assert Path("one/posterior.safetensors").read_bytes() == consensus


def test_without_an_encoder_fit_says_that_the_network_is_trained_from_scratch(crowd: Path) -> None:
    output = run("fit", "labels.csv", "--inputs", "images", "--out", "run", *QUICK)
    assert "trained from scratch" in output
    assert "--encoder torchvision/resnet50" in output
    assert output.index("from scratch") < output.index("run folder: ")


@pytest.mark.parametrize(
    ("options", "is_shifted"), [([], True), (["--set", "augment=null"], False), (["--backbone", "lenet"], False)]
)
def test_images_are_shifted_at_random_if_no_network_is_named(crowd: Path, options: list[str], is_shifted: bool) -> None:
    loud = [option for option in QUICK if option != "--quiet"]
    output = run("fit", "labels.csv", "--inputs", "images", "--out", "run", *loud, *options)
    assert ("augmentation: shift" in output) == is_shifted
    augmented = load(Path("run/model")).method_.augment
    assert isinstance(augmented, CropAndFlip) == is_shifted
    if isinstance(augmented, CropAndFlip):
        assert augmented.padding == 2  # an eighth of 16
        assert not augmented.flip


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("tfidf", "there is no encoder 'tfidf' for images"),
        ("timm/resnet50", "needs the package timm; install it with `pip install timm --no-deps`"),
        ("math:sqrt", "encoder 'math:sqrt': calling it with () failed"),
    ],
)
def test_mistakes_are_reported_before_any_work(crowd: Path, encoder: str, message: str) -> None:
    assert message in fail("fit", "labels.csv", "--inputs", "images", "--encoder", encoder, "--out", "run")
    assert not Path("run").exists()


def test_images_in_python(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Conv2d(3, 4, 3)
    X = np.random.default_rng(0).integers(0, 255, (12, 3, 8, 8)).astype(np.uint8)
    clf = MajorityVoteClassifier(epochs=1, encoder=network).fit(X, np.arange(12) % 2)
    assert clf.n_features_in_ == 4
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model", encoder=network)
    assert np.array_equal(again.predict_proba(X), clf.predict_proba(X))
    with pytest.raises(ValueError, match="has changed"):
        load(tmp_path / "model", encoder=nn.Conv2d(3, 4, 3)).predict(X)
    with pytest.raises(ValueError, match="type uint8, got float64"):
        clf.predict(X / 255)
    with pytest.raises(ValueError, match="trained on images"):
        clf.predict(["a text"])
    assert ImageEncoder(network).encode(Inputs(np.zeros((2, 8, 8), np.uint8))).shape == (2, 4)  # grey


def test_new_images_get_the_same_bits_in_a_fresh_process(crowd: Path) -> None:
    names = sorted(Path("images").iterdir(), key=lambda path: int(path.stem))
    new = ImageFiles(sorted(Path("new").iterdir()), 16)
    networks: dict[str, dict[str, Any]] = {"frozen": {"encoder": "nets20:small"}, "trained": {"backbone": "lenet"}}
    for folder_name, settings in networks.items():
        folder = Path(folder_name)
        clf = MajorityVoteClassifier(epochs=2, **settings).fit(ImageFiles(names, 16), np.arange(24) % 2)
        clf.save(folder)
        np.save(folder / "expected.npy", clf.predict_proba(new))
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from crowdfuse import load\n"
        "from crowdfuse.io import ImageFiles\n"
        "sys.path.insert(0, '.')\n"
        "new = ImageFiles(sorted(Path('new').iterdir()), 16)\n"
        "for folder in ('frozen', 'trained'):\n"
        "    expected = np.load(f'{folder}/expected.npy')\n"
        "    assert np.array_equal(load(folder).predict_proba(new), expected), folder\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr


def test_networks_of_timm_and_torchvision_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins with the same functions as the packages, which are not installed for the tests."""
    timm = types.ModuleType("timm")
    timm.create_model = lambda name, pretrained, num_classes: nn.Flatten() if num_classes == 0 else None  # type: ignore[attr-defined]
    timm.data = types.SimpleNamespace(  # type: ignore[attr-defined]
        resolve_model_data_config=lambda network: {"input_size": (3, 96, 96), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    )
    weights = types.SimpleNamespace(
        DEFAULT=types.SimpleNamespace(
            transforms=lambda: types.SimpleNamespace(crop_size=[64], mean=(0.1,) * 3, std=(1.0,) * 3)
        )
    )
    vision, models = types.ModuleType("torchvision"), types.ModuleType("torchvision.models")
    network = nn.Module()
    network.fc = nn.Linear(2, 2)
    models.get_model, models.get_model_weights = lambda name, weights: network, lambda name: weights  # type: ignore[attr-defined]
    for name, module in (("timm", timm), ("torchvision", vision), ("torchvision.models", models)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    assert load_pretrained("timm/tiny").image_size == 96
    found = load_pretrained("torchvision/tiny")
    assert (found.image_size, found.mean[0]) == (64, 0.1)
    assert isinstance(found.module.fc, nn.Identity)
