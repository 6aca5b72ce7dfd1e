"""The critical-difference plot: mean ranks of the methods, and which differences between them are significant."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from crowdfuse.report.plots import BLUE, GREY, ORANGE, plain_text


def plot_critical_difference(
    mean: Mapping[str, float], interval: Mapping[str, tuple[float, float]], critical: float, title: str
) -> Figure:
    """Plot the mean rank of each method, best first, with intervals (a critical-difference plot).

    An orange bar joins methods whose mean ranks do not differ significantly.

    Parameters
    ----------
    mean : mapping of str to float
        Mean rank of each method; 1 is best.
    interval : mapping of str to (low, high)
        95 % interval of the mean rank.
    critical : float
        Critical difference: mean ranks closer than this do not differ significantly.
    title : str
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure

    References
    ----------
    J. Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR, 2006.

    Examples
    --------
    >>> ranks, intervals = {"gated": 1.2, "vote": 1.8}, {"gated": (1.0, 1.4), "vote": (1.6, 2.0)}
    >>> figure = plot_critical_difference(ranks, intervals, 0.5, "Mean rank over 30 data sets")
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['gated', 'vote']
    """
    names = sorted(mean, key=lambda name: mean[name])
    place = np.arange(len(names))[::-1]
    figure = Figure(figsize=(7.5, 0.32 * len(names) + 1.6), layout="constrained")
    ax = figure.subplots()
    ends = np.array([interval[name] for name in names])
    ax.hlines(place, ends[:, 0], ends[:, 1], color=GREY, linewidth=1.5, zorder=1)
    ax.scatter([mean[name] for name in names], place, s=45, color=BLUE, zorder=2)
    ax.set_yticks(place, [plain_text(name) for name in names])
    beyond = ends.max() + 0.4
    last = -1
    for i, name in enumerate(names):
        reached = max(j for j, other in enumerate(names) if mean[other] - mean[name] < critical)
        if reached > max(last, i):  # skip a group that is contained in the previous one
            ax.vlines(beyond, place[reached] - 0.15, place[i] + 0.15, color=ORANGE, linewidth=4)
            beyond += 0.35
            last = reached
    ax.set_xlabel(f"mean rank (1 is best), 95 % interval; orange: no significant difference (less than {critical:.1f})")
    ax.set_title(title, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return figure
