"""The report as one HTML page: a template that escapes all names, with style and script inside."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from crowdfuse.labels.ids import format_count
from crowdfuse.labels.number_format import format_confidence, format_number, format_percent, whole_percentages
from crowdfuse.report.item_map_chart import item_map_chart
from crowdfuse.report.item_previews import ItemPreview
from crowdfuse.report.line_chart import line_chart
from crowdfuse.report.summary_sentences import (
    accuracy_notes,
    calibration_sentence,
    evaluated_thing,
    gold_use_sentence,
    summary_sentences,
    threshold_sentence,
)
from crowdfuse.report.training_text import kept_epoch_sentence, loss_sentence

EMPTY_PREVIEW: ItemPreview = {"image": None, "missing": None, "text": None, "features": None}
MAX_NAME_CHARACTERS, MAX_TOOLTIP_CHARACTERS = 90, 300


def render_html(facts: dict[str, Any], previews: dict[int, ItemPreview]) -> str:
    """Return the report as an HTML page.

    The template escapes all names from the data. The content security policy of the page allows only its own script.

    Parameters
    ----------
    facts : dict
        All figures, as in `Report.facts`.
    previews : dict of int to dict
        Previews of the items shown, by row.

    Returns
    -------
    str
        The page.
    """
    script = _read_template("report.js")
    training = facts["training"]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            facts=facts,
            previews={row: EMPTY_PREVIEW | preview for row, preview in previews.items()},
            summary=summary_sentences(facts),
            style=Markup(_read_template("report.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            detailed={detail["position"] for detail in facts["annotator_details"]},
            evaluated=evaluated_thing(facts),
            gold_use="" if training is None else gold_use_sentence(training),
            kept_epoch="" if training is None else kept_epoch_sentence(training),
            losses="" if training is None else loss_sentence(training),
            training_charts=[] if training is None else training_charts(training),
            abstention_curve=_line_with_band(facts["abstention"], "points", "abstained", "value"),
            calibration_curves={
                subject: _line_with_band(found, "bins", "confidence", "accuracy")
                for subject, found in facts["calibration"].items()
            },
            accuracy_notes=accuracy_notes(facts),
            line_chart=line_chart,
            item_map_chart=item_map_chart,
        )
    )


def format_name(text: Any) -> Markup:
    """Return a name as escaped HTML that keeps its text direction. A long name is shortened and gets a tooltip.

    >>> format_name("<b>")
    Markup('<bdi>&lt;b&gt;</bdi>')
    """
    text = str(text)
    if len(text) <= MAX_NAME_CHARACTERS:
        return Markup("<bdi>{}</bdi>").format(text)
    tooltip = text if len(text) <= MAX_TOOLTIP_CHARACTERS else text[:MAX_TOOLTIP_CHARACTERS] + "…"
    return Markup('<bdi title="{}">{}…</bdi>').format(tooltip, text[:MAX_NAME_CHARACTERS])


def training_charts(training: dict[str, Any]) -> list[tuple[str, Markup]]:
    """Return charts over epochs with titles: the loss of each phase, validation accuracy, held-out log-likelihood.

    Each phase has its own loss and therefore its own chart. Charts without values are left out. A ring marks the epoch
    that was kept.

    Parameters
    ----------
    training : dict
        The `training` entry of a report. Its `history` has one record per epoch, as in `clf.history_`.

    Returns
    -------
    list of (title, chart)
    """
    losses: dict[str, list[tuple[float, float]]] = {}
    accuracy: list[tuple[float, float]] = []
    likelihood: list[tuple[float, float]] = []
    for record in training["history"]:
        for value, line in (
            (record.get("loss"), losses.setdefault(record.get("phase", ""), [])),
            (record.get("validation_accuracy"), accuracy),
            (record.get("held_out_log_likelihood"), likelihood),
        ):
            if value is not None and value == value:
                line.append((record["epoch"], value))
    drawn = []
    for phase, line in losses.items():
        title = f"Loss, {phase}" if phase else "Loss"
        drawn.append((title, line_chart([(title, line)], x="epoch", y="loss", title=f"{title} over epochs")))
    for title, y, line in (
        ("Validation accuracy", "accuracy", accuracy),
        ("Held-out labels", "mean log-likelihood", likelihood),
    ):
        label = f"{title}, {y} over epochs" if line is likelihood else f"{title} over epochs"
        kept = next((point for point in line if point[0] == training["best_epoch"]), None)
        chart = line_chart([(title, line)], x="epoch", y=y, title=label, y_percent=line is accuracy, mark=kept)
        drawn.append((title, chart))
    return [(title, chart) for title, chart in drawn if chart]


def _line_with_band(facts: dict[str, Any] | None, name: str, x: str, y: str) -> dict[str, list[tuple[float, ...]]]:
    """Return the points of a curve and the band of their intervals, for a chart."""
    points = [] if facts is None else facts[name]
    return {
        "line": [(point[x], point[y]) for point in points],
        "band": [(point[x], point["low"], point["high"]) for point in points],
    }


@cache
def _environment() -> Environment:
    """Return the template engine. It escapes everything and raises an error for undefined names."""
    environment = Environment(
        loader=PackageLoader("crowdfuse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "calibration": calibration_sentence,
        "threshold": threshold_sentence,
        "count_of": format_count,
        "percent": format_percent,
        "confidence": format_confidence,
        "name": format_name,
        "number": format_number,
        "whole_percentages": whole_percentages,
    }
    return environment


def _read_template(file: str) -> str:
    """Return the text of a file in the folder of templates."""
    return files("crowdfuse.report").joinpath("templates", file).read_text(encoding="utf-8")
