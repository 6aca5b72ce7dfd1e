"""Encoders turn texts and images into rows of numbers. They are fitted or frozen, and saved with the model."""

from __future__ import annotations

from crowdfuse.encoders.base import EncodedInputs, Encoder, EncoderState, FeatureOccurrences, encode_inputs
from crowdfuse.encoders.choice import EncoderChoice, apply_encoder, check_raw_inputs, fit_encoder, make_encoder
from crowdfuse.encoders.images import ImageEncoder
from crowdfuse.encoders.sentence import SentenceEncoder
from crowdfuse.encoders.text_function import TextFunctionEncoder
from crowdfuse.encoders.tfidf import TfidfEncoder

__all__ = [
    "EncodedInputs",
    "Encoder",
    "EncoderChoice",
    "EncoderState",
    "FeatureOccurrences",
    "ImageEncoder",
    "SentenceEncoder",
    "TextFunctionEncoder",
    "TfidfEncoder",
    "apply_encoder",
    "check_raw_inputs",
    "encode_inputs",
    "fit_encoder",
    "make_encoder",
]
