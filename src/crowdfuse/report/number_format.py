"""Numbers as the report prints them."""

from __future__ import annotations


def format_percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent, or a dash if it is unknown.

    >>> format_percent(0.5), format_percent(None)
    ('50.0 %', '—')
    """
    return "—" if share is None or share != share else f"{100 * share:.{digits}f} %"


def format_number(value: float | None, digits: int = 2) -> str:
    """Return a number with the given number of decimals, or a dash if it is unknown.

    >>> format_number(1234.5), format_number(None)
    ('1,234.50', '—')
    """
    return "—" if value is None or value != value else f"{value:,.{digits}f}"
