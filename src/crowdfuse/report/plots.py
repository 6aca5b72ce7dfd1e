"""Matplotlib figures for papers and reports, in colours that stay distinct for colour-blind readers and in print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from crowdfuse.io.files import atomic_file

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8c8c8c"


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file. An interrupted write leaves no partial file.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    path : Path
        The file to write; an existing file is replaced.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_figure(accuracy_over_epsilon({"fusion": {30: [0.9]}}), Path(folder) / "figure.png")
    """
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120, bbox_inches="tight", pad_inches=0.15)


def two_moon_setup(
    X: NDArray[np.float64], gold: NDArray[np.int64], said: NDArray[np.int64], regions: NDArray[np.str_]
) -> Figure:
    """Plot the two-moons data of Gao et al. (2022): true classes, labels of both annotators, and who is wrong where.

    Parameters
    ----------
    X : ndarray of shape (n_items, 2)
        The points.
    gold : ndarray of shape (n_items,)
        True classes, 0 or 1.
    said : ndarray of shape (n_items, 2)
        Labels of the two annotators.
    regions : ndarray of str of shape (n_items,)
        Name of the region of each point. Only annotator 1 is right in "A" and "D", and only annotator 2 in "B" and "C".
        Other names are not written into the figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> X, gold = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0, 1])
    >>> len(two_moon_setup(X, gold, np.stack([gold, gold], 1), np.array(["A", "B"])).axes)
    4
    """
    figure = Figure(figsize=(11, 7.4), layout="constrained")
    axes = figure.subplots(2, 2)
    panels = [("gold", gold), ("labels of annotator 1", said[:, 0]), ("labels of annotator 2", said[:, 1])]
    for ax, (title, classes), letter in zip(axes.flat, panels, "abc", strict=False):
        _draw_points(ax, X, classes, f"({letter}) {title}")
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
    name_offsets = {
        "A": (-0.45, 0.0),
        "B": (0.5, 0.1),
        "C": (-0.5, -0.1),
        "D": (0.45, 0.0),
    }  # next to the points, not on top of them
    for name, offset in name_offsets.items():
        if (regions == name).any():
            x, y = X[regions == name].mean(0) + offset
            ax.text(x, y, name, fontsize=16, weight="bold", ha="center", va="center")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2, frameon=False, markerscale=2, fontsize=9)
    _set_moon_axes(ax, "(d) who is wrong where")
    return figure


def two_moon_heatmaps(
    grid: tuple[NDArray[np.float64], NDArray[np.float64]],
    probability: NDArray[np.float64],
    weight: NDArray[np.float64],
    diagonals: Sequence[NDArray[np.float64]],
    centres: Mapping[str, NDArray[np.float64]],
) -> Figure:
    """Plot heat maps of the two-moons experiment of Gao et al. (2022), one panel per quantity.

    The panels show the prediction, the weight of annotator 1, and the probability that each annotator is right.

    Parameters
    ----------
    grid : tuple of two ndarray of shape (n_rows, n_columns)
        Coordinates of the grid, as from `numpy.meshgrid`.
    probability : ndarray of shape (n_rows, n_columns)
        Predicted probability of class 1.
    weight : ndarray of shape (n_rows, n_columns)
        Weight of annotator 1 at each point of the grid.
    diagonals : sequence of two ndarray of shape (n_rows, n_columns)
        For each of the two annotators, the estimated probability that the annotator's label is right.
    centres : mapping of str to ndarray of shape (2,)
        Maps the name of each region to the position at which the name is written.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> x, y = np.meshgrid([0.0, 1.0], [0.0, 1.0])
    >>> len(two_moon_heatmaps((x, y), x, x, [x, y], {}).axes)  # four panels with a colour bar each
    8
    """
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = [
        ("(a) predicted probability of class 1", probability),
        ("(b) weight of annotator 1", weight),
        ("(c) estimated: annotator 1's label is right", diagonals[0]),
        ("(d) estimated: annotator 2's label is right", diagonals[1]),
    ]
    for ax, (title, values) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        # each panel has its own range and colour bar, because some vary little
        image = ax.pcolormesh(*grid, values, cmap="cividis", shading="auto", rasterized=True)
        figure.colorbar(image, ax=ax, shrink=0.9)
        if values is probability and probability.min() < 0.5 < probability.max():
            ax.contour(*grid, values, levels=[0.5], colors="white", linewidths=2)
        for name, centre in centres.items():
            ax.text(*centre, name, fontsize=13, weight="bold", color="white", ha="center", va="center",
                    bbox={"boxstyle": "circle,pad=0.2", "fc": "black", "ec": "white", "alpha": 0.6})  # fmt: skip
        _set_moon_axes(ax, title)
    return figure


