"""Consensus, confidence and annotator accuracy are the same in every file, on every page and in Python.

Each generated crowd becomes a run folder. What its CSV files, report and review page show must be the numbers of the
stored consensus: as CSV with six decimals, in JSON to the last digit, on pages rounded once.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfuse import Annotations, load
from crowdfuse.cli.app import app
from crowdfuse.quality.consensus import Consensus
from crowdfuse.quality.consensus_file import load_consensus
from crowdfuse.report.html_page import MAX_NAME_CHARACTERS
from crowdfuse.report.printable import printable
from crowdfuse.review.item_inputs import ItemInputs
from crowdfuse.review.review_order import ItemFilter
from crowdfuse.review.run_folder import read_run
from crowdfuse.review.session import ReviewSession
from crowdfuse.runs import Job, start
from tests.report.crowd import assert_equals_consensus

AWKWARD = (
    "</script><script>alert(1)</script>",
    'a, "quoted" one',
    "=1+1",
    "שלום \u202eevil",
    "x" * 130,
    "0.5",
    "1e3",
    "007",
    "7",
    "None",
    "e\u0301 é",
    "[a](b) *c* `d|e`",
    "{{ 7 * 7 }} & <b>",
    "two\nlines",
    "sub/folder/ü.png",
)
KINDS = ("some labels missing", "one annotator", "one label per item", "a class with one item", "ties", "few items")
N_CROWDS = 3 * len(KINDS)  # each kind with awkward names, whole numbers and plain names


@dataclass
class GeneratedCrowd:
    """The files of a generated crowd: its kind and the style of its names follow from the seed."""

    folder: Path
    seed: int

    def __post_init__(self) -> None:
        generator = np.random.default_rng(self.seed)
        self.kind, style = KINDS[self.seed % len(KINDS)], self.seed // len(KINDS) % 3
        n = 4 if self.kind == "few items" else int(generator.integers(12, 30))
        K, R = int(generator.integers(2, 5)), 1 if self.kind == "one annotator" else int(generator.integers(2, 6))
        self.items, self.annotators, self.classes = (
            make_names(generator, count, style, prefix) for prefix, count in (("item", n), ("who", R), ("class", K))
        )
        truth = generator.integers(0, K, n)
        if self.kind == "a class with one item":
            truth = np.where(np.arange(n) == 0, K - 1, generator.integers(0, K - 1, n))
        self.X = (np.eye(K)[truth] + generator.normal(scale=0.5, size=(n, K))).astype(np.float32)
        accuracy = generator.uniform(0.4, 1, R)
        said = np.where(generator.random((n, R)) < accuracy, truth[:, None], generator.integers(0, K, (n, R)))
        if self.kind == "one label per item":
            said = np.where(np.arange(R) == generator.integers(0, R, n)[:, None], said, -1)
        elif self.kind == "ties":
            said[:, 1] = (said[:, 0] + 1) % K
            said[:, 2:] = -1
        elif self.kind == "some labels missing":
            said[generator.random((n, R)) < 0.4] = -1
        said[0, 0] = truth[0]
        rows = [
            (self.items[i], self.annotators[r], self.classes[said[i, r]])
            for i in range(n)
            for r in range(R)
            if said[i, r] >= 0
        ]
        self.with_gold = bool(generator.random() < 0.5)
        self.gold = {self.items[i]: self.classes[truth[i]] for i in range(n) if self.with_gold and i % 4 == 1}
        self.write("labels.csv", [("item", "annotator", "label"), *rows])
        if self.with_gold:
            self.write("gold.csv", [("item", "label"), *self.gold.items()])
        np.savez(self.folder / "inputs.npz", X=self.X, items=np.array(self.items))

    def write(self, name: str, rows: Any) -> None:
        with (self.folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    def fit(self, method: str) -> Path:
        job = Job(
            labels=str(self.folder / "labels.csv"),
            inputs=str(self.folder / "inputs.npz"),
            method=method,
            settings={"epochs": 2, "batch_size": 16, "random_state": self.seed},
            gold=str(self.folder / "gold.csv") if self.with_gold else None,
            on_missing="drop",
            folds=2,
        )
        start(job, self.folder / "run", force=False, verbose=0)
        return self.folder / "run"


def make_names(generator: np.random.Generator, count: int, style: int, prefix: str) -> list[str]:
    """Return distinct names: awkward ones, whole numbers, or plain words."""
    if style == 0:
        chosen = generator.permutation(len(AWKWARD))
        own = [AWKWARD[k] for k in chosen[:count]]
        return own + [f"{prefix} {k}" for k in range(count - len(own))]
    if style == 1:
        return [str(k) for k in generator.permutation(1000)[:count]]
    return [f"{prefix}-{k}" for k in range(count)]


# ---- what is shown ---------------------------------------------------------------------------------


class Page(HTMLParser):
    """The texts of a report page: rows of tables and cards of items, by section."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.section = ""
        self.rows: dict[str, list[list[str]]] = {}
        self.cards: dict[str, list[dict[str, Any]]] = {}
        self._path: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        if tag in ("meta", "img", "input", "br", "link"):
            return
        self._path.append(tag)
        if tag in ("section", "details"):
            self.section = given.get("id", "summary") or ""
        if tag == "li" and str(given.get("class", "")).startswith("item"):
            self.cards.setdefault(self.section, []).append({"item": "", "answers": [], "labels": []})
        if tag == "tr":
            self._place().append([])
        if tag == "td":
            self._place()[-1].append("")
        if tag in ("dt", "dd") and self._card() is not None:
            self._card()["answers"].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._path and self._path.pop() != tag:
            pass

    def handle_data(self, text: str) -> None:
        card = self._card()
        if "td" in self._path:
            self._place()[-1][-1] += text
        elif card is not None and "h3" in self._path:
            card["item"] += text
        elif card is not None and ("dd" in self._path or "dt" in self._path):
            card["answers"][-1] += text

    def _card(self) -> Any:
        return self.cards[self.section][-1] if "li" in self._path and self.cards.get(self.section) else None

    def _place(self) -> list[list[str]]:
        card = self._card()
        rows: list[list[str]] = self.rows.setdefault(self.section, []) if card is None else card["labels"]
        return rows


