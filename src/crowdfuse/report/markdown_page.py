"""The report as Markdown: the same figures as the HTML page, without charts and thumbnails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from crowdfuse.labels.ids import format_count
from crowdfuse.labels.number_format import format_confidence, format_number, format_percent, whole_percentages
from crowdfuse.report.markdown import escape_cell
from crowdfuse.report.summary_sentences import (
    Sentence,
    accuracy_notes,
    calibration_sentence,
    gold_use_sentence,
    summary_sentences,
    threshold_sentence,
)
from crowdfuse.report.training_text import kept_epoch_sentence, loss_sentence


def render_markdown(facts: dict[str, Any]) -> str:
    """Return the report as Markdown.

    Parameters
    ----------
    facts : dict
        All figures, as in `Report.facts`.

    Returns
    -------
    str
        The Markdown text.
    """
    labels_only = facts["training"] is None
    parts = [
        "<!-- crowdfuse report -->",
        f"# {escape_markdown(facts['title'])}",
        _sentence_list(summary_sentences(facts)),
        *_titled_list("Warnings", facts["warnings"]),
        *_titled_list("Limitations", facts["limitations"]),
        *_titled_list("Notes", facts["notes"]),
        "## Data",
        *_data_tables(facts["data"]),
        *([] if labels_only else ["## Training", _training_paragraph(facts["training"])]),
        "## Accuracy on gold labels",
        *_accuracy_section(facts),
        "## Annotators",
        *_annotator_table(facts["annotators"]),
        *_annotator_details(facts["annotator_details"]),
        "## Confused classes",
        _table(
            ["consensus", "labelled as", "labels", "share of labels on items with this consensus"],
            [
                [x["consensus"], x["said"], f"{x['n_labels']:,}", format_percent(x["share"])]
                for x in facts["class_confusion"]["pairs"]
            ],
        ),
    ]
    differing = "a label differs" if labels_only else "a label or the prediction differs"
    for key, title in (
        ("disputed", f"Disputed items: {differing} from the consensus"),
        ("ambiguous", "Ambiguous items: good annotators, but low confidence"),
        (
            "mislabelled",
            "Probably mislabelled items: confidence of at least 80 %, against at least half of the labels",
        ),
    ):
        n_listed = len(facts[key]["items"])
        listed = f" The first {n_listed:,}:" if n_listed < facts[key]["total"] else ""
        parts += [
            f"## {title}",
            f"{format_count(facts[key]['total'], 'item')}.{listed}",
            _item_table(facts[key]["items"], labels_only) if facts[key]["items"] else "",
        ]
    suspicious = facts["suspicious"]
    parts += [
        "## Labels most likely to be wrong",
        f"{suspicious['total']:,} labels differ from the consensus. The most suspicious first:",
        _table(
            ["item", "annotator", "label", "consensus", "probability wrong"],
            [
                [x["item"], x["annotator"], x["label"], x["consensus"], format_confidence(x["suspicion"])]
                for x in suspicious["rows"]
            ],
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape_markdown(value: Any) -> str:
    """Return a name as Markdown text in which nothing becomes a link, an image, HTML or emphasis.

    >>> print(escape_markdown("[a](b) *c* <d>"))
    \\[a\\](b) \\*c\\* &lt;d&gt;
    """
    text = escape_cell(value)
    for sign in "[]*_#~":
        text = text.replace(sign, "\\" + sign)
    return text


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table whose cells are escaped, or "None." if there are no rows."""
    lines = [[escape_markdown(value) for value in row] for row in rows]
    if not lines:
        return "None."
    return "\n".join(
        ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(x) + " |" for x in lines)]
    )


def _sentence_list(sentences: Iterable[Sentence]) -> str:
    """Return sentences as a list, with their names escaped."""
    lines = (
        "".join(escape_markdown(part) if index % 2 else part for index, part in enumerate(parts)).strip()
        for parts in sentences
    )
    return "\n".join(f"- {line}" for line in lines)


def _titled_list(title: str, lines: Sequence[str]) -> list[str]:
    """Return a title and a list; empty if there are no lines."""
    return [f"**{title}**", "\n".join(f"- {escape_markdown(line)}" for line in lines)] if lines else []


def _data_tables(data: dict[str, Any]) -> list[str]:
    """Return the tables of counts and of class frequencies."""
    counts = [
        f"{data['n_items']:,}",
        f"{data['n_annotators']:,}",
        f"{data['n_labels']:,}",
        format_number(data["labels_per_item"]["mean"]),
        format_percent(data["agreement"]),
        format_number(data["krippendorff_alpha"], 3),
    ]
    return [
        _table(["items", "annotators", "labels", "labels per item", "agreement", "Krippendorff's alpha"], [counts]),
        _table(
            ["class", "labels", "items with this consensus"],
            [[x["class"], x["n_labels"], x["n_items"]] for x in data["by_class"]],
        ),
    ]


def _training_paragraph(training: dict[str, Any]) -> str:
    """Return method, epochs, use of gold, the kept epoch and the losses."""
    history = training["history"]
    stopped = "; training was interrupted" if training["interrupted"] else ""
    method = f"{training['method']}: {format_count(len(history), 'epoch')}{stopped}."
    sentences = [method, gold_use_sentence(training), kept_epoch_sentence(training), loss_sentence(training)]
    return escape_markdown(" ".join(sentence for sentence in sentences if sentence))


