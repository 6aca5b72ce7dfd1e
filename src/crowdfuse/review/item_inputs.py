"""What can be shown of an item: its image or its values, and how much each annotator counts on it."""

from __future__ import annotations

import io
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.persistence import load
from crowdfuse.io.features import LoadedInputs, read_features, read_image
from crowdfuse.io.images import find_images, image_names, open_upright, unreadable_message
from crowdfuse.io.labels import column_beside
from crowdfuse.review.folder import RunFolder
from crowdfuse.runs.job import resolve_job_path

SHOWN_VALUES = 40  # of a row of features
MAX_IMAGE_SIDE_PIXELS = 1400  # pixels a side of an image that is sent
MAX_LOSSLESS_SIDE_PIXELS = 512  # up to here images are sent without loss


class NoPictureError(LookupError):
    """Why an item has no picture, in words."""


class ItemInputs:
    """The inputs of a run, as far as they are still there, and its model; `notes` say what is missing."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.notes: list[str] = []
        self.folder: Path | None = None
        self._loaded: LoadedInputs | None = None
        self._one_thread = threading.Lock()
        path = resolve_job_path(run.path, run.job.inputs)
        if path.is_dir() or (not path.exists() and not path.suffix):
            self.folder = path
            self._files = _find_files(path, run.items)
            missing = sum(not file.is_file() for file in self._files)
            if missing:
                self.notes.append(f"{missing:,} of {len(self._files):,} images are not below {path}")
        else:
            self._load_features(path)
        self._classifier = self._load_model()

    def describe(self, index: int) -> dict[str, Any]:
        """What stands for an item: {"kind": "image", ...}, {"kind": "values", ...} or {"kind": "nothing", ...}."""
        if self.folder is not None:
            file = self._files[index]
            return {"kind": "image", "file": _as_words(file), "found": file.is_file()}
        row = self._row(index)
        if self._loaded is None or row is None:
            return {"kind": "nothing", "why": f"{self.run.job.inputs} has no values of it that can be read"}
        if _is_picture(row):
            return {"kind": "image", "file": self.run.job.inputs, "found": True}
        flat = row.ravel()
        names = self._loaded.columns or [f"{number:,}" for number in range(1, len(flat) + 1)]
        values = [[name, float(value)] for name, value in zip(names, flat[:SHOWN_VALUES], strict=False)]
        return {"kind": "values", "values": values, "more": max(0, len(flat) - SHOWN_VALUES)}

    def has_picture(self, index: int) -> bool:
        """Whether there is an image to be seen."""
        found = self.describe(index)
        return found["kind"] == "image" and bool(found["found"])

    def picture(self, index: int) -> tuple[bytes, str]:
        """An image of the item that any browser shows, and its media type. The file itself is never sent."""
        if self.folder is not None:
            file = self._files[index]
            if not file.is_file():
                raise NoPictureError(f"{_as_words(file)} is not there")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", Image.DecompressionBombWarning)
                    image = open_upright(file, MAX_IMAGE_SIDE_PIXELS).convert("RGB")
            except Exception as error:  # Pillow's readers raise whatever they stumble over
                raise NoPictureError(unreadable_message(_as_words(file), error)) from error
        else:
            row = self._row(index)
            if row is None or not _is_picture(row):
                raise NoPictureError("this item has no picture")
            image = _as_image(row)
        image.thumbnail((MAX_IMAGE_SIDE_PIXELS, MAX_IMAGE_SIDE_PIXELS))
        data = io.BytesIO()
        if max(image.size) <= MAX_LOSSLESS_SIDE_PIXELS:
            image.save(data, "PNG")
            return data.getvalue(), "image/png"
        image.save(data, "JPEG", quality=92)
        return data.getvalue(), "image/jpeg"

    def weights(self, index: int) -> list[float] | None:
        """How much each label of an item counts there, in the order of the labels; None where that is not known."""
        said = self.run.annotations
        if self._classifier is None or said is None:
            return None
        x = self._model_input(index)
        if x is None:
            return None
        try:
            with self._one_thread, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of annotators never seen in training: the run said so
                found = self._classifier.annotator_weights(x[None], said[index : index + 1], sparse=True)
        except ValueError:  # the inputs have another shape than they had
            return None
        return [float(value) for value in found.data]

    def _model_input(self, index: int) -> NDArray[Any] | None:
        if self.folder is None:
            return self._row(index)
        assert self._classifier is not None
        try:
            return read_image(self._files[index], self._classifier.input_shape_)
        except (OSError, ValueError):
            return None

    def _row(self, index: int) -> NDArray[Any] | None:
        """The values of an item, dense."""
        if self._loaded is None or self._rows[index] < 0:
            return None
        with self._one_thread:
            row = self._loaded.inputs.values[self._rows[index] : self._rows[index] + 1]
            dense: NDArray[Any] = row.toarray()[0] if self._loaded.inputs.is_sparse else np.asarray(row)[0]
        return dense

    def _load_features(self, path: Path) -> None:
        run = self.run
        try:
            self._loaded = read_features(path, item=column_beside(path, run.job.reading.item))
            self._rows = self._loaded.rows_of(np.array(run.items, dtype=object))
        except (OSError, ValueError) as error:
            self._loaded = None
            self.notes.append(f"the inputs cannot be read ({error}): items are shown by their names and labels alone")
            return
        if self._loaded.fingerprint() != run.hashes.get("inputs"):
            self.notes.append(f"{path} has changed since the run: what is shown may not be what was trained on")

    def _load_model(self) -> CrowdClassifier | None:
        try:
            classifier = load(self.run.path / "model")
        except (OSError, ValueError) as error:
            self.notes.append(
                f"the model cannot be loaded ({error}): annotators' weights are their means over all items"
            )
            return None
        if hasattr(classifier, "feature_names_in_"):
            del classifier.feature_names_in_  # the columns are in order; scikit-learn need not warn of an array
        return classifier


def _find_files(folder: Path, items: list[str]) -> list[Path]:
    """The file of each item, by its path below the folder with or without the ending; where it ought to be if gone."""
    by_name: dict[str, Path] = {}
    if folder.is_dir():
        try:
            paths = find_images(folder)
        except ValueError:  # all of them are gone
            paths = []
        if paths:
            names, short_names = image_names(folder, paths)
            by_name = dict(zip(short_names, paths, strict=True)) | dict(zip(names, paths, strict=True))
    return [by_name.get(item, folder / item) for item in items]


def _as_words(file: Path) -> str:
    """A file's name that can be sent, even where its bytes are no text."""
    return str(file).encode(errors="surrogateescape").decode(errors="replace")


def _is_picture(row: NDArray[Any]) -> bool:
    """Whether values are laid out as an image: (height, width), or with 1 or 3 channels before that."""
    return row.ndim == 2 or (row.ndim == 3 and row.shape[0] in (1, 3))


def _as_image(row: NDArray[Any]) -> Image.Image:
    """Bytes as they are; other values from the least, black, to the greatest, white."""
    if row.dtype != np.uint8:
        low, high = float(row.min()), float(row.max())
        row = ((row - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
    if row.ndim == 3:
        row = row[0] if row.shape[0] == 1 else np.moveaxis(row, 0, 2)
    return Image.fromarray(np.ascontiguousarray(row)).convert("RGB")
