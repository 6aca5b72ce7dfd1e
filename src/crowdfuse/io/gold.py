"""Read gold labels by item, from tables and from exports of labelling tools, and match them with inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crowdfuse.io.column_encoding import encode_column
from crowdfuse.io.exports import JSON_ENDINGS, TOOL_ID_FIELDS, read_json
from crowdfuse.io.features import LoadedInputs
from crowdfuse.io.file_content import file_ending
from crowdfuse.io.format_detection import detect_format
from crowdfuse.io.hugging_face import with_class_names
from crowdfuse.io.label_studio import label_studio_gold
from crowdfuse.io.labels import read_labels
from crowdfuse.io.tables import (
    TABLE_ENDINGS,
    TableError,
    TableFile,
    choose_columns,
    item_or_text_column,
    usual_columns,
)
from crowdfuse.io.texts import Texts
from crowdfuse.labels.ids import format_names, parse_integer_ids
from crowdfuse.labels.reading import Reading


def column_beside(path: Path, name: str | None) -> str | None:
    """Return the column name that was given for the labels, if it also applies to the file `path`, else None.

    For a table, the name applies if there is a column of this name. Otherwise the table must use one of the usual
    names. For an export, the name always applies, because all exports of a tool have the same fields.
    """
    if name is None or file_ending(path) in JSON_ENDINGS:
        return name
    return name if file_ending(path) in TABLE_ENDINGS and name in TableFile(path).columns else None


def read_gold_beside_labels(path: Path, reading: Reading) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read gold labels with the options for reading the annotators' labels, as far as they fit the file of gold labels.

    The names `reading.item` and `reading.label` were chosen for the file of the annotators' labels. If the gold labels
    are in a table, each name is used only if the table has a column of this name. Otherwise the column is found by its
    usual name, such as item or label. If the gold labels are in an export, `reading.item` is always used.

    Parameters
    ----------
    path : Path
        A table or an export, as in `read_gold`.
    reading : Reading
        The options with which the annotators' labels are read. Only `item`, `label`, `question` and `on_bad` are used.

    Returns
    -------
    items : ndarray of shape (n_items,)
        Item ids.
    classes : ndarray of shape (n_items,)
        The true class of each item.

    Raises
    ------
    TableError
        If a column is not found, if a value is empty, or if an item has two different gold labels.

    See Also
    --------
    read_gold : Requires that the table has the given columns; otherwise it raises an error.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "gold.csv"
    >>> _ = path.write_text("item,label\\n1,cat\\n")
    >>> read_gold_beside_labels(path, Reading(item="page"))  # the item column is called page only in the labels
    (array([1]), array(['cat'], dtype=object))
    """
    return read_gold(
        path,
        item=column_beside(path, reading.item),
        label=column_beside(path, reading.label),
        question=reading.question,
        on_bad=reading.on_bad,
    )


