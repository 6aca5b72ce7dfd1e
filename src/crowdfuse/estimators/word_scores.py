"""Which words of a text are evidence for or against the predicted class, computed as gradient times input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.texts import Texts

MAX_WORD_CHARACTERS = 30  # a longer word, as in scripts without spaces, is divided into single characters
MIN_SHARE = 0.2  # of the largest score in the text; weaker words are not listed
MAX_WORDS = 100  # listed per text, the strongest ones
TEXTS_PER_BLOCK = 64


class WordScore(NamedTuple):
    """How strongly a word of a text is evidence for or against the predicted class.

    Attributes
    ----------
    start : int
        Position of the word's first character in the text.
    end : int
        Position after the word's last character.
    score : float
        Between -1 and 1. Positive scores are evidence for the predicted class, negative scores are evidence against it.
        The word with the strongest effect in the text has score 1 or -1.
    """

    start: int
    end: int
    score: float


class TextScores(NamedTuple):
    """The words of a text that are the strongest evidence for and against its predicted class.

    Attributes
    ----------
    predicted : object
        The predicted class.
    words : list of WordScore
        The words with the strongest effect, in the order of the text: at most 100 words, with scores from 0.2 to 1 or
        from -1 to -0.2.
    """

    predicted: Any
    words: list[WordScore]


def score_words(classifier: CrowdClassifier, texts: Sequence[str]) -> list[TextScores] | None:
    """Score the words of each text: how strongly they are evidence for or against the predicted class.

    Each feature of a text gets a score first: its value times the derivative of the log-odds of the predicted class
    with respect to the feature (gradient times input). Values are standardized, as the network reads them, so a feature
    that has the same value in all texts scores 0. The score of a feature is divided evenly among the places of the text
    at which the feature occurs, and among the characters of each place. The score of a word is the sum over its
    characters.

    Parameters
    ----------
    classifier : CrowdClassifier
        A fitted classifier.
    texts : sequence of str
        Texts.

    Returns
    -------
    scores : list of TextScores or None
        One entry per text. None if the features of the classifier are not parts of a text, for example if the encoder
        is a sentence encoder.

    Examples
    --------
    >>> import crowdfuse
    >>> texts = ["good film", "dull film"] * 10
    >>> clf = crowdfuse.MajorityVoteClassifier(random_state=0).fit(texts, ["+", "-"] * 10)
    >>> [scores] = score_words(clf, ["A good film"])
    >>> scores.predicted, ["A good film"[word.start : word.end] for word in scores.words if word.score == 1]
    ('+', ['good'])
    """
    encoder = classifier.encoder_
    if encoder is None or encoder.locate_features("") is None:
        return None
    found = []
    for start in range(0, len(texts), TEXTS_PER_BLOCK):
        block = list(texts[start : start + TEXTS_PER_BLOCK])
        rows = classifier._inputs(Texts(block)).rows(np.arange(len(block)))
        codes, contributions = _gradient_times_input(classifier, rows)
        for text, code, values in zip(block, codes, contributions, strict=True):
            occurrences = encoder.locate_features(text)
            assert occurrences is not None
            characters = _share_by_characters(len(text), *occurrences, values)
            found.append(TextScores(classifier.classes_[code], _strongest_words(text, characters)))
    return found


def _gradient_times_input(
    classifier: CrowdClassifier, rows: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the predicted classes, (n_rows,), and the contributions to their log-odds, (n_rows, n_features)."""
    method = classifier.method_
    method.eval()
    with torch.no_grad():
        x = method.standardize(method.augment(torch.from_numpy(rows)))
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = method.class_logits(method.trunk(x))
        predicted = logits.argmax(1, keepdim=True)
        others = logits.scatter(1, predicted, -torch.inf)
        log_odds = logits.gather(1, predicted).squeeze(1) - others.logsumexp(1)
        (gradient,) = torch.autograd.grad(log_odds.sum(), x)
    return predicted.squeeze(1).numpy(), (gradient * x).detach().numpy().astype(np.float64)


def _share_by_characters(
    n_characters: int, column: NDArray[Any], start: NDArray[Any], end: NDArray[Any], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the score of each character, (n_characters,)."""
    per_occurrence = values[column] / np.bincount(column, minlength=len(values))[column]
    per_character = per_occurrence / (end - start)
    steps = np.bincount(start, per_character, n_characters + 1) - np.bincount(end, per_character, n_characters + 1)
    return np.cumsum(steps)[:-1]


def _strongest_words(text: str, characters: NDArray[np.float64]) -> list[WordScore]:
    """Return the words with the largest scores, in the order of the text."""
    spans: list[tuple[int, int]] = []
    for match in re.finditer(r"\w+", text):
        first, last = match.span()
        is_long = last - first > MAX_WORD_CHARACTERS
        spans += [(at, at + 1) for at in range(first, last)] if is_long else [(first, last)]
    if not spans:
        return []
    start, end = np.array(spans).T
    total = np.concatenate([[0], np.cumsum(characters)])
    scores = total[end] - total[start]
    largest = np.abs(scores).max()
    if largest < np.finfo(np.float32).eps:
        return []
    scores = np.round(scores / largest, 3)
    strongest = np.argsort(-np.abs(scores), kind="stable")[:MAX_WORDS]
    chosen = np.sort(strongest[np.abs(scores[strongest]) >= MIN_SHARE])
    return [WordScore(int(start[at]), int(end[at]), float(scores[at])) for at in chosen]
