"""Words that speak for and against the predicted class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from crowdfuse import GatedClassifier, MajorityVoteClassifier, load
from crowdfuse.encoders import TfidfEncoder
from crowdfuse.estimators.word_scores import score_words
from crowdfuse.io.texts import Texts
from crowdfuse.nets.standardize import Standardize
from tests.text_crowd import make_labels, make_texts

TEXTS, TRUTH = make_texts()
ITEMS = [f"text-{i}" for i in range(len(TEXTS))]
HARD_TEXTS = [
    "",
    " \n ",
    "!?",
    "İSTANBUL İyi, a GOOD film",  # one letter has two letters in lower case
    "ΟΔΟΣ ΟΔΟΣ",
    "فيلم رائع جدا good",
    "映画はとても良かったです" * 10,
    "a\u00a0b\u2003good\r\nfilm  x",
    "\ud800 good \U0001f600",
    "b",
]


@pytest.fixture(scope="module")
def fitted() -> MajorityVoteClassifier:
    clf = MajorityVoteClassifier(epochs=15, learning_rate=0.01, random_state=0)
    return clf.fit(TEXTS, make_labels(TRUTH), items=ITEMS)


@pytest.mark.parametrize("text", [*TEXTS[:3], *HARD_TEXTS])
def test_occurrences_of_terms_are_those_that_the_encoder_counts(text: str) -> None:
    encoder = TfidfEncoder().fit(Texts([*TEXTS, *HARD_TEXTS]))
    found = encoder.locate_features(text)
    row = encoder.encode(Texts([text]))
    assert sorted(set(found.column.tolist())) == row.indices.tolist()
    counts = np.bincount(found.column, minlength=row.shape[1])[row.indices]
    n_words = len(encoder.state().settings["terms"]["word"])
    idf = np.concatenate([part.idf_ for part in encoder._vectorizers])[row.indices]
    weights = (1 + np.log(counts)) * idf
    for part in (row.indices < n_words, row.indices >= n_words):
        if part.any():
            np.testing.assert_allclose(row.data[part], weights[part] / np.linalg.norm(weights[part]), rtol=1e-4)
    assert ((found.start >= 0) & (found.start < found.end) & (found.end <= len(text))).all()


def test_scores_are_gradient_times_input_summed_over_words(fitted: MajorityVoteClassifier) -> None:
    """Compared with a dense version that loops over all occurrences and characters."""
    text = "Good, bad and a dull film"
    assert isinstance(fitted.encoder_, TfidfEncoder)
    x = torch.from_numpy(fitted.encoder_.encode(Texts([text])).toarray()).requires_grad_()
    logits = fitted.method_.eval().logits(x)[0]
    code = int(logits.argmax())
    (logits[code] - logits[1 - code]).backward()
    assert x.grad is not None
    assert isinstance(fitted.method_.standardize, Standardize)
    values = (x.grad * (x - fitted.method_.standardize.mean))[0].detach().numpy()
    places: dict[int, list[range]] = {}
    for column, start, end in zip(*fitted.encoder_.locate_features(text), strict=True):
        places.setdefault(int(column), []).append(range(start, end))
    characters = [0.0] * len(text)
    for column, ranges in places.items():
        for span in ranges:
            for at in span:
                characters[at] += values[column] / len(ranges) / len(span)
    [scores] = score_words(fitted, [text]) or []
    starts = {word: text.index(word) for word in ("Good", "bad", "and", " a ", "dull", "film")}
    expected = {word.strip(): sum(characters[at : at + len(word)]) for word, at in starts.items()}
    largest = max(map(abs, expected.values()))
    expected = {word: score / largest for word, score in expected.items() if abs(score) >= 0.2 * largest}
    assert {text_part(text, word): word.score for word in scores.words} == pytest.approx(expected, abs=2e-3)
    assert scores.predicted == fitted.predict([text])[0]


def test_words_of_a_class_speak_for_it_and_words_of_the_other_against_it(fitted: MajorityVoteClassifier) -> None:
    text = "a good bad awful film"
    [scores] = score_words(fitted, [text]) or []
    assert scores.predicted == "good"
    assert {text_part(text, word): word.score > 0 for word in scores.words} == {"good": True, "awful": False}


def test_every_kind_of_text_can_be_scored(fitted: MajorityVoteClassifier, tmp_path: Path) -> None:
    texts = [*HARD_TEXTS, "good " * 200_000]
    fitted.save(tmp_path / "model")
    for clf in (fitted, load(tmp_path / "model")):
        scores = score_words(clf, texts)
        assert scores is not None
        assert [len(found.words) for found in scores[:3]] == [0, 0, 0]
        assert len(scores[-1].words) == 100
        for text, found in zip(texts, scores, strict=True):
            ends = [0, *(word.end for word in found.words)]
            assert all(end <= word.start < word.end <= len(text) for end, word in zip(ends, found.words, strict=False))
    assert {text_part(HARD_TEXTS[3], word) for word in (scores or [])[3].words} >= {"GOOD"}


def text_part(text: str, word: tuple[int, int, float]) -> str:
    return text[word[0] : word[1]]


def test_methods_and_encoders_without_terms() -> None:
    gated = GatedClassifier(epochs=2).fit(TEXTS, make_labels(TRUTH), items=ITEMS)
    assert score_words(gated, TEXTS[:2]) is not None
    lengths = MajorityVoteClassifier(epochs=1, encoder=lambda texts: [[len(text)] for text in texts])
    assert score_words(lengths.fit(TEXTS, make_labels(TRUTH), items=ITEMS), TEXTS[:2]) is None
    assert score_words(MajorityVoteClassifier(epochs=1).fit(np.eye(3), [0, 1, 0]), ["a"]) is None
