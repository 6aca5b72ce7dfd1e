"""Each picture as a matplotlib figure. Colours are told apart by colour-blind people and in print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from crowdfuse.io.files import atomic_file

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8c8c8c"
TWO = ListedColormap([BLUE, ORANGE])


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120, bbox_inches="tight", pad_inches=0.15)


def two_moon_setup(
    X: NDArray[np.float64], gold: NDArray[np.int64], said: NDArray[np.int64], regions: NDArray[np.str_]
) -> Figure:
    """The paper's set-up: gold, what each annotator says, and who is wrong where."""
    figure = Figure(figsize=(11, 7.4), layout="constrained")
    axes = figure.subplots(2, 2)
    panels = [("gold", gold), ("annotator 1 says", said[:, 0]), ("annotator 2 says", said[:, 1])]
    for ax, (title, classes), letter in zip(axes.flat, panels, "abc", strict=False):
        _points(ax, X, classes, f"({letter}) {title}")
    ax = axes.flat[3]
    first, second = (said == gold[:, None]).T
    kinds = [
        ("both right", first & second, "#d9d9d9", "o"),
        ("both wrong", ~first & ~second, "#333333", "x"),
        ("only annotator 1 right (A, D)", first & ~second, ORANGE, "s"),
        ("only annotator 2 right (B, C)", ~first & second, "#cc79a7", "^"),
    ]
    for name, mask, colour, marker in kinds:
        ax.scatter(X[mask, 0], X[mask, 1], s=5, c=colour, marker=marker, linewidths=0.5, label=name)
    beside = {"A": (-0.45, 0.0), "B": (0.5, 0.1), "C": (-0.5, -0.1), "D": (0.45, 0.0)}  # not on top of the points
    for name, offset in beside.items():
        if (regions == name).any():
            x, y = X[regions == name].mean(0) + offset
            ax.text(x, y, name, fontsize=16, weight="bold", ha="center", va="center")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2, frameon=False, markerscale=2, fontsize=9)
    _moon_axes(ax, "(d) who is wrong where")
    return figure


def two_moon_heatmaps(
    grid: tuple[NDArray[np.float64], NDArray[np.float64]],
    probability: NDArray[np.float64],
    weight: NDArray[np.float64],
    diagonals: Sequence[NDArray[np.float64]],
    centres: Mapping[str, NDArray[np.float64]],
) -> Figure:
    """The paper's heat maps: prediction with its boundary, weight of annotator 1, both diagonals."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = [
        ("(a) predicted probability of class 1", probability),
        ("(b) weight of annotator 1", weight),
        ("(c) annotator 1's label is right, to the model", diagonals[0]),
        ("(d) annotator 2's label is right, to the model", diagonals[1]),
    ]
    for ax, (title, values) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        # one panel may vary little: its own range, said by its own bar
        image = ax.pcolormesh(*grid, values, cmap="cividis", shading="auto", rasterized=True)
        figure.colorbar(image, ax=ax, shrink=0.9)
        if values is probability and probability.min() < 0.5 < probability.max():
            ax.contour(*grid, values, levels=[0.5], colors="white", linewidths=2)
        for name, centre in centres.items():
            ax.text(*centre, name, fontsize=13, weight="bold", color="white", ha="center", va="center",
                    bbox={"boxstyle": "circle,pad=0.2", "fc": "black", "ec": "white", "alpha": 0.6})  # fmt: skip
        _moon_axes(ax, title)
    return figure


def annotator_accuracy(names: Sequence[str], estimated: Sequence[float], true: Sequence[float]) -> Figure:
    """Each annotator's estimated reliability beside the true one."""
    figure = Figure(figsize=(6.4, 0.55 * len(names) + 1.5), layout="constrained")
    ax = figure.subplots()
    place = np.arange(len(names))[::-1]
    ax.hlines(place, true, estimated, color=GREY, linewidth=1.5, zorder=1)
    ax.scatter(true, place, s=70, color=BLUE, marker="o", label="true", zorder=2)
    ax.scatter(estimated, place, s=70, color=ORANGE, marker="D", label="estimated, without gold", zorder=2)
    ax.set_yticks(place, names)
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of labels that are right")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=2, frameon=False)
    _bare(ax)
    return figure


