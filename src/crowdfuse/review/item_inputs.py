"""What the review page shows about an item: its image or feature values, and the weights of its labels."""

from __future__ import annotations

import io
import re
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crowdfuse.encoders.images import DEFAULT_IMAGE_SIZE
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.persistence import load
from crowdfuse.estimators.word_scores import TextScores, score_words
from crowdfuse.io.features import LoadedInputs, read_features, read_image
from crowdfuse.io.gold import column_beside
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.images import find_images, image_names, open_upright, unreadable_message
from crowdfuse.io.picture_folder import read_picture_folder
from crowdfuse.io.texts import Texts
from crowdfuse.report.word_highlights import highlighted_parts, list_words
from crowdfuse.review.run_folder import RunFolder
from crowdfuse.runs.job import resolve_job_path
from crowdfuse.runs.job_data import read_job_inputs

MAX_SHOWN_VALUES = 40
MAX_IMAGE_SIDE_PIXELS = 1400  # larger images are sent at this size
MAX_LOSSLESS_SIDE_PIXELS = 512  # larger images are sent as JPEG
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class NoPictureError(LookupError):
    """Raised if an item has no image that can be shown. The message says why."""


class ItemInputs:
    """The inputs and the model of a run of `crowdfuse fit`, for display on the review page.

    Parameters
    ----------
    run : RunFolder
        The run folder.

    Attributes
    ----------
    notes : list of str
        Messages for the reviewer about inputs that are missing or have changed.
    folder : Path or None
        The folder of images that the model reads; None if the inputs are not images in a folder.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.notes: list[str] = []
        self.folder: Path | None = None
        self._files: list[Path] | None = None  # the image of each item; the model may read features of it instead
        self._loaded: LoadedInputs | None = None
        self._scores: dict[int, TextScores | None] = {}
        self._lock = threading.Lock()
        path = resolve_job_path(run.path, str(run.job.inputs_path))
        if run.job.inputs is None:
            self._load_features(path)
        elif path.is_dir() or (not path.exists() and not path.suffix):
            self.folder = path
            self._files = _find_files(path, run.items)
            missing = sum(not file.is_file() for file in self._files)
            if missing:
                self.notes.append(f"{missing:,} of {len(self._files):,} images are not in {path}")
        else:
            self._load_features(path)
            pictures = read_picture_folder(path)
            self._files = None if pictures is None else _find_files(pictures, run.items)
        self._classifier = self._load_model()

    def describe(self, index: int) -> dict[str, Any]:
        """Return a description of the input of an item, for display.

        Parameters
        ----------
        index : int
            Position of the item in `run.items`.

        Returns
        -------
        description : dict of str to Any
            The value of `kind` is "image", "values", "text" or "missing". The other keys depend on this value:

            - "image": `file` (the path) and `exists` (whether the image exists).
            - "values": `values` (at most 40 pairs of a feature name and a value) and `n_more` (the number of further
              features).
            - "text": `predicted` (the predicted class), `words_for` and `words_against` (lists of the words that speak
              most for and against the predicted class), and `parts` (pieces of the text, each with the strength of its
              highlight: 1 to 3 if the piece speaks for the predicted class, -1 to -3 if it speaks against the class,
              otherwise 0). If it is unknown how much each word contributes to the prediction, `predicted` is None, both
              lists are empty, and nothing is highlighted.
            - "missing": `reason` (why there is no input).
        """
        file = self._image_file(index)
        if file is not None:
            return {"kind": "image", "file": _printable_path(file), "exists": file.is_file()}
        row = self._row(index)
        if self._loaded is None or row is None:
            return {"kind": "missing", "reason": f"{self.run.job.inputs_path} has no readable values for this item"}
        if isinstance(self._loaded.inputs, Texts):
            return {"kind": "text"} | self._describe_text(index, _printable_text(row))
        if _is_picture(row):
            return {"kind": "image", "file": str(self.run.job.inputs_path), "exists": True}
        flat = row.ravel()
        names = self._loaded.columns or [f"{number:,}" for number in range(1, len(flat) + 1)]
        values = [[name, float(value)] for name, value in zip(names, flat[:MAX_SHOWN_VALUES], strict=False)]
        return {"kind": "values", "values": values, "n_more": max(0, len(flat) - MAX_SHOWN_VALUES)}

    def has_picture(self, index: int) -> bool:
        """Return whether the input of an item is an image, and the image exists.

        Parameters
        ----------
        index : int
            Position of the item in `run.items`.

        Returns
        -------
        has_picture : bool
        """
        description = self.describe(index)
        return description["kind"] == "image" and bool(description["exists"])

    def picture(self, index: int) -> tuple[bytes, str]:
        """Return the image of an item as a PNG or JPEG file, so that any browser can show it.

        The image is always encoded again. The bytes of the original file are never returned.

        Parameters
        ----------
        index : int
            Position of the item in `run.items`.

        Returns
        -------
        data : bytes
            The encoded image.
        media_type : str
            "image/png" or "image/jpeg".

        Raises
        ------
        NoPictureError
            If the item has no image, or its file does not exist or cannot be read.
        """
        file = self._image_file(index)
        if file is not None:
            if not file.is_file():
                raise NoPictureError(f"{_printable_path(file)} does not exist")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", Image.DecompressionBombWarning)
                    image = open_upright(file, MAX_IMAGE_SIDE_PIXELS).convert("RGB")
            except Exception as error:  # Pillow's readers raise errors of any type
                raise NoPictureError(unreadable_message(_printable_path(file), error)) from error
        else:
            row = self._row(index)
            if row is None or not _is_picture(row):
                raise NoPictureError("this item has no image")
            image = _as_image(row)
        image.thumbnail((MAX_IMAGE_SIDE_PIXELS, MAX_IMAGE_SIDE_PIXELS))
        data = io.BytesIO()
        if max(image.size) <= MAX_LOSSLESS_SIDE_PIXELS:
            image.save(data, "PNG")
            return data.getvalue(), "image/png"
        image.save(data, "JPEG", quality=92)
        return data.getvalue(), "image/jpeg"

    def weights(self, index: int) -> list[float] | None:
        """Return the weight that the model gives to each label of an item. The weights of an item sum to 1.

        Parameters
        ----------
        index : int
            Position of the item in `run.items`.

        Returns
        -------
        weights : list of float or None
            One weight per label, in the order of the labels. None if the model or the input is missing.
        """
        if self._classifier is None:
            return None
        x = self._model_input(index)
        if x is None:
            return None
        try:
            with self._lock, warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # the warning is about annotators without labels in training; the notes of the run say so already
                labels = self.run.consensus.annotations[self.run.rows[index : index + 1]]
                weights = self._classifier.annotator_weights(x, labels, sparse=True)
        except ValueError:  # the inputs no longer have the shape of the training inputs
            return None
        return [float(value) for value in weights.data]

    def _image_file(self, index: int) -> Path | None:
        """Return the image file of an item. None if the model reads features and there is no image of the item."""
        if self._files is None or (self.folder is None and not self._files[index].is_file()):
            return None
        return self._files[index]

    def _model_input(self, index: int) -> Any:
        """Return the input of an item as an array or as inputs of one row; None if it cannot be read."""
        if self.folder is None:
            row = self._row(index)
            if row is not None and self._loaded is not None and not self._loaded.inputs.in_memory:
                return self._loaded.inputs.take(self._rows[index : index + 1])
            return None if row is None else Texts([row]) if isinstance(row, str) else row[None]
        assert self._classifier is not None
        assert self._files is not None
        if self._classifier.encoder_ is not None:
            return ImageFiles([self._files[index]], DEFAULT_IMAGE_SIZE)
        try:
            return read_image(self._files[index], self._classifier.input_shape_)[None]
        except (OSError, ValueError):
            return None

    def _row(self, index: int) -> Any:
        """Return the text of an item, or its values as a dense array; None if it has no values."""
        if self._loaded is None or self._rows[index] < 0:
            return None
        with self._lock:
            if not self._loaded.inputs.in_memory:
                return self._loaded.inputs.rows(self._rows[index : index + 1])[0].astype(np.uint8)
            row = self._loaded.inputs.values[self._rows[index] : self._rows[index] + 1]
            return row.toarray()[0] if self._loaded.inputs.is_sparse else np.asarray(row)[0]

    def _describe_text(self, index: int, text: str) -> dict[str, Any]:
        """Return a text in highlighted parts, and the words that speak most for and against the predicted class."""
        scores = self._word_scores(index)
        words = [] if scores is None else scores.words
        return {
            "parts": highlighted_parts(text, words, 0, len(text)),
            "predicted": str(scores.predicted) if scores is not None and words else None,
            "words_for": list_words(text, words, 1),
            "words_against": list_words(text, words, -1),
        }

    def _word_scores(self, index: int) -> TextScores | None:
        """Return which words of a text speak for and against the predicted class, if any; computed once."""
        if index not in self._scores:
            with self._lock:
                found = None if self._classifier is None else score_words(self._classifier, [self._text(index)])
            self._scores[index] = None if found is None else found[0]
        return self._scores[index]

    def _text(self, index: int) -> str:
        """Return the text of an item."""
        assert self._loaded is not None
        return str(self._loaded.inputs.values[self._rows[index]])

    def _load_features(self, path: Path) -> None:
        """Load the table or array of inputs; add a note if it cannot be read or has changed."""
        run = self.run
        try:
            if run.job.inputs is None:
                self._loaded = read_job_inputs(replace(run.job, labels=str(path)))
            else:
                self._loaded = read_features(
                    path, item=column_beside(path, run.job.reading.item), text=run.job.reading.text
                )
            self._rows = self._loaded.rows_of(np.array(run.items, dtype=object))
        except (OSError, ValueError) as error:
            self._loaded = None
            self.notes.append(f"the inputs cannot be read ({error}), so only names and labels of items are shown")
            return
        if self._loaded.fingerprint() != run.hashes.get("inputs"):
            self.notes.append(
                f"{path} has changed since the run was fitted, so the values shown may differ from the values in "
                "training"
            )

    def _load_model(self) -> CrowdClassifier | None:
        """Return the model of the run; None, with a note, if it cannot be loaded."""
        try:
            classifier = load(self.run.path / "model")
        except (OSError, ValueError) as error:
            self.notes.append(f"the model cannot be loaded ({error}), so weights are not shown")
            return None
        if hasattr(classifier, "feature_names_in_"):
            # the columns are already in the right order, so scikit-learn's warning about missing names is not needed
            del classifier.feature_names_in_
        return classifier


def _find_files(folder: Path, items: list[str]) -> list[Path]:
    """Return the file of each item. An item name is a path relative to the folder, with or without extension."""
    by_name: dict[str, Path] = {}
    if folder.is_dir():
        try:
            paths = find_images(folder)
        except ValueError:  # the folder no longer contains images
            paths = []
        if paths:
            names, short_names = image_names(folder, paths)
            by_name = dict(zip(short_names, paths, strict=True)) | dict(zip(names, paths, strict=True))
    return [by_name.get(item, folder / item) for item in items]


def _printable_path(file: Path) -> str:
    """Return a path as text that can be encoded, even if its bytes are not valid text."""
    return str(file).encode(errors="surrogateescape").decode(errors="replace")


def _printable_text(text: str) -> str:
    """Return a text of the same length without lone surrogates, which cannot be encoded."""
    return LONE_SURROGATE.sub("\ufffd", text)


def _is_picture(row: NDArray[Any]) -> bool:
    """Return whether values have the shape of an image: (height, width), or (1 or 3, height, width)."""
    return row.ndim == 2 or (row.ndim == 3 and row.shape[0] in (1, 3))


def _as_image(row: NDArray[Any]) -> Image.Image:
    """Return values as an image. Values that are not bytes are scaled: the lowest is black, the highest white."""
    if row.dtype != np.uint8:
        low, high = float(row.min()), float(row.max())
        row = ((row - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
    if row.ndim == 3:
        row = row[0] if row.shape[0] == 1 else np.moveaxis(row, 0, 2)
    return Image.fromarray(np.ascontiguousarray(row)).convert("RGB")
