"""The inputs in a file of labels: find the field that holds the texts or the images of the items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from numpy.typing import NDArray

from crowdfuse.io.column_encoding import Column
from crowdfuse.io.images import is_image_name
from crowdfuse.io.tables import TEXT_NAMES, TableError
from crowdfuse.io.texts import is_number
from crowdfuse.labels.ids import format_names

MIN_WORDS = 3  # a field without a usual name holds texts if most of its values have this many words
CHOOSE_TEXT = "choose one with text= (--text on the command line)"

InputKind = Literal["text", "image"]


class ExportInputs(NamedTuple):
    """Texts or image paths of the items, as read from a file of labels.

    Parameters
    ----------
    items : ndarray of shape (n_items,)
        Ids of the items that have an input. They are the same ids as in the labels.
    kind : {'text', 'image'}
        Kind of the inputs.
    values : list of str
        The text of each item, or the path or URL of its image, exactly as in the file.
    field : str
        Name of the field or column that holds the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> ExportInputs(np.array([7]), "text", ["so good"], "review").values
    ['so good']
    """

    items: NDArray[Any]
    kind: InputKind
    values: list[str]
    field: str


@dataclass
class ItemFields:
    """The strings in a file of labels: for each field, one value per item.

    Parameters
    ----------
    where : str
        The file, for messages.
    values : dict of str to list
        For each field, one value per item; None if the item has no value.
    differing : dict of str to str
        The fields with two different values for one item. The value describes the item and the two places.
    main : tuple of str
        The fields in which the labelling tool keeps the inputs; the preferred field comes first.
    fallback : str, default=None
        The field that identifies the items. It is used as the inputs if no other field holds inputs.
    """

    where: str
    values: dict[str, list[str | None]] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)
    main: tuple[str, ...] = ()
    fallback: str | None = None


class FieldCollector:
    """Collects the strings of items, record by record."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, tuple[str, int]]] = {}  # by field and item: the value and its record
        self._differing: dict[str, tuple[str, int, int]] = {}  # by field: an item and two records

    def add(self, item: str, number: int, fields: Mapping[str, Any]) -> None:
        """Add the fields of an item, from the record with this number. Values that are not strings are left out."""
        for name, value in fields.items():
            if isinstance(value, str) and value.strip():
                known, first = self._values.setdefault(name, {}).setdefault(item, (value, number))
                if known != value:
                    self._differing.setdefault(name, (item, first, number))

    def finish(
        self, where: str, items: Sequence[str], place: Callable[[int], str], main: tuple[str, ...]
    ) -> ItemFields:
        """What was collected, in the order of the items."""
        nothing = (None, 0)
        values: dict[str, list[str | None]] = {
            name: [by_item.get(item, nothing)[0] for item in items] for name, by_item in self._values.items()
        }
        differing = {
            name: f"item {item!r} ({place(first)} and {place(second)})"
            for name, (item, first, second) in self._differing.items()
        }
        return ItemFields(where, values, differing, main)


def choose_inputs(fields: ItemFields, items: NDArray[Any], text: str | None) -> ExportInputs | None:
    """Return the inputs of the items, from the field that holds them.

    Parameters
    ----------
    fields : ItemFields
        The strings that the file holds for each item.
    items : ndarray of shape (n_items,)
        The ids of the items.
    text : str, default=None
        Name of the field to use. By default, the field is detected by a usual name, such as text, or by its content:
        texts or paths of images.

    Returns
    -------
    inputs : ExportInputs or None
        The inputs, without the items that have no value. None if no field holds inputs.

    Raises
    ------
    TableError
        If several fields may hold the inputs, if an item has two different inputs, or if texts are numbers.

    Examples
    --------
    >>> import numpy as np
    >>> fields = ItemFields("export.json", {"text": ["so good", None], "source": ["web", "web"]})
    >>> choose_inputs(fields, np.array([7, 8]), None)
    ExportInputs(items=array([7]), kind='text', values=['so good'], field='text')
    """
    name = _choose_field(fields, text)
    if name is None:
        return None
    if name in fields.differing:
        raise TableError(
            f"{fields.where}: {name!r} has two different values for {fields.differing[name]}; correct them, or give "
            "each value its own item id"
        )
    found = [(at, value) for at, value in enumerate(fields.values[name]) if value is not None]
    values = [value for _, value in found]
    kind: InputKind = "image" if all(map(is_image_path, values)) else "text"
    if kind == "text" and all(map(is_number, values)):
        raise TableError(f"{fields.where}: {name!r} holds only numbers, such as {values[0]!r}; expected texts")
    return ExportInputs(items[[at for at, _ in found]], kind, values, name)


