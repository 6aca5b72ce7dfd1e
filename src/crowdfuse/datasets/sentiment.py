"""Sentiment polarity (Rodrigues et al., 2013): positive and negative sentences labelled by 203 annotators."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.data_folder import data_folder, other_data_sets_advice
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.ids import format_count, format_names, positions_of

LABELS, LABELLED, EXTERNAL_TEXT_FILE = "labels.csv", "train_text.csv", "test_text.csv"
MAX_TFIDF_FEATURES = 5_000


@dataclass(frozen=True)
class Sentiment:
    """Sentences with annotators' labels and gold labels, and sentences from another source with gold labels only.

    Parameters
    ----------
    texts : list of str
        Sentences that annotators labelled.
    annotations : Annotations
        Labels of these sentences. Item i of the annotations is `texts[i]`.
    y : ndarray of shape (n_texts,), int64
        Gold label of each sentence.
    external_texts : list of str
        Sentences from another source, without annotators' labels.
    external_y : ndarray of shape (n_external_texts,), int64
        Gold label of each sentence in `external_texts`.
    """

    texts: list[str]
    annotations: Annotations
    y: NDArray[np.int64]
    external_texts: list[str]
    external_y: NDArray[np.int64]

    def split(self, seed: int, share: float = 0.2, words: int = MAX_TFIDF_FEATURES) -> CrowdDataset:
        """Hold out some of the labelled sentences at random, and compute tf-idf features.

        Parameters
        ----------
        seed : int
            Seed of the split.
        share : float, default=0.2
            Share of the sentences to hold out as the test set.
        words : int, default=5000
            Maximum number of features. Features are single words and pairs of words from the training sentences.

        Returns
        -------
        data : CrowdDataset
            The attribute `external_test` has the features and gold labels of the sentences from another source.
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
    """Load the sentiment polarity sentences.

    Parameters
    ----------
    folder : Path, default=None
        The data folder; by default the value of the environment variable ``CROWDFUSE_DATA``. Its subfolder
        ``sentiment_polarity`` has ``labels.csv``, ``train_text.csv`` and ``test_text.csv``.

    Returns
    -------
    data : Sentiment

    Raises
    ------
    FileNotFoundError
        If files are missing; the message says which files are expected.
    ValueError
        If a file is damaged; the message says where, and what is wrong.

    References
    ----------
    F. Rodrigues, F. Pereira and B. Ribeiro, "Learning from multiple annotators: distinguishing good from random
    labelers", Pattern Recognition Letters, 2013.
    """
    holds = f"sentiment_polarity/ with {LABELS}, {LABELLED} and {EXTERNAL_TEXT_FILE}"
    place = data_folder(folder, "sentiment", holds) / "sentiment_polarity"
    for name in (LABELS, LABELLED, EXTERNAL_TEXT_FILE):
        if not (place / name).exists():
            raise FileNotFoundError(
                f"{place / name} is missing; provide {holds}, {other_data_sets_advice('sentiment')}"
            )
    labelled = _read(place / LABELLED, ("task", "text", "gold"))
    external = _read(place / EXTERNAL_TEXT_FILE, ("text", "gold"))
    tasks = _numbers(labelled["task"], "task", place / LABELLED)
    y = _numbers(labelled["gold"], "gold", place / LABELLED)
    ann = Annotations.read(place / LABELS)
    without_text = ann.items[positions_of(ann.items, tasks) < 0]
    if len(without_text):
        raise ValueError(
            f"{place / LABELLED} has no text for {format_count(len(without_text), 'labelled task')}: "
            f"{format_names(without_text)}"
        )
    external_y = _numbers(external["gold"], "gold", place / EXTERNAL_TEXT_FILE)
    return Sentiment(labelled["text"], ann.align(tasks), y, external["text"], external_y)


def _read(path: Path, columns: tuple[str, ...]) -> dict[str, list[str]]:
    """Columns of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        lacking = [name for name in columns if name not in (reader.fieldnames or ())]
        if lacking:
            raise ValueError(f"{path} must have the columns {', '.join(columns)}, but has no {', '.join(lacking)}")
        rows = list(reader)
    if not rows:
        raise ValueError(f"{path} has a header but no rows")
    return {name: [row[name] or "" for row in rows] for name in columns}


def _numbers(values: list[str], column: str, path: Path) -> NDArray[np.int64]:
    """Integers from text."""
    try:
        return np.array([int(value) for value in values], np.int64)
    except ValueError as error:
        raise ValueError(f"{path}: {column} must hold integers: {error}") from error
