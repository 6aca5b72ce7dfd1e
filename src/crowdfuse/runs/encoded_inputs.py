"""The encoded inputs of a run, stored in its folder, so that texts and images are encoded only once per run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy import sparse

from crowdfuse.encoders.base import EncodedInputs
from crowdfuse.encoders.persistence import load_encoder, save_encoder
from crowdfuse.io.features import LoadedInputs
from crowdfuse.io.files import atomic_file
from crowdfuse.io.inputs import Inputs
from crowdfuse.io.texts import Texts

ENCODED_FOLDER = "encoded"  # the features of all items, and the encoder that made them
FEATURES_FILE = "features.safetensors"


def write_encoded(inputs: Inputs, run: Path) -> None:
    """Store encoded inputs (the features that an encoder computed from texts or images) and the encoder of a run.

    Parameters
    ----------
    inputs : Inputs
        The inputs of the network. Nothing is stored unless they are an `EncodedInputs` object.
    run : Path
        The run folder.
    """
    if not isinstance(inputs, EncodedInputs):
        return
    folder = run / ENCODED_FOLDER
    folder.mkdir(exist_ok=True)
    values = inputs.values
    names = ("data", "indices", "indptr")
    arrays = {name: getattr(values, name) for name in names} if inputs.is_sparse else {"X": values}
    content = {
        "raw": inputs.raw.fingerprint,
        "shape": list(values.shape),
        "encoder_sha256": save_encoder(inputs.encoder, folder),
    }
    with atomic_file(folder / FEATURES_FILE) as temporary:
        save_file(arrays, temporary, metadata={"encoded": json.dumps(content)})


def use_encoded(loaded: LoadedInputs, run: Path) -> LoadedInputs:
    """Replace the inputs of a run by their encoded form, if the run folder holds it.

    Parameters
    ----------
    loaded : LoadedInputs
        The inputs as read from the user's files.
    run : Path
        The run folder.

    Returns
    -------
    loaded : LoadedInputs
        A copy whose attribute `inputs` is an `EncodedInputs` object. If the run folder holds no encoded form of these
        inputs, `loaded` is returned unchanged.
    """
    path = run / ENCODED_FOLDER / FEATURES_FILE
    if not path.exists():
        return loaded
    try:
        with safe_open(path, "numpy") as file:
            content = json.loads(file.metadata()["encoded"])
            if content["raw"] != loaded.inputs.fingerprint:
                return loaded
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        encoder = load_encoder(path.parent, content["encoder_sha256"])
    except (
        SafetensorError,
        ValueError,
        KeyError,
        OSError,
    ):  # a damaged file is ignored, and the inputs are encoded again
        return loaded
    parts = (arrays.get("data"), arrays.get("indices"), arrays.get("indptr"))
    values = arrays["X"] if "X" in arrays else sparse.csr_matrix(parts, shape=content["shape"])
    return replace(loaded, inputs=EncodedInputs(values, loaded.inputs, encoder))


def are_encoded_texts(items: NDArray[Any], run: Path) -> bool:
    """Return whether the item ids of a run are the training texts themselves.

    Parameters
    ----------
    items : ndarray of shape (n_items,)
        The item ids of the run.
    run : Path
        The run folder.

    Returns
    -------
    are_texts : bool
    """
    path = run / ENCODED_FOLDER / FEATURES_FILE
    if not path.exists() or not all(isinstance(item, str) for item in items):
        return False
    with safe_open(path, "numpy") as file:
        content = json.loads(file.metadata()["encoded"])
    return bool(content["raw"] == Texts(items).fingerprint)
