"""Writes methods.md and the data of `crowdfuse methods` from the tables under results.

Run `python docs/comparison_results.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from crowdfuse.experiments import comparison_results as evidence
from crowdfuse.experiments.methods_page import page
from crowdfuse.io.files import write_json, write_text

HERE = Path(__file__).parent
TABLES = {"mnist-kinds": "mnist-kinds", "crowds": "crowds-tuned"}


def from_tables() -> evidence.ComparisonResults:
    """The digests of the stored tables, by group."""
    return {
        group: json.loads((HERE / "results" / folder / "table.json").read_text(encoding="utf-8"))["digest"]
        for group, folder in TABLES.items()
    }


if __name__ == "__main__":
    found = from_tables()
    write_json(Path(evidence.__file__).with_name(evidence.FILE), found)
    write_text(HERE / "methods.md", page(found))