def weights_by_correctness(names: Sequence[str], inside: Sequence[float], outside: Sequence[float]) -> Figure:
    """The mean weight of each annotator where they are weak and where they are not."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    ax = figure.subplots()
    place = np.arange(len(names))
    ax.bar(place - 0.2, outside, 0.38, color=BLUE, label="where the annotator is good")
    ax.bar(place + 0.2, inside, 0.38, color=ORANGE, hatch="//", edgecolor="white", label="where the annotator is weak")
    ax.set_xticks(place, names)
    ax.set_ylabel("mean weight")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.15), ncols=2, frameon=False)
    _bare(ax)
    return figure


def learning_curves(histories: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """The loss over the epochs, a line a method."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    ax = figure.subplots()
    for (name, style), dashes in zip(_style(list(histories)).items(), cycle(("-", "--", ":", "-.")), strict=False):
        epochs, losses = zip(*((record["epoch"], record["loss"]) for record in histories[name]), strict=True)
        ax.plot(epochs, losses, dashes, color=style["color"], label=name, lw=2)
    ax.set_xlabel("epoch")
    ax.set_ylabel("loss (each method its own)")
    ax.legend(frameon=False)
    _bare(ax)
    return figure


def disputed_images(images: NDArray[Any], captions: Sequence[str]) -> Figure:
    """Images in dispute, each with who said what and what was made of it."""
    columns = 4
    n_rows = -(-len(images) // columns)
    figure = Figure(figsize=(10, 3.4 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, columns, squeeze=False)
    for ax in axes.flat[len(images) :]:
        ax.set_axis_off()
    for ax, image, caption in zip(axes.flat, images, captions, strict=False):
        ax.imshow(image, cmap="gray_r")
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_title(caption, fontsize=9, family="monospace", loc="left")
    return figure


def _points(ax: Axes, X: NDArray[np.float64], classes: NDArray[np.int64], title: str) -> None:
    for value, colour, marker in ((0, BLUE, "o"), (1, ORANGE, "s")):
        ax.scatter(
            X[classes == value, 0],
            X[classes == value, 1],
            s=5,
            c=colour,
            marker=marker,
            linewidths=0,
            label=f"class {value}",
        )
    ax.legend(loc="upper right", frameon=False, markerscale=2.5)
    _moon_axes(ax, title)


def _moon_axes(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left")
    ax.set_aspect("equal")
    ax.set_xlim(-2.4, 2.4)
    ax.set_ylim(-2.1, 2.1)
    _bare(ax)


def _bare(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)


LINES = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b0b0b0", "#d0d0d0", "#a6761d")
MARKERS = "osD^vP<>xd"


def _style(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour and a marker a name, in this order; the upper bound is black."""
    styles = {
        name: {"color": colour, "marker": marker}
        for name, colour, marker in zip(names, (LINES * 9)[: len(names)], MARKERS * 9, strict=False)
    }
    if "true-label" in styles:
        styles["true-label"] = {"color": "black", "marker": "*"}
    return styles


def accuracy_curves(
    knob: str,
    series: Mapping[str, Sequence[tuple[float, float, float | None, float | None]]],
    title: str,
    *,
    is_logarithmic: bool = False,
    papers_best: float | None = None,
) -> Figure:
    """Accuracy over a knob, a line a method: ours with the spread over seeds, the paper's thin and dotted.

    `series` holds (value, mean, spread, the paper's) by method. `papers_best` marks the value that the paper calls
    best. On a logarithmic axis 0 stands left of the smallest value.
    """
    figure = Figure(figsize=(8.5, 5), layout="constrained")
    ax = figure.subplots()
    for name, style in _style(list(series)).items():
        value, mean, spread, paper = (np.array(column, float) for column in zip(*series[name], strict=True))
        ax.errorbar(value, mean, yerr=np.nan_to_num(spread), capsize=3, markersize=5, label=name, **style)
        if not np.isnan(paper).all():
            ax.plot(value, paper, ":", linewidth=1, color=style["color"])
    if any(point[3] is not None for points in series.values() for point in points):
        ax.plot([], [], "k:", linewidth=1, label="paper")
    if papers_best is not None:
        ax.axvline(papers_best, color="grey", linestyle="--", linewidth=1, label=f"the paper's best, {papers_best:g}")
    values = sorted({point[0] for points in series.values() for point in points})
    if is_logarithmic:
        _logarithmic(ax, values)
    else:
        ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.set(xlabel=knob, ylabel="test accuracy (%)", title=title)
    _legend_beside(ax)
    return figure


def _logarithmic(ax: Axes, values: Sequence[float]) -> None:
    """A tick at every value; 0 has a place too, left of the smallest."""
    least = min(value for value in values if value > 0)
    if 0 in values:
        ax.set_xscale("symlog", linthresh=least, linscale=0.4)
        ax.set_xlim(-0.3 * least, 1.2 * max(values))
    else:
        ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values], rotation=45)
    ax.minorticks_off()


def validation_curves(curves: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Validation accuracy (%) over epochs, a line a method."""
    figure = Figure(figsize=(8.5, 5), layout="constrained")
    ax = figure.subplots()
    for name, style in _style(list(curves)).items():
        epochs = np.arange(1, 1 + len(curves[name]))
        ax.plot(epochs, curves[name], label=name, markersize=4, markevery=4, linewidth=1.3, **style)
    ax.set(xlabel="epoch", ylabel="validation accuracy (%)", title=title)
    _legend_beside(ax)
    return figure


def _legend_beside(ax: Axes) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def paired_differences(panels: Mapping[str, Mapping[str, tuple[float, float, float]]], title: str) -> Figure:
    """Differences in points with the ends of their intervals, (mean, low, high) by method; a panel a data set."""
    names = list(dict.fromkeys(name for of in panels.values() for name in of))
    figure = Figure(figsize=(3.2 * len(panels) + 1.5, 0.4 * len(names) + 1.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (panel, of) in zip(axes, panels.items(), strict=True):
        ax.axvline(0, color=GREY, linewidth=1)
        for place, name in enumerate(reversed(names)):
            if name in of:
                mean, low, high = of[name]
                ax.hlines(place, low, high, color=BLUE, linewidth=2)
                ax.plot(mean, place, "o", color=BLUE, markersize=6)
        ax.set_yticks(range(len(names)), reversed(names))
        ax.set_title(panel, loc="left", fontsize=10)
        ax.set_xlabel("points")
        _bare(ax)
    figure.suptitle(title, fontsize=11)
    return figure


def critical_difference(
    mean: Mapping[str, float], interval: Mapping[str, tuple[float, float]], critical: float, title: str
) -> Figure:
    """Mean ranks, best first, each with its interval; beside them, lines join methods not shown to differ."""
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
        if reached > max(last, i):  # a group that is part of the one before is not drawn
            ax.vlines(beyond, place[reached] - 0.15, place[i] + 0.15, color=ORANGE, linewidth=4)
            beyond += 0.35
            last = reached
    ax.set_xlabel(f"mean rank, 1 is best; 95 % interval. Orange: not shown to differ (less than {critical:.1f})")
    ax.set_title(title, loc="left")
    _bare(ax)
    return figure


def accuracy_over_epsilon(accuracy: Mapping[str, Mapping[float, Sequence[float]]]) -> Figure:
    """Test accuracy over epsilon, a line a method, with the spread over seeds.

    `accuracy` holds the shares of right predictions of each seed, by method and epsilon.

    >>> accuracy_over_epsilon({"fusion": {30: [0.9, 0.92], 34: [0.6]}}).axes[0].get_xlabel()
    'epsilon'
    """
    series = {
        name: [(at, 100 * float(np.mean(v)), 100 * float(np.std(v)), None) for at, v in sorted(of.items())]
        for name, of in accuracy.items()
    }
    return accuracy_curves("epsilon", series, "")


def confusions_of_item(matrices: NDArray[Any], classes: Sequence[Any], annotators: Sequence[Any]) -> Figure:
    """The confusion matrices of one item, (R, K, K), axes (annotator, true, said), side by side.

    What `clf.confusion_matrices(X)[n]` gives. Numbers stand in the cells where there is room for them.

    >>> len(confusions_of_item(np.full((2, 2, 2), 0.5), ["cat", "dog"], ["ada", "bob"]).axes)  # and the colour bar
    3
    """
    matrices = np.asarray(matrices, np.float64)
    n_classes = len(classes)
    if matrices.shape != (len(annotators), n_classes, n_classes):
        raise ValueError(
            f"matrices must be (annotators, classes, classes), {(len(annotators), n_classes, n_classes)} by the names, "
            f"got shape {matrices.shape}"
        )
    columns = min(4, len(annotators))
    n_rows = -(-len(annotators) // columns)
    figure = Figure(figsize=(3.1 * columns + 0.8, 3.1 * n_rows + 0.3), layout="constrained")
    axes = figure.subplots(n_rows, columns, squeeze=False)
    for ax in axes.flat[len(annotators) :]:
        ax.set_axis_off()
    shown = list(axes.flat[: len(annotators)])
    for ax, matrix, name in zip(shown, matrices, annotators, strict=True):
        image = ax.imshow(matrix, cmap="cividis", vmin=0, vmax=1)
        ax.set_title(plain_text(name), loc="left", fontsize=10)
        ticks = range(n_classes) if n_classes <= 20 else range(0, n_classes, -(-n_classes // 10))
        ax.set_xticks(ticks, [plain_text(classes[k]) for k in ticks], rotation=90, fontsize=7)
        ax.set_yticks(ticks, [plain_text(classes[k]) for k in ticks], fontsize=7)
        ax.set(xlabel="said", ylabel="true")
        if n_classes <= 10:
            for (k, j), value in np.ndenumerate(matrix):
                colour = "black" if value > 0.55 else "white"
                ax.text(j, k, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, ax=shown, shrink=0.8)
    return figure


def weight_maps(place: NDArray[Any], weights: NDArray[Any], annotators: Sequence[Any]) -> Figure:
    """What each annotator counts on each item, on a map of the items: a panel an annotator.

    `place` (N, 2) is where the items lie, such as the first two principal components of their features; `weights`
    (N, R) what `clf.annotator_weights(X)` gives. One scale for all panels, said by the bar.

    >>> len(weight_maps(np.eye(2), np.full((2, 3), 1 / 3), ["ada", "bob", "cy"]).axes)  # and the colour bar
    4
    """
    place, weights = np.asarray(place, np.float64), np.asarray(weights, np.float64)
    if place.shape != (len(weights), 2) or weights.shape[1:] != (len(annotators),):
        raise ValueError(
            f"place must be (N, 2) and weights (N, {len(annotators)}), a column an annotator, got shapes "
            f"{place.shape} and {weights.shape}"
        )
    columns = min(4, len(annotators))
    n_rows = -(-len(annotators) // columns)
    figure = Figure(figsize=(3.1 * columns + 0.8, 2.8 * n_rows + 0.3), layout="constrained")
    axes = figure.subplots(n_rows, columns, squeeze=False, sharex=True, sharey=True)
    for ax in axes.flat[len(annotators) :]:
        ax.set_axis_off()
    shown = list(axes.flat[: len(annotators)])
    for ax, weight, name in zip(shown, weights.T, annotators, strict=True):
        order = np.argsort(weight, kind="stable")  # what counts most lies on top
        points = ax.scatter(
            *place[order].T, c=weight[order], s=6, cmap="cividis", vmin=weights.min(), vmax=weights.max()
        )
        ax.set_title(plain_text(name), loc="left", fontsize=10)
        ax.set_xticks([])
        ax.set_yticks([])
    figure.colorbar(points, ax=shown, shrink=0.8, label="weight")
    return figure


def calibration(probabilities: Mapping[str, NDArray[Any]], gold: NDArray[Any], *, steps: int = 10) -> Figure:
    """How often a model is right beside how sure it is, a line a model; below, how often it is how sure.

    `probabilities` holds (N, K) by name, `gold` (N,) the true classes as columns of these.

    >>> figure = calibration({"fusion": np.array([[0.9, 0.1], [0.4, 0.6]])}, np.array([0, 1]))
    >>> figure.axes[0].get_ylabel()
    'share right'
    """
    gold = np.asarray(gold)
    figure = Figure(figsize=(5.4, 5.6), layout="constrained")
    ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="as sure as right")
    edges = np.linspace(0, 1, steps + 1)
    for name, style in _style(list(probabilities)).items():
        values = np.asarray(probabilities[name], np.float64)
        if values.ndim != 2 or len(values) != len(gold):
            raise ValueError(
                f"{name}: probabilities must be (N, K) with a row for each of {len(gold)}, got {values.shape}"
            )
        sure, right = values.max(1), values.argmax(1) == gold
        step = np.minimum((sure * steps).astype(int), steps - 1)
        count = np.bincount(step, minlength=steps)
        there = count > 0
        mean_sure = np.bincount(step, sure, minlength=steps)[there] / count[there]
        mean_right = np.bincount(step, right, minlength=steps)[there] / count[there]
        ax.plot(mean_sure, mean_right, markersize=5, label=name, **style)
        below.stairs(count / len(gold), edges, color=style["color"])
    ax.set(ylabel="share right", xlim=(0, 1), ylim=(0, 1.02))
    below.set(xlabel="confidence", ylabel="share of items")
    ax.legend(frameon=False, loc="best")  # models that are not sure enough have the corner above the diagonal
    _bare(ax)
    _bare(below)
    return figure


def plain_text(name: Any) -> str:
    """A name as text on a figure: matplotlib would take dollar signs for mathematics."""
    return str(name).replace("$", r"\$")
