"""The report in a few sentences: what a reader in a hurry must know."""

from __future__ import annotations

from typing import Any


def summary_sentences(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    """Sentences in parts: every second part is a name that somebody else chose, to be shown as such."""
    return [*_about_model(facts), *_about_annotators(facts), *_about_labels(facts)]


def evaluated_thing(facts: dict[str, Any]) -> str:
    """What the figures rest on: a model, or where there are labels alone the method that put them together."""
    return "model" if facts["aggregation"] is None else "method"


def _about_model(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    if facts["aggregation"] is not None:
        return _about_fused(facts)
    fair = [known for known in facts["accuracy"] if known["fair"] and known["predicted"]["of"]]
    if not fair:
        why = "All gold here was seen in training" if facts["accuracy"] else "There is no gold to judge by"
        return [(f"{why}: nobody can say how often the model is right. A hundred trusted items that it has not seen "
                 "would tell within ten points (--gold).",)]  # fmt: skip
    best = max(fair, key=lambda known: known["predicted"]["of"])
    right = best["predicted"]
    return [
        (
            f"The model is right on {_pct(right['value'])} of {right['of']:,} items with gold "
            f"(95 % interval {_pct(right['low'])} to {_pct(right['high'])}): {best['seen']}.",
        )
    ]


def _about_fused(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    method = facts["aggregation"]["method"]
    judged = [known["fused"] for known in facts["accuracy"] if known["fused"]["of"]]
    if not judged:
        return [(f"There is no gold to judge by: nobody can say how often the fused labels, by {method}, are right. A "
                 "hundred trusted items would tell within ten points (--gold).",)]  # fmt: skip
    right = judged[0]
    return [
        (
            f"The fused labels, by {method}, are right on {_pct(right['value'])} of {right['of']:,} items with gold "
            f"(95 % interval {_pct(right['low'])} to {_pct(right['high'])}).",
        )
    ]


def _about_annotators(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    """The best and the worst, where it is sure that they differ."""
    rows = facts["annotators"]["rows"]
    if len(rows) < 2:
        return []
    best = max(rows, key=lambda row: row["accuracy"]["low"])
    worst = min(rows, key=lambda row: row["accuracy"]["high"])
    if best["accuracy"]["low"] <= worst["accuracy"]["high"]:
        return [("No annotator is clearly better than another: their intervals overlap.",)]
    return [
        (
            "The most reliable annotator is ",
            best["annotator"],
            f" (about {_pct(best['accuracy']['value'])} of the labels right), the least reliable ",
            worst["annotator"],
            f" ({_pct(worst['accuracy']['value'])}).",
        )
    ]


def contradiction_sentences(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    """Annotators of whom the model thinks otherwise than the others' labels do; in parts as above."""
    return [_doubt(entry, evaluated_thing(facts)) for entry in facts["annotators"]["contradictions"]]


def _doubt(entry: dict[str, Any], judge: str) -> tuple[str, ...]:
    end = "highest" if entry["most"] else "lowest"
    figures = []
    if entry["weight"] is not None:
        figures.append(f"the {end} mean weight ({entry['weight']:.2f})")
    if entry["accuracy"] is not None:
        figures.append(f"the {end} estimated accuracy ({_pct(entry['accuracy'])})")
    agrees = f"the others say the same {_pct(entry['agreement'])} of the time, usual is {_pct(entry['usual'])}."
    may = "know better than the rest" if entry["most"] else "share a mistake with the rest"
    return (
        "",
        entry["annotator"],
        f" has {' and '.join(figures)}, but agrees {'less' if entry['most'] else 'more'} than usual with the other "
        f"annotators: {agrees} They may {may}, or the {judge} is mistaken about them: look at some of their items "
        "before you trust either.",
    )


def _about_labels(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    total, data = facts["suspicious"]["total"], facts["data"]
    said: list[tuple[str, ...]] = [
        (f"{total:,} of {data['labels']:,} labels ({_pct(total / data['labels'])}) are more likely wrong than right.",)
    ]
    pairs = facts["classes"]["pairs"]
    if pairs:
        worst = pairs[0]
        said.append(
            (
                "Most often mixed up: ",
                worst["true"],
                " is called ",
                worst["said"],
                f" in {_pct(worst['share'])} of its labels.",
            )
        )
    return said


def _pct(share: float) -> str:
    return f"{100 * share:.1f} %"
