"""LabelMe's images, on a few small ones in the authors' layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crowdfuse.datasets.labelme import SCENES, load_labelme_images
from crowdfuse.estimators import MajorityVoteClassifier
from crowdfuse.io.image_files import ImageFiles

TRAIN = ["mountain_n295039.jpg", "street_urb506.jpg", "coast_art487.jpg"]
TEST = ["forest_cdmc12.jpg", "tallbuilding_a487085.jpg"]
ANSWERS = "-1 -1 6 -1\n3 -1 0 -1\n-1 -1 -1 -1\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CROWDFUSE_DATA", raising=False)
    place = tmp_path / "LabelMe"
    for part, names in {"train": TRAIN, "test": TEST}.items():
        scenes = [name.partition("_")[0] for name in names]
        for shade, (scene, name) in enumerate(zip(scenes, names, strict=True)):
            path = place / part / scene / name
            path.parent.mkdir(parents=True)
            Image.new("RGB", (16, 16), (40 * shade, 0, 0)).save(path)
        (place / f"filenames_{part}.txt").write_text("\n".join(names) + "\n")
        (place / f"labels_{part}.txt").write_text("".join(f"{SCENES.index(scene)}\n" for scene in scenes))
    (place / "answers.txt").write_text(ANSWERS)
    return place


def test_images_stay_in_their_files_and_have_labels(place: Path) -> None:
    crowd = load_labelme_images(place.parent, size=8, workers=2)
    assert isinstance(crowd.X, ImageFiles)
    assert (crowd.X.item_shape, crowd.X.workers) == ((3, 8, 8), 2)
    assert crowd.X.paths[2] == str(place / "train" / "coast" / "coast_art487.jpg")
    assert abs(crowd.X.rows(np.array([2]))[0, 0].mean() - 80) < 3
    assert crowd.annotations.items.tolist() == TRAIN
    assert crowd.annotations.by_row
    assert crowd.annotations.annotators.tolist() == [0, 2]  # those who labelled nothing are left out
    assert crowd.annotations.to_matrix().tolist() == [[-1, 6], [3, 0], [-1, -1]]
    assert crowd.y.tolist() == [6, 3, 5]
    assert crowd.y_test.tolist() == [4, 2]
    assert crowd.class_names is not None
    assert [crowd.class_names[k] for k in crowd.y] == ["mountain", "street", "coast"]
    assert crowd.classes == list(range(8))


def test_classifier_accepts_image_files(place: Path) -> None:
    crowd = load_labelme_images(place.parent, size=16)
    classifier = MajorityVoteClassifier(classes=crowd.classes, epochs=1, random_state=0)
    assert classifier.fit(crowd.X, crowd.annotations).predict(crowd.X_test).shape == crowd.y_test.shape


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("labels_train.txt", "6\n3\n8\n", r"labels_train.txt, line 3: class '8' is not an integer from 0 to 7"),
        (
            "labels_train.txt",
            "6\n4\n5\n",
            r"labels_train.txt, line 2: the class is 4 \(forest\), but the file name 'street_urb506",
        ),
        ("labels_test.txt", "4\n", r"labels_test.txt has 1 lines, but filenames_test.txt has 2"),
        (
            "filenames_test.txt",
            "forest_cdmc12.jpg\nlake_1.jpg\n",
            r"filenames_test.txt, line 2: 'lake_1.jpg' does not begin",
        ),
        ("answers.txt", "-1 -1\n-1 -1\n", r"answers.txt has 2 lines, but filenames_train.txt has 3"),
        ("answers.txt", "-1 -1\n-1 -1 1\n0 0\n", r"answers.txt, line 2: 3 answers, but line 1 has 2"),
        (
            "answers.txt",
            "-1 -1\n-1 coast\n0 0\n",
            r"answers.txt, line 2: answer 'coast' is not an integer from 0 to 7",
        ),
        ("answers.txt", "", r"answers.txt is empty; download it again"),
    ],
)
def test_invalid_content_is_refused_with_its_place(place: Path, file: str, text: str, said: str) -> None:
    (place / file).write_text(text)
    with pytest.raises(ValueError, match=said):
        load_labelme_images(place.parent, size=8)


def test_missing_files_are_named_with_their_publisher(place: Path) -> None:
    (place / "test" / "forest" / "forest_cdmc12.jpg").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"1 of 2 images not found; the first .*cdmc12.jpg. .*deep_LabelMe.tar.gz"
    ):
        load_labelme_images(place.parent, size=8)
    (place / "answers.txt").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"labelme: no answers.txt in .*LabelMe. .*deep_LabelMe.tar.gz.*fprodrigues"
    ):
        load_labelme_images(place.parent, size=8)
    with pytest.raises(FileNotFoundError, match="CROWDFUSE_DATA to the folder that contains LabelMe/"):
        load_labelme_images(size=8)
