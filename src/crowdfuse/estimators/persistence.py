"""Save and load a fitted classifier: a folder with `model.json` and `weights.safetensors`, without pickle.

A model with an encoder also has `encoder.json` and `encoder.safetensors`.
"""

from __future__ import annotations

import hashlib
import json
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from crowdfuse import __version__
from crowdfuse.encoders import Encoder, EncoderChoice
from crowdfuse.encoders.frozen import FrozenEncoder
from crowdfuse.encoders.persistence import load_encoder, save_encoder
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

FORMAT_VERSION = 3
SETTINGS_FILE, WEIGHTS_FILE = "model.json", "weights.safetensors"
# these belong to a machine or a run, not to a model
SETTINGS_NOT_SAVED = ("checkpoint", "verbose")
CUSTOM_OBJECT = "custom_object"
"""Stored in place of a setting that JSON cannot hold, such as a module."""


class DamagedModelError(ValueError):
    """A file of a model folder is missing or damaged. The error message gives the name of the file."""


class ModelFormatError(ValueError):
    """A model folder has a format that this version of crowdfuse does not read. The error message says what to do."""


def save(classifier: CrowdClassifier, path: Path, *, overwrite: bool) -> None:
    """Write a fitted classifier into a folder; see `CrowdClassifier.save`."""
    refuse_existing(path, force=overwrite)
    refuse_foreign(path, SETTINGS_FILE)
    with atomic_folder(path, force=overwrite) as folder:
        # clones, since safetensors refuses layers of a user's backbone that share their weights
        state = {
            name: tensor.clone(memory_format=torch.contiguous_format)
            for name, tensor in classifier.method_.state_dict().items()
        }
        with atomic_file(folder / WEIGHTS_FILE) as temporary:
            save_file(state, temporary)
        settings = classifier.get_params() | classifier._resolved_settings()
        content: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "crowdfuse_version": __version__,
            "method": classifier.method_name,
            "settings": {name: _storable(value) for name, value in settings.items() if name not in SETTINGS_NOT_SAVED},
            "classes": classifier.classes_.tolist(),
            "annotators": classifier.annotators_.tolist(),
            "input_shape": list(classifier.input_shape_),
            "feature_names": getattr(classifier, "feature_names_in_", np.zeros(0)).tolist(),
            "history": classifier.history_,
            "best_epoch": classifier.best_epoch_,
            "interrupted": classifier.interrupted_,
            "cut_short": classifier.cut_short_,
            "gold_used_for": classifier.gold_used_for_,
            "weights_sha256": sha256(folder / WEIGHTS_FILE),
            "encoder_sha256": None if classifier.encoder_ is None else save_encoder(classifier.encoder_, folder),
        }
        content = nonfinite_to_none(content)  # the digest is of what is written
        write_json(folder / SETTINGS_FILE, {**content, "sha256": _digest(content)})


