"""Tf-idf of words and of character sequences, with scikit-learn's vectorizers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from crowdfuse.encoders.base import Encoder, EncoderState, FeatureOccurrences
from crowdfuse.io.inputs import Inputs

MAX_CHARACTERS = 50_000  # read per text; the rest of a longer text is not used
WORD_SETTINGS: dict[str, Any] = {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
CHARACTER_SETTINGS: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (2, 4)}


class TfidfEncoder(Encoder):
    """Tf-idf weights of words, pairs of words, and sequences of two to four characters.

    A term is a word, a pair of words, or a character sequence. The weight of a term in a text is ``1 + log(count)``
    times the inverse document frequency of the term. In each row, word weights and character-sequence weights are
    separately scaled to Euclidean norm 1. Upper and lower case are not distinguished. Only the first 50,000 characters
    of a text are read.

    Parameters
    ----------
    n_words : int, default=5000
        Maximum number of words and pairs of words. The most frequent are kept.
    n_character_sequences : int, default=5000
        Maximum number of character sequences. The most frequent are kept. A sequence does not span several words.

    See Also
    --------
    sklearn.feature_extraction.text.TfidfVectorizer : Computes the weights.

    Examples
    --------
    >>> from crowdfuse.io.texts import Texts
    >>> encoder = TfidfEncoder(n_words=3, n_character_sequences=2).fit(Texts(["a good film", "a bad film"]))
    >>> encoder.encode(Texts(["good", ""])).shape
    (2, 5)
    """

    type_name: ClassVar[str] = "tfidf"
    reads: ClassVar[str] = "texts"

    def __init__(self, n_words: int = 5_000, n_character_sequences: int = 5_000) -> None:
        self.n_words, self.n_character_sequences = n_words, n_character_sequences
        self._vectorizers: list[Any] = []

    def fit(self, inputs: Inputs) -> Self:
        """Choose the words, pairs of words and character sequences, and compute their inverse document frequencies.

        Parameters
        ----------
        inputs : Texts
            The texts of the training items.

        Returns
        -------
        self : TfidfEncoder

        Raises
        ------
        ValueError
            If no text has a word or a character sequence.
        """
        texts = _cut(inputs)
        parts = ((WORD_SETTINGS, self.n_words), (CHARACTER_SETTINGS, self.n_character_sequences))
        self._vectorizers = []
        for settings, n_terms in parts:
            vectorizer = _make_vectorizer(settings, max_features=n_terms)
            analyze = vectorizer.build_analyzer()
            if any(analyze(text) for text in texts):  # else scikit-learn raises an error
                self._vectorizers.append(vectorizer.fit(texts))
        if not self._vectorizers:
            raise ValueError(
                f"none of the {len(inputs):,} training texts contains a word; check that you chose the right column"
            )
        return self

    def encode(self, inputs: Inputs, *, verbose: int = 0) -> Any:
        """Return the tf-idf weights of the terms in each text.

        Parameters
        ----------
        inputs : Texts
            The texts.
        verbose : int, default=0
            Not used.

        Returns
        -------
        rows : csr_matrix of shape (n_items, n_terms), float32
            One row per text. The columns are the words and pairs of words, followed by the character sequences. A text
            without any term that `fit` chose has only zeros in its row.
        """
        texts = _cut(inputs)
        return sparse.hstack([part.transform(texts) for part in self._vectorizers], format="csr", dtype=np.float32)

    def locate_features(self, text: str) -> FeatureOccurrences:
        """Return the places in a text where the terms occur: words, pairs of words and character sequences.

        Parameters
        ----------
        text : str
            A text.

        Returns
        -------
        occurrences : FeatureOccurrences
            All occurrences of the terms that `fit` chose, in the first 50,000 characters of the text.

        Examples
        --------
        >>> from crowdfuse.io.texts import Texts
        >>> encoder = TfidfEncoder(n_words=2, n_character_sequences=1).fit(Texts(["a good film", "a film"]))
        >>> found = encoder.locate_features("Film!")
        >>> encoder.terms[found.column].tolist(), found.start.tolist(), found.end.tolist()
        (['film'], [0], [4])
        """
        text = text[:MAX_CHARACTERS]
        # for each character of the lower-case text, which may be longer, its position in the original text
        position = np.repeat(np.arange(len(text) + 1), [*(len(character.lower()) for character in text), 1])
        lower, found, offset = text.lower(), [], 0
        for part in self._vectorizers:
            spans = _word_spans(lower) if part.analyzer == "word" else _character_spans(lower)
            columns = _columns_of_terms(part)
            found += [(columns[term] + offset, start, end) for term, start, end in spans if term in columns]
            offset += len(columns)
        column, start, end = np.array(found, np.int64).reshape(-1, 3).T
        return FeatureOccurrences(column, position[start], position[end - 1] + 1)

    @property
    def terms(self) -> NDArray[Any]:
        """The term of each column of the encoded texts. In character sequences, a space stands for a word boundary."""
        return np.concatenate([part.get_feature_names_out() for part in self._vectorizers]).astype(object)

    def describe(self) -> str:
        """Return the name of the encoder, and how many words and how many character sequences it uses.

        Returns
        -------
        description : str
        """
        counts = {part.analyzer: len(part.vocabulary_) for part in self._vectorizers}
        return f"tf-idf ({counts.get('word', 0):,} words, {counts.get('char_wb', 0):,} character sequences)"

    def state(self) -> EncoderState:
        """Return the terms and their inverse document frequencies.

        Returns
        -------
        state : EncoderState
        """
        parts = {part.analyzer: part for part in self._vectorizers}
        return EncoderState(
            {
                "n_words": self.n_words,
                "n_character_sequences": self.n_character_sequences,
                "terms": {name: part.get_feature_names_out().tolist() for name, part in parts.items()},
            },
            {f"idf_{name}": np.asarray(part.idf_, np.float32) for name, part in parts.items()},
        )

    @classmethod
    def from_state(cls, state: EncoderState) -> Self:
        """Create the fitted encoder from its saved state.

        Parameters
        ----------
        state : EncoderState
            Return value of the method `state`.

        Returns
        -------
        encoder : TfidfEncoder
        """
        encoder = cls(state.settings["n_words"], state.settings["n_character_sequences"])
        for settings in (WORD_SETTINGS, CHARACTER_SETTINGS):
            name = str(settings["analyzer"])
            if name in state.settings["terms"]:
                vectorizer = _make_vectorizer(settings, vocabulary=state.settings["terms"][name])
                vectorizer.idf_ = state.arrays[f"idf_{name}"]
                encoder._vectorizers.append(vectorizer)
        return encoder


def _make_vectorizer(settings: dict[str, Any], **others: Any) -> Any:
    """Return a vectorizer that has not been fitted."""
    return TfidfVectorizer(**settings, **others, sublinear_tf=True, dtype=np.float32)


def _cut(inputs: Inputs) -> list[str]:
    """Return the first characters of each text."""
    return [text[:MAX_CHARACTERS] for text in inputs.values]


def _columns_of_terms(vectorizer: Any) -> dict[str, int]:
    """Return the column of each term, also of a vectorizer that was loaded and has not been used yet."""
    return dict(zip(vectorizer.get_feature_names_out().tolist(), range(len(vectorizer.idf_)), strict=True))


def _word_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words and the pairs of words of a text, as the vectorizer finds them, with start and end."""
    words = [(match[0], match.start(), match.end()) for match in re.finditer(WORD_SETTINGS["token_pattern"], text)]
    yield from words
    for (first, start, _), (second, _, end) in pairwise(words):
        yield f"{first} {second}", start, end


def _character_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the character sequences of a text, as the vectorizer finds them, with start and end without spaces."""
    shortest, longest = CHARACTER_SETTINGS["ngram_range"]
    for match in re.finditer(r"\S+", text):
        padded, first, last = f" {match[0]} ", match.start(), match.end()
        for size in range(shortest, longest + 1):
            for at in range(max(1, len(padded) - size + 1)):
                yield padded[at : at + size], max(first, first + at - 1), min(last, first + at - 1 + size)
            if size >= len(padded):  # a short word is one sequence
                break
