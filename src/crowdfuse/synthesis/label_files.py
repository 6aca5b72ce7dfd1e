"""Write synthetic labels for a known data set to CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from crowdfuse.checks.choices import check_choice
from crowdfuse.io.files import refuse_existing, write_csv
from crowdfuse.synthesis.habit import habit_annotators
from crowdfuse.synthesis.hammer_spammer import By, hammer_spammer_annotators
from crowdfuse.synthesis.synthetic_crowd import SyntheticCrowd, check_missing
from crowdfuse.synthesis.weakness import weakness_annotators
from crowdfuse.synthesis.wrong_label_kinds import WRONG_LABEL_KINDS


@dataclass(frozen=True)
class Defaults:
    """Default settings of the weakness rule for a data set.

    Attributes
    ----------
    items : int
        Number of items.
    epsilon : float
        Annotators are wrong on items within this distance of their weakness (a row of X).
    weakness : tuple of int or None
        Row number of the weakness of each annotator. If None, rows are chosen so that annotators have the accuracies in
        `DEFAULT_ACCURACIES`.
    """

    items: int
    epsilon: float
    weakness: tuple[int, ...] | None


PAPER_WEAKNESS = (11, 103, 364)  # rows of MNIST's training images
DATASETS = {
    "mnist": Defaults(55_000, 30.0, PAPER_WEAKNESS),
    "fashion-mnist": Defaults(55_000, 30.0, None),
    "digits": Defaults(1_797, 48.0, (4, 2, 3)),
}
DEFAULT_ACCURACIES = (0.7, 0.6, 0.45)
N_CORRECT = 3  # classes per annotator, as in the paper's supplement
RULES = {
    "weakness": ("epsilon", "weakness", "accuracies", "wrong"),
    "hammer-spammer": ("by", "n_correct", "n_hammers", "p", "n_annotators"),
    "habit": ("habits", "n_habits", "share", "n_annotators"),
}


def write_labels(
    dataset: str,
    *,
    rule: str = "weakness",
    out: Path,
    gold: Path | None = None,
    data: Path | None = None,
    download: bool = False,
    items: int | None = None,
    epsilon: float | Sequence[float] | None = None,
    weakness: Sequence[int] | None = None,
    accuracies: Sequence[float] | None = None,
    wrong: str | None = None,
    by: str | None = None,
    n_correct: int | None = None,
    n_hammers: int | None = None,
    p: float | None = None,
    habits: Sequence[Sequence[tuple[Any, Any]]] | None = None,
    n_habits: int | None = None,
    share: float | Sequence[float] | None = None,
    n_annotators: int | None = None,
    missing: float = 0.0,
    seed: int = 0,
    force: bool = False,
) -> dict[str, Any]:
    """Create synthetic annotators for a data set and write their labels to a CSV file.

    With the data set "mnist", the default settings of the weakness and hammer-spammer rules are those of the MNIST
    experiments of Gao et al. (2022).

    Parameters
    ----------
    dataset : {"mnist", "fashion-mnist", "digits"}
        MNIST or Fashion-MNIST (the first 55,000 training images), or scikit-learn's digits. Item ids are row numbers.
    rule : {"weakness", "hammer-spammer", "habit"}, default="weakness"
        The rule by which annotators are wrong; see `weakness_annotators`, `hammer_spammer_annotators` and
        `habit_annotators`.
    out : Path
        CSV file to write, with columns item, annotator and label.
    gold : Path, default=None
        A second CSV file to write, with the true classes: columns item and label. By default, it is not written.
    data : Path, default=None
        Folder of the data set, as in `load_mnist`.
    download : bool, default=False
        Whether to download the data set, as in `load_mnist`.
    items : int, default=None
        Number of items; by default 55,000, or 1,797 for digits.
    epsilon, weakness, accuracies, wrong : default=None
        Settings of the weakness rule; see `weakness_annotators`.
    by, n_correct, n_hammers, p : default=None
        Settings of the hammer-spammer rule; see `hammer_spammer_annotators`.
    habits, n_habits, share : default=None
        Settings of the habit rule; see `habit_annotators`.
    n_annotators : int, default=None
        Number of annotators for the hammer-spammer and habit rules.
    missing : float, default=0.0
        Share of the labels to leave out at random; every item keeps at least one label.
    seed : int, default=0
        Seed of all random draws.
    force : bool, default=False
        Whether to replace existing files.

    Returns
    -------
    dict
        The arguments `dataset`, `rule` and `seed`; the counts `items`, `classes` and `labels`; `nobody_right`, the
        share of items on which every label is wrong; and `annotators`, a list with one dictionary per annotator. This
        dictionary has the id of the annotator (`annotator`), the number of labels (`labels`) and the share of right
        labels (`right`). Depending on the rule, it also has `weakness` (a row number), `hammer` (a list of classes) or
        `habits` (pairs of classes).

    Raises
    ------
    ValueError
        If a setting belongs to another rule or is out of range.
    FileExistsError
        If a file exists and `force` is false.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     result = write_labels("digits", out=Path(folder) / "labels.csv", missing=0.5)
    >>> [(one["weakness"], round(one["right"], 2)) for one in result["annotators"]]
    [(4, 0.75), (2, 0.64), (3, 0.44)]
    >>> result["nobody_right"] > 0.2
    True
    """
    check_choice("dataset", dataset, DATASETS)
    check_choice("rule", rule, RULES)
    given: dict[str, Any] = {
        "epsilon": epsilon,
        "weakness": weakness,
        "accuracies": accuracies,
        "wrong": wrong,
        "by": by,
        "n_correct": n_correct,
        "n_hammers": n_hammers,
        "p": p,
        "habits": habits,
        "n_habits": n_habits,
        "share": share,
        "n_annotators": n_annotators,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    foreign = [name for name in settings if name not in RULES[rule]]
    if foreign:
        raise ValueError(
            f"{', '.join(foreign)}: not a setting of the rule {rule}; its settings are {', '.join(RULES[rule])}"
        )
    check_missing(missing)
    if wrong is not None:
        check_choice("wrong", wrong, WRONG_LABEL_KINDS)
    n_items = _check_items(dataset, items, default_rows=rule == "weakness" and weakness is None and accuracies is None)
    if dataset == "digits" and (data is not None or download):
        raise ValueError(
            "the data set digits is part of scikit-learn; do not pass data= (--data) or download= (--download)"
        )
    _check_outputs(out, gold, force=force)

    X, y = _load(dataset, data, download=download)
    if len(y) < n_items:
        raise ValueError(f"items must be at most {len(y):,}, the number of rows of {dataset}, got {n_items:,}")
    X, y = X[:n_items], y[:n_items]
    if rule == "weakness":
        made = _weakness(dataset, X, y, settings, missing, seed)
    elif rule == "habit":
        made = _habit(X, y, settings, missing, seed)
    else:
        made = _hammer_spammer(y, settings, missing, seed)
    _write(made, out, gold)
    return {
        "dataset": dataset,
        "rule": rule,
        "seed": seed,
        "items": n_items,
        "classes": made.annotations.n_classes,
        "labels": made.annotations.n_labels,
        "nobody_right": made.all_wrong_share,
        "annotators": _annotators(made),
    }


def _weakness(
    dataset: str, X: NDArray[Any], y: NDArray[Any], settings: dict[str, Any], missing: float, seed: int
) -> SyntheticCrowd:
    """Annotators by the weakness rule, with the defaults of the data set."""
    default = DATASETS[dataset]
    settings = {"epsilon": default.epsilon} | settings
    if "weakness" not in settings and "accuracies" not in settings:
        settings |= (
            {"weakness": default.weakness} if default.weakness is not None else {"accuracies": DEFAULT_ACCURACIES}
        )
    count = len(settings["weakness" if "weakness" in settings else "accuracies"])
    return weakness_annotators(X, y, **settings, missing=missing, annotators=_names(count), seed=seed)


def _hammer_spammer(y: NDArray[Any], settings: dict[str, Any], missing: float, seed: int) -> SyntheticCrowd:
    """Annotators by the hammer-spammer rule, with the paper's defaults."""
    settings = {"n_annotators": 5} | settings
    by = cast("By", settings.pop("by", "class"))
    if by == "class" and not {"n_correct", "n_hammers", "p"} & set(settings):
        settings["n_correct"] = N_CORRECT
    names = _names(settings["n_annotators"])
    return hammer_spammer_annotators(y, by=by, **settings, missing=missing, annotators=names, seed=seed)