def _choose_field(fields: ItemFields, text: str | None) -> str | None:
    """The name of the field with the inputs."""
    known = {name: [value for value in values if value is not None] for name, values in fields.values.items()}
    known = {name: values for name, values in known.items() if values}
    if text is not None:
        if text not in known:
            has = f"the fields with text are {format_names(known, 12)}" if known else "it has no fields with text"
            raise TableError(f"{fields.where} has no field {text!r} with text; {has}")
        return text
    for name in fields.main:
        if name in known:
            return name
    others = {name: values for name, values in known.items() if name != fields.fallback}
    named = [name for name in others if name.strip().lower() in TEXT_NAMES]
    images = [name for name, values in others.items() if all(map(is_image_path, values))]
    candidates = [*(named or [name for name, values in others.items() if is_prose(values)]), *images]
    candidates = list(dict.fromkeys(candidates))
    # comments of annotators differ between annotators, but the item's own text does not
    constant = [name for name in candidates if name not in fields.differing]
    candidates = constant or candidates
    if len(candidates) > 1:
        raise TableError(
            f"{fields.where} has several fields that may hold the inputs: {format_names(candidates, 12)}; "
            f"{CHOOSE_TEXT}, or pass other inputs with --inputs"
        )
    if candidates:
        return candidates[0]
    own = known.get(fields.fallback or "", [])
    return fields.fallback if own and looks_like_inputs(fields.fallback or "", own) else None


def looks_like_inputs(name: str, values: Sequence[str]) -> bool:
    """Whether a field holds texts or paths of images, by its name or its values."""
    return name.strip().lower() in TEXT_NAMES or (
        bool(values) and (is_prose(values) or all(map(is_image_path, values)))
    )


def is_prose(values: Sequence[str]) -> bool:
    """Whether most values are texts of several words, and most of them differ.

    >>> is_prose(["what a fine film", "dull from start to end"]), is_prose(["very good", "very bad"])
    (True, False)
    """
    n_long = sum(len(value.split()) >= MIN_WORDS for value in values)
    return 2 * n_long > len(values) and 2 * len(set(values)) > len(values)


def is_image_path(value: str) -> bool:
    """Whether a string is the path or the URL of an image, or an image as a data URI.

    >>> is_image_path("/data/upload/1/cat.JPG"), is_image_path("https://x.org/cat.png?v=2"), is_image_path("a cat")
    (True, True, False)
    """
    if value.startswith("data:image/"):
        return True
    if "\n" in value or len(value) > 4096:
        return False
    try:
        parts = urlsplit(value)
    except ValueError:  # urlsplit raises this for brackets that do not hold an IP address
        return False
    return is_image_name(unquote(parts.path)) or is_image_name(unquote(parts.query))


def table_fields(
    columns: Mapping[str, Sequence[str | None]],
    item: Column,
    where: str,
    describe_rows: Callable[[Sequence[int]], list[str]],
) -> ItemFields:
    """The fields of the items of a table, from the values of its columns and the item of each row."""
    fields = ItemFields(where)
    rows = item.codes.tolist()
    for name, column in columns.items():
        values: list[str | None] = [None] * len(item.names)
        first_row = [0] * len(item.names)
        for row, (at, value) in enumerate(zip(rows, column, strict=True)):
            if at < 0 or value is None or not value.strip():
                continue
            if values[at] is None:
                values[at], first_row[at] = value, row
            elif values[at] != value and name not in fields.differing:
                places = " and ".join(describe_rows([first_row[at], row]))
                fields.differing[name] = f"item {format_names([item.names[at]])} ({places})"
        fields.values[name] = values
    return fields
