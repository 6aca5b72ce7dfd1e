"""Save and load a fitted encoder: `encoder.json` and `encoder.safetensors`, without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from crowdfuse.encoders.base import Encoder, EncoderState
from crowdfuse.encoders.images import ImageEncoder
from crowdfuse.encoders.sentence import SentenceEncoder
from crowdfuse.encoders.text_function import TextFunctionEncoder
from crowdfuse.encoders.tfidf import TfidfEncoder
from crowdfuse.io.files import atomic_file, sha256, write_json

SETTINGS_FILE, ARRAYS_FILE = "encoder.json", "encoder.safetensors"
ENCODER_TYPES: dict[str, type[Encoder]] = {
    kind.type_name: kind for kind in (TfidfEncoder, SentenceEncoder, TextFunctionEncoder, ImageEncoder)
}


def save_encoder(encoder: Encoder, folder: Path) -> dict[str, str]:
    """Write an encoder into a model folder.

    Parameters
    ----------
    encoder : Encoder
        A fitted encoder.
    folder : Path
        The model folder, which exists.

    Returns
    -------
    hashes : dict of str to str
        SHA-256 of each file, by file name. Pass them to `load_encoder`, which checks the files.
    """
    state = encoder.state()
    write_json(folder / SETTINGS_FILE, {"type": encoder.type_name, "settings": state.settings})
    with atomic_file(folder / ARRAYS_FILE) as temporary:
        save_file(state.arrays, temporary)
    return {name: sha256(folder / name) for name in (SETTINGS_FILE, ARRAYS_FILE)}


def load_encoder(folder: Path, hashes: dict[str, str]) -> Encoder:
    """Read an encoder from a model folder.

    Parameters
    ----------
    folder : Path
        The model folder.
    hashes : dict of str to str
        Return value of `save_encoder`.

    Returns
    -------
    encoder : Encoder

    Raises
    ------
    ValueError
        If a file is missing or damaged.
    """
    for name, expected in hashes.items():
        if not (folder / name).exists():
            raise ValueError(f"{folder / name} is missing; copy the whole model folder again, or save the model again")
        if sha256(folder / name) != expected:
            raise ValueError(
                f"{folder / name} is damaged: its content has changed since it was saved; copy it again, or save the "
                "model again"
            )
    content: dict[str, Any] = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    return ENCODER_TYPES[content["type"]].from_state(EncoderState(content["settings"], load_file(folder / ARRAYS_FILE)))
