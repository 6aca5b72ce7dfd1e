"""The paper's scale of its large experiments, on small archives and folders."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import crowdfuse
from crowdfuse.cli import app
from crowdfuse.experiments import catalog, imagenet
from crowdfuse.experiments.catalog import PAPER_EXPERIMENTS, SMALL_EXPERIMENTS, find_experiment
from crowdfuse.experiments.networks import ImageNetworksExecutor

N_CLASSES = 4


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Write an archive like CIFAR-100's with 100 + 20 images, whose brightness is the class."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, count in (("train", 100), ("test", 20)):
        y = np.arange(count) % N_CLASSES
        pixels = (60 * y[:, None] + generator.integers(0, 60, (count, 3072))).astype(np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "fine_labels": y.tolist()}, protocol=2))
    names = {"fine_label_names": [f"class {k}" for k in range(100)]}
    (folder / "meta").write_bytes(pickle.dumps(names, protocol=2))
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write three classes of nine images of different sizes, some grey; they are read at 32 pixels."""
    generator = np.random.default_rng(0)
    for number in range(27):
        k, mode = number % 3, "L" if number % 5 == 0 else "RGB"
        path = tmp_path / "imagenet100" / ("val" if number > 20 else "train") / f"n{k}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (80 * k + generator.integers(0, 80, (30 + number, 50, 3))).astype(np.uint8)
        Image.fromarray(pixels).convert(mode).save(path)
    monkeypatch.setattr(imagenet, "IMAGE_SIDE_PIXELS", 32)
    monkeypatch.setattr(imagenet, "N_DECODING_WORKERS", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def reproduce(name: str, data: Path, *arguments: str) -> Any:
    common = ["--data", str(data), "--out", str(data / "out"), "--quiet"]
    return CliRunner().invoke(app, ["reproduce", name, *common, *arguments])


def test_the_small_scale_is_the_default_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "has_gpu", lambda: False)
    assert find_experiment("table2", None) is SMALL_EXPERIMENTS["table2"]
    assert find_experiment("table1", None) is PAPER_EXPERIMENTS["table1"]
    monkeypatch.setattr(catalog, "has_gpu", lambda: True)
    assert find_experiment("table2", None) is PAPER_EXPERIMENTS["table2"]
    assert find_experiment("table2", "desk") is SMALL_EXPERIMENTS["table2"]
    with pytest.raises(ValueError, match="table1 can only be run at the scale 'paper'"):
        find_experiment("table1", "desk")
    with pytest.raises(ValueError, match="did you mean 'paper'"):
        find_experiment("table2", "papr")


def test_both_scales_have_the_same_declaration() -> None:
    for name, desk in SMALL_EXPERIMENTS.items():
        paper = PAPER_EXPERIMENTS[name]
        assert (desk.parameter, desk.values, desk.methods, desk.paper_table_id) == (
            paper.parameter,
            paper.values,
            paper.methods,
            paper.paper_table_id,
        )
        assert desk.scale != paper.scale


def test_without_a_gpu_the_papers_scale_must_be_confirmed(archive: Path) -> None:
    asked = ["--scale", "paper", "--values", "20", "--methods", "majority-vote", "--items", "40"]
    result = reproduce("table2", archive, *asked)
    assert result.exit_code == 2
    assert "there is no GPU, and 1 run with --scale paper would take about" in result.output
    assert "--yes" in result.output
    assert not (archive / "out").exists()
    result = reproduce("table2", archive, *asked, "--epochs", "1", "--yes")
    assert result.exit_code == 0, result.output
    assert "CIFAR-100, three annotators with a weakness" in result.output
    assert "--scale paper" in result.output


def test_too_few_images_are_reported(archive: Path) -> None:
    result = reproduce("table2", archive, "--scale", "paper", "--yes")
    assert result.exit_code == 2
    assert "only 80 of the 100 items are available for training" in result.output


