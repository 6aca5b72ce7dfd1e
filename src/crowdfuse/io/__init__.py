"""Readers and writers: labels, gold labels, features, images, and files that are written whole or not at all."""

from __future__ import annotations

from crowdfuse.io.export_inputs import read_export_inputs, read_labels_and_inputs
from crowdfuse.io.features import LoadedInputs, read_features, read_image, read_image_files, read_texts
from crowdfuse.io.files import atomic_file, atomic_folder, write_csv, write_json, write_text
from crowdfuse.io.gold import read_gold, read_gold_beside_labels
from crowdfuse.io.image_files import ImageFiles, find_unreadable
from crowdfuse.io.inputs import Inputs, check_inputs
from crowdfuse.io.item_fields import ExportInputs
from crowdfuse.io.labels import labels_from_table, read_labels
from crowdfuse.io.tables import TableError
from crowdfuse.io.texts import Texts
from crowdfuse.labels.reading import Reading

__all__ = [
    "ExportInputs",
    "ImageFiles",
    "Inputs",
    "LoadedInputs",
    "Reading",
    "TableError",
    "Texts",
    "atomic_file",
    "atomic_folder",
    "check_inputs",
    "find_unreadable",
    "labels_from_table",
    "read_export_inputs",
    "read_features",
    "read_gold",
    "read_gold_beside_labels",
    "read_image",
    "read_image_files",
    "read_labels",
    "read_labels_and_inputs",
    "read_texts",
    "write_csv",
    "write_json",
    "write_text",
]