def load(path: str | Path, *, backbone: Backbone | None = None, encoder: EncoderChoice = None) -> CrowdClassifier:
    """Read a fitted classifier from a folder that `CrowdClassifier.save` or `crowdfuse fit` wrote.

    Parameters
    ----------
    path : str or Path
        Folder that `CrowdClassifier.save` wrote (a model folder), or run folder that `crowdfuse fit` wrote. A run
        folder contains a model folder.
    backbone : nn.Module or callable, default=None
        The backbone, built in the same way as for training. Required if the model was trained with a module or callable
        as `backbone`. Not allowed if the model was trained with a name, such as "mlp".
    encoder : nn.Module or callable, default=None
        The encoder, built in the same way as for training. Required if the model was trained with a module or function
        as `encoder`. Not allowed if the model was trained with a name, such as "tfidf".

    Returns
    -------
    classifier : CrowdClassifier
        The saved estimator. Its predictions are the same as before saving, bit for bit.

    Raises
    ------
    FileNotFoundError
        If the folder `path` does not exist.
    DamagedModelError
        If a file of the model is missing or damaged. DamagedModelError is a subclass of ValueError.
    ModelFormatError
        If another version of crowdfuse wrote the folder, in a format that this version does not read. ModelFormatError
        is a subclass of ValueError.
    ValueError
        If `backbone` or `encoder` is required but missing, or is passed but not allowed, or differs from the backbone
        or encoder that was used in training.

    See Also
    --------
    CrowdClassifier.save : Write the folder.

    Examples
    --------
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
        raise DamagedModelError(f"{weights} is missing; copy the whole model folder again, or save the model again")
    if sha256(weights) != content["weights_sha256"]:
        raise DamagedModelError(
            f"{weights} is damaged: its content has changed since it was saved; copy it again, or save the model again"
        )
    classifier = estimator_class(content["method"])(**_settings(content["settings"], backbone, folder))
    classifier.classes_ = _names(content["classes"])
    classifier.annotators_ = _names(content["annotators"])
    classifier.input_shape_ = tuple(content["input_shape"])
    classifier.n_features_in_ = int(np.prod(classifier.input_shape_))
    if content["feature_names"]:
        classifier.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    classifier.history_ = content["history"]
    classifier.n_iter_ = max(1, len(classifier.history_))
    classifier.best_epoch_ = content["best_epoch"]
    classifier.interrupted_ = content["interrupted"]
    classifier.cut_short_ = content.get("cut_short", False)
    classifier.gold_used_for_ = content["gold_used_for"]
    classifier.encoder_ = _load_encoder(folder, content.get("encoder_sha256"), encoder)
    if encoder is not None:
        classifier.encoder = encoder
    seed = int(classifier.random_state) if isinstance(classifier.random_state, Integral) else 0
    with torch.random.fork_rng(devices=[]):
        classifier.method_ = classifier._build(classifier._model_spec(seed))
    _load_weights(classifier, weights, has_custom_backbone=backbone is not None)
    return classifier


def _load_weights(classifier: CrowdClassifier, weights: Path, *, has_custom_backbone: bool) -> None:
    """Load the weights into the network, and switch it to evaluation mode."""
    try:
        classifier.method_.load_state_dict(load_file(weights))
    except SafetensorError as error:
        raise DamagedModelError(f"{weights} is damaged ({error}); copy it again, or save the model again") from error
    except RuntimeError as error:
        if has_custom_backbone:
            raise ValueError(
                f"the argument backbone differs from the backbone that the model in {weights.parent} was trained with: "
                f"{error}"
            ) from error
        raise DamagedModelError(f"{weights} does not match the network in {SETTINGS_FILE}: {error}") from error
    classifier.method_.eval()


def _load_encoder(folder: Path, hashes: dict[str, str] | None, given: EncoderChoice) -> Encoder | None:
    """Return the encoder of a model, or None if it has no encoder. `given` is the user's network or function."""
    if hashes is None:
        if given is not None:
            raise ValueError(
                f"the model in {folder} was trained on numbers, without an encoder; leave out the argument encoder"
            )
        return None
    try:
        encoder = load_encoder(folder, hashes)
    except (ValueError, KeyError, OSError, SafetensorError) as error:
        raise DamagedModelError(str(error)) from error
    needs_one = isinstance(encoder, FrozenEncoder) and encoder.source is None
    if needs_one and given is None:
        raise ValueError(
            f"the model in {folder} was trained with a module or function as encoder, which is not saved; build the "
            "encoder again in the same way, and call load(path, encoder=...)"
        )
    if given is not None:
        if not isinstance(encoder, FrozenEncoder) or not needs_one:
            raise ValueError(
                f"the model in {folder} already contains its encoder, {encoder.describe()}; leave out the argument "
                "encoder"
            )
        encoder.attach(given)
    return encoder


def model_folder(path: str | Path) -> Path:
    """Return the folder that holds the model: the folder itself, or `model` in a run folder."""
    folder = Path(path)
    return folder if (folder / SETTINGS_FILE).exists() or not (folder / "model").is_dir() else folder / "model"


def _settings(stored: dict[str, Any], backbone: Backbone | None, folder: Path) -> dict[str, Any]:
    """Return the settings of the classifier. Custom objects other than the backbone matter only in training."""
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    if settings["backbone"] == CUSTOM_OBJECT:
        if backbone is None:
            raise ValueError(
                f"the model in {folder} was trained with a module or callable as backbone, which is not saved; build "
                "the backbone again in the same way, and call load(path, backbone=...)"
            )
        settings["backbone"] = backbone
    elif backbone is not None:
        raise ValueError(
            f"the model in {folder} already contains its backbone, {settings['backbone']!r}; leave out the argument "
            "backbone"
        )
    return {name: value for name, value in settings.items() if value != CUSTOM_OBJECT}


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return the content of `model.json`, after checking its hash and its format."""
    path = folder / SETTINGS_FILE
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no model folder {folder}; check the path")
    if not path.exists():
        raise DamagedModelError(
            f"{path} is missing: either {folder} is not a model folder, or the model is damaged; check the path"
        )
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stored = content.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedModelError(f"{path} is damaged ({error!r}); copy it again, or save the model again") from error
    if _digest(content) != stored:
        raise DamagedModelError(
            f"{path} is damaged: its content has changed since it was saved; copy it again, or save the model again"
        )
    _check_format(path, content)
    return content


def _check_format(path: Path, content: dict[str, Any]) -> None:
    """Raise an error if the folder has another format. Format 1 had the keys "format" and "crowdfuse"."""
    version = content.get("format_version", content.get("format"))
    if version != FORMAT_VERSION:
        writer = content.get("crowdfuse_version", content.get("crowdfuse"))
        raise ModelFormatError(
            f"{path} has format {version}, written by crowdfuse {writer}; this version (crowdfuse {__version__}) reads "
            f"format {FORMAT_VERSION} only. Train and save the model again, or load it with the version that wrote it"
        )


def _digest(content: dict[str, Any]) -> str:
    """Return the hash of the content, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _storable(value: Any) -> Any:
    """Return a setting as a value that JSON can hold; CUSTOM_OBJECT for any other object."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_storable(part) for part in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else CUSTOM_OBJECT


def _names(values: list[Any]) -> np.ndarray[Any, Any]:
    """Return class or annotator names as an array: of objects if they are strings, else of integers."""
    return np.array(values, dtype=object if values and isinstance(values[0], str) else np.int64)
