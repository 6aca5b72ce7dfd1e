"""The critical-difference plot lists methods by mean rank, and joins those that do not differ significantly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from crowdfuse.experiments.rank_plot import plot_critical_difference
from crowdfuse.report.plots import ORANGE, save_figure

RANKS = {"vote": 2.2, "gated": 1.0, "mbem": 2.8}
INTERVALS = {name: (rank - 0.2, rank + 0.2) for name, rank in RANKS.items()}


@pytest.mark.parametrize(("critical", "n_bars"), [(0.5, 0), (1.0, 1), (1.5, 2), (2.0, 1)])
def test_bars_join_the_methods_that_do_not_differ(critical: float, n_bars: int, tmp_path: Path) -> None:
    figure = plot_critical_difference(RANKS, INTERVALS, critical, "Mean rank")
    save_figure(figure, tmp_path / "ranks.png")
    ax = figure.axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["gated", "vote", "mbem"]
    colours = [lines.get_edgecolor() for lines in ax.collections if isinstance(lines, LineCollection)]
    assert sum(np.allclose(np.asarray(colour)[0], to_rgba(ORANGE)) for colour in colours) == n_bars