def _habit(X: NDArray[Any], y: NDArray[Any], settings: dict[str, Any], missing: float, seed: int) -> SyntheticCrowd:
    """Annotators by the habit rule; 3 by default."""
    settings = settings if "habits" in settings else {"n_annotators": 3} | settings
    names = _names(len(settings["habits"]) if "habits" in settings else settings["n_annotators"])
    return habit_annotators(X, y, **settings, missing=missing, annotators=names, seed=seed)


def _names(count: int) -> list[str]:
    """Annotator ids: annotator-1, annotator-2, ..."""
    return [f"annotator-{r + 1}" for r in range(count)]


def _load(dataset: str, data: Path | None, *, download: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and true classes of a data set."""
    if dataset == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return X, y
    from crowdfuse.datasets.mnist import load_mnist

    images = load_mnist(data, name=dataset, download=download)
    return images.X_train, images.y_train


def _write(made: SyntheticCrowd, out: Path, gold: Path | None) -> None:
    """Write the labels, and the true classes if asked for."""
    ann = made.annotations
    columns = ann.items[ann.item], ann.annotators[ann.annotator], ann.classes[ann.label]
    write_csv(out, ["item", "annotator", "label"], zip(*(column.tolist() for column in columns), strict=True))
    if gold is not None:
        write_csv(gold, ["item", "label"], zip(ann.items.tolist(), ann.classes[made.truth].tolist(), strict=True))


def _annotators(made: SyntheticCrowd) -> list[dict[str, Any]]:
    """Number of labels, share of right labels and rule-specific properties of each annotator."""
    ann = made.annotations
    counts = np.bincount(ann.annotator, minlength=ann.n_annotators)
    right = made.accuracy
    about = []
    for r, name in enumerate(ann.annotators):
        one: dict[str, Any] = {"annotator": name, "labels": int(counts[r]), "right": float(right[r])}
        if made.weakness is not None:
            one["weakness"] = int(made.weakness[r])
        if made.hammer is not None:
            one["hammer"] = ann.classes[made.hammer[r]].tolist()
        if made.habit is not None:
            one["habits"] = ann.classes[np.argwhere(made.habit[r])].tolist()
        about.append(one)
    return about


# ---- checks of the arguments --------------------------------------------------------------------------


def _check_items(dataset: str, items: int | None, *, default_rows: bool) -> int:
    """The number of items, if it is valid."""
    default = DATASETS[dataset]
    if items is None:
        return default.items
    if items < 1:
        raise ValueError(f"items must be at least 1, got {items}")
    rows = default.weakness if default_rows else None
    if rows is not None and items <= max(rows):
        raise ValueError(
            f"at least {max(rows) + 1:,} items are needed, got items={items}: by default, annotators of {dataset} "
            f"are wrong near the images in rows {', '.join(map(str, rows))}; use more items, "
            "or give weakness= or accuracies="
        )
    return items


def _check_outputs(out: Path, gold: Path | None, *, force: bool) -> None:
    """Raise an error, before any work, if a file could not be written."""
    for path in (out, gold):
        if path is not None:
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a folder; give the name of a file")
            refuse_existing(path, force=force)
    if gold is not None and gold.resolve() == out.resolve():
        raise ValueError(f"labels and gold would both be written to {out}; give the two files different names")