def annotator_accuracy(names: Sequence[str], estimated: Sequence[float], true: Sequence[float]) -> Figure:
    """Plot the estimated accuracy of each annotator next to the true accuracy.

    Parameters
    ----------
    names : sequence of str
        Names of the annotators.
    estimated : sequence of float
        Estimated accuracy of each annotator, from 0 to 1.
    true : sequence of float
        True accuracy of each annotator, from 0 to 1.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> annotator_accuracy(["ada", "bob"], [0.9, 0.7], [0.92, 0.65]).axes[0].get_xlabel()
    'share of labels that are right'
    """
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
    _hide_spines(ax)
    return figure


def weights_by_correctness(names: Sequence[str], inside: Sequence[float], outside: Sequence[float]) -> Figure:
    """Plot the mean weight of each annotator on items where the annotator is weak and on all other items.

    Parameters
    ----------
    names : sequence of str
        Names of the annotators.
    inside : sequence of float
        Mean weight of each annotator on items where the annotator is weak.
    outside : sequence of float
        Mean weight of each annotator on the other items.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> weights_by_correctness(["ada", "bob"], [0.1, 0.2], [0.6, 0.5]).axes[0].get_ylabel()
    'mean weight'
    """
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    ax = figure.subplots()
    place = np.arange(len(names))
    ax.bar(place - 0.2, outside, 0.38, color=BLUE, label="where the annotator is good")
    ax.bar(place + 0.2, inside, 0.38, color=ORANGE, hatch="//", edgecolor="white", label="where the annotator is weak")
    ax.set_xticks(place, names)
    ax.set_ylabel("mean weight")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.15), ncols=2, frameon=False)
    _hide_spines(ax)
    return figure


def learning_curves(histories: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Plot the training loss over epochs, one line per method.

    Parameters
    ----------
    histories : mapping of str to sequence of dict
        For each method, one record per epoch with the keys `epoch` and `loss`, such as the attribute `history_` of a
        fitted classifier.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> learning_curves({"fusion": [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}]}).axes[0].get_xlabel()
    'epoch'
    """
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    ax = figure.subplots()
    for (name, style), dashes in zip(
        _line_styles(list(histories)).items(), cycle(("-", "--", ":", "-.")), strict=False
    ):
        epochs, losses = zip(*((record["epoch"], record["loss"]) for record in histories[name]), strict=True)
        ax.plot(epochs, losses, dashes, color=style["color"], label=name, lw=2)
    ax.set_xlabel("epoch")
    ax.set_ylabel("loss (different for each method)")
    ax.legend(frameon=False)
    _hide_spines(ax)
    return figure


def disputed_images(images: NDArray[Any], captions: Sequence[str]) -> Figure:
    """Plot disputed images with captions, four per row.

    Parameters
    ----------
    images : ndarray of shape (n_images, height, width)
        The greyscale images.
    captions : sequence of str
        Text above each image.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> len(disputed_images(np.zeros((2, 8, 8)), ["ada: 1", "bob: 7"]).axes)  # a row of four, two of them empty
    4
    """
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


def _draw_points(ax: Axes, X: NDArray[np.float64], classes: NDArray[np.int64], title: str) -> None:
    """Draw points of two classes."""
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
    _set_moon_axes(ax, title)


def _set_moon_axes(ax: Axes, title: str) -> None:
    """Set title and limits of a panel of two moons."""
    ax.set_title(title, loc="left")
    ax.set_aspect("equal")
    ax.set_xlim(-2.4, 2.4)
    ax.set_ylim(-2.1, 2.1)
    _hide_spines(ax)


def _hide_spines(ax: Axes) -> None:
    """Hide the upper and the right border."""
    ax.spines[["top", "right"]].set_visible(False)


LINE_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b0b0b0", "#d0d0d0", "#a6761d")
MARKERS = "osD^vP<>xd"


def _line_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return colour and marker of each method; "true-label", the upper bound, is black."""
    styles = {
        name: {"color": colour, "marker": marker}
        for name, colour, marker in zip(names, (LINE_COLOURS * 9)[: len(names)], MARKERS * 9, strict=False)
    }
    if "true-label" in styles:
        styles["true-label"] = {"color": "black", "marker": "*"}
    return styles


