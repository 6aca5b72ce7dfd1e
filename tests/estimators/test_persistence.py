"""A loaded model gives the same bits as the saved one, and a damaged folder names the damaged file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from crowdfuse import (
    Annotations,
    FusionClassifier,
    MajorityVoteClassifier,
    SingleAnnotatorClassifier,
    TrueLabelClassifier,
    load,
)
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.persistence import DamagedModelError, ModelFormatError

generator = np.random.default_rng(0)
N, K = 40, 3
X = generator.normal(size=(N, 5))
TRUTH = np.array(["ant", "bee", "Zoë's cat"], dtype=object)[X[:, :K].argmax(1)]
LABELS = np.where(generator.random((N, 3)) < 0.7, TRUTH[:, None], "bee").astype(object)
LABELS[generator.random((N, 3)) < 0.3] = None
ANNOTATIONS = Annotations.from_matrix(LABELS, annotators=["007", "eve", "12"])
SETTINGS: dict[str, Any] = {"epochs": 2, "batch_size": 16, "random_state": 1}


class Tied(nn.Module):
    """A backbone of the user's own; two of its layers share their weights."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(5, width)
        self.second = nn.Linear(width, width)
        self.third = self.second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.third(self.second(self.first(x).relu()).relu())
        return out


def make(kind: str) -> CrowdClassifier:
    fitted: dict[str, Callable[[], CrowdClassifier]] = {
        "fusion": lambda: FusionClassifier(**SETTINGS, n_bases=4, hidden=(8,)).fit(X, ANNOTATIONS),
        "full": lambda: FusionClassifier(**SETTINGS, confusions="full", weights="uniform").fit(X, ANNOTATIONS),
        "validated": lambda: FusionClassifier(**SETTINGS).fit(X, ANNOTATIONS, validation=(X, TRUTH)),
        "vote": lambda: MajorityVoteClassifier(**SETTINGS, vote="hard").fit(X, ANNOTATIONS),
        "single": lambda: SingleAnnotatorClassifier(**SETTINGS, annotator="eve").fit(X, ANNOTATIONS),
        "true": lambda: TrueLabelClassifier(**SETTINGS).fit(X, ANNOTATIONS, gold=TRUTH),
    }
    return fitted[kind]()


@pytest.fixture(scope="module")
def fitted() -> CrowdClassifier:
    return make("fusion")


@pytest.fixture
def saved(fitted: CrowdClassifier, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["fusion", "full", "validated", "vote", "single", "true"])
def test_everything_is_bit_identical_after_load(kind: str, tmp_path: Path) -> None:
    before = make(kind)
    before.save(tmp_path / "model")
    after = load(tmp_path / "model")
    assert type(after) is type(before)
    np.testing.assert_array_equal(after.predict(X), before.predict(X))
    np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    np.testing.assert_array_equal(after.annotator_weights(X), before.annotator_weights(X))
    np.testing.assert_array_equal(after.fused_labels(X, ANNOTATIONS), before.fused_labels(X, ANNOTATIONS))
    if before.confusion_given_ is not None:
        np.testing.assert_array_equal(after.confusion_matrices(X), before.confusion_matrices(X))
    assert after.confusion_given_ == before.confusion_given_
    for name in ("classes_", "annotators_"):
        assert getattr(after, name).tolist() == getattr(before, name).tolist()
        assert getattr(after, name).dtype == getattr(before, name).dtype
    for name in (
        "history_",
        "best_epoch_",
        "interrupted_",
        "gold_used_for_",
        "n_iter_",
        "n_features_in_",
        "input_shape_",
    ):
        assert getattr(after, name) == getattr(before, name)
    settings = after.get_params()
    assert {**before.get_params(), "checkpoint": None, "verbose": 0} == {**settings, "checkpoint": None, "verbose": 0}


def test_integer_names_stay_integers(tmp_path: Path) -> None:
    Y = generator.integers(3, 6, (N, 2))
    before = MajorityVoteClassifier(**SETTINGS).fit(X, Annotations.from_matrix(Y, annotators=[10, 9]))
    before.save(tmp_path / "model")
    after = load(tmp_path / "model")
    assert after.classes_.tolist() == [3, 4, 5]
    assert after.annotators_.tolist() == [10, 9]
    assert after.predict(X).dtype == before.predict(X).dtype


def test_images_and_column_names_survive(tmp_path: Path) -> None:
    images = generator.integers(0, 255, (N, 1, 16, 16)).astype(np.uint8)
    before = MajorityVoteClassifier(**SETTINGS).fit(images, ANNOTATIONS)
    before.save(tmp_path / "images")
    np.testing.assert_array_equal(load(tmp_path / "images").predict_proba(images), before.predict_proba(images))
    frame = pd.DataFrame(X, columns=list("abcde"))
    MajorityVoteClassifier(**SETTINGS).fit(frame, ANNOTATIONS).save(tmp_path / "table")
    after = load(tmp_path / "table")
    after.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        after.predict(frame[list("edcba")])


def test_a_training_that_diverged_can_be_saved_and_loaded(tmp_path: Path) -> None:
    before = make("fusion")
    before.history_[-1]["loss"] = float("nan")
    before.save(tmp_path / "model")
    assert load(tmp_path / "model").history_[-1]["loss"] is None


