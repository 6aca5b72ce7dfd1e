"""Names of people, items, classes and files as text that every face of a report can hold."""

from __future__ import annotations

import re
from typing import Any

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(name: Any) -> str:
    """A name as text: what no file can hold or no page can show becomes U+FFFD.

    >>> plain(7), plain("a\\x00b"), plain("caf\\udce9")
    ('7', 'a\ufffdb', 'caf\ufffd')
    """
    return UNPRINTABLE.sub("\ufffd", str(name))