def accuracy_curves(
    parameter: str,
    series: Mapping[str, Sequence[tuple[float, float, float | None, float | None]]],
    title: str,
    *,
    is_logarithmic: bool = False,
    papers_best: float | None = None,
) -> Figure:
    """Plot test accuracy over the values of a parameter, one line per method.

    Error bars are the standard deviation over seeds. Thin dotted lines are the results published by Gao et al. (2022).

    Parameters
    ----------
    parameter : str
        Name of the parameter, written on the axis.
    series : mapping of str to sequence of (value, mean, deviation, paper)
        Points of each method: value of the parameter, mean accuracy (%), standard deviation of the accuracy over seeds,
        and published accuracy (%). The last two may be None.
    title : str
        Title of the figure.
    is_logarithmic : bool, default=False
        Whether the x axis is logarithmic. If so, a value of 0 is drawn to the left of the smallest positive value.
    papers_best : float, default=None
        Best value of the parameter according to Gao et al. (2022). A vertical line marks this value.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> accuracy_curves("lambda", {"fusion": [(0, 88.0, 0.5, None), (1, 90.0, 0.4, 91.0)]}, "").axes[0].get_xlabel()
    'lambda'
    """
    figure = Figure(figsize=(8.5, 5), layout="constrained")
    ax = figure.subplots()
    for name, style in _line_styles(list(series)).items():
        value, mean, spread, paper = (np.array(column, float) for column in zip(*series[name], strict=True))
        ax.errorbar(value, mean, yerr=np.nan_to_num(spread), capsize=3, markersize=5, label=name, **style)
        if not np.isnan(paper).all():
            ax.plot(value, paper, ":", linewidth=1, color=style["color"])
    if any(point[3] is not None for points in series.values() for point in points):
        ax.plot([], [], "k:", linewidth=1, label="paper")
    if papers_best is not None:
        label = f"the paper's best, {papers_best:g}"
        ax.axvline(papers_best, color="grey", linestyle="--", linewidth=1, label=label)
    values = sorted({point[0] for points in series.values() for point in points})
    if is_logarithmic:
        _set_logarithmic_axis(ax, values)
    else:
        ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.set(xlabel=parameter, ylabel="test accuracy (%)", title=title)
    _put_legend_right(ax)
    return figure


def _set_logarithmic_axis(ax: Axes, values: Sequence[float]) -> None:
    """Make the x axis logarithmic with a tick at every value; 0 lies left of the smallest positive value."""
    least = min(value for value in values if value > 0)
    if 0 in values:
        ax.set_xscale("symlog", linthresh=least, linscale=0.4)
        ax.set_xlim(-0.3 * least, 1.2 * max(values))
    else:
        ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values], rotation=45)
    ax.minorticks_off()


