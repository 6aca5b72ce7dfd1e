"""Numbers as report and review page print them."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal


def format_percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent, or a dash if it is unknown. Halves are rounded up, as in JavaScript.

    >>> format_percent(0.5), format_percent(0.125, 0), format_percent(None)
    ('50.0 %', '13 %', '—')
    """
    if share is None or share != share:
        return "—"
    return f"{Decimal(100 * float(share)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)} %"


def format_confidence(share: float | None) -> str:
    """Return a probability in percent, with more digits close to 100 % so that it never looks certain.

    The review page formats probabilities by the same rule (`formatPercent` in `review/page.js`).

    >>> format_confidence(0.871), format_confidence(0.9964), format_confidence(0.99999), format_confidence(1.0)
    ('87 %', '99.6 %', '> 99.9 %', '100 %')
    """
    if share is None or share != share:
        return "—"
    if 0 < share < 0.005:
        return "< 0.5 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return format_percent(share, 1 if 0.995 <= share < 1 else 0)


def format_number(value: float | None, digits: int = 2) -> str:
    """Return a number with the given number of decimals, or a dash if it is unknown.

    >>> format_number(1234.5), format_number(None)
    ('1,234.50', '—')
    """
    return "—" if value is None or value != value else f"{value:,.{digits}f}"