def test_a_custom_backbone_must_be_passed_to_load(tmp_path: Path) -> None:
    before = FusionClassifier(**SETTINGS, backbone=Tied()).fit(X, ANNOTATIONS)
    before.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"load\(path, backbone=\.\.\.\)"):
        load(tmp_path / "model")
    for backbone in (Tied(), Tied):
        after = load(tmp_path / "model", backbone=backbone)
        np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    with pytest.raises(ValueError, match="differs from the backbone"):
        load(tmp_path / "model", backbone=Tied(6))


def test_a_named_backbone_must_not_be_given(saved: Path) -> None:
    with pytest.raises(ValueError, match="backbone, 'auto'; leave out the argument backbone"):
        load(saved, backbone=Tied())


def test_settings_that_are_functions_are_for_training_only(tmp_path: Path) -> None:
    before = FusionClassifier(
        **SETTINGS, optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1), schedule=lambda share: 1 - share
    ).fit(X, ANNOTATIONS)
    before.save(tmp_path / "model")
    after = load(tmp_path / "model")
    np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    assert after.optimizer == "adamw"


def test_loading_does_not_change_torchs_random_state(saved: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load(saved)
    assert torch.equal(torch.rand(3), expected)


def test_an_existing_folder_is_replaced_only_with_overwrite(saved: Path) -> None:
    other = make("vote")
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(FileExistsError, match="overwrite=True"):
        other.save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    other.save(saved, overwrite=True)
    assert type(load(saved)) is MajorityVoteClassifier
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_overwrite_does_not_replace_a_folder_that_is_not_a_model(fitted: CrowdClassifier, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"no model\.json"):
        fitted.save(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_a_model_folder_holds_only_json_and_safetensors(saved: Path) -> None:
    """No pickle: a length, a JSON header, and numbers, as many as the header says."""
    assert sorted(path.name for path in saved.iterdir()) == ["model.json", "weights.safetensors"]
    json.loads((saved / "model.json").read_text(encoding="utf-8"))
    content = (saved / "weights.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    assert any(name.startswith("classify.") for name in header)
    assert 8 + size + max(entry["data_offsets"][1] for entry in header.values()) == len(content)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x04
    path.write_bytes(content)


def rewrite(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def rewrite_with_digest(path: Path, content: dict[str, Any]) -> None:
    """Write the content as a version of crowdfuse would that has these keys."""
    content = {name: value for name, value in content.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**content, "sha256": digest}))


Damage = Callable[[Path], object]

WEIGHTS_DAMAGE: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "a byte of the header": lambda path: flip(path, 30),
    "a byte of a weight": lambda path: flip(path, path.stat().st_size - 7),
}
JSON_DAMAGE: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "another format version": lambda path: rewrite(path, format_version=99),
    "another setting": lambda path: rewrite(path, method="majority-vote"),
    "no object": lambda path: path.write_text("[1, 2]"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("damage", WEIGHTS_DAMAGE)
def test_damaged_weights_are_named(saved: Path, damage: str) -> None:
    WEIGHTS_DAMAGE[damage](saved / "weights.safetensors")
    with pytest.raises(DamagedModelError, match=r"weights\.safetensors is (missing|damaged)"):
        load(saved)


@pytest.mark.parametrize("damage", JSON_DAMAGE)
def test_damaged_settings_are_named(saved: Path, damage: str) -> None:
    JSON_DAMAGE[damage](saved / "model.json")
    with pytest.raises(DamagedModelError, match=r"model\.json is (missing|damaged)"):
        load(saved)


def test_a_folder_of_a_newer_version_is_refused_with_a_way_out(saved: Path) -> None:
    path = saved / "model.json"
    rewrite_with_digest(path, json.loads(path.read_text()) | {"format_version": 4, "crowdfuse_version": "9.1"})
    with pytest.raises(ModelFormatError, match=r"format 4, written by crowdfuse 9\.1.*reads format 3 only.*again, or"):
        load(saved)


def test_a_folder_of_an_older_version_is_refused_with_a_way_out(saved: Path) -> None:
    path = saved / "model.json"
    content = json.loads(path.read_text())
    older = {"format": 1, "crowdfuse": content.pop("crowdfuse_version"), "uses_gold": content.pop("gold_used_for")}
    del content["format_version"]
    rewrite_with_digest(path, content | older)
    with pytest.raises(ModelFormatError, match=r"model\.json has format 1.*Train and save the model again"):
        load(saved)


def test_the_keys_on_disk_are_snake_case(saved: Path) -> None:
    content = json.loads((saved / "model.json").read_text(encoding="utf-8"))
    names = [*content, *content["settings"], *(name for record in content["history"] for name in record)]
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []
    assert content["format_version"] == 3
    assert content["gold_used_for"] == "nothing"


def test_a_custom_object_is_stored_by_a_marker(tmp_path: Path) -> None:
    clf = MajorityVoteClassifier(**SETTINGS, backbone=Tied()).fit(X, ANNOTATIONS)
    clf.save(tmp_path / "model")
    content = json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))
    assert content["settings"]["backbone"] == "custom_object"


def test_any_flipped_byte_of_the_settings_is_noticed(saved: Path) -> None:
    path = saved / "model.json"
    whole = path.read_bytes()
    content = json.loads(whole)
    for at in range(0, len(whole), 7):
        flip(path, at)
        try:
            same = json.loads(path.read_bytes()) == content  # a changed blank may leave the content equal
        except ValueError:
            same = False
        if not same:
            with pytest.raises(DamagedModelError, match=r"model\.json is damaged"):
                load(saved)
        path.write_bytes(whole)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no model folder"):
        load(tmp_path / "nothing")
    with pytest.raises(DamagedModelError, match=r"model\.json is missing.*not a model folder"):
        load(tmp_path)
