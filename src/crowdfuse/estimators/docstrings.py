"""Compose the docstring of an estimator: its own parameters and attributes, then the ones of its parent class.

A shared parameter is described once, in the class that declares it, and still appears in `help()` of every subclass.
Defaults are read from the class, so that the text cannot disagree with the code.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

COMPOSED_SECTIONS = ("Parameters", "Attributes")
SECTION_ORDER = (
    "Parameters",
    "Attributes",
    "See Also",
    "Notes",
    "References",
    "Examples",
)


class ComposedDocstring:
    """Base class whose subclasses extend the Parameters and Attributes sections of their parent's docstring."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__doc__" in vars(cls) and cls.__doc__:  # there are none under python -OO
            cls.__doc__ = compose_docstring(cls)


def compose_docstring(cls: type) -> str:
    r"""Return the docstring of a class, completed by inherited entries and by the defaults of its parameters.

    Parameters
    ----------
    cls : type
        A class with a numpydoc docstring. The docstring of its parent must be composed already.

    Returns
    -------
    docstring : str
        Summary and sections in numpydoc's order. The entries of the class come before the inherited entries, and
        replace inherited entries of the same name.

    Examples
    --------
    >>> doc = "Summary.\n\nParameters\n----------\nsize : int\n    Number of rows."
    >>> compose_docstring(type("Parent", (), {"__doc__": doc, "size": 3})).splitlines()[4]
    'size : int, default=3'
    """
    summary, sections = split_sections(inspect.cleandoc(cls.__doc__ or ""))
    _, inherited = split_sections(inspect.cleandoc(cls.__mro__[1].__doc__ or ""))
    for title in COMPOSED_SECTIONS:
        entries = split_entries(sections.get(title, ""))
        entries |= {head: text for head, text in split_entries(inherited.get(title, "")).items() if head not in entries}
        if title == "Parameters":
            entries = {name: _with_default(cls, name, text) for name, text in entries.items()}
        if entries:
            sections[title] = "\n".join(entries.values())
    order = [*SECTION_ORDER, *(title for title in sections if title not in SECTION_ORDER)]
    parts = [f"{title}\n{'-' * len(title)}\n{sections[title]}" for title in order if title in sections]
    return "\n\n".join([summary, *parts]) + "\n"


def split_sections(docstring: str) -> tuple[str, dict[str, str]]:
    r"""Split a numpydoc docstring into the text before the first section, and the sections by title.

    Parameters
    ----------
    docstring : str
        Text without common indentation, as `inspect.getdoc` returns it.

    Returns
    -------
    summary : str
    sections : dict of str to str

    Examples
    --------
    >>> split_sections("Summary.\n\nNotes\n-----\nText.")
    ('Summary.', {'Notes': 'Text.'})
    """
    parts = re.split(r"^(\S[^\n]*)\n-{3,}[ ]*$\n?", docstring, flags=re.MULTILINE)
    return parts[0].strip(), {title: text.strip("\n") for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def split_entries(section: str) -> dict[str, str]:
    r"""Split a section such as Parameters into its entries: "name : type" and indented lines.

    Parameters
    ----------
    section : str
        The body of a section.

    Returns
    -------
    entries : dict of str to str
        The text of each entry, by name. An entry for several names, such as "a, b : int", has the key "a, b".

    Examples
    --------
    >>> split_entries("a : int\n    One.\nb : str, optional\n    Two.")
    {'a': 'a : int\n    One.', 'b': 'b : str, optional\n    Two.'}
    """
    parts = re.split(r"^(?=\S)", section, flags=re.MULTILINE)
    return {part.split("\n")[0].split(" : ")[0].strip(): part.rstrip() for part in parts if part.strip()}


def _with_default(cls: type, name: str, text: str) -> str:
    """Return the entry of a parameter, with the class's default at the end of its first line."""
    head, _, rest = text.partition("\n")
    head = re.sub(r", default=.*", "", head)
    value = getattr(cls, name, None)
    default = f'"{value}"' if isinstance(value, str) else repr(value)
    return f"{head}, default={default}" + (f"\n{rest}" if rest else "")
