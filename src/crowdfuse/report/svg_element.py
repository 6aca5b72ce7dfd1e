"""The SVG element that holds each chart of the report."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape


def svg_element(width: float, height: float, title: str, parts: Sequence[str], kind: str) -> Markup:
    """Return an SVG element. All text in `parts` must already be escaped."""
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )
