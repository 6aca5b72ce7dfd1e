"""`Annotations`: the labels of several annotators, checked once and stored by item.

The labels are stored like a sparse matrix in compressed sparse row (CSR) form, because most annotators label only some
of the items. All other modules receive labels as `Annotations`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crowdfuse.labels.encoding import (
    concatenate_ranges,
    encode_classes,
    is_missing,
    names_with_missing,
    unknown_class_message,
)
from crowdfuse.labels.ids import (
    IntArray,
    as_array,
    format_count_with_verb,
    format_names,
    normalize_ids,
    positions_of,
    refuse_repeats,
    similar_class_notes,
)
from crowdfuse.labels.metric_calls import refuse_metrics
from crowdfuse.labels.reading import Reading, accepts_options_of
from crowdfuse.labels.summary import Summary, summarize
from crowdfuse.labels.votes import vote_shares

if TYPE_CHECKING:
    from crowdfuse.labels.annotations_with_gold import AnnotationsWithGold

MAX_DENSE_BYTES = 2**31  # larger dense arrays are refused


class Annotations:
    """The labels that several annotators gave to items. Annotators need not label all items.

    Create annotations with `read`, `from_table`, `from_matrix` or `from_vector`. Item ids, annotator ids and class
    names may be strings or integers. Below, X stands for the inputs that are passed to `fit`, with one row per item.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_items + 1,)
        The labels of item n are the slice `indptr[n]:indptr[n + 1]` of `annotator` and of `label`.
    annotator : ndarray of int32, shape (n_labels,)
        Annotator of each label, as a position in `annotators`.
    label : ndarray of int32, shape (n_labels,)
        Class of each label, as a position in `classes`.
    items : ndarray of shape (n_items,)
        Item ids.
    annotators : ndarray of shape (n_annotators,)
        Annotator ids.
    classes : ndarray of shape (n_classes,)
        Class names.
    by_row : bool
        Whether item i belongs to row i of X. If false, items are matched to rows by their ids. `by_row` is true for
        annotations from a vector or from a matrix without item ids, and for the result of `align(items)` or of
        selecting rows (`annotations[rows]`).
    ids_may_be_row_numbers : bool, default=False
        Whether integer item ids may be used as row numbers of X if `fit` is called without `items=`. If not, `fit`
        raises an error in this case. `from_table` and `read` set `ids_may_be_row_numbers` to True, except for an export
        of a labelling tool that was read without `item`. Ignored if `by_row` is true.
    dropped : tuple of three ints, default=(0, 0, 0)
        How many labels were dropped while reading, as three numbers: empty labels, repeated labels and conflicting
        labels. Labels conflict if one annotator gave one item different labels.
    notes : tuple of str, default=()
        Notes about the reading of the labels, for example on dropped rows. `read` and `from_table` also give them as
        warnings.

    Attributes
    ----------
    dropped_missing : int
        Number of empty labels that were dropped.
    dropped_duplicates : int
        Number of repeated labels that were dropped.
    dropped_conflicts : int
        Number of labels that were dropped because the same annotator gave the item a different label.

    See Also
    --------
    crowdfuse.aggregation : Methods that compute consensus labels from annotations, without inputs.

    Examples
    --------
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
        ids_may_be_row_numbers: bool = False,
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
        self.ids_may_be_row_numbers = ids_may_be_row_numbers
        self.dropped_missing, self.dropped_duplicates, self.dropped_conflicts = dropped
        self.notes = notes

    # ---- constructors ----------------------------------------------------------------------

    @classmethod
    @accepts_options_of(Reading)
    def read(cls, path: str | PathLike[str] | Any, reading: Reading) -> Annotations:
        r"""Read labels from a CSV, TSV, Excel or Parquet file, or from an export of a labelling tool.

        The supported tools are Label Studio, Argilla, Prodigy and doccano. The format is detected from the contents,
        unless `format` is given. An empty label means that the annotator did not label the item. A word such as "NA" or
        "nan" counts as an empty label, unless `classes` lists that word.

        A table with one row per item and one column per annotator is called wide. A table is read as wide if it meets
        three conditions:

        - No column has a usual name for annotators or labels, such as "annotator" or "label".
        - If the item column and any columns of texts or image paths are left out, at least two columns remain.
        - Any two of the remaining columns have at least one value in common, as the labels of two annotators usually
          do.

        A warning is given if unusable rows are dropped, if words such as "NA" count as missing, or if class names are
        merged because they differ only by case or spaces. Each warning is also stored in the attribute `notes` of the
        result.

        Parameters
        ----------
        path : str, path-like or table
            A ``.csv``, ``.tsv``, ``.xlsx`` or ``.parquet`` file; an export (``.json``, ``.jsonl``, Label Studio's
            ``.csv``, doccano's ``.zip`` or folder); or the folder of a Hugging Face dataset. Text files may be
            compressed (``.csv.gz``). A table in memory is passed on to `from_table`.
        {reading_options}

        Returns
        -------
        annotations : Annotations

        Raises
        ------
        ValueError
            If the labels cannot be read; the message gives the file, the line and the value.

        See Also
        --------
        Annotations.from_table : The same for a table in memory.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = path.write_text("page,rater,label\n1,ada,cat\n1,bob,dog\n")
        >>> Annotations.read(path, item="page")
        Annotations(1 items, 2 annotators, 2 classes, 2 labels)
        """
        from crowdfuse.io.labels import labels_from_table, read_labels

        is_file = isinstance(path, (str, PathLike))
        found = read_labels(Path(path), reading) if is_file else labels_from_table(path, reading)
        return found._with_warnings(stacklevel=4)

    @classmethod
    @accepts_options_of(Reading)
    def from_table(cls, table: Any, reading: Reading) -> Annotations:
        """Create annotations from a table in memory.

        Parameters
        ----------
        table : table
            A pandas, polars or pyarrow table, or any other object with ``__arrow_c_stream__``; a Hugging Face dataset;
            or a dict of arrays.
        {reading_options}

        Returns
        -------
        annotations : Annotations

        Raises
        ------
        ValueError
            If the labels cannot be read; the message gives the row and the value.

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
        """Give one warning per note, attributed to the caller `stacklevel` frames up, and return these annotations."""
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
        """Create annotations from a matrix with one row per item and one column per annotator.

        Parameters
        ----------
        matrix : array-like or pandas data frame, shape (n_items, n_annotators)
            Class names. -1, NaN, None and the empty string mean that the label is missing.
        items : array-like of shape (n_items,), default=None
            Item ids, by which items are matched to the rows of X (the inputs that are passed to `fit`). The default for
            a data frame is its index, but an index of 0, 1, 2, ... is ignored. Without item ids, row i of the matrix
            belongs to row i of X.
        annotators : array-like of shape (n_annotators,), default=None
            Annotator ids; by default the column names of a data frame, or the column numbers of an array.
        classes : sequence, default=None
            Class names in the order to use; by default the distinct labels, sorted.

        Returns
        -------
        Annotations

        Raises
        ------
        ValueError
            If the array is not two-dimensional, if an id is repeated or empty, if the number of ids is wrong, or if a
            label is not one of `classes`.

        See Also
        --------
        Annotations.from_vector : For a vector with one label per item.
        Annotations.from_table : For a table with one row per label.

        Examples
        --------
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
                f"labels must have one row per item and one column per annotator, got shape {values.shape}; "
                "use from_vector() for one label per item, or from_table() for one row per label"
            )
        is_present = ~is_missing(values, markers=True)
        return cls._from_dense(values, is_present, items, annotators, classes)._with_warnings()

    @classmethod
    def from_vector(cls, y: ArrayLike | Sequence[Any], *, classes: Sequence[Any] | None = None) -> Annotations:
        """Create the annotations of a single annotator from a vector with one label per item.

        Parameters
        ----------
        y : array-like of shape (n_items,)
            Class names, as in scikit-learn's `y`. NaN and None mean that the label is missing; -1 is a class like any
            other.
        classes : sequence, default=None
            Class names in the order to use; by default the distinct labels, sorted.

        Returns
        -------
        Annotations
            With one annotator. Item i belongs to row i of X, the inputs that are passed to `fit`.

        Raises
        ------
        ValueError
            If `y` is not one-dimensional, or if a label is not one of `classes`.

        Examples
        --------
        >>> Annotations.from_vector(["cat", None, "dog"])
        Annotations(3 items, 1 annotators, 2 classes, 2 labels)
        """
        values = as_array(y)
        if values.ndim != 1:
            raise ValueError(
                f"y must be one-dimensional, with one label per item, got shape {values.shape}; "
                "use from_matrix() for one column per annotator"
            )
        values = values[:, None]
        return cls._from_dense(values, ~is_missing(values, markers=False), None, None, classes)._with_warnings()

    @classmethod
    def _from_dense(
        cls,
        values: NDArray[Any],
        is_present: NDArray[np.bool_],
        items: ArrayLike | None,
        annotators: ArrayLike | None,
        classes: Sequence[Any] | None,
    ) -> Annotations:
        """Annotations of the present cells of an (N, R) array."""
        n_items, n_annotators = values.shape
        row_ids = np.arange(n_items) if items is None else normalize_ids(items, "items")
        column_ids = np.arange(n_annotators) if annotators is None else normalize_ids(annotators, "annotators")
        for name, ids, expected in (("items", row_ids, n_items), ("annotators", column_ids, n_annotators)):
            if len(ids) != expected:
                axis = "row" if name == "items" else "column"
                raise ValueError(
                    f"{name}= must have one id per {axis} of the labels ({expected:,}), got {len(ids):,} ids"
                )
            refuse_repeats(ids, name)
            empty = [position for position, id_ in enumerate(ids) if isinstance(id_, str) and not id_.strip()]
            if empty:
                raise ValueError(f"{name}[{empty[0]}] is empty; give this {name[:-1]} an id, or remove the {name[:-1]}")
        item, annotator = np.nonzero(is_present)
        names, code = encode_classes(
            values[item, annotator], classes, lambda label: f"row {item[label]}, column {annotator[label]}"
        )
        return cls(
            indptr=np.concatenate([[0], np.cumsum(is_present.sum(1))]).astype(np.int64),
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
        """Number of items, including items without labels."""
        return len(self.items)

    @property
    def n_annotators(self) -> int:
        """Number of annotators, including annotators without labels."""
        return len(self.annotators)

    @property
    def n_classes(self) -> int:
        """Number of classes, including classes that no annotator used."""
        return len(self.classes)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.label)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix of labels: (n_items, n_annotators)."""
        return self.n_items, self.n_annotators

    @property
    def ndim(self) -> int:
        """Number of dimensions of the matrix of labels: 2."""
        return 2

    @property
    def item(self) -> IntArray:
        """Item of each label, as a position in `items`: ndarray of shape (n_labels,)."""
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

    # ---- selection -------------------------------------------------------------------------

    def select(self, items: ArrayLike) -> Annotations:
        """Return the items with the given ids, and their labels, in the order of the given ids.

        Parameters
        ----------
        items : array-like of shape (n_selected,)
            Item ids.

        Returns
        -------
        Annotations
            The attribute `by_row` is False, so `fit` matches items by id to the rows of its inputs X. For this, `fit`
            needs the argument `items` (the id of each row of X).

        Raises
        ------
        KeyError
            If an id is unknown.
        ValueError
            If an id is repeated.

        Examples
        --------
        >>> ann = Annotations.from_matrix([["cat"], ["dog"]], items=["a", "b"])
        >>> ann.select(["b"]).to_matrix().tolist()
        [['dog']]
        """
        ids = normalize_ids(items, "items")
        refuse_repeats(ids, "items")
        rows = positions_of(ids, self.items)
        if (rows < 0).any():
            unknown = ids[rows < 0]
            raise KeyError(
                f"{format_count_with_verb(len(unknown), 'item')} not in these annotations: {format_names(unknown)}; "
                "the attribute `items` of the annotations lists all ids"
            )
        return self._rows(rows, by_row=False)

    def align(self, items: ArrayLike, *, on_missing: Literal["error", "drop"] = "error") -> Annotations:
        """Return the labels in the order of the rows of X, the inputs that are passed to `fit`.

        Parameters
        ----------
        items : array-like of shape (n_rows,)
            Id of each row of X. If a row has no labels, the result has an item without labels for this row.
        on_missing : {"error", "drop"}, default="error"
            What to do with labelled items that have no row in X: raise an error, or drop their labels.

        Returns
        -------
        Annotations
            One item per row of X, in the order of X. The attribute `by_row` is True, so `fit` does not need its
            argument `items`.

        Raises
        ------
        ValueError
            If a labelled item has no row in X and `on_missing` is "error". Also if an id in `items` is repeated.

        Examples
        --------
        >>> ann = Annotations.from_matrix([["cat"], ["dog"]], items=["a", "b"])
        >>> ann.align(["c", "b", "a"]).to_matrix().tolist()
        [[None], ['dog'], ['cat']]
        """
        if on_missing not in ("error", "drop"):
            raise ValueError(f"on_missing must be 'error' or 'drop', got {on_missing!r}")
        ids = normalize_ids(items, "items")
        refuse_repeats(ids, "items")
        rows = positions_of(ids, self.items)
        labelled = np.diff(self.indptr) > 0
        is_kept = np.zeros(self.n_items, bool)
        is_kept[rows[rows >= 0]] = True
        lost = self.items[labelled & ~is_kept]
        if len(lost) and on_missing == "error":
            raise ValueError(
                f"{format_count_with_verb(len(lost), 'labelled item')} not among the {len(ids):,} rows of X: "
                f"{format_names(lost)}. Check that items= holds the id of each row of X. To leave these items out, "
                "call align(items, on_missing='drop') on the annotations"
            )
        return self.take_rows(rows, ids)

    def __getitem__(self, key: Any) -> Annotations:
        """Return the annotations of the given rows of X; scikit-learn's splitters call this method.

        Parameters
        ----------
        key : int, slice, list of int or boolean mask
            The rows, each at most once.

        Returns
        -------
        Annotations
            One item per chosen row.

        Raises
        ------
        TypeError
            If `by_row` is false, because item i does not belong to row i of X in that case.
        ValueError
            If a row is chosen twice.

        Examples
        --------
        >>> Annotations.from_matrix([[0, 1], [1, 1]])[1:]
        Annotations(1 items, 2 annotators, 2 classes, 2 labels)
        """
        if not self.by_row:
            raise TypeError(
                "these annotations identify items by id, so they cannot be selected by row. Put the items in the "
                "order of X with annotations.align(items), or select them by id with annotations.select(ids)"
            )
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # scikit-learn asks for ann[rows, ...]
            key = key[0]
        rows = np.atleast_1d(np.arange(self.n_items)[key])
        if rows.ndim != 1:
            raise IndexError(f"rows must be selected by a number, a slice, a list or a mask, got shape {rows.shape}")
        if len(np.unique(rows)) < len(rows):
            repeated = np.flatnonzero(np.bincount(rows) > 1)[0]
            raise ValueError(
                f"row {repeated} was selected more than once, but an item can occur only once; to count an item "
                "several times, use sample_weight"
            )
        return self._rows(rows, by_row=True)

    def with_gold(self, gold: Any) -> AnnotationsWithGold:
        """Return the annotations together with gold (the true classes), for scikit-learn's ``scoring="accuracy"``.

        If the result is passed as `y`, `fit` trains on the annotators' labels alone, and the metric compares the
        predictions with gold.

        Parameters
        ----------
        gold : array-like of shape (n_items,)
            Name of the true class of each item, in the order of the rows of X. Every item must have a true class.

        Returns
        -------
        AnnotationsWithGold

        Raises
        ------
        TypeError
            If the items are not in the order of the rows of X (`by_row` is False). Call `align` first.
        ValueError
            If `gold` does not have one element per item, if an element is missing (such as None), or if it is not in
            `classes`.

        Examples
        --------
        >>> from sklearn.model_selection import cross_val_score
        >>> import crowdfuse
        >>> X, y = np.eye(2).repeat(20, 0), np.arange(2).repeat(20)
        >>> ann = Annotations.from_matrix(y[:, None].repeat(3, 1))
        >>> clf = crowdfuse.MajorityVoteClassifier(epochs=20)
        >>> cross_val_score(clf, X, ann.with_gold(y), scoring="accuracy", cv=2)
        array([1., 1.])
        """
        from crowdfuse.labels.alignment import gold_codes
        from crowdfuse.labels.annotations_with_gold import AnnotationsWithGold

        if not self.by_row:
            raise TypeError(
                "with_gold needs annotations in the order of the rows of X; call "
                "annotations.align(items).with_gold(gold)"
            )
        codes = gold_codes(gold, self.classes, self.n_items)
        if (codes < 0).any():
            raise ValueError(
                f"gold of row {int(np.argmax(codes < 0))} is missing, but every row needs gold. Remove all rows "
                f"without gold ({int((codes < 0).sum()):,} in all) from X, from the annotations and from gold"
            )
        names = self.classes[codes]
        return AnnotationsWithGold(self, names.astype(str) if names.dtype.kind == "O" else names)

    def select_annotator(self, annotator: Any) -> Annotations:
        """Return the labels of one annotator; items and classes stay the same.

        Parameters
        ----------
        annotator : str or int
            Id of the annotator.

        Returns
        -------
        Annotations
            The labels of this annotator only, with the items and classes unchanged.

        Raises
        ------
        KeyError
            If the annotator is unknown.

        Examples
        --------
        >>> ann = Annotations.from_matrix([["cat", "dog"]], annotators=["x", "y"])
        >>> ann.select_annotator("y").to_matrix().tolist()
        [['dog']]
        """
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
            ids_may_be_row_numbers=self.ids_may_be_row_numbers,
        )

    def keep_labels(self, keep: NDArray[np.bool_]) -> Annotations:
        """Return the annotations with only the chosen labels; items, annotators and classes stay the same.

        Parameters
        ----------
        keep : ndarray of bool, shape (n_labels,)
            For each label, in the order of the attribute `label`: whether to keep it.

        Returns
        -------
        Annotations

        Examples
        --------
        >>> ann = Annotations.from_matrix([[0, 1], [1, 1]])
        >>> ann.keep_labels(ann.annotator == 0).to_matrix().tolist()
        [[0, -1], [1, -1]]
        """
        return Annotations(
            indptr=np.concatenate([[0], np.cumsum(keep)])[self.indptr],
            annotator=self.annotator[keep],
            label=self.label[keep],
            items=self.items,
            annotators=self.annotators,
            classes=self.classes,
            by_row=self.by_row,
            ids_may_be_row_numbers=self.ids_may_be_row_numbers,
        )

    def take_rows(self, rows: IntArray, items: NDArray[Any]) -> Annotations:
        """Return the items at the given positions, and their labels. The items get new ids.

        Parameters
        ----------
        rows : ndarray of int, shape (n_rows,)
            Position of each item of the result in the attribute `items`; -1 stands for an item without labels.
        items : ndarray of shape (n_rows,)
            New id of each item of the result.

        Returns
        -------
        Annotations
            The attribute `by_row` is True: item i of the result belongs to row i of X, the inputs that are passed to
            `fit`.

        Examples
        --------
        >>> ann = Annotations.from_matrix([[0], [1]])
        >>> ann.take_rows(np.array([1, -1]), np.array([7, 8])).to_matrix().tolist()
        [[1], [-1]]
        """
        chosen = self._rows(rows, by_row=True)
        chosen.items = items
        return chosen

    def _rows(self, rows: IntArray, by_row: bool) -> Annotations:
        """Rows by position; -1 gives an item without labels."""
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
        """Return the same labels with another list of classes.

        Parameters
        ----------
        classes : array-like of shape (n_classes,)
            Class names in the order to use; must contain every class that occurs in the labels.

        Returns
        -------
        Annotations

        Raises
        ------
        ValueError
            If a label is not one of the classes, or if a class is repeated.

        Examples
        --------
        >>> Annotations.from_matrix([["dog"]]).with_classes(["cat", "dog"]).label.tolist()
        [1]
        """
        names = normalize_ids(classes, "classes")
        refuse_repeats(names, "classes")
        position = positions_of(self.classes, names)
        is_used = np.zeros(self.n_classes, bool)
        is_used[self.label] = True
        outside = self.classes[is_used & (position < 0)]
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
            ids_may_be_row_numbers=self.ids_may_be_row_numbers,
            dropped=(self.dropped_missing, self.dropped_duplicates, self.dropped_conflicts),
            notes=self.notes,
        )

    # ---- conversion ------------------------------------------------------------------------

    def to_matrix(self) -> NDArray[Any]:
        """Return the labels as a dense matrix of class names.

        Returns
        -------
        ndarray of shape (n_items, n_annotators)
            Row i holds the labels of `items[i]`. If the attribute `by_row` is True, this is row i of X (the inputs that
            are passed to `fit`). Otherwise the order can differ from X. If all classes are integers other than -1, the
            matrix holds integers, and -1 means that the label is missing. Otherwise the matrix holds objects, and None
            means that the label is missing.

        Raises
        ------
        ValueError
            If the matrix would take over 2 GB.

        Examples
        --------
        >>> Annotations.from_matrix([["cat", None]]).to_matrix().tolist()
        [['cat', None]]
        """
        codes = self._codes()
        matrix: NDArray[Any] = names_with_missing(self.classes)[codes]
        return matrix

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the class codes (n_items, n_annotators), -1 where missing, for scikit-learn's splitters.

        Raises
        ------
        TypeError
            If `by_row` is false, or if a metric of scikit-learn would take the labels for true classes.
        """
        refuse_metrics()
        if not self.by_row:
            raise TypeError(
                "these annotations identify items by id, so they cannot be converted to an array with one row per row "
                "of X. Call annotations.align(items) first. For an array in the order of annotations.items, call "
                "annotations.to_matrix()"
            )
        codes = self._codes()
        return codes if dtype is None else codes.astype(dtype)

    def _codes(self) -> NDArray[np.int32]:
        """Class codes (N, R), -1 where missing."""
        _refuse_dense(self.n_items, self.n_annotators, 4, "annotators", ", or in cross-validation cv=KFold(5)")
        codes = np.full(self.shape, -1, np.int32)
        codes[self.item, self.annotator] = self.label
        return codes

    def to_table(self) -> Any:
        """Return the labels as a pyarrow table with one row per label.

        Returns
        -------
        pyarrow.Table
            A table with the columns item, annotator and label. They hold ids and class names.

        Examples
        --------
        >>> Annotations.from_matrix([["cat", None]]).to_table().to_pylist()
        [{'item': 0, 'annotator': 0, 'label': 'cat'}]
        """
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
        """Return the vote shares: for each item, the share of its labels that name each class.

        Returns
        -------
        ndarray of float64, shape (n_items, n_classes)
            Each row sums to 1, except that rows of items without labels are NaN.

        Raises
        ------
        ValueError
            If the array would take over 2 GB.

        See Also
        --------
        crowdfuse.aggregation.majority_vote : Computes consensus labels and the same shares, in blocks of items.

        Examples
        --------
        >>> Annotations.from_matrix([[0, 0, 1, -1], [1, -1, -1, -1]]).vote_shares().round(2).tolist()
        [[0.67, 0.33], [0.0, 1.0]]
        """
        _refuse_dense(self.n_items, self.n_classes, 8, "classes")
        return vote_shares(self.item * self.n_classes + self.label, self.n_items, self.n_classes)

    def summary(self) -> Summary:
        """Return summary statistics: how many labels there are, and how well the annotators agree.

        Returns
        -------
        Summary
            Counts, the share of agreeing pairs of labels, and Krippendorff's alpha.

        Examples
        --------
        >>> Annotations.from_matrix([[0, 0], [1, 0]]).summary().agreement
        0.5
        """
        dropped = (self.dropped_missing, self.dropped_duplicates, self.dropped_conflicts)
        return summarize(
            self.indptr, self.annotator, self.label, self.n_annotators, self.n_classes, dropped, self.notes
        )


def _refuse_dense(n_items: int, n_columns: int, value_bytes: int, columns: str, alternative: str = "") -> None:
    """Raise an error if a dense array would take over 2 GB."""
    if n_items * n_columns * value_bytes > MAX_DENSE_BYTES:
        raise ValueError(
            f"a dense array of {n_items:,} items x {n_columns:,} {columns} would take over 2 GB; "
            f"use to_table(){alternative}"
        )
