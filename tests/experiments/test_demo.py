from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from crowdfuse.experiments.demo import make_annotators, run_demo
from crowdfuse.experiments.demo_report import write_demo_report


def test_the_demo_reports_its_results(tmp_path: Path) -> None:
    result = run_demo(seed=0, epochs=15)
    accuracy = result.accuracy
    assert accuracy["majority vote"] < accuracy["fusion"] < accuracy["true labels (upper bound)"]
    estimated = [row["estimated_accuracy"] for row in result.annotators]
    true = [row["true_accuracy"] for row in result.annotators]
    assert estimated == sorted(estimated)  # the least accurate first, as in all tables
    assert true == sorted(true)
    assert result.summary.n_labels < 0.75 * result.n_train * 5
    good = result.annotators[-1]
    assert good["mean_weight_when_right"] > good["mean_weight_when_wrong"]

    out = tmp_path / "report"
    write_demo_report(result, out, force=False)
    text = (out / "report.md").read_text()
    for name in ("reliability", "weights", "disputed", "learning"):
        assert f"({name}.png)" in text
        assert np.asarray(Image.open(out / f"{name}.png")).std() > 5
    assert f"{100 * accuracy['fusion']:.1f} %" in text
    assert json.loads((out / "figures.json").read_text())["held_out_accuracy"] == accuracy


def test_simulated_annotators_range_from_good_to_poor() -> None:
    X, y = load_digits(return_X_y=True)
    accuracy = make_annotators(X, y, seed=0).accuracy
    assert (np.diff(accuracy) < -0.1).all()
