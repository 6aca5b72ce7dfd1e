"""One report object with several faces: HTML, Markdown, JSON, and itself in a notebook."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crowdfuse import __version__
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.io.files import nonfinite_to_none, write_text
from crowdfuse.labels.alignment import gold_codes
from crowdfuse.labels.ids import IntArray, format_count, format_names, normalize_ids, positions_of
from crowdfuse.report.annotator_details import chosen_annotators, detail_facts, own_labels
from crowdfuse.report.annotator_facts import annotator_facts
from crowdfuse.report.gold_facts import (
    GoldSet,
    abstention_facts,
    accuracy_facts,
    calibration_facts,
    evaluation_rows,
    operating_point,
)
from crowdfuse.report.item_facts import (
    ambiguous_rows,
    disputed_rows,
    item_facts,
    mislabelled_rows,
    mixed_facts,
    suspicious_facts,
)
from crowdfuse.report.item_map import map_facts, map_items
from crowdfuse.report.item_previews import THUMBNAIL_SIDES_PIXELS, ItemPreview, pictures_of_inputs
from crowdfuse.report.names import printable
from crowdfuse.report.report_data import ReportData, compute_report_data

REPORT_MARKER = "crowdfuse report"
MAX_LISTED_ITEMS = 200  # shown: more would make the file large, and nobody reads them
MAX_PREVIEW_BYTES = 1_000_000  # bytes for pictures: a page of two million holds them beside the rest


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What a fit amounts to, for people to look at. `save("report.html")` writes it as HTML, Markdown and JSON.

    `facts` holds every figure by name, as JSON holds it; `pictures` what the shown items look like, by row.
    """

    facts: dict[str, Any]
    pictures: dict[int, ItemPreview]

    def to_html(self) -> str:
        """One page that needs nothing else: no network, no other files."""
        from crowdfuse.report.html import render_html

        return render_html(self.facts, self.pictures)

    def to_markdown(self) -> str:
        """The same as Markdown, without pictures."""
        from crowdfuse.report.run_markdown import render_markdown

        return render_markdown(self.facts)

    def to_json(self) -> str:
        """Every figure, without pictures."""
        return json.dumps(nonfinite_to_none(self.facts), indent=2, ensure_ascii=False) + "\n"

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write `path`, an .html file, and beside it the same as .md and .json.

        An earlier report is replaced; any other file only with `overwrite`.
        """
        places = report_files(Path(path))
        for place in places:
            refuse_overwriting(place, force=overwrite)
        texts = self.to_html(), self.to_markdown(), self.to_json()
        for place, render_markdown in zip(places, texts, strict=True):
            write_text(place, render_markdown)
        return places[0]

    def _repr_html_(self) -> str:
        """For notebooks: a page of its own, so that neither changes the other's looks."""
        return (
            f'<iframe title="{html.escape(self.facts["title"])}" sandbox="allow-scripts" '
            'style="width:100%;height:44rem;border:1px solid #8884;border-radius:8px" '
            f'srcdoc="{html.escape(self.to_html())}"></iframe>'
        )

    def __repr__(self) -> str:
        data = self.facts["data"]
        return (
            f"Report({data['items']:,} items, {data['annotators']:,} annotators, {data['labels']:,} labels; "
            ".save('report.html') writes it)"
        )


def report_files(path: Path) -> tuple[Path, Path, Path]:
    """The files that a report is written to."""
    if path.suffix.lower() != ".html":
        raise ValueError(f"{path}: a report is an .html file, with .md and .json beside it; name it so")
    return path, path.with_suffix(".md"), path.with_suffix(".json")


