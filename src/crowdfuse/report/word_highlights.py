"""How strongly words of a text are highlighted, and which are listed below it: in reports and on the review page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from crowdfuse.estimators.word_scores import WordScore

MAX_LISTED_WORDS = 8  # listed below a text, for and against the predicted class


def highlight_strength(score: float) -> int:
    """Return how strongly a word with this score is highlighted: -3 to 3, below 0 if it speaks against the prediction.

    >>> highlight_strength(0.5), highlight_strength(-1)
    (2, -3)
    """
    strength = math.ceil(3 * abs(score))
    return strength if score > 0 else -strength


def highlighted_parts(text: str, words: Sequence[WordScore], start: int, end: int) -> list[tuple[str, int]]:
    """Return a part of a text in pieces, each with the strength of its highlight: -3 to 3, 0 for none.

    >>> highlighted_parts("a good film", [WordScore(2, 6, 1.0)], 0, 11)
    [('a ', 0), ('good', 3), (' film', 0)]
    """
    parts, at = [], start
    for word in words:
        first, last = max(word.start, start), min(word.end, end)
        if first < last:
            parts += [(text[at:first], 0), (text[first:last], highlight_strength(word.score))]
            at = last
    return [part for part in (*parts, (text[at:end], 0)) if part[0]]


def list_words(text: str, words: Sequence[WordScore], sign: int) -> list[str]:
    """Return the distinct words whose score has the given sign (1 or -1), the strongest first, at most 8.

    >>> list_words("Good bad good", [WordScore(0, 4, 0.5), WordScore(5, 8, -1), WordScore(9, 13, 0.5)], 1)
    ['good']
    """
    chosen = sorted((word for word in words if word.score * sign > 0), key=lambda word: -abs(word.score))
    return list(dict.fromkeys(text[word.start : word.end].lower() for word in chosen))[:MAX_LISTED_WORDS]