def shown_name(name: Any) -> str:
    """Return a name as the page shows it: printable, long ones shortened."""
    text = printable(name)
    return text if len(text) <= MAX_NAME_CHARACTERS else text[:MAX_NAME_CHARACTERS] + "…"


def rounded(share: float, digits: int) -> str:
    """Return a share in percent, rounded once."""
    return f"{Decimal(100 * share).quantize(Decimal(10) ** -digits, ROUND_HALF_UP)} %"


def as_confidence(share: float) -> str:
    """Return a probability as pages show it: whole percent, with one digit from 99.5 %, never 100 % unless certain."""
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    if 0 < share < 0.005:
        return "< 0.5 %"
    return rounded(share, 1 if 0.995 <= share < 1 else 0)


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def as_csv(table: Any) -> list[dict[str, str]]:
    """Return the rows of a table as texts, with six decimals."""
    return [
        {k: "" if v is None else f"{v:.6f}" if isinstance(v, float) else str(v) for k, v in row.items()}
        for row in table.to_pylist()
    ]


def assert_page_equals_facts(page: Page, facts: Any) -> None:
    """Check consensus, confidence and accuracy on the HTML page against the JSON of the same report."""
    cards = page.cards.get("disputed", []), page.cards.get("ambiguous", [])
    listed = facts["disputed"]["items"], [*facts["ambiguous"]["items"], *facts["mislabelled"]["items"]]
    for shown, items in zip(cards, listed, strict=True):
        assert [card["item"] for card in shown] == [shown_name(item["item"]) for item in items]
        for card, item in zip(shown, items, strict=True):
            answers = dict(zip(card["answers"][::2], card["answers"][1::2], strict=True))
            for title, key in (("Consensus:", "consensus"), ("Prediction:", "predicted")):
                answer = item[key]
                assert answers[title] == f"{shown_name(answer['class'])} {as_confidence(answer['confidence'])}"
            for cells, label in zip([row for row in card["labels"] if row], item["listed_labels"], strict=True):
                assert cells[:2] == [shown_name(label["annotator"]), shown_name(label["label"])]
                assert cells[2] == as_confidence(label["confidence"])
    rows = [row for row in page.rows["annotators"] if row]
    for cells, row in zip(rows, facts["annotators"]["rows"], strict=True):
        value, low, high = (row["accuracy"][name] for name in ("value", "low", "high"))
        accuracy = "—" if value is None else f"{rounded(value, 1)} {rounded(low, 1)} to {rounded(high, 1)}"
        assert cells[:3] == [shown_name(row["annotator"]), f"{row['n_labels']:,}", accuracy]
    rows = [row for row in page.rows.get("labels", []) if row]
    for cells, row in zip(rows, facts["suspicious"]["rows"], strict=True):
        assert cells[1:4] == [shown_name(row[name]) for name in ("annotator", "label", "consensus")]
        assert cells[4] == as_confidence(row["suspicion"])


