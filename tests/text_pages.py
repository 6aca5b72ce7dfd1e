"""A run on texts for tests of pages: short, long, right-to-left, hostile and empty texts, all disputed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crowdfuse.io.files import write_csv
from crowdfuse.runs import Job, start
from tests.text_crowd import make_texts

HOSTILE_TEXT = "<script>alert(1)</script> a good \"><img src=x onerror=alert(2)> & 'bad' film &lt;b&gt;"
RIGHT_TO_LEFT_TEXT = "فيلم رائع جدا good وممتع, but the ending is bad"
LONG_TEXT = "A good start.\n\n" + "The plot is dull and the cast is fine. " * 200 + "The last word."
UNBROKEN_TEXT = "w" * 500
SPECIAL_TEXTS = {
    "hostile": HOSTILE_TEXT,
    "right-to-left": RIGHT_TO_LEFT_TEXT,
    "long": LONG_TEXT,
    "unbroken": UNBROKEN_TEXT,
    "emoji": "\U0001f600 good \U0001f600 bad film",
    "empty": "",
}


def make_text_run(folder: Path) -> tuple[Path, dict[str, str]]:
    """Fit in `folder`; return the run folder and the text of each item."""
    texts, truth = make_texts(34)
    by_item = {f"text-{n}": text for n, text in enumerate(texts)} | SPECIAL_TEXTS
    generator = np.random.default_rng(0)
    labels = [*truth, *("good", "bad") * (len(SPECIAL_TEXTS) // 2)]
    rows = []
    for item, label in zip(by_item, labels, strict=True):
        other = "bad" if label == "good" else "good"
        said = [label, label, other] if item not in SPECIAL_TEXTS else [label, other, other]
        rows += [(item, who, what) for who, what in zip("abc", generator.permutation(said), strict=True)]
    write_csv(folder / "texts.csv", ["item", "text"], by_item.items())
    write_csv(folder / "labels.csv", ["item", "annotator", "label"], rows)
    job = Job(
        labels=str(folder / "labels.csv"),
        inputs=str(folder / "texts.csv"),
        method="majority-vote",
        settings={"epochs": 30, "learning_rate": 0.01, "random_state": 0},
        folds=2,
    )
    start(job, folder / "run", force=False, verbose=0)
    return folder / "run", by_item