def refuse_overwriting(path: Path, *, force: bool) -> None:
    """A file that is not an earlier report is overwritten only if the user says so."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file to write")
    if not path.exists() or force:
        return
    with path.open("rb") as start:
        if REPORT_MARKER.encode() not in start.read(400):
            raise FileExistsError(
                f"{path} exists already and is no earlier report; choose another name, or say --force "
                "(overwrite=True) to replace it"
            )


def report_classifier(
    classifier: CrowdClassifier,
    X: Any,
    annotations: Any,
    *,
    items: ArrayLike | None = None,
    gold: ArrayLike | None = None,
    n_items: int = 30,
    sensitivity: float = 0.95,
    positive: Any = None,
    title: str | None = None,
) -> Report:
    """See `Inspection.report`."""
    look = compute_report_data(classifier, X, annotations, items)
    sets = [] if gold is None else _by_labels(look, gold_codes(gold, look.ann.classes, look.ann.n_items))
    names = getattr(classifier, "feature_names_in_", None)
    strangers = look.ann.n_annotators - len(classifier.annotators_)
    notes = [f"{format_count(strangers, 'annotator')} never seen in training, taken to be like the average one."]
    notes = [*(notes if strangers else []), *diagnostic_notes(classifier)]
    inputs = classifier._inputs(X)
    return make_report(
        look,
        about=training_facts(classifier),
        sets=sets,
        notes=notes,
        pictures=lambda rows, side: pictures_of_inputs(inputs, rows, side, names),
        n_items=n_items,
        sensitivity=sensitivity,
        positive=positive,
        title=title or f"Report on {classifier.method_name}",
    )


def _by_labels(look: ReportData, codes: IntArray) -> list[GoldSet]:
    """Gold by row, apart for items with labels and without: nobody else knows what was trained on."""
    known, labelled = codes >= 0, look.labels_per_item > 0
    parts = (
        ("gold, items with labels", known & labelled, "the model was probably trained on their labels"),
        ("gold, items without labels", known & ~labelled, "the model had no labels of them"),
    )
    rows = [(name, np.flatnonzero(mask), seen) for name, mask, seen in parts]
    return [GoldSet(name, where, codes[where], seen, is_unbiased=True) for name, where, seen in rows if len(where)]


def training_facts(classifier: CrowdClassifier) -> dict[str, Any]:
    """The model and its training."""
    return {
        "method": classifier.method_name,
        "history": [_record(record) for record in classifier.history_],
        "best epoch": classifier.best_epoch_,
        "interrupted": classifier.interrupted_,
        "gold was used for": classifier.gold_used_for_,
        "settings": classifier.json_settings(),
    }


def diagnostic_notes(classifier: CrowdClassifier) -> list[str]:
    """What the labels could not decide, where the method knows."""
    return [f"{message[:1].upper()}{message[1:]}." for message in classifier.diagnostic_messages_]


def _record(record: dict[str, Any]) -> dict[str, Any]:
    return {name: printable(value) if isinstance(value, str) else value for name, value in record.items()}


def make_report(
    look: ReportData,
    *,
    about: dict[str, Any] | None,
    sets: Sequence[GoldSet],
    pictures: Callable[[IntArray, int], list[ItemPreview]],
    notes: Sequence[str] = (),
    missing: Sequence[str] = (),
    aggregation: dict[str, Any] | None = None,
    n_items: int = 30,
    sensitivity: float = 0.95,
    positive: Any = None,
    title: str = "Report",
) -> Report:
    """All figures of a report. `missing` says what cannot be shown and why.

    Either `about` tells of the model, or `aggregation` of what was made of labels alone; this is then what gold judges.
    """
    check_settings(n_items, sensitivity)
    code = _positive(look, positive)
    gold = np.full(look.ann.n_items, -1, np.int64)
    for known in sets:
        gold[known.rows] = known.codes
    judged = (
        look if aggregation is None else replace(look, predicted=look.fused, predicted_confidence=look.fused_confidence)
    )
    rows, codes, on = evaluation_rows(judged, sets)
    shown = chosen_annotators(look)
    own = own_labels(look, shown)
    where = map_items(look, np.unique(look.ann.item[np.concatenate([*own.values(), np.zeros(0, np.int64)])]))
    lists = {"disputed": disputed_rows(look), "ambiguous": ambiguous_rows(look), "mislabelled": mislabelled_rows(look)}
    most = {"disputed": n_items, "ambiguous": -(-n_items // 3), "mislabelled": -(-n_items // 3)}
    suspicious = suspicious_facts(look, n_items)
    facts: dict[str, Any] = {
        "made by": REPORT_MARKER,
        "crowdfuse": __version__,
        "title": printable(title),
        "missing": [printable(line) for line in missing],
        "notes": [printable(line) for line in notes],
        "data": data_facts(look),
        "training": about,
        "aggregation": aggregation,
        "accuracy": accuracy_facts(look, sets),
        "abstention": abstention_facts(judged, rows, codes, on),
        "calibration": calibration_facts(judged, rows, codes, on),
        "operating point": None
        if code is None or not len(rows)
        else operating_point(judged, rows, codes, on, positive=code, sensitivity=sensitivity),
        "annotators": annotator_facts(look, gold),
        "map": map_facts(look, where),
        "details": detail_facts(look, own, where),
        "classes": mixed_facts(look),
        **{
            name: {"total": len(found), "items": [item_facts(look, int(row), gold) for row in found[: most[name]]]}
            for name, found in lists.items()
        },
        "suspicious": suspicious,
    }
    needed = [row for name, found in lists.items() for row in found[: most[name]].tolist()]
    return Report(facts, _pictures(needed + [label["row"] for label in suspicious["rows"]], pictures))


def _pictures(needed: list[int], pictures: Callable[[IntArray, int], list[ItemPreview]]) -> dict[int, ItemPreview]:
    """What the shown items look like, as large as the page has room for: one may stand in it several times."""
    rows = sorted(set(needed))
    seen: dict[int, ItemPreview] = {}
    for side in THUMBNAIL_SIDES_PIXELS:
        seen = dict(zip(rows, pictures(np.array(rows, np.int64), side), strict=True)) if rows else {}
        if sum(len(seen[row].get("image", "")) for row in needed) <= MAX_PREVIEW_BYTES:
            break
    return seen


def check_settings(n_items: int, sensitivity: float) -> None:
    """What people ask for, refused before any work."""
    if isinstance(n_items, bool) or not isinstance(n_items, int) or not 1 <= n_items <= MAX_LISTED_ITEMS:
        raise ValueError(
            f"the number of items shown must be a whole number from 1 to {MAX_LISTED_ITEMS}, got {n_items!r}"
        )
    if not 0 < sensitivity <= 1:
        raise ValueError(f"the wanted sensitivity must be above 0 and at most 1, got {sensitivity!r}")


def _positive(look: ReportData, name: Any) -> int | None:
    """The position of the class to be found, of two; by itself the second."""
    classes = look.ann.classes
    if name is None:
        return 1 if len(classes) == 2 else None
    code = int(positions_of(normalize_ids([name], "positive"), classes)[0])
    if code < 0:
        raise ValueError(
            f"the positive class {format_names([name])} is not one of the classes ({format_names(classes)})"
        )
    if len(classes) != 2:
        raise ValueError(f"a positive class goes with two classes, and there are {len(classes)}; leave it out")
    return code


def data_facts(look: ReportData) -> dict[str, Any]:
    """The labels in a few numbers."""
    summary = look.ann.summary()
    said = np.bincount(look.ann.label, minlength=look.ann.n_classes)
    made = np.bincount(look.fused[look.fused >= 0], minlength=look.ann.n_classes)
    order = np.argsort(-said, kind="stable")[:40]
    return {
        "items": summary.n_items,
        "items without labels": summary.items_without_labels,
        "annotators": int((np.bincount(look.ann.annotator, minlength=1) > 0).sum()),
        "labels": summary.n_labels,
        "classes": summary.n_classes,
        "labels an item": summary.labels_per_item,
        "labels an annotator": summary.labels_per_annotator,
        "agreement": summary.agreement,
        "krippendorff alpha": summary.krippendorff_alpha,
        "by class": [
            {"class": printable(look.ann.classes[k]), "said": int(said[k]), "fused": int(made[k])} for k in order
        ],
    }
