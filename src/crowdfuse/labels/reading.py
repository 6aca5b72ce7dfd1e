"""The options for reading labels. Name, type, default, documentation and help of each option are written only here.

`Annotations.read`, `Annotations.from_table`, run jobs and all commands take their options from the fields of `Reading`.
To add an option, add a field here and use it in `crowdfuse.io.labels`.
"""

from __future__ import annotations

import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast, get_args, get_origin

from crowdfuse.checks.choices import check_choice

Format = Literal["auto", "table", "wide", "label-studio", "argilla", "prodigy", "doccano"]
OnConflict = Literal["error", "first", "last", "drop"]
OnBad = Literal["error", "drop"]

Options = ParamSpec("Options")
Owner = TypeVar("Owner")
Source = TypeVar("Source")
Result = TypeVar("Result")

DOC_MARKER = "{reading_options}"  # replaced by the documentation of the fields


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The options for reading labels from a file or a table.

    Parameters
    ----------
    {reading_options}

    Raises
    ------
    ValueError
        If `format`, `on_conflict` or `on_bad` is not one of the allowed values, or if `sep` is neither one character
        nor "tab".

    See Also
    --------
    Annotations.read : Takes these options as keyword arguments.

    Examples
    --------
    >>> reading = Reading(item="page", on_bad="drop")
    >>> reading.changed_options()
    {'item': 'page', 'on_bad': 'drop'}
    >>> Reading(on_bad="ignore")
    Traceback (most recent call last):
        ...
    ValueError: on_bad must be one of error, drop, got 'ignore'
    """

    item: str | None = field(
        default=None,
        metadata={
            "doc": "In a table: name of the column that identifies items. By default a column that is "
            "called item, task, example or similar. In an export of a labelling tool (see `format`): name of the "
            "field that identifies items. By default the tool's own id is used.",
            "help": "Name of the column that identifies items (in an export of a labelling tool, name of the field). "
            "Default: a column with a usual name, such as item or task; in an export, the tool's own id.",
        },
    )
    annotator: str | None = field(
        default=None,
        metadata={
            "doc": "Name of the annotator column. By default a column that is called annotator, worker, rater "
            "or similar.",
            "help": "Name of the annotator column. Default: a column with a usual name, such as annotator or worker.",
        },
    )
    label: str | None = field(
        default=None,
        metadata={
            "doc": "Name of the label column. By default a column that is called label, answer, response or similar.",
            "help": "Name of the label column. Default: a column with a usual name, such as label or answer.",
        },
    )
    text: str | None = field(
        default=None,
        metadata={
            "doc": "Name of the column or field that holds the inputs: the text of each item, or the path of its "
            "image. Required only if several columns or fields could hold the inputs. In a wide table (see `format`), "
            "this column is not read as an annotator.",
            "help": "Name of the column or field that holds the text of each item, or the path of its image. "
            "Default: a column with a usual name, such as text or review; if there is none, the only column with "
            "texts or image paths.",
        },
    )
    format: Format = field(
        default="auto",
        metadata={
            "doc": "How labels are laid out. 'table': one row per label. 'wide': one row per item and one column per "
            "annotator. 'label-studio', 'argilla', 'prodigy' and 'doccano': an export of that labelling tool. "
            "'auto': detect the format from the contents.",
            "help": "Format of the labels: table (one row per label), wide (one row per item and one column per "
            "annotator), label-studio, argilla, prodigy or doccano (exports of these tools), or auto (detect it).",
        },
    )
    question: str | None = field(
        default=None,
        metadata={
            "doc": "In an export of a labelling tool: the question whose answers are read as labels. Required if the "
            "export has answers to several questions.",
            "help": "The question whose answers are read, if an export has answers to several questions.",
        },
    )
    classes: Sequence[Any] | None = field(
        default=None,
        metadata={
            "doc": "All class names, in the order to use. A label that is not listed is an error. By default the "
            "classes are the distinct labels, sorted.",
            "help": "All classes, in the order to use, separated by commas. Default: the distinct labels, sorted.",
        },
    )
    merge_similar: bool = field(
        default=False,
        metadata={
            "doc": "Whether to merge class names that differ only by case or spaces. The merged class has the spelling "
            "in `classes`, or the most frequent spelling if `classes` is not given. By default such names are an "
            "error. To keep them as separate classes, list them in `classes`.",
            "help": "Treat class names that differ only by case or spaces as one class. Default: stop at such names.",
        },
    )
    on_conflict: OnConflict = field(
        default="error",
        metadata={
            "doc": "What to do if an annotator gave several different labels to one item. 'error': raise an error. "
            "'first' or 'last': keep only the first or the last of these labels. 'drop': drop all of these "
            "labels.",
            "help": "What to do if an annotator gave different labels to one item: error (stop), first (keep the "
            "first label), last (keep the last label), or drop (drop all these labels).",
        },
    )
    on_bad: OnBad = field(
        default="error",
        metadata={
            "doc": "What to do with rows that cannot be used, such as rows without an item. 'error': raise an error. "
            "'drop': drop these rows.",
            "help": "What to do with rows that cannot be used, such as rows without an item: error (stop), or drop "
            "(continue without them).",
        },
    )

    sep: str | None = field(
        default=None,
        metadata={
            "doc": "For text files only: the character that separates the columns, or 'tab'. By default, the "
            "character is detected: comma, semicolon, tab or vertical bar, whichever splits the header into the most "
            "columns.",
            "help": "Character that separates the columns of a text file, such as ';' or tab. Default: detected.",
        },
    )

    def __post_init__(self) -> None:
        if self.sep is not None and self.sep not in ("tab", "\\t") and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise ValueError(f"sep must be one character, such as ';', or 'tab', got {self.sep!r}")
        for option in fields(self):
            choices = allowed_values(option)
            if choices:
                check_choice(option.name, getattr(self, option.name), choices)

    def changed_options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults.

        Returns
        -------
        options : dict of str to Any
            The value of each changed option, by name.
        """
        values = {option: getattr(self, option.name) for option in fields(self)}
        return {
            option.name: value
            for option, value in values.items()
            if type(value) is not type(option.default) or value != option.default
        }


