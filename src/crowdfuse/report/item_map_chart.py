"""The item map of one annotator as SVG: where they are strong and where they are weak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

from crowdfuse.report.svg_element import svg_element

NEUTRAL_LIMIT = 0.08  # cells with a smaller absolute value count as neither strong nor weak


def item_map_chart(map_facts: dict[str, Any], cells: Sequence[dict[str, Any]], title: str) -> Markup:
    """Return the item map of one annotator as SVG.

    The map is a grid. Circles are cells where the annotator is strong, diamonds are cells where they are weak.

    A larger marker means more items; a stronger colour means a larger absolute value. Small dots are items of other
    annotators. The name of a class is written at the median position of its items.

    Parameters
    ----------
    map_facts : dict
        The `map` entry of the report.
    cells : sequence of dict
        The cells of the annotator: `x`, `y`, `n_items` and `value` from -1 (weak) to 1 (strong).
    title : str
        Description for screen readers.

    Returns
    -------
    Markup
        An SVG element.
    """
    size, columns, rows = 28, map_facts["n_columns"], map_facts["n_rows"]
    parts, covered = [], {cell["y"] * columns + cell["x"] for cell in cells}
    for index, count in enumerate(map_facts["counts"]):
        if count and index not in covered:
            x, y = index % columns * size + size / 2, index // columns * size + size / 2
            parts.append(f'<circle class="there" cx="{x:g}" cy="{y:g}" r="{1.5 + min(3, count**0.5 / 4):.1f}"/>')
    for cell in cells:
        x, y, value = cell["x"] * size + size / 2, cell["y"] * size + size / 2, cell["value"]
        radius = 4 + min(9, 1.6 * cell["n_items"] ** 0.5)
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
    placed: list[tuple[float, float]] = []
    for name in map_facts["classes"]:
        x = min(max(name["x"] * columns * size, 40), columns * size - 40)
        y = min(max(name["y"] * rows * size, 16), rows * size - 8)
        while any(abs(x - other[0]) < 80 and abs(y - other[1]) < 16 for other in placed) and y < rows * size - 8:
            y += 16
        placed.append((x, y))
        text = name["class"] if len(name["class"]) <= 14 else name["class"][:13] + "…"
        parts.append(f'<text class="place mid" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>')
    return svg_element(columns * size, rows * size, title, parts, "map")
