"""Choose the encoder for given inputs, fit it, and apply it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray
from torch import nn

from crowdfuse.checks.choices import did_you_mean
from crowdfuse.encoders.base import EncodedInputs, Encoder, encode_inputs
from crowdfuse.encoders.images import ImageEncoder
from crowdfuse.encoders.pretrained import PACKAGES, is_pretrained_name
from crowdfuse.encoders.sentence import SentenceEncoder
from crowdfuse.encoders.text_function import TextFunctionEncoder
from crowdfuse.encoders.tfidf import TfidfEncoder
from crowdfuse.io.inputs import Inputs, check_inputs
from crowdfuse.io.texts import Texts, as_texts, refuse_numbers

EncoderChoice = str | Encoder | nn.Module | Callable[..., Any] | None
"""A name, an encoder, a network for images, a function that encodes texts, or None."""

TEXT_ENCODER_NAMES = ("tfidf", "sentence")
SENTENCE_PREFIX = "sentence:"


def check_raw_inputs(X: Any, name: str = "X") -> Inputs:
    """Convert inputs from a user: strings become `Texts`, anything else becomes numeric `Inputs`.

    Parameters
    ----------
    X : list of str, array-like, sparse matrix or Inputs
        The inputs.
    name : str, default="X"
        Name of the inputs in error messages.

    Returns
    -------
    inputs : Inputs

    Raises
    ------
    ValueError
        If X holds neither texts nor finite numbers.

    Examples
    --------
    >>> check_raw_inputs(["one text", "another"])
    Texts(2)
    """
    texts = as_texts(X, name)
    return check_inputs(X, name) if texts is None else texts


def fit_encoder(
    choice: EncoderChoice, inputs: Inputs, rows: NDArray[Any], *, verbose: int = 0
) -> tuple[Encoder | None, Inputs]:
    """Choose and fit the encoder for training inputs, and encode all of them.

    Parameters
    ----------
    choice : str, Encoder, nn.Module, callable or None
        The setting `encoder` of a classifier.
    inputs : Inputs
        The inputs of all rows. Inputs that are already encoded keep their encoder.
    rows : ndarray
        The rows on which the encoder is fitted, as row numbers or as a mask.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    encoder : Encoder or None
        None if the inputs are numbers already.
    encoded : Inputs
        All inputs as rows of numbers.

    Raises
    ------
    ValueError
        If the encoder is unknown, cannot be loaded or reads another kind of input, or if all texts are numbers.

    Examples
    --------
    >>> import numpy as np
    >>> encoder, encoded = fit_encoder("auto", Texts(["good film", "bad film"]), np.arange(2))
    >>> encoder.type_name, len(encoded)
    ('tfidf', 2)
    """
    if isinstance(inputs, EncodedInputs):
        return inputs.encoder, inputs
    if isinstance(inputs, Texts):
        refuse_numbers(inputs, "X")
    encoder = make_encoder(choice, inputs)
    if encoder is None:
        return None, inputs
    encoder.fit(inputs.take(rows))
    return encoder, encode_inputs(encoder, inputs, verbose=verbose)


def apply_encoder(encoder: Encoder | None, inputs: Inputs, *, verbose: int = 0) -> Inputs:
    """Encode new inputs with the encoder that was fitted in training.

    Parameters
    ----------
    encoder : Encoder or None
        The encoder of the fitted model; None if the model was trained on numbers.
    inputs : Inputs
        Raw inputs, or inputs that this encoder has encoded.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    encoded : Inputs

    Raises
    ------
    ValueError
        If the model was trained on another kind of input, for example on texts instead of numbers.
    """
    if isinstance(inputs, EncodedInputs):
        if encoder is None or encoder.fingerprint != inputs.encoder.fingerprint:
            raise ValueError(
                "X was encoded by another encoder than the encoder of this model; pass the texts or images themselves"
            )
        return inputs
    is_text = isinstance(inputs, Texts)
    if encoder is None:
        if is_text:
            raise ValueError("X holds texts, but this model was trained on numbers; pass numbers, or fit it on texts")
        return inputs
    if is_text != (encoder.reads == "texts"):
        given = "X holds texts" if is_text else f"X holds numbers (rows of shape {inputs.item_shape})"
        expected = "a list of strings" if encoder.reads == "texts" else "ImageFiles or an array of images"
        raise ValueError(f"{given}, but this model was trained on {encoder.reads}; pass {expected}")
    return encode_inputs(encoder, inputs, verbose=verbose)


def make_encoder(choice: EncoderChoice, inputs: Inputs) -> Encoder | None:
    """Return a new, unfitted encoder for inputs, or None if the inputs are numbers, which need no encoder.

    Parameters
    ----------
    choice : str, Encoder, nn.Module, callable or None
        The setting `encoder` of a classifier.
    inputs : Inputs
        The inputs.

    Returns
    -------
    encoder : Encoder or None

    Raises
    ------
    ValueError
        If there is no such encoder for these inputs.
    """
    if isinstance(choice, Encoder):
        return copy.deepcopy(choice)
    if isinstance(inputs, Texts):
        return _text_encoder(choice)
    if choice is None or choice == "auto":
        return None
    if len(inputs.item_shape) < 2:
        raise ValueError(
            f"encoder={choice!r} turns texts or images into numbers, but X already holds rows of numbers; leave out "
            "encoder="
        )
    return _image_encoder(choice)


def _text_encoder(choice: Any) -> Encoder:
    """Return a new encoder for texts."""
    if choice is None:
        raise ValueError("X holds texts, which need an encoder, but encoder is None; use encoder='auto' or 'tfidf'")
    if not isinstance(choice, str):
        return TextFunctionEncoder(choice)
    if choice in ("auto", "tfidf"):
        return TfidfEncoder()
    if choice == "sentence":
        return SentenceEncoder()
    if choice.startswith(SENTENCE_PREFIX):
        return SentenceEncoder(choice.removeprefix(SENTENCE_PREFIX))
    if ":" in choice:
        return TextFunctionEncoder(choice)
    hint = did_you_mean(choice, TEXT_ENCODER_NAMES)
    raise ValueError(
        f"there is no encoder {choice!r} for texts{hint} Use tfidf, sentence, sentence:NAME (a model of "
        "sentence-transformers or a folder), or module:callable"
    )


def _image_encoder(choice: Any) -> Encoder:
    """Return a new encoder for images."""
    if isinstance(choice, str) and not is_pretrained_name(choice) and ":" not in choice:
        names = " or ".join(f"{package}/NAME" for package in PACKAGES)
        raise ValueError(f"there is no encoder {choice!r} for images. Use {names}, or module:callable")
    return ImageEncoder(choice)
