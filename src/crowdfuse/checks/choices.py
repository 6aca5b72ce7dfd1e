"""One of several names: what to say where it is none of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_choice(what: str, value: object, known: Iterable[str]) -> str:
    """The value, if it is one of the known names; else an error that lists them and says which was most likely meant.

    >>> check_choice("vote", "soft", ("soft", "hard"))
    'soft'
    """
    names = list(known)
    if value not in names:
        meant = did_you_mean(value, names) if isinstance(value, str) else "."
        raise ValueError(f"{what} must be one of {', '.join(names)}, got {value!r}{meant}".removesuffix("."))
    return str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that says a name is unknown: a full stop, or the name that was most likely meant.

    >>> did_you_mean("fusoin", ["fusion", "mbem"]), did_you_mean("x", ["fusion", "mbem"])
    ("; did you mean 'fusion'?", '.')
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."
