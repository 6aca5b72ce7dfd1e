"""Names of annotators, items, classes and files as text that HTML, Markdown and JSON can hold."""

from __future__ import annotations

import re
from typing import Any

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(name: Any) -> str:
    """Return a name as text, with each control character or lone surrogate replaced by U+FFFD.

    >>> printable(7), printable("a\\x00b"), printable("caf\\udce9")
    ('7', 'a\ufffdb', 'caf\ufffd')
    """
    return UNPRINTABLE.sub("\ufffd", str(name))
