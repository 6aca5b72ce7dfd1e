"""The report as Markdown: the same figures, without pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crowdfuse.report.html import format_number, format_percent
from crowdfuse.report.markdown import cell
from crowdfuse.report.summary_sentences import contradiction_sentences, evaluated_thing, summary_sentences


def render_markdown(facts: dict[str, Any]) -> str:
    """The whole report."""
    data, alone = facts["data"], facts["training"] is None
    parts = [
        "<!-- crowdfuse report -->",
        f"# {escape_markdown(facts['title'])}",
        _sentences(summary_sentences(facts)),
        *_listed("What this report cannot show", facts["missing"]),
        *_listed("Good to know", facts["notes"]),
        "## The data at a glance",
        _table(
            ["items", "annotators", "labels", "labels an item", "agreement", "Krippendorff's alpha"],
            [
                [
                    f"{data['items']:,}",
                    f"{data['annotators']:,}",
                    f"{data['labels']:,}",
                    format_number(data["labels an item"]["mean"]),
                    format_percent(data["agreement"]),
                    format_number(data["krippendorff alpha"], 3),
                ]
            ],
        ),
        _table(
            ["class", "labels", "items fused to it"], [[x["class"], x["said"], x["fused"]] for x in data["by class"]]
        ),
        *([] if alone else ["## How training went", _training(facts["training"])]),
        "## How good it is, where the truth is known",
        *_accuracy(facts),
        "## The annotators",
        _sentences(contradiction_sentences(facts)),
        *_annotators(facts["annotators"]),
        *_one_by_one(facts["details"]),
        "## Classes that get mixed up",
        _table(
            ["true class", "is called", "wrong labels", "of the class's labels"],
            [
                [x["true"], x["said"], format_number(x["labels"], 0), format_percent(x["share"])]
                for x in facts["classes"]["pairs"]
            ],
        ),
    ]
    for key, title in (
        ("disputed", "The items most in dispute"),
        ("ambiguous", "Ambiguous items: good annotators, and still unsure"),
        ("mislabelled", "Mislabelled items: sure, against half of the labels or more"),
    ):
        parts += [f"## {title}", f"{facts[key]['total']:,} in all.", _items(facts[key]["items"], alone)]
    wrong = facts["suspicious"]
    parts += [
        "## The labels most likely wrong",
        f"{wrong['total']:,} labels are more likely wrong than right.",
        _table(
            ["item", "annotator", "said", "more likely", "likely wrong"],
            [
                [x["item"], x["annotator"], x["label"], x["consensus"], format_percent(x["suspicion"])]
                for x in wrong["rows"]
            ],
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape_markdown(value: Any) -> str:
    """A name as text: nothing in it becomes a link, an image, HTML or emphasis.

    >>> print(words("[a](b) *c* <d>"))
    \\[a\\](b) \\*c\\* &lt;d&gt;
    """
    shown = cell(value)
    for sign in "[]*_#~":
        shown = shown.replace(sign, "\\" + sign)
    return shown


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [[escape_markdown(value) for value in row] for row in rows]
    if not lines:
        return "None."
    return "\n".join(
        ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(x) + " |" for x in lines)]
    )


def _sentences(found: Iterable[Sequence[str]]) -> str:
    """Lines of a list: every second part of a sentence is a name."""
    lines = (
        "".join(escape_markdown(part) if place % 2 else part for place, part in enumerate(parts)).strip()
        for parts in found
    )
    return "\n".join(f"- {line}" for line in lines)


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return [f"**{title}**", "\n".join(f"- {escape_markdown(line)}" for line in lines)] if lines else []


def _training(training: dict[str, Any]) -> str:
    history = training["history"]
    ends = f", loss {history[0]['loss']:.4g} to {history[-1]['loss']:.4g}" if history else ""
    best = f"; validation chose epoch {training['best epoch']}" if training["best epoch"] else ""
    stopped = "; it was interrupted" if training["interrupted"] else ""
    return (
        f"{training['method']}: {len(history)} epochs{ends}{best}{stopped}. "
        f"Gold was used for {training['gold was used for']}."
    )


def _share(found: dict[str, Any]) -> str:
    return (
        "—"
        if found["value"] is None
        else f"{format_percent(found['value'])} ({format_percent(found['low'])} to {format_percent(found['high'])})"
    )


def _accuracy(facts: dict[str, Any]) -> list[str]:
    if not facts["accuracy"]:
        return ["There is no gold to judge by."]
    header = ["gold", "items", "model alone", "fused labels", "labels and model together", "what training saw of them"]
    rows = [
        [x["gold"], f"{x['items']:,}", _share(x["predicted"]), _share(x["fused"]), _share(x["consensus"]), x["seen"]]
        for x in facts["accuracy"]
    ]
    if facts["training"] is None:
        header = ["gold", "items", "fused labels"]
        rows = [[x["gold"], f"{x['items']:,}", _share(x["fused"])] for x in facts["accuracy"]]
    parts = [_table(header, rows), "In brackets: Wilson's 95 % interval."]
    point = facts["operating point"]
    if point:
        parts.append(
            f"To find {format_percent(point['wanted'], 0)} of {escape_markdown(point['positive'])}: say so from a "
            "probability of "
            f"{format_number(point['threshold'], 3)} on. Sensitivity {_share(point['sensitivity'])}, specificity "
            f"{_share(point['specificity'])}; the threshold was chosen on these very items."
        )
    if facts["calibration"]:
        sure, right = facts["calibration"]["mean confidence"], facts["calibration"]["right"]
        parts.append(
            f"On average the {evaluated_thing(facts)} is {format_percent(sure)} sure and {format_percent(right)} right."
        )
    if facts["abstention"]:
        rows = [[format_percent(x["abstained"], 0), _share(x)] for x in facts["abstention"]["points"]]
        parts.append(_table(["share abstained", "accuracy on the rest"], rows))
    return parts


def _annotators(found: dict[str, Any]) -> list[str]:
    def best(chosen: dict[str, Any] | None) -> str:
        return "—" if chosen is None else f"{chosen['class']} ({format_percent(chosen['share'], 0)})"

    columns = ["annotator", "labels", "estimated accuracy", "on gold", "agrees with fused", "mean weight"]
    header = [*columns, "strongest", "weakest"]
    rows = [
        [
            x["annotator"],
            f"{x['labels']:,}",
            _share(x["accuracy"]),
            "—" if x["gold"] is None else f"{format_percent(x['gold']['value'])} of {x['gold']['of']:,}",
            format_percent(x["agreement"]),
            format_number(x["weight"]),
            best(x["strongest"]),
            best(x["weakest"]),
        ]
        for x in found["rows"]
    ]
    more = f"The {len(rows):,} annotators with the most labels, of {found['total']:,}."
    return [_table(header, rows), more if found["total"] > len(rows) else ""]


def _one_by_one(details: Sequence[dict[str, Any]]) -> list[str]:
    parts = []
    for detail in details:
        found, place = detail["confusion"], detail["map"] and detail["map"]["weak"]
        where = (
            ""
            if not place
            else (
                f"Weakest on items that the model takes for {escape_markdown(place['class'])}: "
                f"{detail['map']['measure']} "
                f"{format_number(place['mean'])} there, {format_number(detail['map']['usual'])} overall."
            )
        )
        rows = [
            [name, *(f"{100 * value:.0f}" for value in row)]
            for name, row in zip(found["classes"], found["matrix"], strict=True)
        ]
        shown = "" if found["of"] == len(rows) else f" The {len(rows)} classes most mixed up, of {found['of']}."
        matrix = _table(["true \\ said, in %", *map(escape_markdown, found["classes"])], rows)
        parts += [f"### {escape_markdown(detail['annotator'])}", f"{where}{shown}".strip(), matrix]
    return parts


def _items(items: Sequence[dict[str, Any]], alone: bool) -> str:
    opinions = {"fused": "fused"} if alone else {"fused": "fused", "consensus": "consensus", "predicted": "model alone"}

    def made(found: dict[str, Any] | None) -> str:
        return "—" if found is None else f"{found['class']} ({format_percent(found['confidence'], 0)})"

    def voice(said: dict[str, Any]) -> str:
        weight = "" if said["weight"] is None else f" (weight {format_number(said['weight'])})"
        return f"{said['annotator']}: {said['label']}{weight}"

    rows = [
        [
            x["item"],
            *(made(x[name]) for name in opinions),
            "; ".join(map(voice, x["voices"])),
            x["gold"] or "—",
        ]
        for x in items
    ]
    return _table(["item", *opinions.values(), "who said what", "gold"], rows)
