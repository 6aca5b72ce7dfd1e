"""The report as one page: a template that escapes everything, its style and its script inside it."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from crowdfuse.report import charts
from crowdfuse.report.item_previews import ItemPreview
from crowdfuse.report.summary_sentences import contradiction_sentences, evaluated_thing, summary_sentences

EMPTY_PREVIEW: ItemPreview = {"image": None, "missing": None, "features": None}
MAX_NAME_CHARACTERS, MAX_TOOLTIP_CHARACTERS = 90, 300  # characters of a name that are shown, and that its tooltip holds


def render_html(facts: dict[str, Any], pictures: dict[int, ItemPreview]) -> str:
    """The whole page. Names go into it through the template's escaping alone, and no script runs but our own."""
    script = _part("report.js")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            facts=facts,
            pictures={row: EMPTY_PREVIEW | picture for row, picture in pictures.items()},
            short=summary_sentences(facts),
            doubts=contradiction_sentences(facts),
            style=Markup(_part("report.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            detailed={detail["position"] for detail in facts["details"]},
            judge=evaluated_thing(facts),
            together="all labels" if facts["training"] is None else "labels and model",
            training=[] if facts["training"] is None else _training(facts["training"]["history"]),
            abstained=_with_band(facts["abstention"], "points", "abstained", "value"),
            calibrated=_with_band(facts["calibration"], "bins", "confidence", "right"),
            charts=charts,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("crowdfuse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"pct": format_percent, "name": format_name, "num": format_number}
    return environment


def _part(file: str) -> str:
    return files("crowdfuse.report").joinpath("templates", file).read_text(encoding="utf-8")


def format_percent(share: float | None, digits: int = 1) -> str:
    """A share in percent.

    >>> pct(0.5), pct(None)
    ('50.0 %', '—')
    """
    return "—" if share is None or share != share else f"{100 * share:.{digits}f} %"


def format_number(value: float | None, digits: int = 2) -> str:
    """A number with a few digits.

    >>> num(1234.5), num(None)
    ('1,234.50', '—')
    """
    return "—" if value is None or value != value else f"{value:,.{digits}f}"


def format_name(text: Any) -> Markup:
    """A name as text whatever it holds: in its own direction, cut where it is very long.

    >>> name("<b>")
    Markup('<bdi>&lt;b&gt;</bdi>')
    """
    text = str(text)
    if len(text) <= MAX_NAME_CHARACTERS:
        return Markup("<bdi>{}</bdi>").format(text)
    full = text if len(text) <= MAX_TOOLTIP_CHARACTERS else text[:MAX_TOOLTIP_CHARACTERS] + "…"
    return Markup('<bdi title="{}">{}…</bdi>').format(full, text[:MAX_NAME_CHARACTERS])


def _training(history: list[dict[str, Any]]) -> list[tuple[str, Markup]]:
    """The loss over epochs, a chart a phase since each has a loss of its own; and what validation said, in one."""
    phases: dict[str, list[tuple[float, float]]] = {}
    accuracy: list[tuple[float, float]] = []
    likelihood: list[tuple[float, float]] = []
    for record in history:
        for value, line in (
            (record.get("loss"), phases.setdefault(record.get("phase", ""), [])),
            (record.get("validation_accuracy"), accuracy),
            (record.get("held_out_log_likelihood"), likelihood),
        ):
            if value is not None and value == value:
                line.append((record["epoch"], value))
    drawn = []
    for phase, line in phases.items():
        title = f"Loss, {phase}" if phase else "Loss"
        drawn.append((title, charts.lines([(title, line)], x="epoch", y="loss", title=f"{title} over epochs")))
    for title, y, line in (
        ("Validation accuracy", "accuracy", accuracy),
        ("Held-out labels", "mean log-likelihood", likelihood),
    ):
        said = f"{title}, {y} over epochs" if line is likelihood else f"{title} over epochs"
        drawn.append((title, charts.lines([(title, line)], x="epoch", y=y, title=said, y_percent=line is accuracy)))
    return [(title, chart) for title, chart in drawn if chart]


def _with_band(found: dict[str, Any] | None, name: str, x: str, y: str) -> dict[str, list[tuple[float, ...]]]:
    """A line and the band of its intervals, for a chart."""
    points = [] if found is None else found[name]
    return {
        "line": [(point[x], point[y]) for point in points],
        "band": [(point[x], point["low"], point["high"]) for point in points],
    }
