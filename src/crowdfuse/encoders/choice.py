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
    """Convert inputs from a user: strings to a `Texts` object, numbers to an `Inputs` object.

    Parameters
    ----------
    X : list of str, array-like, sparse matrix or Inputs
        The inputs. An `Inputs` object (such as `Texts`) is returned unchanged.
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
    """Choose an encoder, fit it to the training items, and encode all items.

    Parameters
    ----------
    choice : str, Encoder, nn.Module, callable or None
        Which encoder to use: the value of a classifier's parameter `encoder`.
    inputs : Inputs
        The inputs of all items. `EncodedInputs` are returned unchanged, together with the encoder that computed them.
    rows : ndarray
        The items to which the encoder is fitted: row numbers, or a boolean mask over all items.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    encoder : Encoder or None
        None if no encoder is used, as for rows of numbers.
    encoded : Inputs
        All items, encoded. If no encoder is used, `inputs` unchanged.

    Raises
    ------
    ValueError
        If the encoder is unknown, cannot be loaded or does not read inputs of this kind. Also if all texts are numbers
        written as strings, such as "1.5".

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
        The encoder of the fitted model; None if the model was trained without an encoder.
    inputs : Inputs
        Inputs of the kind that the model was trained on, not encoded. `EncodedInputs` that this encoder has computed
        are returned unchanged.
    verbose : int, default=0
        1 shows progress.

    Returns
    -------
    encoded : Inputs
        The encoded inputs. If `encoder` is None, `inputs` unchanged.

    Raises
    ------
    ValueError
        If the model was trained on another kind of input, for example on texts instead of numbers, or if the inputs
        were encoded by another encoder.
    """
    if isinstance(inputs, EncodedInputs):
        if encoder is None or encoder.fingerprint != inputs.encoder.fingerprint:
            raise ValueError(
                "X was encoded by another encoder, not by the encoder of this model; pass the original texts or images"
            )
        return inputs
    is_text = isinstance(inputs, Texts)
    if encoder is None:
        if is_text:
            raise ValueError(
                "X holds texts, but this model was trained on numbers; pass numbers, or train a new model on texts"
            )
        return inputs
    if is_text != (encoder.reads == "texts"):
        given = "X holds texts" if is_text else f"X holds numbers (rows of shape {inputs.item_shape})"
        expected = "a list of strings" if encoder.reads == "texts" else "ImageFiles or an array of images"
        raise ValueError(f"{given}, but this model was trained on {encoder.reads}; pass {expected}")
    return encode_inputs(encoder, inputs, verbose=verbose)


def make_encoder(choice: EncoderChoice, inputs: Inputs) -> Encoder | None:
    """Return a new encoder for inputs, not yet fitted.

    Parameters
    ----------
    choice : str, Encoder, nn.Module, callable or None
        Which encoder to use: the value of a classifier's parameter `encoder`. An `Encoder` object is copied.
    inputs : Inputs
        The inputs to encode.

    Returns
    -------
    encoder : Encoder or None
        None if the inputs are not texts, and `choice` is either None or "auto".

    Raises
    ------
    ValueError
        If `choice` does not name an encoder for this kind of input.
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
            "encoder (--encoder on the command line)"
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
        f"there is no encoder {choice!r} for texts{hint} Use 'tfidf', 'sentence', 'sentence:NAME' (NAME is a model of "
        "sentence-transformers, or a folder with such a model), or the import path of a function that encodes texts "
        "(for example, 'my_encoders:encode' stands for the function encode in my_encoders.py)"
    )


def _image_encoder(choice: Any) -> Encoder:
    """Return a new encoder for images."""
    if isinstance(choice, str) and not is_pretrained_name(choice) and ":" not in choice:
        names = " or ".join(f"'{package}/NAME'" for package in PACKAGES)
        raise ValueError(
            f"there is no encoder {choice!r} for images. Use {names} (a network of that package), or the import path "
            "of a function that returns a network (for example, 'my_nets:resnet50' stands for the function resnet50 in "
            "my_nets.py)"
        )
    return ImageEncoder(choice)
