"""dopanim's reader, on a few small images in the authors' layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crowdfuse.datasets.dopanim import ANIMALS, load_dopanim
from crowdfuse.io.image_files import ImageFiles

TASKS = {
    "301": ("train", "Jaguar"),
    "102": ("valid", "Cheetah"),
    "205": ("train", "Leopard"),
    "101": ("test", "Douglas' Squirrel"),
    "77": ("train", "Marsh Rabbit"),
}
SAID: list[tuple[int, str, dict[str, float]]] = [
    (301, "pixel-pioneer", {"Jaguar": 80, "Leopard": 20}),
    (205, "digital-dragon", {"Cheetah": 0.5, "Leopard": 0.3}),
    (205, "pixel-pioneer", {"Leopard": 100}),
    (205, "digital-dragon", {"Leopard": 55, "Jaguar": 45}),  # once more, with another label
    (301, "ocean-oracle", {}),  # all of them unlikely
]


def task(split: str, animal: str) -> dict[str, Any]:
    return {"split": split, "taxon_name": animal, "latitude": 51.3, "image_url": "https://example.org"}


def annotation_record(number: Any, who: Any, likelihoods: dict[str, Any]) -> dict[str, Any]:
    all_likelihoods = dict.fromkeys(ANIMALS, 0) | likelihoods
    return {"observation_id": number, "annotator_id": who, "likelihoods": all_likelihoods, "annotation_time": 3.5}


def write(place: Path, tasks: dict[str, Any], labels: dict[str, Any]) -> None:
    place.mkdir(exist_ok=True)
    (place / "task_data.json").write_text(json.dumps(tasks))
    (place / "annotation_data.json").write_text(json.dumps(labels))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CROWDFUSE_DATA", raising=False)
    place = tmp_path / "dopanim"
    labels = {f"{n:03}": annotation_record(*row) for n, row in enumerate(SAID)}
    write(place, {number: task(*what) for number, what in TASKS.items()}, labels)
    for number, (split, animal) in TASKS.items():
        path = place / split / animal / f"{number}.jpeg"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (12, 8), (int(number) % 256, 0, 0)).save(path)
    return place


def test_images_stay_in_their_files_and_have_labels(place: Path) -> None:
    crowd = load_dopanim(place.parent, size=4)
    assert isinstance(crowd.X, ImageFiles)
    assert [Path(path).name for path in crowd.X.paths] == ["301.jpeg", "205.jpeg", "77.jpeg"]
    assert crowd.X.item_shape == (3, 4, 4)
    assert abs(crowd.X.rows(np.array([1]))[0, 0].mean() - 205) < 3
    assert crowd.annotations.items.tolist() == [301, 205, 77]
    assert crowd.annotations.by_row
    assert crowd.class_names is not None
    names = crowd.class_names
    assert [names[k] for k in crowd.y] == ["Jaguar", "Leopard", "Marsh Rabbit"]
    assert [names[k] for k in crowd.y_test] == ["Douglas' Squirrel"]
    assert [Path(path).parent.name for path in crowd.X_test.paths] == ["Douglas' Squirrel"]
    assert crowd.annotations.annotators.tolist() == ["digital-dragon", "pixel-pioneer"]  # the third gave no labels
    jaguar, leopard = names.index("Jaguar"), names.index("Leopard")
    assert crowd.annotations.to_matrix().tolist() == [[-1, jaguar], [leopard, leopard], [-1, -1]]  # the last one counts
    assert crowd.classes == list(range(15))


def test_ties_are_broken_evenly_and_by_the_seed(place: Path) -> None:
    tasks = {str(n): task("test" if n == 0 else "train", "Jaguar") for n in range(401)}
    labels = {
        str(n): annotation_record(n, "neon-ninja", {"Jaguar": 40, "Cheetah": 40, "Leopard": 20}) for n in range(1, 401)
    }
    write(place, tasks, labels)
    for n, record in tasks.items():
        (place / record["split"] / "Jaguar").mkdir(exist_ok=True, parents=True)
        (place / record["split"] / "Jaguar" / f"{n}.jpeg").touch()
    one, again, other = (load_dopanim(place.parent, size=4, seed=seed).annotations for seed in (0, 0, 1))
    assert one == again
    assert one != other
    shares = np.bincount(one.label, minlength=15) / 400
    assert {ANIMALS[k] for k in np.flatnonzero(shares)} == {"Jaguar", "Cheetah"}
    assert 0.4 < shares[ANIMALS.index("Jaguar")] < 0.6


@pytest.mark.parametrize(
    ("tasks", "labels", "told"),
    [
        ({"5": task("dev", "Jaguar")}, {}, r"task_data.json, '5': split 'dev' is not one of train, valid, test"),
        ({"5": task("train", "Lynx")}, {}, r"task_data.json, '5': taxon_name 'Lynx' is not one of German Yellowjacket"),
        ({"5a": task("train", "Jaguar")}, {}, "'5a': '5a' is not an observation number"),
        ({"5": {"split": "train"}}, {}, r"task_data.json, '5': has no taxon_name. Is it a file of another"),
        ({"5": "train"}, {}, "'5': has no split, taxon_name"),
        (
            None,
            {"9": annotation_record(102, "neon-ninja", {})},
            r"annotation_data.json, '9': observation_id 102 is not among the train",
        ),
        (None, {"9": annotation_record(301.5, "neon-ninja", {})}, "'9': 301.5 is not an observation number"),
        (None, {"9": annotation_record(301, " ", {})}, "'9': annotator_id must be a string that is not empty, got ' '"),
        (None, {"9": annotation_record(301, 4, {})}, "'9': annotator_id must be a string that is not empty, got 4"),
        (
            None,
            {"9": annotation_record(301, "neon-ninja", {"Lynx": 3})},
            "'9': likelihoods has the key 'Lynx', which is not one of",
        ),
        (
            None,
            {"9": annotation_record(301, "neon-ninja", {"Jaguar": -1})},
            "'9': the likelihood -1 of Jaguar is not a finite",
        ),
        (
            None,
            {"9": annotation_record(301, "neon-ninja", {"Jaguar": "50"})},
            "the likelihood '50' of Jaguar is not a finite",
        ),
        (None, {"9": annotation_record(301, "neon-ninja", {"Jaguar": float("nan")})}, "the likelihood nan of Jaguar"),
        (
            None,
            {"9": annotation_record(301, "neon-ninja", {}) | {"likelihoods": "Jaguar"}},
            "must be a JSON object with one number per animal, found",
        ),
        (None, {"9": {"observation_id": 301}}, "'9': has no annotator_id, likelihoods"),
        (None, [1, 2], r"annotation_data.json: expected a JSON object that maps ids to records, found \[1, 2\]"),
        ({"5": task("valid", "Jaguar")}, {}, "no observation has the split 'train'"),
    ],
)
def test_invalid_content_is_refused_with_its_place(place: Path, tasks: Any, labels: Any, told: str) -> None:
    write(place, tasks or {number: task(*what) for number, what in TASKS.items()}, labels)
    with pytest.raises(ValueError, match=told):
        load_dopanim(place.parent, size=4)


def test_truncated_file_is_refused(place: Path) -> None:
    path = place / "annotation_data.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(ValueError, match=r"annotation_data.json cannot be read: .*line 1 .*download it again.*zenodo"):
        load_dopanim(place.parent, size=4)


def test_missing_files_are_named_with_their_publisher(place: Path) -> None:
    (place / "train" / "Jaguar" / "301.jpeg").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"1 of 3 images not found; the first .*301.jpeg. Unpack train.zip in .*zenodo"
    ):
        load_dopanim(place.parent, size=4)
    (place / "task_data.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"dopanim: no task_data.json in .*https://doi.org/10.5281/zenodo.114795"
    ):
        load_dopanim(place.parent, size=4)
    with pytest.raises(FileNotFoundError, match="CROWDFUSE_DATA to the folder that contains dopanim/"):
        load_dopanim(size=4)