def _share(share: dict[str, Any]) -> str:
    """Return a share with its interval in brackets, marked if it is too optimistic."""
    if share["value"] is None:
        return "—"
    optimistic = ", optimistic" if share.get("is_optimistic") else ""
    return (
        f"{format_percent(share['value'])} ({format_percent(share['low'])} to {format_percent(share['high'])}"
        f"{optimistic})"
    )


def _accuracy_section(facts: dict[str, Any]) -> list[str]:
    """Return accuracy, operating point, calibration and abstention."""
    if not facts["accuracy"]:
        return ["There are no gold labels."]
    columns = ("training_use", "predictions")
    header = ["gold", "items", "consensus", "model", "use in training", "predictions evaluated"]
    rows = [
        [x["gold"], f"{x['n_items']:,}", _share(x["consensus"]), _share(x["predicted"]), *(x[name] for name in columns)]
        for x in facts["accuracy"]
    ]
    if facts["training"] is None:
        header = ["gold", "items", "consensus"]
        rows = [[x["gold"], f"{x['n_items']:,}", _share(x["consensus"])] for x in facts["accuracy"]]
    parts = [_table(header, rows), "In brackets: Wilson's 95 % interval."]
    point = facts["operating_point"]
    if point:
        parts.append(
            f"To find {format_percent(point['target_sensitivity'], 0)} of the items of class "
            f"{escape_markdown(point['positive'])}, predict this class if its probability is at least "
            f"{format_number(point['threshold'], 3)}. Sensitivity "
            f"{_share(point['sensitivity'])}, specificity {_share(point['specificity'])}. {threshold_sentence(point)}"
        )
    parts += [calibration_sentence(found, subject) for subject, found in facts["calibration"].items() if found]
    if facts["abstention"]:
        rows = [[format_percent(x["abstained"], 0), _share(x)] for x in facts["abstention"]["points"]]
        parts.append(_table(["share of items abstained on", "accuracy on the rest"], rows))
    parts += map(escape_markdown, accuracy_notes(facts))
    return parts


def _annotator_table(annotators: dict[str, Any]) -> list[str]:
    """Return the table of annotators, and how many are shown if not all."""

    def class_with_share(recall: dict[str, Any] | None) -> str:
        return "—" if recall is None else f"{recall['class']} ({format_percent(recall['share'], 0)})"

    def accuracy_on_gold(share: dict[str, Any] | None) -> str:
        return "—" if share is None else f"{format_percent(share['value'])} of {share['n']:,}"

    columns = ["annotator", "labels", "estimated accuracy", "accuracy on gold"]
    header = [*columns, "mean weight", "strongest class", "weakest class"]
    rows = [
        [
            x["annotator"],
            f"{x['n_labels']:,}",
            _share(x["accuracy"]),
            accuracy_on_gold(x["accuracy_on_gold"]),
            format_number(x["mean_weight"]),
            class_with_share(x["strongest"]),
            class_with_share(x["weakest"]),
        ]
        for x in annotators["rows"]
    ]
    total = annotators["n_annotators"]
    shown = f"These are the {len(rows):,} annotators with the most labels, of {total:,}." if total > len(rows) else ""
    return [_table(header, rows), shown]


def _annotator_details(details: Sequence[dict[str, Any]]) -> list[str]:
    """Return the confusion matrix of each annotator."""
    parts = []
    for detail in details:
        confusion = detail["confusion"]
        rows = [
            [name, *map(str, whole_percentages(row))]
            for name, row in zip(confusion["classes"], confusion["matrix"], strict=True)
        ]
        n_classes = confusion["n_classes"]
        shown = "" if n_classes == len(rows) else f"The {len(rows)} most confused of {n_classes} classes:"
        matrix = _table(["true \\ label, in %", *map(escape_markdown, confusion["classes"])], rows)
        parts += [f"### {escape_markdown(detail['annotator'])}", shown, matrix]
    return parts


def _item_table(items: Sequence[dict[str, Any]], labels_only: bool) -> str:
    """Return the table of items with their labels."""
    answers = {"consensus": "consensus"}
    if not labels_only:
        answers |= {"predicted": "prediction", "fused": "method's own fused label"}
    if not any(x["fused"] for x in items):
        answers.pop("fused", None)

    def class_with_confidence(answer: dict[str, Any] | None) -> str:
        return "—" if answer is None else f"{answer['class']} ({format_confidence(answer['confidence'])})"

    def label_with_weight(label: dict[str, Any]) -> str:
        weight = "" if label["weight"] is None else f" (weight {format_number(label['weight'])})"
        return f"{label['annotator']}: {label['label']}{weight}"

    has_explanations = any(x["explanation"] or x["weight_note"] for x in items)

    rows = [
        [
            x["item"],
            *(class_with_confidence(x[name]) for name in answers),
            "; ".join(map(label_with_weight, x["listed_labels"])),
            x["gold"] or "—",
            *([" ".join(filter(None, (x["explanation"], x["weight_note"]))) or "—"] if has_explanations else []),
        ]
        for x in items
    ]
    return _table(["item", *answers.values(), "labels", "gold", *(["explanation"] if has_explanations else [])], rows)
