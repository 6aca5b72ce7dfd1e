"""A fitted classifier in a folder: `model.json` and `weights.safetensors`. No pickle in or out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from crowdfuse import __version__
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import estimator_class
from crowdfuse.io.files import (
    atomic_file,
    atomic_folder,
    nonfinite_to_none,
    refuse_existing,
    refuse_foreign,
    sha256,
    write_json,
)
from crowdfuse.nets import Backbone

FORMAT = 1
SETTINGS_FILE, WEIGHTS_FILE = "model.json", "weights.safetensors"
# what belongs to a machine or a run, not to a model
NOT_SAVED = ("checkpoint", "verbose")
CUSTOM_OBJECT = "the user's own"


class DamagedModelError(ValueError):
    """A model folder that cannot be read; the message names the file."""


def save(classifier: CrowdClassifier, path: Path, *, overwrite: bool) -> None:
    """Write a fitted classifier; see `CrowdClassifier.save`."""
    refuse_existing(path, force=overwrite)
    refuse_foreign(path, SETTINGS_FILE)
    with atomic_folder(path, force=overwrite) as folder:
        # copies, since safetensors refuses layers of one's own backbone that share their weights
        state = {
            name: tensor.clone(memory_format=torch.contiguous_format)
            for name, tensor in classifier.method_.state_dict().items()
        }
        with atomic_file(folder / WEIGHTS_FILE) as temporary:
            save_file(state, temporary)
        settings = classifier.get_params() | classifier._resolved_settings()
        content: dict[str, Any] = {
            "format": FORMAT,
            "crowdfuse": __version__,
            "method": classifier.method_name,
            "settings": {name: _storable(value) for name, value in settings.items() if name not in NOT_SAVED},
            "classes": classifier.classes_.tolist(),
            "annotators": classifier.annotators_.tolist(),
            "input_shape": list(classifier.input_shape_),
            "feature_names": getattr(classifier, "feature_names_in_", np.zeros(0)).tolist(),
            "history": classifier.history_,
            "best_epoch": classifier.best_epoch_,
            "interrupted": classifier.interrupted_,
            "gold_used_for": classifier.gold_used_for_,
            "diagnostics": getattr(classifier, "diagnostics_", None),
            "weights_sha256": sha256(folder / WEIGHTS_FILE),
        }
        content = nonfinite_to_none(content)  # the digest must be of what is written
        write_json(folder / SETTINGS_FILE, {**content, "sha256": _digest(content)})


def load(path: str | Path, *, backbone: Backbone | None = None) -> CrowdClassifier:
    """Read a model folder. A backbone that is not one of ours must be given again, as it was built.

    >>> import tempfile, numpy as np, crowdfuse
    >>> X, y = np.eye(4).repeat(5, 0), np.arange(4).repeat(5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     crowdfuse.MajorityVoteClassifier(epochs=2).fit(X, y).save(f"{folder}/model")
    ...     crowdfuse.load(f"{folder}/model").classes_
    array([0, 1, 2, 3])
    """
    folder = model_folder(path)
    content = _read_settings(folder)
    weights = folder / WEIGHTS_FILE
    if not weights.exists():
        raise DamagedModelError(f"{weights} is missing")
    if sha256(weights) != content["weights_sha256"]:
        raise DamagedModelError(f"{weights} is damaged: its content is not what was saved")
    classifier = estimator_class(content["method"])(**_settings(content["settings"], backbone, folder))
    classifier.classes_ = _names(content["classes"])
    classifier.annotators_ = _names(content["annotators"])
    classifier.input_shape_ = tuple(content["input_shape"])
    classifier.n_features_in_ = int(np.prod(classifier.input_shape_))
    if content["feature_names"]:
        classifier.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    for name in ("history", "best_epoch", "interrupted", "gold_used_for"):
        setattr(classifier, f"{name}_", content[name])
    if content.get("diagnostics") is not None:
        classifier.diagnostics_ = content["diagnostics"]
    classifier.n_iter_ = max(1, len(classifier.history_))
    with torch.random.fork_rng(devices=[]):
        classifier.method_ = classifier._build(classifier._model_spec(0))
    try:
        classifier.method_.load_state_dict(load_file(weights))
    except SafetensorError as error:
        raise DamagedModelError(f"{weights} is damaged: {error}") from error
    except RuntimeError as error:
        if backbone is not None:
            raise ValueError(f"the backbone given is not the one that {folder} was trained with: {error}") from error
        raise DamagedModelError(f"{weights} does not fit the model: {error}") from error
    classifier.method_.eval()
    return classifier


def model_folder(path: str | Path) -> Path:
    """The folder itself, or the one in it: a run folder holds its model there."""
    folder = Path(path)
    return folder if (folder / SETTINGS_FILE).exists() or not (folder / "model").is_dir() else folder / "model"


def _settings(stored: dict[str, Any], backbone: Backbone | None, folder: Path) -> dict[str, Any]:
    """The settings as the classifier takes them; what could not be stored was only for training, but the backbone."""
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    if settings["backbone"] == CUSTOM_OBJECT:
        if backbone is None:
            raise ValueError(f"{folder} was trained with its own backbone: load(path, backbone=...) needs it")
        settings["backbone"] = backbone
    elif backbone is not None:
        raise ValueError(f"{folder} has the backbone {settings['backbone']!r}; leave backbone= out")
    return {name: value for name, value in settings.items() if value != CUSTOM_OBJECT}


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such model folder")
    if not path.exists():
        raise DamagedModelError(f"{path} is missing: {folder} is no model folder, or it is damaged")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stored = content.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedModelError(f"{path} is damaged: {error!r}") from error
    if content.get("format") != FORMAT:
        raise DamagedModelError(
            f"{path} is damaged, or from another version: its format is {content.get('format')!r}, this version "
            f"(crowdfuse {__version__}) reads {FORMAT}, and it was written by crowdfuse {content.get('crowdfuse')}"
        )
    if _digest(content) != stored:
        raise DamagedModelError(f"{path} is damaged: its content is not what was saved")
    return content


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _storable(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_storable(part) for part in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else CUSTOM_OBJECT


def _names(values: list[Any]) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=object if values and isinstance(values[0], str) else np.int64)