def test_weakness_images_give_the_target_accuracies_for_every_seed(archive: Path) -> None:
    run = PAPER_EXPERIMENTS["table2"].cells(values=[18], methods=["fusion"], data={"n_train": 80})[0].run
    run["annotators"] |= {
        "target_epsilon": 18,
        "target_accuracies": [0.5, 0.25, 0.5],
    }  # within 18 are an image's class and the next
    work = PAPER_EXPERIMENTS["table2"].scale.executor(archive)
    parts = work.load(run)
    made = work.make_annotators(run, parts)
    assert made.accuracy.tolist() == [0.5, 0.25, 0.5]
    wider = work.make_annotators({**run, "annotators": run["annotators"] | {"epsilon": 30}}, parts)
    assert made.weakness is not None
    assert wider.weakness is not None
    assert (made.weakness == wider.weakness).all()
    assert wider.accuracy.tolist() == [0.25, 0, 0.25]
    pixels = parts.X.values.reshape(80, -1) / 255
    inside = np.linalg.norm(pixels - pixels[made.weakness[0]], axis=1) <= 18
    assert (made.is_correct[:, 0] == ~inside).all()


def test_networks_label_images(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ImageNetworksExecutor.networks, "young", {"backbone": "lenet", "epochs": 1})
    asked = ["--scale", "paper", "--values", "unseen", "--methods", "majority-vote", "--items", "40", "--epochs", "1"]
    result = reproduce("supp3", archive, *asked, "--yes")
    assert result.exit_code == 0, result.output
    assert "| unseen |" in result.output


def test_saved_models_and_callables_can_be_annotators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(120) % N_CLASSES
    X = (np.eye(N_CLASSES)[y] + generator.normal(0, 0.2, (120, N_CLASSES))).astype(np.float32)
    (tmp_path / "cifar100").mkdir()
    np.savez(tmp_path / "cifar100" / "features.npz", x_train=X[:100], x_test=X[100:])
    np.savez(tmp_path / "cifar100" / "labels.npz", y_train=y[:100], y_test=y[100:])
    np.savez(tmp_path / "cifar100" / "distances.npz", distances=np.ones((100, 3)))
    crowdfuse.TrueLabelClassifier(epochs=2).fit(X[:40], y[:40]).save(tmp_path / "model")
    (tmp_path / "my_annotators.py").write_text("def always_two(X):\n    return [2] * len(X)\n")
    monkeypatch.chdir(tmp_path)
    named = ["--annotator", "saved=model", "--annotator", "stubborn=my_annotators:always_two"]
    asked = ["--scale", "desk", "--items", "40", "--epochs", "1", "--methods", "majority-vote,fusion"]
    result = reproduce("supp3", tmp_path, *asked, *named)
    assert result.exit_code == 0, result.output
    table = json.loads((tmp_path / "out" / "table.json").read_text())
    assert table["true_annotator_accuracy"]["given"][1] == 0.25
    crowdfuse.TrueLabelClassifier(epochs=3).fit(X[:40], y[:40]).save(tmp_path / "model", overwrite=True)
    result = reproduce("supp3", tmp_path, *asked, *named, "--plan")
    assert "0 runs finished, 2 missing" in result.output  # another model is another run


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("supp3", ["--annotator", "a"], "NAME=FOLDER or NAME=MODULE:CALLABLE"),
        ("supp3", ["--annotator", "a=no.such:thing"], "annotator 'a', 'no.such:thing': there is no module 'no'"),
        ("supp3", ["--annotator", "a=math:sqart"], "math has no 'sqart'; did you mean 'sqrt'?"),
        ("supp3", ["--annotator", "a=nowhere"], "nowhere"),
        ("table2", ["--annotator", "a=math:sqrt"], "--annotator applies to supp3 only"),
        ("table2", ["--skip-unreadable"], "--skip-unreadable applies only to experiments that read folders of images"),
    ],
)
def test_bad_requests_are_refused(tmp_path: Path, name: str, arguments: list[str], said: str) -> None:
    (tmp_path / "cifar100").mkdir()
    np.savez(tmp_path / "cifar100" / "features.npz", x_train=np.eye(40), x_test=np.eye(40))
    np.savez(tmp_path / "cifar100" / "labels.npz", y_train=np.arange(40), y_test=np.arange(40))
    np.savez(tmp_path / "cifar100" / "distances.npz", distances=np.ones((40, 3)))
    result = reproduce(name, tmp_path, *arguments, "--items", "10", "--scale", "desk")
    assert result.exit_code == 2
    assert said in result.output
    assert not (tmp_path / "out").exists()


