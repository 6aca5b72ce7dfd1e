"""Who said what: triples (item, annotator, label) in, validated once, CSR arrays out.

Nothing after this module touches raw labels. Any triple may be missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.ids import (
    IntArray,
    as_array,
    format_count_with_verb,
    format_names,
    normalize_ids,
    positions_of,
    refuse_repeats,
    similar_class_notes,
    unique_sorted,
)
from crowdfuse.labels.reading import Reading, accepts_options_of
from crowdfuse.labels.summary import Summary, summarise


class Annotations:
    """All the labels, by item: the labels of item n are `indptr[n]:indptr[n + 1]`.

    Make one with `read`, `from_table` or `from_matrix`. Ids and class names may be strings or
    integers; they are kept in `items` (N,), `annotators` (R,) and `classes` (K,).

    `by_row` says what row i means: True, and row i here belongs with row i of X (a matrix, or
    what `align` or `ann[rows]` gave); False, and items are known by their ids alone. Then `numbered`
    says whether integer ids may be taken for row numbers of X: those of a table may.

    >>> ann = Annotations.from_table({"item": ["a", "a", "b"], "annotator": ["x", "y", "x"],
    ...                               "label": ["cat", "dog", "cat"]})
    >>> ann
    Annotations(2 items, 2 annotators, 2 classes, 3 labels)
    >>> ann.to_matrix().tolist()
    [['cat', 'dog'], ['cat', None]]
    """

    def __init__(
        self,
        *,
        indptr: IntArray,
        annotator: IntArray,
        label: IntArray,
        items: NDArray[Any],
        annotators: NDArray[Any],
        classes: NDArray[Any],
        by_row: bool,
        numbered: bool = False,
        dropped: tuple[int, int, int] = (0, 0, 0),
        notes: tuple[str, ...] = (),
    ) -> None:
        self.indptr = indptr
        self.annotator = annotator
        self.label = label
        self.items = items
        self.annotators = annotators
        self.classes = classes
        self.by_row = by_row
        self.ids_may_be_row_numbers = numbered
        self.dropped_missing, self.dropped_duplicates, self.dropped_conflicts = dropped
        self.notes = notes

    # ---- ways in ---------------------------------------------------------------------------

    @classmethod
    @accepts_options_of(Reading)
    def read(cls, path: str | PathLike[str] | Any, reading: Reading) -> Annotations:
        """Read labels from a CSV, TSV or Parquet file, or from an export of Label Studio, Argilla or Prodigy.

        A label that is empty counts as missing. The format is detected from the contents unless `format` is given: a
        table is wide if it has no column with a usual name for annotators or labels, and if any two columns besides
        the item column have values in common. Rows that were dropped, and classes that differ only by case or spaces,
        cause a warning and are listed in `notes`.

        Parameters
        ----------
        path : str, path-like or table
            A ``.csv``, ``.tsv`` or ``.parquet`` file, or an export (``.json``, ``.jsonl``). A table in memory is read
            as by `from_table`.
        {reading_options}

        Returns
        -------
        annotations : Annotations

        Raises
        ------
        ValueError
            If the labels cannot be read; the message names the file, the line and the value.

        See Also
        --------
        Annotations.from_table : The same for a table in memory.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = path.write_text("page,rater,label\\n1,ada,cat\\n1,bob,dog\\n")
        >>> Annotations.read(path, item="page")
        Annotations(1 items, 2 annotators, 2 classes, 2 labels)
        """
        from crowdfuse.io.labels import read_labels, labels_from_table

        is_file = isinstance(path, (str, PathLike))
        found = read_labels(Path(path), reading) if is_file else labels_from_table(path, reading)
        return found._with_warnings(stacklevel=4)

    @classmethod
    @accepts_options_of(Reading)
    def from_table(cls, table: Any, reading: Reading) -> Annotations:
        """Take labels from a table in memory.

        Parameters
        ----------
        table : table
            A pandas, polars or pyarrow table (anything with ``__arrow_c_stream__``), a Hugging Face dataset, or a dict
            of arrays.
        {reading_options}

        Returns
        -------
        annotations : Annotations

        Raises
        ------
        ValueError
            If the labels cannot be read; the message names the row and the value.

        See Also
        --------
        Annotations.read : The same for a file.

        Examples
        --------
        >>> Annotations.from_table({"page": [1, 1], "rater": ["ada", "bob"], "label": ["cat", "dog"]}, item="page")
        Annotations(1 items, 2 annotators, 2 classes, 2 labels)
        """
        from crowdfuse.io.labels import labels_from_table

        return labels_from_table(table, reading)._with_warnings(stacklevel=4)

    def _with_warnings(self, stacklevel: int = 3) -> Annotations:
        """These annotations, after a warning for each note that points to the caller `stacklevel` frames up."""
        for note in self.notes:
            warnings.warn(note, stacklevel=stacklevel)
        return self

    @classmethod
    def from_matrix(
        cls,
        matrix: ArrayLike | Sequence[Any],
        *,
        items: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
    ) -> Annotations:
        """From an (N, R) array of labels, -1, NaN, None or "" where one is missing.

        Row i is row i of X; or, with `items`, the item of that id, wherever it is in X. A pandas frame names
        annotators by its columns and, unless it is just 0, 1, 2, ..., items by its index.

        >>> Annotations.from_matrix([[0, 1], [-1, 1]]).indptr.tolist()
        [0, 2, 3]
        """
        if hasattr(matrix, "columns") and hasattr(matrix, "index"):
            annotators = np.asarray(matrix.columns) if annotators is None else annotators
            index = np.asarray(matrix.index)
            if items is None and not np.array_equal(index, np.arange(len(index))):
                items = index
        values = as_array(matrix)
        if values.ndim != 2:
            raise ValueError(
                f"labels must be an (items, annotators) array, got shape {values.shape}; "
                "from_vector() takes one label an item, from_table() triples"
            )
        present = ~_is_missing(values, sentinel=True)
        return cls._from_dense(values, present, items, annotators, classes)._with_warnings()

    @classmethod
    def from_vector(cls, y: ArrayLike | Sequence[Any], *, classes: Sequence[Any] | None = None) -> Annotations:
        """From one label an item, as scikit-learn has it: one annotator. NaN or None is missing, -1 a class."""
        values = as_array(y)
        if values.ndim != 1:
            raise ValueError(
                f"y must have one label an item, got shape {values.shape}; from_matrix() takes one column an annotator"
            )
        values = values[:, None]
        return cls._from_dense(values, ~_is_missing(values, sentinel=False), None, None, classes)._with_warnings()

    @classmethod
    def _from_dense(
        cls,
        values: NDArray[Any],
        present: NDArray[np.bool_],
        items: ArrayLike | None,
        annotators: ArrayLike | None,
        classes: Sequence[Any] | None,
    ) -> Annotations:
        n_items, n_annotators = values.shape
        row_ids = np.arange(n_items) if items is None else normalize_ids(items, "items")
        column_ids = np.arange(n_annotators) if annotators is None else normalize_ids(annotators, "annotators")
        for what, ids, expected in (("items", row_ids, n_items), ("annotators", column_ids, n_annotators)):
            if len(ids) != expected:
                raise ValueError(f"{what}= names {len(ids):,}, but the labels have shape {values.shape}")
            refuse_repeats(ids, what)
            empty = [at for at, name in enumerate(ids) if isinstance(name, str) and not name.strip()]
            if empty:
                raise ValueError(f"{what}[{empty[0]}] is empty; fill it in, or leave the {what[:-1]} out")
        item, annotator = np.nonzero(present)
        names, code = encode_classes(
            values[item, annotator], classes, lambda label: f"row {item[label]}, column {annotator[label]}"
        )
        return cls(
            indptr=np.concatenate([[0], np.cumsum(present.sum(1))]).astype(np.int64),
            annotator=annotator.astype(np.int32),
            label=code.astype(np.int32),
            items=row_ids,
            annotators=column_ids,
            classes=names,
            by_row=items is None,
            notes=tuple(similar_class_notes(names)) if classes is None else (),
        )

    # ---- shape -----------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_annotators(self) -> int:
        return len(self.annotators)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_labels(self) -> int:
        return len(self.label)

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_items, self.n_annotators

    @property
    def ndim(self) -> int:
        return 2

    @property
    def item(self) -> IntArray:
        """The item of each label, as a position in `items` (L,)."""
        return np.repeat(np.arange(self.n_items), np.diff(self.indptr))

    def __len__(self) -> int:
        return self.n_items

    def __repr__(self) -> str:
        return (
            f"Annotations({self.n_items:,} items, {self.n_annotators:,} annotators, "
            f"{self.n_classes:,} classes, {self.n_labels:,} labels)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Annotations):
            return NotImplemented
        fields = ("indptr", "annotator", "label", "items", "annotators", "classes")
        return self.by_row == other.by_row and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in fields
        )

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    # ---- choosing items --------------------------------------------------------------------

    def select(self, items: ArrayLike) -> Annotations:
        """The items with these ids, in this order; known by their ids, so that `fit` needs `items=`."""
        ids = normalize_ids(items, "items")
        refuse_repeats(ids, "items")
        rows = positions_of(ids, self.items)
        if (rows < 0).any():
            unknown = ids[rows < 0]
            raise KeyError(
                f"{format_count_with_verb(len(unknown), 'item')} not in these annotations: {format_names(unknown)}"
            )
        return self._rows(rows, by_row=False)

    def align(self, items: ArrayLike, *, on_missing: Literal["error", "drop"] = "error") -> Annotations:
        """The labels in the order of X's rows, `items` naming each row. Rows nobody labelled stay, empty.

        Labels of items that are not among the rows are an error, or left out with `on_missing="drop"`.
        """
        if on_missing not in ("error", "drop"):
            raise ValueError(f"on_missing must be 'error' or 'drop', got {on_missing!r}")
        ids = normalize_ids(items, "items")
        refuse_repeats(ids, "items")
        rows = positions_of(ids, self.items)
        labelled = np.diff(self.indptr) > 0
        kept = np.zeros(self.n_items, bool)
        kept[rows[rows >= 0]] = True
        lost = self.items[labelled & ~kept]
        if len(lost) and on_missing == "error":
            raise ValueError(
                f"{format_count_with_verb(len(lost), 'labelled item')} not among the {len(ids):,} rows of X: "
                f"{format_names(lost)}. "
                "Pass the rows' ids as items=, or choose the labels with select() or on_missing='drop'"
            )
        return self.take_rows(rows, ids)

    def __getitem__(self, key: Any) -> Annotations:
        """Rows by position, as scikit-learn's splitters ask for them."""
        if not self.by_row:
            raise TypeError(
                "these annotations know items by id, so row numbers mean nothing: "
                "ann.align(items) puts them in the order of X's rows, ann.select(ids) chooses by id"
            )
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # scikit-learn asks for ann[rows, ...]
            key = key[0]
        rows = np.atleast_1d(np.arange(self.n_items)[key])
        if rows.ndim != 1:
            raise IndexError(f"rows are chosen by a number, a slice, a list or a mask, got shape {rows.shape}")
        if len(np.unique(rows)) < len(rows):
            raise ValueError("a row was chosen twice; an item can stand only once. Use sample_weight to repeat items")
        return self._rows(rows, by_row=True)

    def select_annotator(self, annotator: Any) -> Annotations:
        """The labels of one annotator, given by name; items and classes stay."""
        position = int(positions_of(normalize_ids([annotator], "annotator"), self.annotators)[0])
        if position < 0:
            raise KeyError(
                f"annotator {format_names([annotator])} is not one of the {self.n_annotators:,} annotators "
                f"({format_names(self.annotators)})"
            )
        keep = self.annotator == position
        return Annotations(
            indptr=np.concatenate([[0], np.cumsum(keep)])[self.indptr],
            annotator=np.zeros(int(keep.sum()), np.int32),
            label=self.label[keep],
            items=self.items,
            annotators=self.annotators[position : position + 1],
            classes=self.classes,
            by_row=self.by_row,
            numbered=self.ids_may_be_row_numbers,
        )

    def keep_labels(self, keep: NDArray[np.bool_]) -> Annotations:
        """These labels alone, a mask over all of them in their order; items, annotators and classes stay."""
        return Annotations(
            indptr=np.concatenate([[0], np.cumsum(keep)])[self.indptr],
            annotator=self.annotator[keep],
            label=self.label[keep],
            items=self.items,
            annotators=self.annotators,
            classes=self.classes,
            by_row=self.by_row,
            numbered=self.ids_may_be_row_numbers,
        )

    def take_rows(self, rows: IntArray, items: NDArray[Any]) -> Annotations:
        """Rows by position under the names `items`, ready to stand beside X; -1 is an item without labels."""
        chosen = self._rows(rows, by_row=True)
        chosen.items = items
        return chosen

    def _rows(self, rows: IntArray, by_row: bool) -> Annotations:
        """Rows by position; -1 stands for an item without labels."""
        counts = np.where(rows < 0, 0, np.diff(self.indptr)[rows]) if self.n_items else np.zeros(len(rows), np.int64)
        starts = np.where(rows < 0, 0, self.indptr[:-1][rows]) if self.n_items else counts
        picked = concatenate_ranges(starts, counts)
        return Annotations(
            indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            annotator=self.annotator[picked],
            label=self.label[picked],
            items=self.items[rows] if self.n_items else np.zeros(len(rows), np.int64),
            annotators=self.annotators,
            classes=self.classes,
            by_row=by_row,
        )

    def with_classes(self, classes: ArrayLike) -> Annotations:
        """The same labels over a fixed list of classes, which must hold every class that was said."""
        names = normalize_ids(classes, "classes")
        refuse_repeats(names, "classes")
        position = positions_of(self.classes, names)
        said = np.zeros(self.n_classes, bool)
        said[self.label] = True
        outside = self.classes[said & (position < 0)]
        if len(outside):
            raise ValueError(unknown_class_message(format_names(outside), names))
        return Annotations(
            indptr=self.indptr,
            annotator=self.annotator,
            label=position[self.label].astype(np.int32),
            items=self.items,
            annotators=self.annotators,
            classes=names,
            by_row=self.by_row,
            numbered=self.ids_may_be_row_numbers,
            dropped=(self.dropped_missing, self.dropped_duplicates, self.dropped_conflicts),
            notes=self.notes,
        )

    # ---- ways out --------------------------------------------------------------------------

    def to_matrix(self) -> NDArray[Any]:
        """The labels by name, (N, R): row i is `items[i]`, which is row i of X only after `align`.

        Integer classes give integers with -1 where missing, strings None. Where -1 is itself a class, the
        array holds objects and None where missing.
        """
        codes = self._codes()
        has_room = self.classes.dtype.kind == "i" and -1 not in self.classes
        names: NDArray[Any] = np.array([*self.classes, -1 if has_room else None], np.int64 if has_room else object)
        matrix: NDArray[Any] = names[codes]  # the code -1 takes the last
        return matrix

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Class positions by row of X, (N, R), -1 where missing: what scikit-learn's splitters look at."""
        if not self.by_row:
            raise TypeError(
                "these annotations know items by id, not by row of X: ann.align(items) puts them in the order of "
                "X's rows; ann.to_matrix() gives them in the order of ann.items"
            )
        codes = self._codes()
        return codes if dtype is None else codes.astype(dtype)

    def _codes(self) -> NDArray[np.int32]:
        _refuse_dense(self.n_items, self.n_annotators, 4, "annotators", ", or a splitter such as cv=KFold(5)")
        codes = np.full(self.shape, -1, np.int32)
        codes[self.item, self.annotator] = self.label
        return codes

    def to_table(self) -> Any:
        """A pyarrow table with columns item, annotator, label: one row a label."""
        import pyarrow as pa

        def column(codes: IntArray, names: NDArray[Any]) -> Any:
            return pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(names)).dictionary_decode()

        return pa.table(
            {
                "item": column(self.item, self.items),
                "annotator": column(self.annotator, self.annotators),
                "label": column(self.label, self.classes),
            }
        )

    def vote_shares(self) -> NDArray[np.float64]:
        """How the labels of each item are spread over the classes, (N, K); NaN where there is no label."""
        _refuse_dense(self.n_items, self.n_classes, 8, "classes")
        shares = np.zeros((self.n_items, self.n_classes))
        np.add.at(shares, (self.item, self.label), 1)
        with np.errstate(invalid="ignore"):
            shares /= shares.sum(1, keepdims=True)
        return shares

    def summary(self) -> Summary:
        """Counts, agreement and Krippendorff's alpha (nominal)."""
        dropped = (self.dropped_missing, self.dropped_duplicates, self.dropped_conflicts)
        return summarise(
            self.indptr, self.annotator, self.label, self.n_annotators, self.n_classes, dropped, self.notes
        )


