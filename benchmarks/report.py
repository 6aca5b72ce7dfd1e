"""Cost of a report at 100,000 items, 1,000 annotators and 500,000 labels: at most 60 s and 1 GB beyond the model.

    python benchmarks/report.py --json docs/results/report.json

A model is trained for one epoch (32 features, 10 classes, one hidden layer of 128), then the report
is made with gold of a tenth of the items, with one thread. Times are wall time and CPU time; on a busy machine the
second is the cost of the report. Memory is the peak of the process above its memory with the model and the data. With
`--browser`, Chromium opens the page and sorts its table, with the same two times.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crowdfuse import Annotations
from crowdfuse.estimators.registry import estimator_class

N_FEATURES, N_CLASSES = 32, 10
SORT = """() => {
  document.querySelectorAll("#annotator-table th button")[1].click();
  document.body.offsetHeight;
}"""


def make_crowd(n_items: int, n_annotators: int, n_labels: int) -> tuple[Any, Annotations, Any]:
    """Return inputs, labels and true classes; the labels come from annotators with accuracies from 0.5 to 1."""
    generator = np.random.default_rng(0)
    each = n_labels // n_items
    truth = generator.integers(0, N_CLASSES, n_items)
    X = generator.normal(size=(n_items, N_FEATURES)).astype(np.float32)
    X[np.arange(n_items), truth] += 2
    start = generator.integers(0, n_annotators, n_items)[:, None]
    stride = generator.integers(1, max(2, n_annotators // each), n_items)[:, None]
    annotator = np.sort((start + stride * np.arange(each)) % n_annotators, 1)
    right = generator.random(annotator.shape) < 0.5 + 0.5 * annotator / n_annotators
    wrong = (truth[:, None] + generator.integers(1, N_CLASSES, annotator.shape)) % N_CLASSES
    ann = Annotations(
        indptr=np.arange(n_items + 1) * each,
        annotator=annotator.ravel().astype(np.int32),
        label=np.where(right, truth[:, None], wrong).ravel().astype(np.int32),
        items=np.arange(n_items),
        annotators=np.array([f"annotator {r}" for r in range(n_annotators)], object),
        classes=np.arange(N_CLASSES),
        by_row=True,
    )
    return X, ann, truth


class PeakMemory(threading.Thread):
    """Sampler of the peak memory of this process, in MB, from its creation on."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.peak = memory_mb()
        self.done = False
        self.start()

    def run(self) -> None:
        while not self.done:
            self.peak = max(self.peak, memory_mb())
            time.sleep(0.02)

    def stop(self) -> float:
        self.done = True
        self.join()
        return self.peak - self.before


def memory_mb() -> float:
    """Return the memory of this process in MB; without /proc, its peak so far."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(method: str, n_items: int, n_annotators: int, n_labels: int, browser: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    X, ann, truth = make_crowd(n_items, n_annotators, n_labels)
    clf = estimator_class(method)(epochs=1, batch_size=256).fit(X, ann)
    gold = np.where(np.arange(n_items) < n_items // 10, truth, -1)
    peak, started, cpu_started = PeakMemory(), time.perf_counter(), time.process_time()
    report = clf.report(X, ann, gold=gold)
    with tempfile.TemporaryDirectory() as folder:
        page = report.save(Path(folder) / "report.html")
        row = {
            "method": method,
            "items": n_items,
            "annotators": n_annotators,
            "labels": n_labels,
            "seconds": round(time.perf_counter() - started, 1),
            "cpu_seconds": round(time.process_time() - cpu_started, 1),
            "mb_above_model_and_data": round(peak.stop()),
            "page_mb": round(page.stat().st_size / 1e6, 2),
        }
        return row | (measure_in_browser(page) if browser else {})


def measure_in_browser(path: Path) -> dict[str, float]:
    """Return wall and CPU seconds to open the page and to sort its table of annotators."""
    from playwright.sync_api import sync_playwright

    figures: dict[str, float] = {}
    with sync_playwright() as playwright:
        options = ["--headless", "--no-sandbox", "--disable-gpu"]
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = chromium.new_page()
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def cpu_seconds() -> float:
            measured = {
                metric["name"]: metric["value"] for metric in devtools.send("Performance.getMetrics")["metrics"]
            }
            return float(measured["TaskDuration"])

        for action, run in (("open", lambda: page.goto(path.as_uri())), ("sort", lambda: page.evaluate(SORT))):
            started, cpu_started = time.perf_counter(), cpu_seconds()
            run()
            figures[f"seconds_to_{action}"] = round(time.perf_counter() - started, 2)
            figures[f"cpu_seconds_to_{action}"] = round(cpu_seconds() - cpu_started, 2)
        chromium.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--methods", default="fusion")
    parser.add_argument("--sizes", type=int, nargs=3, default=(100_000, 1_000, 500_000), metavar=("N", "R", "LABELS"))
    parser.add_argument("--browser", action="store_true")
    given = parser.parse_args()
    rows = []
    for method in given.methods.split(","):
        n_items, n_annotators, n_labels = given.sizes
        rows.append(measure(method, n_items, n_annotators, n_labels, given.browser))
        print(json.dumps(rows[-1]))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
