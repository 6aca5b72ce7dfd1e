"""Texts go into fit and predict as strings; the encoder is fitted, saved and applied by the classifier."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from torch import nn

from crowdfuse import GatedClassifier, MajorityVoteClassifier, load
from crowdfuse.encoders import EncodedInputs, TfidfEncoder
from crowdfuse.estimators.persistence import DamagedModelError
from crowdfuse.io.texts import Texts
from tests.text_crowd import make_labels, make_texts

TEXTS, TRUTH = make_texts()
NEW_TEXTS = [*make_texts(20, seed=1)[0], "", "a word that was never seen", "日本語の文"]
ANNOTATIONS = make_labels(TRUTH)
ITEMS = [f"text-{i}" for i in range(len(TEXTS))]
SETTINGS: dict[str, Any] = {"epochs": 15, "learning_rate": 0.01, "random_state": 0}


@pytest.fixture(scope="module")
def fitted() -> MajorityVoteClassifier:
    return MajorityVoteClassifier(**SETTINGS).fit(TEXTS, ANNOTATIONS, items=ITEMS)


def count_features(texts: list[str]) -> list[list[float]]:
    """A text encoder as a user may write it."""
    return [[float(text.count(word)) for word in ("good", "great", "bad", "awful", "o")] for text in texts]


def test_a_classifier_learns_from_texts(fitted: MajorityVoteClassifier) -> None:
    texts, truth = make_texts(50, seed=2)
    assert fitted.score(texts, truth) > 0.9
    assert isinstance(fitted.encoder_, TfidfEncoder)
    assert fitted.predict_proba(NEW_TEXTS).shape == (len(NEW_TEXTS), 2)


@pytest.mark.parametrize(
    "kind", [tuple, np.array, pd.Series, pl.Series, pa.array, Texts, lambda x: np.array(x, object)]
)
def test_any_column_of_strings_is_read(fitted: MajorityVoteClassifier, kind: Callable[[list[str]], Any]) -> None:
    assert np.array_equal(fitted.predict_proba(kind(NEW_TEXTS)), fitted.predict_proba(NEW_TEXTS))


def test_the_encoder_is_fitted_on_labelled_items_only() -> None:
    texts = [*TEXTS, "zebra zebra"]
    clf = MajorityVoteClassifier(epochs=1).fit(texts, ANNOTATIONS, items=[*ITEMS, "unlabelled"])
    assert isinstance(clf.encoder_, TfidfEncoder)
    assert "good" in clf.encoder_.terms
    assert "zebra" not in clf.encoder_.terms


def test_every_method_that_takes_inputs_takes_texts() -> None:
    clf = GatedClassifier(epochs=3).fit(TEXTS, ANNOTATIONS, items=ITEMS, validation=(TEXTS, TRUTH))
    assert clf.annotator_weights(TEXTS).shape == (60, 3)
    assert clf.consensus(TEXTS, ANNOTATIONS, items=ITEMS, folds=2).n_folds == 2
    assert clf.report(TEXTS, ANNOTATIONS, items=ITEMS, folds=0).to_html()
    assert clf.partial_fit(TEXTS, ANNOTATIONS, items=ITEMS).predict(TEXTS).shape == (60,)
    assert clone(clf).get_params()["encoder"] == "auto"


def test_the_encoder_does_not_change_the_out_of_fold_predictions_through_labels() -> None:
    """The folds share one vocabulary. It does not depend on labels, so it carries none from one fold to another."""
    flipped = make_labels(["good" if label == "bad" else "bad" for label in TRUTH])
    one = MajorityVoteClassifier(epochs=1).fit(TEXTS, ANNOTATIONS, items=ITEMS)
    other = MajorityVoteClassifier(epochs=1).fit(TEXTS, flipped, items=ITEMS)
    assert one.encoder_ is not None
    assert other.encoder_ is not None
    assert one.encoder_.fingerprint == other.encoder_.fingerprint


def test_a_saved_model_predicts_the_same_bits_in_a_fresh_process(
    fitted: MajorityVoteClassifier, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    np.save(tmp_path / "texts.npy", np.array(NEW_TEXTS))
    code = (
        "import numpy as np, crowdfuse\n"
        "proba = crowdfuse.load('model').predict_proba(np.load('texts.npy'))\n"
        "np.save('proba.npy', proba)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert np.array_equal(np.load(tmp_path / "proba.npy"), fitted.predict_proba(NEW_TEXTS))
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("name", ["encoder.json", "encoder.safetensors"])
def test_a_damaged_encoder_is_named(fitted: MajorityVoteClassifier, tmp_path: Path, name: str) -> None:
    fitted.save(tmp_path / "model")
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    with pytest.raises(DamagedModelError, match=f"{name} is damaged"):
        load(tmp_path / "model")
    path.unlink()
    with pytest.raises(DamagedModelError, match=f"{name} is missing"):
        load(tmp_path / "model")


def test_a_function_as_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clf = MajorityVoteClassifier(**SETTINGS, encoder=count_features).fit(TEXTS, ANNOTATIONS, items=ITEMS)
    clf.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"load\(path, encoder="):
        load(tmp_path / "model")
    again = load(tmp_path / "model", encoder=count_features)
    assert np.array_equal(again.predict_proba(NEW_TEXTS), clf.predict_proba(NEW_TEXTS))
    with pytest.raises(ValueError, match="has changed since the model was trained"):
        load(tmp_path / "model", encoder=lambda texts: np.ones((len(texts), 5))).predict(NEW_TEXTS)


def test_an_encoder_given_by_its_import_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("text_lengths.py").write_text("def encode(texts):\n    return [[len(text)] for text in texts]\n")
    clf = MajorityVoteClassifier(epochs=1, encoder="text_lengths:encode").fit(TEXTS, ANNOTATIONS, items=ITEMS)
    clf.save("model")
    assert np.array_equal(load("model").predict_proba(NEW_TEXTS), clf.predict_proba(NEW_TEXTS))
    sys.modules["text_lengths"].encode = count_features  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="encoder text_lengths:encode has changed since the model was trained"):
        load("model").predict(NEW_TEXTS)


def test_encoded_inputs_keep_their_texts_and_encoder() -> None:
    encoder = TfidfEncoder().fit(Texts(TEXTS))
    inputs = EncodedInputs(encoder.encode(Texts(TEXTS)), Texts(TEXTS), encoder)
    clf = MajorityVoteClassifier(epochs=1).fit(inputs, ANNOTATIONS, items=ITEMS)
    assert clf.encoder_ is encoder
    other = TfidfEncoder(n_words=5).fit(Texts(TEXTS))
    with pytest.raises(ValueError, match="another encoder"):
        clf.predict(EncodedInputs(other.encode(Texts(TEXTS)), Texts(TEXTS), other))


def test_long_and_empty_texts_are_encoded() -> None:
    encoder = TfidfEncoder().fit(Texts(["good film", "bad film", ""]))
    rows = encoder.encode(Texts(["good " * 200_000, ""]))
    assert rows[0].nnz > 0
    assert rows[1].nnz == 0
    assert rows.has_canonical_format or rows.has_sorted_indices


@pytest.mark.parametrize(
    ("settings", "X", "message"),
    [
        ({}, ["1", "2.5", "3"], "holds only numbers"),
        ({}, ["", " ", ""], "none of the 3 training texts contains a word"),
        ({}, ["a", None, "b"], "element 1 is None.*use ''"),
        ({}, "a text", r"pass a list of texts, such as \[text\]"),
        ({"encoder": "tfdif"}, ["a", "b", "c"], "did you mean 'tfidf'"),
        ({"encoder": None}, ["a", "b", "c"], "encoder='auto'"),
        ({"encoder": "tfidf"}, np.eye(3), "leave out encoder"),
        ({"encoder": "math:sqrt"}, ["a", "b", "c"], "encoder math:sqrt: calling it with 2 texts failed"),
        ({"encoder": "math:pi"}, ["a", "b", "c"], "must be a function that takes a list of texts"),
        ({"encoder": lambda texts: [[1.0]]}, ["a", "b", "c"], "one row of numbers per item: for 3 items"),
        ({"encoder": lambda texts: [[np.nan]] * len(texts)}, ["a", "b", "c"], "contains NaN"),
    ],
)
def test_what_cannot_be_encoded_is_refused(settings: dict[str, Any], X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MajorityVoteClassifier(epochs=1, **settings).fit(X, [0, 1, 0])


def test_texts_and_numbers_are_not_mixed_up(fitted: MajorityVoteClassifier) -> None:
    with pytest.raises(ValueError, match="trained on texts; pass a list of strings"):
        fitted.predict(np.eye(3))
    on_numbers = MajorityVoteClassifier(epochs=1).fit(np.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match="X holds texts, but this model was trained on numbers"):
        on_numbers.predict(["a text"])
    with pytest.raises(ValueError, match="X holds texts, but this model was trained on numbers"):
        MajorityVoteClassifier(epochs=1).fit(np.eye(3), [0, 1, 0], validation=(["a text"], [0]))


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'crowdfuse\[text\]'"):
        MajorityVoteClassifier(encoder="sentence").fit(TEXTS, ANNOTATIONS, items=ITEMS)


class LetterCounts(nn.Module):
    """A stand-in for `sentence_transformers.SentenceTransformer`, which is not installed for the tests."""

    lowers = True
    scale = 1.0

    def __init__(self, source: str, device: str) -> None:
        super().__init__()
        assert (source, device) == ("my-models/letters", "cpu")
        self.weight = nn.Parameter(torch.full((1,), self.scale))

    def encode(self, texts: list[str], **settings: Any) -> Any:
        texts = [text.lower() for text in texts] if self.lowers else texts
        return self.scale * np.array([[text.count(letter) for letter in "abdefgloprtuw"] for text in texts], np.float32)


@pytest.mark.parametrize("change", [{"scale": 1.0001}, {"lowers": False}])
def test_a_sentence_encoder_that_has_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """The weights may have changed, or only what turns a text into tokens."""
    package = types.ModuleType("sentence_transformers")
    package.__spec__ = ModuleSpec("sentence_transformers", None)
    monkeypatch.setattr(package, "SentenceTransformer", LetterCounts, raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    clf = MajorityVoteClassifier(epochs=2, encoder="sentence:my-models/letters").fit(TEXTS, ANNOTATIONS, items=ITEMS)
    clf.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_proba(NEW_TEXTS), clf.predict_proba(NEW_TEXTS))
    for name, value in change.items():
        monkeypatch.setattr(LetterCounts, name, value)
    with pytest.raises(ValueError, match="sentence encoder my-models/letters has changed since the model was trained"):
        load(tmp_path / "model").predict_proba(NEW_TEXTS)
