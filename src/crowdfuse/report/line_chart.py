"""Line charts as SVG. The style sheet of the page sets their colours, so they follow light and dark mode."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from markupsafe import Markup, escape

from crowdfuse.report.svg_element import svg_element

WIDTH, HEIGHT = 440, 220
LEFT, RIGHT, TOP, BOTTOM = 82, 20, 12, 50  # margins with room for the larger letters on a phone
MAX_DOTS = 40  # a line with more points is drawn without dots

Point = tuple[float, float]


def line_chart(
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
    """Return a line chart as SVG; its lines differ in colour and dash pattern.

    Parameters
    ----------
    series : sequence of (name, points)
        The lines, each with points (x, y).
    x, y : str
        Titles of the axes.
    title : str
        Description for screen readers.
    x_range, y_range : tuple of float, default=None
        Limits of the axes. If None, the range of the points.
    bands : sequence of (x, low, high), default=()
        A shaded band behind the lines, from `low` to `high` at each `x`.
    x_percent, y_percent : bool, default=False
        Whether the ticks of the axis are percentages.
    mark : tuple of float, default=None
        A point that is marked with a ring.
    diagonal : bool, default=False
        Whether to draw the line y = x.

    Returns
    -------
    Markup
        An SVG element; empty if there are no points.
    """
    points = [point for _, line in series for point in line] + [(at, end) for at, *ends in bands for end in ends]
    if not points:
        return Markup("")
    left, right = x_range or _range_of([point[0] for point in points], 0)
    low, high = y_range or _range_of([point[1] for point in points], 0.06)

    def to_x(value: float) -> float:
        return LEFT + (value - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def to_y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in _ticks(low, high, 5):
        parts.append(f'<path class="grid" d="M{LEFT} {to_y(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{to_y(tick) + 4:.1f}" class="end">{_tick_label(tick, y_percent)}</text>')
    is_whole = not x_percent and all(
        float(at).is_integer() for at, _ in points
    )  # no ticks between whole numbers, such as epoch 6.2
    for tick in _ticks(left, right, 6, min_step=1 if is_whole else 0):
        shown = _tick_label(tick, x_percent)
        parts.append(f'<text x="{to_x(tick):.1f}" y="{HEIGHT - BOTTOM + 23}" class="mid">{shown}</text>')
    if bands:
        lower = " ".join(f"{to_x(at):.1f},{to_y(end):.1f}" for at, end, _ in bands)
        upper = " ".join(f"{to_x(at):.1f},{to_y(end):.1f}" for at, _, end in reversed(bands))
        parts.append(f'<polygon class="band" points="{lower} {upper}"/>')
    if diagonal:
        start, end = max(left, low), min(right, high)
        parts.append(f'<path class="guide" d="M{to_x(start):.1f} {to_y(start):.1f}L{to_x(end):.1f} {to_y(end):.1f}"/>')
    for number, (_, line) in enumerate(series):
        path = " ".join(f"{to_x(at):.1f},{to_y(value):.1f}" for at, value in line)
        parts.append(f'<polyline class="line s{number % 2}" points="{path}"/>')
        if len(line) <= MAX_DOTS:
            parts += [
                f'<circle class="dot s{number % 2}" cx="{to_x(a):.1f}" cy="{to_y(b):.1f}" r="3"/>' for a, b in line
            ]
    if mark is not None:
        parts.append(f'<circle class="mark" cx="{to_x(mark[0]):.1f}" cy="{to_y(mark[1]):.1f}" r="7"/>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" class="mid axis">{escape(x)}</text>')
    parts.append(f'<text transform="translate(15 {middle})rotate(-90)" class="mid axis">{escape(y)}</text>')
    return svg_element(WIDTH, HEIGHT, title, parts, "chart")


def _range_of(values: Sequence[float], margin: float) -> tuple[float, float]:
    """Return the range of values with a relative margin on both sides."""
    low, high = min(values), max(values)
    extra = (high - low) * margin if high > low else max(abs(low) * 0.1, 0.5)
    return low - extra, high + extra


def _ticks(low: float, high: float, max_steps: int, min_step: float = 0) -> list[float]:
    """Return round numbers from `low` to `high`, with at most `max_steps` steps of at least `min_step`.

    >>> _ticks(6, 7, 6, min_step=1), _ticks(0, 0.3, 3)
    ([6.0, 7.0], [0.0, 0.1, 0.2, 0.3])
    """
    for power in range(-12, 13):
        for factor in (1, 2, 5):
            step = factor * 10.0**power
            if step >= min_step and (high - low) / step <= max_steps + 1e-9:
                first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)  # the ends are inside
                return [round(k * step, 12) for k in range(first, last + 1)]
    return [low, high]


def _tick_label(value: float, percent: bool) -> str:
    """Return the text of a tick."""
    return f"{100 * value:.3g} %" if percent else f"{value:,.4g}"
