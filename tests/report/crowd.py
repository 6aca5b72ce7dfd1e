"""Small crowds and run folders for tests of reports, also with hostile names."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from crowdfuse.quality.consensus import Consensus
from crowdfuse.report.printable import printable
from crowdfuse.runs import Job, start

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "שלום \u202eevil",
    "very long " + "x" * 500,
    "[click](javascript:alert(3)) `a|b` *c*",
)
HOSTILE_CLASSES = ("</script><script>alert(4)</script>", "{{ 7 * 7 }} & <b>")


@dataclass
class Crowd:
    """Files of a crowd: n items, five annotators; the second is weak where the first feature is high."""

    folder: Path
    n: int = 60
    annotators: tuple[str, ...] = ("ada", "bob", "chen", "dora", "efe")
    classes: tuple[str, ...] = ("cat", "dog")
    items: str = "i{}"

    def __post_init__(self) -> None:
        generator = np.random.default_rng(4)
        self.X = generator.normal(size=(self.n, 4)).astype(np.float32)
        self.truth = (self.X[:, 1] > 0).astype(int) + (self.X[:, 2] > 1) * (len(self.classes) > 2)
        self.names = [self.items.format(n) for n in range(self.n)]
        self.triples = []
        for n in range(self.n):
            for r, name in enumerate(self.annotators):
                if r and generator.random() < 0.3:
                    continue
                wrong = self.X[n, 0] > 0.3 if r == 1 else generator.random() < 0.05 * r
                said = (self.truth[n] + wrong) % len(self.classes)
                self.triples.append((self.names[n], name, self.classes[said]))
        self.labels = self.write("labels.csv", ("item", "annotator", "label"), self.triples)

    def write(self, name: str, header: Any, rows: Any) -> Path:
        path = self.folder / name
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        return path

    def features(self) -> Path:
        rows = [(name, *row) for name, row in zip(self.names, self.X.tolist(), strict=True)]
        return self.write("features.csv", ("item", "<i>height</i>", "b", "c", "d"), rows)

    def images(self) -> Path:
        folder = self.folder / "images"
        folder.mkdir()
        for name, row in zip(self.names, self.X, strict=True):
            pixels = np.kron(row.reshape(2, 2), np.ones((8, 8)))
            Image.fromarray(np.clip(pixels * 60 + 128, 0, 255).astype(np.uint8)).save(folder / f"{name}.png")
        return folder

    def gold(self, name: str, rows: slice) -> Path:
        pairs = [(self.names[n], self.classes[self.truth[n]]) for n in range(self.n)[rows]]
        return self.write(name, ("item", "label"), pairs)

    def fit(self, inputs: Path, name: str = "run", **more: Any) -> Path:
        settings = {"epochs": 8, "backbone": "mlp", "batch_size": 16} | more.pop("settings", {})
        more = {"method": "gated"} | more
        job = Job(str(self.labels), str(inputs), settings=settings, on_missing="drop", **more)
        start(job, self.folder / name, force=False, verbose=0)
        return self.folder / name


def assert_equals_consensus(facts: Any, consensus: Consensus, training_gold: Collection[str] = ()) -> int:
    """Check that all figures of a report, read from its JSON, are those of a consensus, to the digit.

    Return the number of items that were compared. Labels of items with training gold are not listed as suspicious.
    """
    row_of = {printable(item): row for row, item in enumerate(consensus.items)}
    items = [item for name in ("disputed", "ambiguous", "mislabelled") for item in facts[name]["items"]]
    for item in items:
        row = row_of[item["item"]]
        confidence = float(consensus.confidence[row])
        assert item["consensus"] == {"class": printable(consensus.consensus[row]), "confidence": confidence}
        if consensus.predicted_probabilities is None:
            assert item["predicted"] is None
        else:
            p = consensus.predicted_probabilities[row]
            expected = {"class": printable(consensus.classes[p.argmax()]), "confidence": float(p.max())}
            assert item["predicted"] == expected
    position = {printable(name): r for r, name in enumerate(consensus.annotators)}
    for annotator in facts["annotators"]["rows"]:
        r = position[annotator["annotator"]]
        figures = [consensus.annotator_accuracy[r], *consensus.annotator_accuracy_interval[r]]
        value, low, high = (None if np.isnan(figure) else float(figure) for figure in figures)
        assert annotator["accuracy"] == {"value": value, "low": low, "high": high}
    if consensus.confusion_matrices is not None:
        for detail in facts["annotator_details"]:
            assert detail["confusion"]["matrix"] == consensus.confusion_matrices[position[detail["annotator"]]].tolist()
    labels = [row for row in consensus.suspicious_labels().to_pylist() if str(row["item"]) not in training_gold]
    listed = facts["suspicious"]["rows"]
    assert [label["suspicion"] for label in listed] == [label["suspicion"] for label in labels[: len(listed)]]
    assert facts["warnings"] == [finding.message for finding in consensus.findings]
    assert facts["limitations"][: len(consensus.limitations)] == list(consensus.limitations)
    return len(items)
