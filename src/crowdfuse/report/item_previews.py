"""Previews of items: a thumbnail of an image, the text, or the most unusual features of a row of numbers."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crowdfuse.encoders.base import EncodedInputs
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.word_scores import TextScores, score_words
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.images import IMAGE_ENDINGS, open_upright
from crowdfuse.io.inputs import Inputs
from crowdfuse.io.texts import Texts
from crowdfuse.labels.ids import IntArray
from crowdfuse.report.printable import printable
from crowdfuse.report.word_highlights import highlighted_parts, list_words

THUMBNAIL_SIDES_PIXELS = (320, 192, 96, 64, 48, 32)  # tried in this order, until all images fit in the page
MAX_LISTED_FEATURES = 4
MAX_TEXT_START, MAX_TEXT = 280, 4_000  # characters shown at once, and after a click
MAX_SAMPLED_ROWS = 5_000  # rows that mean and standard deviation are estimated from
MAX_BLOCK_VALUES = 4_000_000  # numbers read at a time

ItemPreview = dict[str, Any]
"""One of `image` (a data URI), `missing` (the file that cannot be shown), `text` and `features`; or empty.

`text` is a `TextPreview`. `features` holds [name, value, deviation from the mean in standard deviations].
"""


class TextPreview(NamedTuple):
    """A text for display, split into parts with and without highlights.

    Attributes
    ----------
    beginning : list of tuple of str and int
        The parts of the beginning of the text. The number of a part is the strength of its highlight: 1 to 3 if the
        part is evidence for the predicted class, -1 to -3 if it is evidence against this class, and 0 otherwise.
    rest : list of tuple of str and int
        The parts of the rest of the text, up to 4,000 characters in total; it may be empty.
    predicted : str or None
        The predicted class; None if the words have no scores.
    words_for : list of str
        The words that are the strongest evidence for the predicted class, the strongest first.
    words_against : list of str
        The words that are the strongest evidence against the predicted class, the strongest first.
    """

    beginning: list[tuple[str, int]]
    rest: list[tuple[str, int]]
    predicted: str | None = None
    words_for: Sequence[str] = ()
    words_against: Sequence[str] = ()


def preview_of_file(path: Path, side: int) -> ItemPreview:
    """Return a thumbnail of at most `side` pixels per side. If the file cannot be read, return its name instead."""
    try:
        return {"image": _data_uri(open_upright(path, side).convert("RGB"), side)}
    except Exception:  # Pillow's readers raise many kinds of errors on damaged files
        return {"missing": printable(path)}


def image_file_of(folder: Path, item: str) -> Path | None:
    """Return the image file of an item. The id of the item is the file's path in the folder; the extension is optional.

    Return None for an id that points outside the folder, because files there do not belong to the run.
    """
    path = folder / item
    if Path(item).is_absolute() or ".." in Path(item).parts:
        return None
    for ending in ("", *sorted(IMAGE_ENDINGS)):
        for candidate in (folder / f"{item}{ending}", folder / f"{item}{ending.upper()}"):
            if candidate.is_file():
                return candidate
    return path


def previews_of_inputs(
    inputs: Inputs,
    rows: IntArray,
    side: int,
    feature_names: Sequence[str] | None = None,
    classifier: CrowdClassifier | None = None,
) -> list[ItemPreview]:
    """Return the previews of the given rows.

    Parameters
    ----------
    inputs : Inputs
        Inputs of all items. Items of shape (height, width), (1, height, width) or (3, height, width) are images.
    rows : ndarray of shape (n_rows,)
        Rows to preview.
    side : int
        Largest width and height of a thumbnail in pixels.
    feature_names : sequence of str, default=None
        Names of the columns. By default, "column 0", "column 1" and so on.
    classifier : CrowdClassifier, default=None
        The fitted classifier. If it reads texts by their words, previews of texts show which words are evidence for and
        against the predicted class.

    Returns
    -------
    list of dict
        One preview per row. A preview is empty if the inputs are neither images nor texts nor rows of numbers. For
        encoded inputs, the preview shows the original text or image.
    """
    if isinstance(inputs, EncodedInputs):
        return previews_of_inputs(inputs.raw, rows, side, classifier=classifier)
    if isinstance(inputs, Texts):
        return [{"text": preview} for preview in _text_previews(inputs.texts[rows], classifier)]
    if isinstance(inputs, ImageFiles):
        return [preview_of_file(Path(inputs.paths[row]), side) for row in rows]
    if not len(rows):
        return []
    shape = inputs.item_shape
    if len(shape) == 1:
        return _outstanding_features(inputs, rows, feature_names)
    if len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3)):
        return [{"image": _data_uri(image, side)} for image in _images(inputs, rows)]
    return [{} for _ in rows]


def _text_previews(texts: Iterable[str], classifier: CrowdClassifier | None) -> list[TextPreview]:
    """Return the previews of texts, with the words that are evidence for and against the predicted class.

    >>> [preview] = _text_previews(["word " * 100], None)
    >>> [len(preview.beginning[0][0]), len(preview.rest[0][0])]
    [279, 220]
    """
    shown = [printable(" ".join(text.split())) for text in texts]
    scores = None if classifier is None else score_words(classifier, shown)
    return [_text_preview(text, None if scores is None else scores[at]) for at, text in enumerate(shown)]


def _text_preview(text: str, scores: TextScores | None) -> TextPreview:
    """Return the preview of a text, cut at a space if there is one."""
    at = len(text)
    if len(text) > MAX_TEXT_START:
        space = text.rfind(" ", MAX_TEXT_START // 2, MAX_TEXT_START)
        at = MAX_TEXT_START if space < 0 else space
    words = [] if scores is None else [word for word in scores.words if word.end <= MAX_TEXT]
    rest = highlighted_parts(text, words, at, min(len(text), MAX_TEXT)) + (
        [(" ...", 0)] if len(text) > MAX_TEXT else []
    )
    beginning = highlighted_parts(text, words, 0, at)
    if scores is None or not scores.words:
        return TextPreview(beginning, rest)
    listed = [list_words(text, scores.words, sign) for sign in (1, -1)]
    return TextPreview(beginning, rest, printable(scores.predicted), *listed)


def _images(inputs: Inputs, rows: IntArray) -> list[Image.Image]:
    """Return rows as RGB images. If values are not bytes, they are scaled to the range of these rows."""
    pixels = inputs.rows(rows)
    if getattr(inputs.values, "dtype", None) != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = (pixels - low) * (255 / (high - low) if high > low else 0)
    images = pixels.round().astype(np.uint8).reshape(len(rows), -1, *inputs.item_shape[-2:])
    return [Image.fromarray(np.moveaxis(p, 0, 2) if len(p) == 3 else p[0]).convert("RGB") for p in images]


def _data_uri(image: Image.Image, side: int) -> str:
    """Return a JPEG data URI of at most `side` pixels per side. Small images are enlarged by a whole factor."""
    longest = max(image.size)
    if longest > side:
        image.thumbnail((side, side))
    elif side // longest > 1:
        factor = side // longest
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=72, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _outstanding_features(inputs: Inputs, rows: IntArray, feature_names: Sequence[str] | None) -> list[ItemPreview]:
    """Return the features of each row that are farthest from the mean, in standard deviations."""
    sample = np.random.default_rng(0).permutation(len(inputs))[:MAX_SAMPLED_ROWS]
    total, square = np.zeros(inputs.item_shape), np.zeros(inputs.item_shape)
    size = max(1, MAX_BLOCK_VALUES // inputs.item_shape[0])
    for start in range(0, len(sample), size):
        block = inputs.rows(sample[start : start + size]).astype(np.float64)
        total, square = total + block.sum(0), square + (block**2).sum(0)
    mean = total / len(sample)
    deviation = np.sqrt(np.maximum(square / len(sample) - mean**2, 0))
    return [_features_of_row(row, mean, deviation, feature_names) for row in inputs.rows(rows)]


def _features_of_row(
    values: NDArray[np.float32], mean: NDArray[Any], deviation: NDArray[Any], feature_names: Sequence[str] | None
) -> ItemPreview:
    """Return the preview of one row of numbers."""
    with np.errstate(invalid="ignore", divide="ignore"):
        z_score = np.where(deviation > 0, (values - mean) / deviation, 0)
    order = np.argsort(-np.abs(z_score), kind="stable")[:MAX_LISTED_FEATURES]
    return {
        "features": [
            [
                f"column {j}" if feature_names is None else printable(feature_names[j]),
                float(values[j]),
                float(z_score[j]),
            ]
            for j in order
        ]
    }
