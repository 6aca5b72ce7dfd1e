"""A small crowd of texts whose classes follow from their words."""

from __future__ import annotations

import numpy as np

from crowdfuse import Annotations

WORDS = {"good": ["good", "great", "lovely", "fine"], "bad": ["bad", "awful", "poor", "dull"]}


def make_texts(n: int = 60, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return texts and their true classes."""
    generator = np.random.default_rng(seed)
    truth = [("good", "bad")[k] for k in generator.integers(0, 2, n)]
    return [f"a {' '.join(generator.choice(WORDS[name], 3))} film" for name in truth], truth


def make_labels(truth: list[str], seed: int = 0) -> Annotations:
    """Return the labels of three annotators who are right on nine of ten texts; item ids are text-0, text-1, ..."""
    generator = np.random.default_rng(seed)
    rows = [
        (f"text-{i}", name, label if generator.random() < 0.9 else ("good" if label == "bad" else "bad"))
        for i, label in enumerate(truth)
        for name in ("ada", "bob", "eve")
    ]
    return Annotations.from_table(dict(zip(("item", "annotator", "label"), zip(*rows, strict=True), strict=True)))
