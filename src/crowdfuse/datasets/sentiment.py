"""Sentiment Polarity (Rodrigues et al., 2013): sentences of film reviews, good or bad, labelled by a crowd of 203."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.data_folder import data_folder
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count, format_names, positions_of

LABELS, LABELLED, EXTERNAL_TEXT_FILE = "labels.csv", "train_text.csv", "test_text.csv"
MAX_TFIDF_FEATURES = 5_000  # at most so many columns


@dataclass(frozen=True)
class Sentiment:
    """Sentences with labels row by row, and gold; sentences of another collection, and their gold."""

    texts: list[str]
    annotations: Annotations
    y: NDArray[np.int64]
    external_texts: list[str]
    external_y: NDArray[np.int64]

    def split(self, seed: int, share: float = 0.2, words: int = MAX_TFIDF_FEATURES) -> CrowdDataset:
        """Hold a share of the labelled sentences out by the seed, and make vectors of all.

        tf-idf of single words and of pairs, at most `words` of them, learned from the sentences to train on.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer

        shuffled = np.random.default_rng([seed, 3]).permutation(len(self.texts))
        count = round(share * len(shuffled))
        test, train = np.sort(shuffled[:count]), np.sort(shuffled[count:])
        vectors = TfidfVectorizer(
            ngram_range=(1, 2), max_features=words, sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", dtype=np.float32
        )
        texts = np.array(self.texts, object)
        X = vectors.fit_transform(texts[train]).toarray()
        return CrowdDataset(
            X,
            self.annotations[train],
            self.y[train],
            vectors.transform(texts[test]).toarray(),
            self.y[test],
            (vectors.transform(self.external_texts).toarray(), self.external_y),
        )


def load_sentiment(folder: Path | None = None) -> Sentiment:
    """Read labels and sentences below `folder`/sentiment_polarity, or below $CROWDFUSE_DATA's."""
    holds = f"sentiment_polarity/ with {LABELS}, {LABELLED} and {EXTERNAL_TEXT_FILE}"
    place = data_folder(folder, "sentiment", holds) / "sentiment_polarity"
    for name in (LABELS, LABELLED, EXTERNAL_TEXT_FILE):
        if not (place / name).exists():
            raise FileNotFoundError(f"{place / name} is not there: {holds} is needed, or leave sentiment out")
    labelled = _read(place / LABELLED, ("task", "text", "gold"))
    foreign = _read(place / EXTERNAL_TEXT_FILE, ("text", "gold"))
    tasks = _numbers(labelled["task"], "task", place / LABELLED)
    y = _numbers(labelled["gold"], "gold", place / LABELLED)
    ann = Annotations.read(place / LABELS)
    textless = ann.items[positions_of(ann.items, tasks) < 0]
    if len(textless):
        raise ValueError(
            f"{place / LABELLED} has no text for {format_count(len(textless), 'labelled task')}: "
            f"{format_names(textless)}"
        )
    foreign_y = _numbers(foreign["gold"], "gold", place / EXTERNAL_TEXT_FILE)
    return Sentiment(labelled["text"], ann.align(tasks), y, foreign["text"], foreign_y)


def _read(path: Path, columns: tuple[str, ...]) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        lacking = [name for name in columns if name not in (reader.fieldnames or ())]
        if lacking:
            raise ValueError(f"{path} needs the columns {', '.join(columns)}; {', '.join(lacking)} is not there")
        rows = list(reader)
    if not rows:
        raise ValueError(f"{path} has a header but no rows")
    return {name: [row[name] or "" for row in rows] for name in columns}


def _numbers(values: list[str], column: str, path: Path) -> NDArray[np.int64]:
    try:
        return np.array([int(value) for value in values], np.int64)
    except ValueError as error:
        raise ValueError(f"{path}: {column} must hold whole numbers: {error}") from error
