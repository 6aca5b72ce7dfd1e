"""Check that a value is one of the allowed names, and suggest the most similar name if it is misspelled."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return the value if it is one of the allowed names.

    Parameters
    ----------
    name : str
        Name of the setting, for the error message.
    value : object
        The value to check.
    allowed : iterable of str
        The allowed names, in the order in which the message lists them.

    Returns
    -------
    str
        `value`.

    Raises
    ------
    ValueError
        If the value is not allowed. The message lists the allowed names and suggests the most similar one.

    Examples
    --------
    >>> check_choice("vote", "soft", ("soft", "hard"))
    'soft'
    >>> check_choice("vote", "sotf", ("soft", "hard"))
    Traceback (most recent call last):
    ...
    ValueError: vote must be one of soft, hard, got 'sotf'; did you mean 'soft'?
    """
    names = list(allowed)
    if value not in names:
        suggestion = did_you_mean(value, names) if isinstance(value, str) else "."
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}{suggestion}".removesuffix("."))
    return str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: a suggestion, or a full stop.

    Parameters
    ----------
    name : str
        The unknown name.
    known : iterable of str
        The names that exist.

    Returns
    -------
    str
        `"; did you mean 'x'?"` if a known name is similar, else `"."`.

    Examples
    --------
    >>> did_you_mean("fusoin", ["fusion", "mbem"]), did_you_mean("x", ["fusion", "mbem"])
    ("; did you mean 'fusion'?", '.')
    """
    similar = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {similar[0]!r}?" if similar else "."