def validation_curves(curves: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Plot validation accuracy over epochs, one line per method.

    Parameters
    ----------
    curves : mapping of str to sequence of float
        Accuracy in percent after each epoch, by method.
    title : str
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> validation_curves({"fusion": [80.0, 85.0]}, "MNIST").axes[0].get_ylabel()
    'validation accuracy (%)'
    """
    figure = Figure(figsize=(8.5, 5), layout="constrained")
    ax = figure.subplots()
    for name, style in _line_styles(list(curves)).items():
        epochs = np.arange(1, 1 + len(curves[name]))
        ax.plot(epochs, curves[name], label=name, markersize=4, markevery=4, linewidth=1.3, **style)
    ax.set(xlabel="epoch", ylabel="validation accuracy (%)", title=title)
    _put_legend_right(ax)
    return figure


def _put_legend_right(ax: Axes) -> None:
    """Draw the legend to the right of the panel, and a light grid."""
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def paired_differences(panels: Mapping[str, Mapping[str, tuple[float, float, float]]], title: str) -> Figure:
    """Plot the difference in accuracy between pairs of methods with its interval, one panel per data set.

    Parameters
    ----------
    panels : mapping of str to mapping of str to (mean, low, high)
        For each data set and method: the mean difference between the method and a reference method, and the ends of
        the interval of this difference, in percentage points.
    title : str
        Title of the figure. It should say which method is subtracted from which.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = paired_differences({"music": {"vote": (2.0, 1.0, 3.0)}}, "gated minus other methods")
    >>> figure.axes[0].get_xlabel()
    'percentage points'
    """
    names = list(dict.fromkeys(name for differences in panels.values() for name in differences))
    figure = Figure(figsize=(3.2 * len(panels) + 1.5, 0.4 * len(names) + 1.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (panel, differences) in zip(axes, panels.items(), strict=True):
        ax.axvline(0, color=GREY, linewidth=1)
        for place, name in enumerate(reversed(names)):
            if name in differences:
                mean, low, high = differences[name]
                ax.hlines(place, low, high, color=BLUE, linewidth=2)
                ax.plot(mean, place, "o", color=BLUE, markersize=6)
        ax.set_yticks(range(len(names)), reversed(names))
        ax.set_title(panel, loc="left", fontsize=10)
        ax.set_xlabel("percentage points")
        _hide_spines(ax)
    figure.suptitle(title, fontsize=11)
    return figure


def accuracy_over_epsilon(accuracy: Mapping[str, Mapping[float, Sequence[float]]]) -> Figure:
    """Plot test accuracy over epsilon, one line per method, with the standard deviation over seeds.

    A simulated annotator is wrong on all items within the distance epsilon of one item, the annotator's weakness.

    Parameters
    ----------
    accuracy : mapping of str to mapping of float to sequence of float
        For each method and epsilon: the accuracy (0 to 1) of each seed.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> accuracy_over_epsilon({"fusion": {30: [0.9, 0.92], 34: [0.6]}}).axes[0].get_xlabel()
    'epsilon'
    """
    series = {
        name: [(at, 100 * float(np.mean(v)), 100 * float(np.std(v)), None) for at, v in sorted(by_epsilon.items())]
        for name, by_epsilon in accuracy.items()
    }
    return accuracy_curves("epsilon", series, "")


def confusions_of_item(matrices: NDArray[Any], classes: Sequence[Any], annotators: Sequence[Any]) -> Figure:
    """Plot the confusion matrices that a classifier estimates for one item, one panel per annotator.

    If there are at most ten classes, each cell shows its value in percent.

    Parameters
    ----------
    matrices : array-like of shape (n_annotators, n_classes, n_classes)
        Matrices with axes (annotator, true class, label), such as `clf.confusion_matrices(X)[n]` for row n of X.
    classes : sequence
        Names of the classes.
    annotators : sequence
        Names of the annotators.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the shape of `matrices` does not match the numbers of annotators and classes.

    Examples
    --------
    >>> len(confusions_of_item(np.full((2, 2, 2), 0.5), ["cat", "dog"], ["ada", "bob"]).axes)  # and the colour bar
    3
    """
    matrices = np.asarray(matrices, np.float64)
    n_classes = len(classes)
    if matrices.shape != (len(annotators), n_classes, n_classes):
        raise ValueError(
            "matrices must have shape (n_annotators, n_classes, n_classes) = "
            f"{(len(annotators), n_classes, n_classes)}, got {matrices.shape}"
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


def weight_maps(coordinates: NDArray[Any], weights: NDArray[Any], annotators: Sequence[Any]) -> Figure:
    """Plot the weight of each annotator on each item, one panel per annotator with a common colour scale.

    Parameters
    ----------
    coordinates : array-like of shape (n_items, 2)
        Positions of the items, such as the first two principal components of their features.
    weights : array-like of shape (n_items, n_annotators)
        Weights, such as `clf.annotator_weights(X)`.
    annotators : sequence
        Names of the annotators.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the shape of `coordinates` or `weights` is not as above.

    Examples
    --------
    >>> len(weight_maps(np.eye(2), np.full((2, 3), 1 / 3), ["ada", "bob", "cy"]).axes)  # and the colour bar
    4
    """
    coordinates, weights = np.asarray(coordinates, np.float64), np.asarray(weights, np.float64)
    if coordinates.shape != (len(weights), 2) or weights.shape[1:] != (len(annotators),):
        raise ValueError(
            f"coordinates must have shape (n_items, 2), and weights must have shape (n_items, {len(annotators)}), "
            f"with one column per annotator; got {coordinates.shape} and {weights.shape}"
        )
    columns = min(4, len(annotators))
    n_rows = -(-len(annotators) // columns)
    figure = Figure(figsize=(3.1 * columns + 0.8, 2.8 * n_rows + 0.3), layout="constrained")
    axes = figure.subplots(n_rows, columns, squeeze=False, sharex=True, sharey=True)
    for ax in axes.flat[len(annotators) :]:
        ax.set_axis_off()
    shown = list(axes.flat[: len(annotators)])
    for ax, weight, name in zip(shown, weights.T, annotators, strict=True):
        order = np.argsort(weight, kind="stable")  # the highest weights lie on top
        points = ax.scatter(
            *coordinates[order].T, c=weight[order], s=6, cmap="cividis", vmin=weights.min(), vmax=weights.max()
        )
        ax.set_title(plain_text(name), loc="left", fontsize=10)
        ax.set_xticks([])
        ax.set_yticks([])
    figure.colorbar(points, ax=shown, shrink=0.8, label="weight")
    return figure


def calibration(probabilities: Mapping[str, NDArray[Any]], gold: NDArray[Any], *, n_bins: int = 10) -> Figure:
    """Plot accuracy over confidence, one line per model. A panel below shows the distribution of confidence.

    The confidence is the highest predicted probability of an item.

    Parameters
    ----------
    probabilities : mapping of str to array-like of shape (n_items, n_classes)
        Predicted probabilities of each model.
    gold : array-like of shape (n_items,)
        True classes, as column indices of `probabilities`.
    n_bins : int, default=10
        Number of bins of confidence.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If the probabilities of a model do not have one row per item.

    Examples
    --------
    >>> figure = calibration({"fusion": np.array([[0.9, 0.1], [0.4, 0.6]])}, np.array([0, 1]))
    >>> figure.axes[0].get_ylabel()
    'accuracy'
    """
    gold = np.asarray(gold)
    figure = Figure(figsize=(5.4, 5.6), layout="constrained")
    ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="perfect calibration")
    edges = np.linspace(0, 1, n_bins + 1)
    for name, style in _line_styles(list(probabilities)).items():
        values = np.asarray(probabilities[name], np.float64)
        if values.ndim != 2 or len(values) != len(gold):
            raise ValueError(
                f"the probabilities of {name} must have shape ({len(gold)}, n_classes), with one row per item of gold; "
                f"got {values.shape}"
            )
        confidence, is_right = values.max(1), values.argmax(1) == gold
        bin_of = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
        count = np.bincount(bin_of, minlength=n_bins)
        filled = count > 0
        mean_confidence = np.bincount(bin_of, confidence, minlength=n_bins)[filled] / count[filled]
        accuracy = np.bincount(bin_of, is_right, minlength=n_bins)[filled] / count[filled]
        ax.plot(mean_confidence, accuracy, markersize=5, label=name, **style)
        below.stairs(count / len(gold), edges, color=style["color"])
    ax.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    below.set(xlabel="confidence", ylabel="share of items")
    ax.legend(frameon=False, loc="best")  # an underconfident model has points in the upper left corner
    _hide_spines(ax)
    _hide_spines(below)
    return figure


def plain_text(name: Any) -> str:
    """Return a name with escaped dollar signs, because matplotlib would read them as mathematics."""
    return str(name).replace("$", r"\$")
