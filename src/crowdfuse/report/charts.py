"""Small charts as SVG: numbers in, markup out. Colours come from the page, so that they follow light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Any

from markupsafe import Markup, escape

WIDTH, HEIGHT = 440, 220
LEFT, RIGHT, TOP, BOTTOM = 82, 20, 12, 50  # room for the letters of a phone, which are larger

NEUTRAL_LIMIT = 0.08  # a cell of a map nearer to usual than this is neither strong nor weak

Point = tuple[float, float]


def lines(
    series: Sequence[tuple[str, Sequence[Point]]],
    *,
    x: str,
    y: str,
    title: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    bands: Sequence[tuple[float, float, float]] = (),
    x_percent: bool = False,
    y_percent: bool = False,
    mark: tuple[float, float] | None = None,
    diagonal: bool = False,
) -> Markup:
    """Lines over numbers, told apart by dashes too; `bands` are (x, low, high) behind them, `mark` a point to see."""
    points = [point for _, line in series for point in line] + [(at, end) for at, *ends in bands for end in ends]
    if not points:
        return Markup("")
    left, right = x_range or _around([point[0] for point in points], 0)
    low, high = y_range or _around([point[1] for point in points], 0.06)

    def across(value: float) -> float:
        return LEFT + (value - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in _ticks(low, high, 5):
        parts.append(f'<path class="grid" d="M{LEFT} {up(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{up(tick) + 4:.1f}" class="end">{_number(tick, y_percent)}</text>')
    is_whole = not x_percent and all(float(at).is_integer() for at, _ in points)  # there is no epoch 6.2
    for tick in _ticks(left, right, 6, least=1 if is_whole else 0):
        shown = _number(tick, x_percent)
        parts.append(f'<text x="{across(tick):.1f}" y="{HEIGHT - BOTTOM + 23}" class="mid">{shown}</text>')
    if bands:
        there = " ".join(f"{across(at):.1f},{up(end):.1f}" for at, end, _ in bands)
        back = " ".join(f"{across(at):.1f},{up(end):.1f}" for at, _, end in reversed(bands))
        parts.append(f'<polygon class="band" points="{there} {back}"/>')
    if diagonal:
        start, end = max(left, low), min(right, high)
        parts.append(f'<path class="guide" d="M{across(start):.1f} {up(start):.1f}L{across(end):.1f} {up(end):.1f}"/>')
    for number, (_, line) in enumerate(series):
        path = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in line)
        parts.append(f'<polyline class="line s{number % 2}" points="{path}"/>')
        if len(line) <= 40:
            parts += [
                f'<circle class="dot s{number % 2}" cx="{across(a):.1f}" cy="{up(b):.1f}" r="3"/>' for a, b in line
            ]
    if mark is not None:
        parts.append(f'<circle class="mark" cx="{across(mark[0]):.1f}" cy="{up(mark[1]):.1f}" r="7"/>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" class="mid axis">{escape(x)}</text>')
    parts.append(f'<text transform="translate(15 {middle})rotate(-90)" class="mid axis">{escape(y)}</text>')
    return _svg(WIDTH, HEIGHT, title, parts, "chart")


def grid_map(map_facts: dict[str, Any], cells: Sequence[dict[str, Any]], title: str) -> Markup:
    """The map of items: where there are any, small dots; of `cells` the strong are circles, the weak diamonds.

    Size is the number of items; strength of colour the distance from usual. Class names stand where they belong.
    """
    size, columns, rows = 28, map_facts["columns"], map_facts["rows"]
    parts, covered = [], {cell["y"] * columns + cell["x"] for cell in cells}
    for place, count in enumerate(map_facts["counts"]):
        if count and place not in covered:
            x, y = place % columns * size + size / 2, place // columns * size + size / 2
            parts.append(f'<circle class="there" cx="{x:g}" cy="{y:g}" r="{1.5 + min(3, count**0.5 / 4):.1f}"/>')
    for cell in cells:
        x, y, value = cell["x"] * size + size / 2, cell["y"] * size + size / 2, cell["value"]
        radius = 4 + min(9, 1.6 * cell["items"] ** 0.5)
        strength = "abc"[min(2, int(abs(value) * 3))]
        if abs(value) < NEUTRAL_LIMIT:
            shape = f'<circle class="even" cx="{x:g}" cy="{y:g}" r="{radius * 0.6:.1f}"/>'
        elif value < 0:
            shape = (
                f'<path class="weak {strength}" d="M{x:g} {y - radius:.1f}l{radius:.1f} {radius:.1f}'
                f'l{-radius:.1f} {radius:.1f}l{-radius:.1f} {-radius:.1f}z"/>'
            )
        else:
            shape = f'<circle class="strong {strength}" cx="{x:g}" cy="{y:g}" r="{radius * 0.85:.1f}"/>'
        parts.append(shape)
    placed: list[Point] = []
    for name in map_facts["classes"]:
        x = min(max(name["x"] * columns * size, 40), columns * size - 40)
        y = min(max(name["y"] * rows * size, 16), rows * size - 8)
        while any(abs(x - other[0]) < 80 and abs(y - other[1]) < 16 for other in placed) and y < rows * size - 8:
            y += 16
        placed.append((x, y))
        text = name["class"] if len(name["class"]) <= 14 else name["class"][:13] + "…"
        parts.append(f'<text class="place mid" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>')
    return _svg(columns * size, rows * size, title, parts, "map")


def _svg(width: float, height: float, title: str, parts: Sequence[str], kind: str) -> Markup:
    # every text in `parts` was escaped where it was put in
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )


def _around(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * margin if high > low else max(abs(low) * 0.1, 0.5)
    return low - room, high + room


def _ticks(low: float, high: float, most: int, least: float = 0) -> list[float]:
    """Round numbers between two ends, at most so many, and no closer than `least`.

    >>> _ticks(6, 7, 6, least=1), _ticks(0, 0.3, 3)
    ([6.0, 7.0], [0.0, 0.1, 0.2, 0.3])
    """
    for power in range(-12, 13):
        for factor in (1, 2, 5):
            step = factor * 10.0**power
            if step >= least and (high - low) / step <= most + 1e-9:
                first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)  # the ends are inside
                return [round(k * step, 12) for k in range(first, last + 1)]
    return [low, high]


def _number(value: float, percent: bool) -> str:
    return f"{100 * value:.3g} %" if percent else f"{value:,.4g}"