def test_an_image_folder_is_split_trained_on_and_resumed(folder: Path) -> None:
    asked = ["--scale", "paper", "--yes", "--values", "580", "--epochs", "1"]
    result = reproduce("table3", folder, *asked, "--methods", "fusion")
    assert result.exit_code == 0, result.output
    assert "ImageNet-100, three annotators with a weakness" in result.output
    kept = list((folder / "cache" / "crowdfuse").iterdir())
    assert len(kept) == 1
    before = kept[0].stat().st_mtime_ns
    result = reproduce("table3", folder, *asked, "--methods", "fusion,true-label")
    assert result.exit_code == 0, result.output
    assert kept[0].stat().st_mtime_ns == before
    assert (folder / "out" / "runs.jsonl").read_text().count("\n") == 2


def test_a_truncated_image_is_named_and_skipped_only_on_request(folder: Path) -> None:
    bad = folder / "imagenet100" / "train" / "n1" / "01.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    asked = ["--scale", "paper", "--yes", "--values", "580", "--epochs", "1", "--methods", "majority-vote"]
    result = reproduce("table3", folder, *asked)
    assert result.exit_code != 0
    assert "01.jpg: not a readable image" in result.output
    with pytest.warns(UserWarning, match=r"1 unreadable image left out: 'train/n1/01.jpg'"):
        result = reproduce("table3", folder, *asked, "--skip-unreadable")
    assert result.exit_code == 0, result.output


def test_the_small_scale_reads_features_of_the_folder(folder: Path) -> None:
    place = folder / "imagenet100"
    asked = ["--scale", "desk", "--values", "580", "--epochs", "1", "--methods", "majority-vote,true-label"]
    result = reproduce("table3", folder, *asked)
    assert result.exit_code == 2
    assert "Create them with 'crowdfuse embed" in result.output
    names = sorted(path.relative_to(place).as_posix() for path in place.rglob("*.jpg"))
    X = np.stack([np.eye(3)[int(name.split("/")[1][1:])] for name in names])
    np.savez(place / "features.npz", X=X[::-1], items=np.array(names[::-1]))
    result = reproduce("table3", folder, *asked, "--epochs", "30", "--methods", "true-label")
    assert result.exit_code == 0, result.output
    assert "| true-label | 100.0" in result.output  # features meet their own classes
    np.savez(place / "features.npz", X=X[1:], items=np.array(names[1:]))
    result = reproduce("table3", folder, *asked, "--seeds", "1")
    assert result.exit_code == 2
    assert "has no features of" in result.output


def test_image_files_have_no_class_means(folder: Path) -> None:
    run = PAPER_EXPERIMENTS["table3"].cells(values=[580], methods=["fusion"])[0].run
    work = PAPER_EXPERIMENTS["table3"].scale.executor(folder)
    parts = work.load(run)
    for change in ({"rule": "habit"}, {"wrong": "neighbour"}):
        with pytest.raises(ValueError, match="use --scale desk, which reads features"):
            work.make_annotators({**run, "annotators": run["annotators"] | change}, parts)
    assert (
        work.make_annotators({**run, "annotators": run["annotators"] | {"wrong": "copy"}}, parts).is_correct.shape[1]
        == 3
    )