def option_type(option: Field[Any]) -> Any:
    """The type of an option, as an object."""
    return typing.get_type_hints(Reading)[option.name]


def allowed_values(option: Field[Any]) -> tuple[str, ...]:
    """The values that an option may have; empty if any value is allowed."""
    hint = option_type(option)
    return get_args(hint) if get_origin(hint) is Literal else ()


def accepts_options_of(
    constructor: Callable[Options, Reading],
) -> Callable[[Callable[[Owner, Source, Reading], Result]], Callable[Concatenate[Owner, Source, Options], Result]]:
    """Give a function the options of `Reading` as keyword arguments.

    The original function takes an owner (for a class method, the class), a source (a file or a table) and a `Reading`.
    The decorated function takes the owner, the source and one keyword argument for each field of `Reading`. Type
    checkers and `inspect.signature` see these keyword arguments. In the docstring, the documentation of the keyword
    arguments replaces the line ``{reading_options}``.
    """

    def decorate(
        function: Callable[[Owner, Source, Reading], Result],
    ) -> Callable[Concatenate[Owner, Source, Options], Result]:
        owner_and_source = list(inspect.signature(function).parameters.values())[:2]
        options = inspect.signature(constructor).parameters
        signature = inspect.signature(function).replace(parameters=[*owner_and_source, *options.values()])

        @wraps(function)
        def with_options(*args: Any, **kwargs: Any) -> Result:
            given = signature.bind(*args, **kwargs).arguments
            reading = constructor(**{name: given.pop(name) for name in options if name in given})  # type: ignore[call-arg]
            owner, source = given.values()
            return function(owner, source, reading)

        with_options.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect and help
        with_options.__doc__ = insert_option_docs(function.__doc__)
        return cast(Callable[Concatenate[Owner, Source, Options], Result], with_options)

    return decorate


def insert_option_docs(docstring: str | None) -> str | None:
    """A docstring with the numpydoc entries of all options in place of the line ``{reading_options}``."""
    if docstring is None:  # python -OO
        return None
    lines = docstring.splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() == DOC_MARKER)
    entries = textwrap.indent(_numpydoc_entries(), lines[at].partition(DOC_MARKER)[0])
    return "\n".join([*lines[:at], entries, *lines[at + 1 :]])


def _numpydoc_entries() -> str:
    """One entry of a numpydoc Parameters section for each option."""
    entries = []
    for option in fields(Reading):
        text = textwrap.fill(option.metadata["doc"], width=100, initial_indent="    ", subsequent_indent="    ")
        entries.append(f"{option.name} : {_type_in_words(option_type(option))}, default={option.default!r}\n{text}")
    return "\n".join(entries)


def _type_in_words(hint: Any) -> str:
    """A type as numpydoc writes it, without None: the documented default shows that None is allowed."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"{{{', '.join(map(repr, parts))}}}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_in_words(part) for part in parts if part is not type(None))
    return (origin or hint).__name__.lower() if isinstance(origin or hint, type) else str(hint)


Reading.__doc__ = insert_option_docs(Reading.__doc__)