def read_gold(
    path: Path,
    *,
    item: str | None = None,
    label: str | None = None,
    question: str | None = None,
    on_bad: Literal["error", "drop"] = "error",
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read gold labels from a table, or from an export of a labelling tool.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.tsv``, ``.xlsx`` or ``.parquet`` file with an item column and a label column, or an export of a
        labelling tool (``.json``, ``.jsonl``). In an export of Label Studio, the gold labels are the annotations that
        are marked as ground truth. In an export of any other tool, all labels are gold, and the labels of an item must
        agree.
    item : str, default=None
        In a table: name of the item column. By default, a column with a common name, such as ``item`` or ``task``. If
        there is none, the id column that a labelling tool writes, such as ``_input_hash``. If there is no such column
        either, the column of texts. In an export: name of the field that identifies items. By default, the tool's own
        id.
    label : str, default=None
        Name of the label column of a table. By default, a column that is called label, answer or similar. Not used for
        an export.
    question : str, default=None
        In an export: the question whose answers are read. Required if the export has answers to several questions.
    on_bad : {'error', 'drop'}, default='error'
        What to do with unusable answers in an export: raise an error, or drop the answers.

    Returns
    -------
    items : ndarray of shape (n_items,)
        Item ids in the order of the file. Each id occurs once.
    classes : ndarray of shape (n_items,)
        The true class of each item.

    Raises
    ------
    TableError
        If a column is not found, if a value is empty, or if an item has two different gold labels.

    See Also
    --------
    rows_of_gold : Finds, for each item with a gold label, its row in the inputs.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "gold.csv"
    >>> _ = path.write_text("task,label\\n10,cat\\n9,dog\\n")
    >>> read_gold(path)
    (array([10,  9]), array(['cat', 'dog'], dtype=object))
    """
    if file_ending(path) in JSON_ENDINGS:
        if detect_format(read_json(path)) != "label-studio":
            return _gold_of_annotations(path, Reading(item=item, question=question, on_bad=on_bad))
        gold = label_studio_gold(path, item, question, on_bad)
        return parse_integer_ids(np.array(list(gold), object)), parse_integer_ids(np.array(list(gold.values()), object))
    file = TableFile(path)
    columns = choose_columns(file.columns, {"item": item or _id_column(file.columns), "label": label}, str(path))
    table = with_class_names(file.read(list(columns.values()), text=True))
    if not table.num_rows:
        raise TableError(f"{path} has a header but no rows; expected one row per item")
    ids, row = encode_column(table[columns["item"]], columns["item"], str(path), text=file.is_text)
    names, code = encode_column(table[columns["label"]], columns["label"], str(path), text=file.is_text)
    for role, codes in (("item", row), ("label", code)):
        if (codes < 0).any():
            raise TableError(
                f"{file.describe_row(int(np.argmax(codes < 0)))}: the {role} is empty; fill it in or remove the row"
            )
    _, first = np.unique(row, return_index=True)
    differing = np.flatnonzero(code != code[first][row])
    if len(differing):
        rows = [int(first[row[differing[0]]]), int(differing[0])]
        places = [
            f"{format_names([names[code[at]]])} ({place})"
            for at, place in zip(rows, file.describe_rows(rows), strict=True)
        ]
        raise TableError(
            f"item {format_names([ids[row[rows[0]]]])} has two different gold labels, "
            f"{' and '.join(places)}; remove one of them"
        )
    return ids, names[code[first]]


def rows_of_gold(ids: NDArray[Any], loaded: LoadedInputs) -> NDArray[np.int64]:
    """Find the row of each item with a gold label: by its id, or by its text if no id matches.

    Parameters
    ----------
    ids : ndarray of shape (n_items,)
        Ids or texts, from `read_gold`.
    loaded : LoadedInputs
        The inputs.

    Returns
    -------
    rows : ndarray of shape (n_items,)
        Row numbers; -1 for an item that is not among the inputs.

    Raises
    ------
    ValueError
        If items are matched by text, and a text belongs to several items.

    Examples
    --------
    >>> loaded = LoadedInputs(Texts(["so good", "so bad"]), np.array([7, 8]))
    >>> rows_of_gold(np.array([8]), loaded).tolist(), rows_of_gold(np.array(["so bad"], object), loaded).tolist()
    ([1], [1])
    """
    rows = loaded.rows_of(ids)
    if (rows >= 0).any() or not isinstance(loaded.inputs, Texts):
        return rows
    rows_by_text: dict[str, list[int]] = {}
    for row, text in enumerate(loaded.inputs.texts):
        rows_by_text.setdefault(text.strip(), []).append(row)
    found = [rows_by_text.get(str(text).strip(), [-1]) for text in ids]
    several = next((rows for rows in found if len(rows) > 1), None)
    if several is not None:
        raise ValueError(
            f"the gold labels identify items by their texts, but the items {format_names(loaded.items[several])} have "
            "the same text; use item ids in the file of gold labels"
        )
    return np.array([rows[0] for rows in found], np.int64)


def _id_column(columns: Sequence[str]) -> str | None:
    """If there is no usual item column, return the column of a tool's own ids, or else the only column of texts."""
    if usual_columns(columns, "item"):
        return None
    own = [name for name in columns if name in TOOL_ID_FIELDS]
    return own[0] if own else item_or_text_column(columns, None)


def _gold_of_annotations(path: Path, reading: Reading) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the labels of an export as gold labels; an error if an item has two different labels."""
    ann = read_labels(path, reading)
    differs = ann.label != ann.label[ann.indptr[ann.item]]
    if differs.any():
        at = int(differs.argmax())
        row = int(ann.item[at])
        both = ann.classes[[ann.label[ann.indptr[row]], ann.label[at]]]
        raise TableError(
            f"{path}: item {format_names([ann.items[row]])} has two different labels, {format_names(both)}, so the "
            "labels cannot be used as gold labels; export the labels of one person, or write a table with the columns "
            "item and label"
        )
    labelled = np.flatnonzero(np.diff(ann.indptr))
    return ann.items[labelled], ann.classes[ann.label[ann.indptr[labelled]]]
