"""Each figure is drawn without a screen, shows the given values, and refuses shapes that do not match."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from crowdfuse.report import plots

HISTORY = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}]


def drawn(figure: Figure, folder: Path) -> Figure:
    """Return the figure after writing it, which makes matplotlib draw all of it."""
    plots.save_figure(figure, folder / "figure.png")
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    return figure


def test_accuracy_over_epsilon_shows_means_and_spread(tmp_path: Path) -> None:
    figure = drawn(plots.accuracy_over_epsilon({"fusion": {34: [0.5], 30: [0.8, 0.9]}}), tmp_path)
    line = figure.axes[0].containers[0][0]
    np.testing.assert_allclose(line.get_data(), [[30, 34], [85, 50]])


def test_learning_curves_show_every_method(tmp_path: Path) -> None:
    figure = drawn(plots.learning_curves({"fusion": HISTORY, **{str(n): HISTORY[:1] for n in range(6)}}), tmp_path)
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [2, *[1] * 6]  # type: ignore[arg-type]


def test_two_moon_figures_are_drawn(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    gold = (X[:, 0] > 0).astype(np.int64)
    regions = np.array(["A", "B", ""] * 10)
    drawn(plots.two_moon_setup(X, gold, np.stack([gold, 1 - gold], 1), regions), tmp_path)
    grid = np.meshgrid(np.linspace(-2, 2, 5), np.linspace(-2, 2, 5))
    values = np.linspace(0, 1, 25).reshape(5, 5)
    drawn(plots.two_moon_heatmaps((grid[0], grid[1]), values, values, [values, values], {"A": X[0]}), tmp_path)


def test_confusion_matrices_of_an_item_have_true_classes_in_rows(tmp_path: Path) -> None:
    matrices = np.array([[[0.9, 0.1], [0.3, 0.7]]])
    figure = drawn(plots.confusions_of_item(matrices, ["cat", "a $dog$ costs $5"], ["ada"]), tmp_path)
    ax = figure.axes[0]
    assert [text.get_text() for text in ax.texts] == ["90", "10", "30", "70"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("said", "true")
    with pytest.raises(ValueError, match=r"\(2, 2, 2\), got \(1, 2, 2\)"):
        plots.confusions_of_item(matrices, ["cat", "dog"], ["ada", "bob"])
    drawn(plots.confusions_of_item(np.full((5, 40, 40), 1 / 40), range(40), range(5)), tmp_path)


def test_weight_maps_share_one_scale(tmp_path: Path) -> None:
    coordinates, weights = np.random.default_rng(0).normal(size=(9, 2)), np.linspace(0, 1, 18).reshape(9, 2)
    figure = drawn(plots.weight_maps(coordinates, weights, ["ada", "bob"]), tmp_path)
    assert {panel.collections[0].get_clim() for panel in figure.axes[:2]} == {(0.0, 1.0)}
    with pytest.raises(ValueError, match=r"weights must have shape \(n_items, 3\)"):
        plots.weight_maps(coordinates, weights, ["ada", "bob", "cy"])


def test_calibration_equals_a_loop(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    p = generator.dirichlet([1, 1, 1], 200)
    gold = generator.integers(0, 3, 200)
    figure = drawn(plots.calibration({"fusion": p}, gold, n_bins=5), tmp_path)
    confidence = p.max(1)
    points = []
    for low in np.arange(5) / 5:
        inside = (confidence >= low) & (confidence < low + 0.2)
        if inside.any():
            points.append((confidence[inside].mean(), (p.argmax(1) == gold)[inside].mean()))
    np.testing.assert_allclose(np.column_stack(figure.axes[0].lines[1].get_data()), points)
    with pytest.raises(ValueError, match=r"\(3, n_classes\)"):
        plots.calibration({"fusion": p}, gold[:3])


def test_legend_of_calibration_covers_no_point(tmp_path: Path) -> None:
    sure = np.repeat([[0.12, 0.11, *[0.11] * 7], [0.3, *[0.0875] * 8], [0.9, *[0.0125] * 8]], 20, 0)  # always right
    figure = drawn(plots.calibration({"fusion": sure}, np.zeros(60, int)), tmp_path)
    ax = figure.axes[0]
    legend = ax.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    points = ax.transData.transform(np.column_stack(ax.lines[1].get_data()))
    assert not any(box.contains(x, y) for x, y in points)
