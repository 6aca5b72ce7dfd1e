"""Writes methods.md and the data of `crowdfuse methods` from the tables under results.

Run `python docs/comparison_results.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from crowdfuse.experiments import comparison_results
from crowdfuse.experiments.methods_page import render_methods_page
from crowdfuse.io.files import write_json, write_text

HERE = Path(__file__).parent
TABLE_FOLDERS = {"mnist-kinds": "mnist-kinds", "crowds": "crowds-tuned"}


def collect_results() -> comparison_results.ComparisonResults:
    """Return the digests of the stored tables, by group."""
    return {
        group: json.loads((HERE / "results" / folder / "table.json").read_text(encoding="utf-8"))["digest"]
        for group, folder in TABLE_FOLDERS.items()
    }


if __name__ == "__main__":
    results = collect_results()
    write_json(Path(comparison_results.__file__).with_name(comparison_results.RESULTS_FILE), results)
    write_text(HERE / "methods.md", render_methods_page(results))