def assert_review_equals_consensus(run: Path, consensus: Consensus, gold: Any) -> None:
    """Check all that the review page receives as JSON against the consensus, to the last digit."""
    folder = read_run(run)
    session = ReviewSession(folder, ItemInputs(folder), "rita")
    position = {str(name): r for r, name in enumerate(consensus.annotators)}
    row_of = {str(item): row for row, item in enumerate(consensus.items)}
    labelled = {str(item) for item, count in zip(consensus.items, consensus.labels_per_item, strict=True) if count}
    assert set(folder.items) == labelled - set(gold)
    for index, name in enumerate(folder.items):
        item = json.loads(json.dumps(session.view(ItemFilter(disputed=False), at=index)))["item"]
        row, facts = row_of[name], item["facts"]
        assert item["item"] == name
        assert (facts["consensus"], facts["confidence"]) == (
            str(consensus.consensus[row]),
            float(consensus.confidence[row]),
        )
        assert consensus.predicted_probabilities is not None
        assert facts["predicted_confidence"] == float(consensus.predicted_probabilities[row].max())
        for label in facts["labels"]:
            r = position[label["annotator"]]
            assert_same_accuracy([label[key] for key in ACCURACY_KEYS], consensus, r)
    for entry in json.loads(json.dumps(session.about()))["annotators"]:
        assert_same_accuracy([entry[key] for key in ACCURACY_KEYS], consensus, position[entry["name"]])


ACCURACY_KEYS = ("accuracy", "accuracy_low", "accuracy_high")


def assert_same_accuracy(found: list[float | None], consensus: Consensus, r: int) -> None:
    """Check accuracy and interval of an annotator."""
    expected = [consensus.annotator_accuracy[r], *consensus.annotator_accuracy_interval[r]]
    assert found == [None if np.isnan(value) else float(value) for value in expected]


# ---- the property ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(N_CROWDS))
def test_all_files_and_pages_show_the_numbers_of_one_consensus(tmp_path: Path, seed: int) -> None:
    crowd = GeneratedCrowd(tmp_path, seed)
    run = crowd.fit("majority-vote" if seed % 2 else "gated")
    stored = load_consensus(run / "posterior.safetensors")
    assert [str(item) for item in stored.items] == crowd.items

    ann = Annotations.read(tmp_path / "labels.csv", classes=stored.classes.tolist())
    gold = [crowd.gold.get(str(item)) for item in stored.items] if crowd.with_gold else None
    truth: Any = gold if gold is None or stored.classes.dtype == object else [k and int(k) for k in gold]
    found = load(run / "model").consensus(crowd.X, ann, items=stored.items, gold=truth, folds=2)
    for name in ("class_probabilities", "consensus_codes", "annotator_accuracy", "annotator_accuracy_interval"):
        np.testing.assert_array_equal(getattr(found, name), getattr(stored, name), err_msg=name)
    assert (found.limitations, found.findings) == (stored.limitations, stored.findings)

    assert read_rows(run / "consensus.csv") == as_csv(stored.to_table())
    assert read_rows(run / "suspicious_labels.csv") == as_csv(stored.suspicious_labels())
    table = stored.annotator_table()
    annotators = [{name: row[name] for name in table.column_names} for row in read_rows(run / "annotators.csv")]
    assert annotators == as_csv(table)

    result = CliRunner().invoke(app, ["report", str(run), "--items", "200"])
    assert result.exit_code == 0, result.output
    facts = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert_equals_consensus(facts, stored, crowd.gold)
    assert_page_equals_facts(Page((run / "report.html").read_text(encoding="utf-8")), facts)
    assert_review_equals_consensus(run, stored, crowd.gold)
