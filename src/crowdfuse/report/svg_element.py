"""The SVG element that all charts of the report are drawn in."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape


def svg_element(width: float, height: float, title: str, parts: Sequence[str], kind: str) -> Markup:
    """Return an SVG element; all text in `parts` must be escaped already."""
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )
