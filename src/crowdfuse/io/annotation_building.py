"""Build `Annotations` from three columns: drop missing labels and bad rows, order the classes, explain conflicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.bad_rows import MAX_LISTED_ROWS, drop_or_raise
from crowdfuse.io.column_encoding import Column
from crowdfuse.io.missing_labels import drop_missing_labels
from crowdfuse.io.similar_class_names import merge_similar_classes
from crowdfuse.io.tables import TableError
from crowdfuse.labels.annotations import Annotations
from crowdfuse.labels.encoding import unknown_class_message
from crowdfuse.labels.ids import IntArray, format_names, positions_of, sort_names
from crowdfuse.labels.reading import Reading
from crowdfuse.labels.triples import ConflictError, sort_triples


class Source(NamedTuple):
    """Where labels come from, for error messages, and how to interpret their ids."""

    name: str
    describe_rows: Callable[[Sequence[int]], list[str]]  # from row numbers to places, such as 'labels.csv, line 17'
    is_text: bool  # the values come from a text file, where "12" may mean the integer 12
    ids_may_be_row_numbers: bool = True  # integer ids may be row numbers of X


def build_annotations(
    item: Column,
    annotator: Column,
    label: Column,
    source: Source,
    classes: NDArray[Any] | None,
    reading: Reading,
    notes: list[str],
) -> Annotations:
    """Annotations from three columns, without rows that are missing, bad or repeated."""
    label, missing_notes = drop_missing_labels(label, classes)
    if missing_notes and source.is_text:
        label = label.with_integers()  # what is left may be integers
    label, merging_notes = merge_similar_classes(label, classes, reading.merge_similar, source.name)
    notes += [*missing_notes, *merging_notes]
    label = _sorted(label) if classes is None else _among(classes, label, source)
    annotator = _sorted(annotator)
    n_rows = len(label.codes)
    present: Sequence[int] | IntArray = range(n_rows)
    if (label.codes < 0).any():
        present = np.flatnonzero(label.codes >= 0)
        item, annotator, label = (Column(names, codes[present]) for names, codes in (item, annotator, label))
    n_missing = n_rows - len(present)
    if (item.codes < 0).any() or (annotator.codes < 0).any():
        bad = (item.codes < 0) | (annotator.codes < 0)
        places = source.describe_rows([int(present[row]) for row in np.flatnonzero(bad)[:MAX_LISTED_ROWS]])
        roles = ["item" if item.codes[row] < 0 else "annotator" for row in np.flatnonzero(bad)[:MAX_LISTED_ROWS]]
        shown = [f"{place}: the {role} is empty" for place, role in zip(places, roles, strict=True)]
        notes.append(drop_or_raise(source.name, shown, int(bad.sum()), n_rows, "rows", reading.on_bad))
        present = np.asarray(present)[~bad]
        item, annotator, label = (Column(names, codes[~bad]) for names, codes in (item, annotator, label))
    try:
        triples = sort_triples(item.codes, annotator.codes, label.codes, len(item.names), reading.on_conflict)
    except ConflictError as error:
        raise TableError(_conflicts(error, item, annotator, label, present, source)) from error
    return Annotations(
        indptr=triples.indptr,
        annotator=triples.annotator,
        label=triples.label,
        items=item.names,
        annotators=annotator.names,
        classes=label.names,
        by_row=False,
        ids_may_be_row_numbers=source.ids_may_be_row_numbers,
        dropped=(n_missing, triples.n_duplicates, triples.n_conflicts),
        notes=tuple(notes),
    )


def _sorted(column: Column) -> Column:
    """The column with its names sorted."""
    names, position = sort_names(column.names)
    return Column(names, _renumber(column.codes, position))


def _among(classes: NDArray[Any], label: Column, source: Source) -> Column:
    """The label column in terms of the given classes; an error for a label that is not one of them."""
    position = positions_of(label.names, classes)
    if (position < 0).any():
        code = int(np.argmax(position < 0))  # names are in order of appearance, so its first row is the first bad row
        place = source.describe_rows([int(np.argmax(label.codes == code))])[0]
        raise TableError(f"{place}: {unknown_class_message(format_names([label.names[code]]), classes)}")
    return Column(classes, _renumber(label.codes, position))


def _renumber(codes: NDArray[np.int32], position: IntArray) -> NDArray[np.int32]:
    """The codes after each name has moved to a new position. Code -1 (no name) stays."""
    return np.append(position, -1).astype(np.int32)[codes]


def _conflicts(
    error: ConflictError,
    item: Column,
    annotator: Column,
    label: Column,
    present: Sequence[int] | IntArray,
    source: Source,
) -> str:
    """The error message for annotators who gave one item two different labels."""
    places = source.describe_rows([int(present[row]) for pair in error.rows for row in pair])
    shown = [
        f"  item {format_names([item.names[item.codes[one]]])}, annotator "
        f"{format_names([annotator.names[annotator.codes[one]]])}: "
        f"{format_names([label.names[label.codes[one]]])} ({place}) and "
        f"{format_names([label.names[label.codes[other]]])} ({other_place})"
        for (one, other), place, other_place in zip(error.rows, places[::2], places[1::2], strict=True)
    ]
    return (
        f"{source.name}: {error.count:,} (item, annotator) pairs have two different labels, such as\n"
        + "\n".join(shown)
        + "\nChoose what to keep with on_conflict= (--on-conflict on the command line): 'first' keeps the first "
        "label, 'last' the last, 'drop' none"
    )