def concatenate_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """The positions start, start + 1, ... of each run, one after another.

    >>> concatenate_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    positions: IntArray = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return positions


def encode_classes(
    values: NDArray[Any], classes: Sequence[Any] | None, describe_position: Callable[[int], str] | None = None
) -> tuple[NDArray[Any], IntArray]:
    """Class names and the position of each value among them; names are sorted unless they are given.

    `place` puts a position in `values` into words for an error message.
    """
    said = normalize_ids(values, "labels", describe_position)
    if classes is None:
        return unique_sorted(said)
    names = normalize_ids(classes, "classes")
    refuse_repeats(names, "classes")
    code = positions_of(said, names)
    if (code < 0).any():
        first = int(np.argmax(code < 0))
        where = f"labels[{first}]" if describe_position is None else describe_position(first)
        raise ValueError(f"{where}: {unknown_class_message(format_names([said[first]]), names)}")
    return names, code


def unknown_class_message(label: str, classes: NDArray[Any]) -> str:
    """What is wrong with a label outside the given classes, and the way out."""
    return (
        f"label {label} is not one of the {len(classes):,} classes ({format_names(classes)}); "
        "mend it, or add it to classes="
    )


def _is_missing(values: NDArray[Any], *, sentinel: bool) -> NDArray[np.bool_]:
    """None, NaN and pandas' NA; with `sentinel` also -1 and the empty string."""
    missing = np.zeros(values.shape, bool)
    if values.dtype.kind == "O":
        missing.flat[:] = [_is_no_label(value) or (sentinel and value in (-1, "")) for value in values.flat]
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    if sentinel and values.dtype.kind in "fiU":
        missing |= values == ("" if values.dtype.kind == "U" else -1)
    return missing


def _is_no_label(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither equal nor unequal
        return True


def _refuse_dense(n_items: int, n_columns: int, size: int, what: str, or_else: str = "") -> None:
    if n_items * n_columns * size > 2**31:
        raise ValueError(
            f"a dense array of {n_items:,} items x {n_columns:,} {what} takes over 2 GB; use to_table(){or_else}"
        )
