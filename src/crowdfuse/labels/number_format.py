"""Numbers as commands, report and review page print them: halves are rounded up, and only 1 is 100 %."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import floor


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


def whole_percentages(shares: Sequence[float]) -> list[int]:
    """Return shares as whole percentages; if the shares sum to 1, the percentages sum to 100.

    If the shares sum to 1, they are rounded down, and the missing percentage points go to the shares with the largest
    fractional parts. Otherwise each share is rounded, halves up.

    >>> whole_percentages([1 / 3, 1 / 3, 1 / 3]), whole_percentages([0.004, 0.3])
    ([34, 33, 33], [0, 30])
    """
    exact = [100 * float(share) for share in shares]
    if abs(sum(exact) - 100) > 0.1:
        return [int(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP)) for value in exact]
    rounded = [floor(value + 1e-9) for value in exact]
    by_fraction = sorted(range(len(exact)), key=lambda k: rounded[k] - exact[k])
    for k in by_fraction[: 100 - sum(rounded)]:
        rounded[k] += 1
    return rounded
