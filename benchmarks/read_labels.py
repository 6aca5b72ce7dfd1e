"""Reading and encoding 10 million rows of string ids: `Annotations.read` against pandas.

    python benchmarks/read_labels.py
    python benchmarks/read_labels.py --order sorted --repeats 9 --json read_labels.json

Makes a CSV of 2,000,000 items x 5 labels in a temporary folder, then reads it in fresh processes,
alternating, with `Annotations.read` (validated, in CSR arrays) and with pandas, `read_csv` plus three `factorize`
(codes, in the order of the rows). Each process first reads a few rows, so that all modules are loaded;
memory is its peak. Of the pandas engines, "c" is the default of `read_csv`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

LABELS_PER_ITEM = 5
N_ANNOTATORS = 1000
N_CLASSES = 10
WARM_UP_FILE = "warm_up.csv"  # small; read before timing, so that all modules are loaded


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        run_in_fresh_process(make_table, path, arguments.items, arguments.order)
        run_in_fresh_process(make_table, path.with_name(WARM_UP_FILE), 100, arguments.order)
        rows = arguments.items * LABELS_PER_ITEM
        print(
            f"{rows:,} rows, {arguments.order}, {path.stat().st_size / 1e6:,.0f} MB; {arguments.repeats} repeats on "
            f"{os.cpu_count()} cores, which should be idle"
        )
        readers = ["crowdfuse", *(f"pandas-{engine}" for engine in arguments.engines.split(","))]
        runs: dict[str, list[dict[str, float]]] = {reader: [] for reader in readers}
        for _ in range(arguments.repeats):
            for reader in readers:  # alternating, so that other load on the machine affects all
                runs[reader].append(run_in_fresh_process(measure, reader, path))
    results = {reader: summarize_runs(found) for reader, found in runs.items()}
    ours = results["crowdfuse"]["median_seconds"]
    print(f"{'':16}{'median s':>10}{'best s':>10}{'peak MB':>10}{'ours / theirs':>16}")
    for reader, result in results.items():
        result["ratio"] = ours / result["median_seconds"]
        print(
            f"{reader:16}{result['median_seconds']:10.2f}{result['best_seconds']:10.2f}"
            f"{result['peak_mb']:10.0f}{result['ratio']:16.2f}"
        )
    if arguments.json:
        settings = {"rows": rows, "order": arguments.order, "repeats": arguments.repeats}
        arguments.json.write_text(json.dumps({**settings, "results": results, "runs": runs}, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--order", choices=["shuffled", "sorted"], default="shuffled", help="order of the rows")
    parser.add_argument("--items", type=int, default=2_000_000, help="number of items, with five labels each")
    parser.add_argument("--repeats", type=int, default=5, help="processes started per reader")
    parser.add_argument("--engines", default="c,pyarrow", help="pandas engines to compare with")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    return parser.parse_args()


def run_in_fresh_process(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run in a spawned process: a forked one would count the memory of its parent in its peak."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def make_table(path: Path, n_items: int, order_of_rows: str) -> None:
    """Write one row per label: item0001234,worker_0042,class_7. No annotator labels an item twice."""
    import pyarrow as pa
    import pyarrow.csv

    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(n_items), LABELS_PER_ITEM)
    first = np.repeat(rng.integers(N_ANNOTATORS, size=n_items), LABELS_PER_ITEM)
    turn = np.tile(np.arange(LABELS_PER_ITEM), n_items)
    annotator = (first + turn * (N_ANNOTATORS // LABELS_PER_ITEM)) % N_ANNOTATORS
    label = rng.integers(N_CLASSES, size=len(item))
    order = rng.permutation(len(item)) if order_of_rows == "shuffled" else np.arange(len(item))

    def column(codes: np.ndarray[Any, Any], names: list[str]) -> Any:
        return pa.array(names).take(pa.array(codes[order]))

    table = pa.table(
        {
            "item": column(item, [f"item{i:07d}" for i in range(n_items)]),
            "annotator": column(annotator, [f"worker_{i:04d}" for i in range(N_ANNOTATORS)]),
            "label": column(label, [f"class_{i}" for i in range(N_CLASSES)]),
        }
    )
    with path.open("wb") as file:  # by hand, because Arrow quotes the header
        file.write(b"item,annotator,label\n")
        pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(include_header=False, quoting_style="none"))


def measure(reader: str, path: Path) -> dict[str, float]:
    """Read once in this process; return seconds and peak memory in MB."""
    read = read_with_crowdfuse if reader == "crowdfuse" else partial(read_with_pandas, reader.removeprefix("pandas-"))
    read(path.with_name(WARM_UP_FILE))
    started = time.perf_counter()
    kept = read(path)
    seconds = time.perf_counter() - started
    del kept  # freeing it is not part of reading
    return {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def read_with_crowdfuse(path: Path) -> object:
    from crowdfuse import Annotations

    return Annotations.read(path)


def read_with_pandas(engine: str, path: Path) -> object:
    import pandas as pd

    table = pd.read_csv(path, engine=engine)
    return [pd.factorize(table[column]) for column in ("item", "annotator", "label")]


def summarize_runs(runs: list[dict[str, float]]) -> dict[str, float]:
    seconds = [run["seconds"] for run in runs]
    return {
        "median_seconds": statistics.median(seconds),
        "best_seconds": min(seconds),
        "peak_mb": max(run["peak_mb"] for run in runs),
    }


if __name__ == "__main__":
    main()
