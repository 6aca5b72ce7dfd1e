"""Made-up labels of a known data set as files, for any other tool."""

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
    """What is taken where nothing else is said; without rows, those whose shares come closest to DEFAULT_ACCURACIES."""

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
N_CORRECT = 3  # as in the paper's supplement
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
    """Make up annotators for a data set and write what they say to `out`: a CSV of item, annotator, label.

    `dataset` is "mnist" or "fashion-mnist" (the first 55,000 training images, or `items` of them; `data` and
    `download` as in `load_mnist`), or scikit-learn's bundled "digits". Items are known by their row number.
    `rule` is "weakness" (with `epsilon`, `weakness` or `accuracies`, and `wrong`), "hammer-spammer" (with `by`,
    `n_correct`, `n_hammers`, `p` and `n_annotators`) or "habit" (with `share`, and `habits`, or `n_habits` and
    `n_annotators`); what is not given is the paper's on MNIST. `gold` is a second CSV to write, item and true label.
    Existing files are replaced only with `force`.

    Returns counts, the share of items on which nobody is right (`nobody_right`), and for each annotator the labels
    it gave, the share of them that is right, and what it is weak at (`weakness`, a row), good at (`hammer`, a list of
    classes) or used to (`habits`, pairs of classes).

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
        raise ValueError(f"{', '.join(foreign)}: not a setting of the rule {rule}, which has {', '.join(RULES[rule])}")
    check_missing(missing)
    if wrong is not None:
        check_choice("wrong", wrong, WRONG_LABEL_KINDS)
    n_items = _check_items(dataset, items, default_rows=rule == "weakness" and weakness is None and accuracies is None)
    if dataset == "digits" and (data is not None or download):
        raise ValueError("digits come with scikit-learn: leave out data and download")
    _check_outputs(out, gold, force=force)

    X, y = _load(dataset, data, download=download)
    if len(y) < n_items:
        raise ValueError(f"items must be at most {len(y):,}, the rows of {dataset}, got {n_items:,}")
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
    default = DATASETS[dataset]
    settings = {"epsilon": default.epsilon} | settings
    if "weakness" not in settings and "accuracies" not in settings:
        settings |= (
            {"weakness": default.weakness} if default.weakness is not None else {"accuracies": DEFAULT_ACCURACIES}
        )
    count = len(settings["weakness" if "weakness" in settings else "accuracies"])
    return weakness_annotators(X, y, **settings, missing=missing, annotators=_names(count), seed=seed)


def _hammer_spammer(y: NDArray[Any], settings: dict[str, Any], missing: float, seed: int) -> SyntheticCrowd:
    settings = {"n_annotators": 5} | settings
    by = cast("By", settings.pop("by", "class"))
    if by == "class" and not {"n_correct", "n_hammers", "p"} & set(settings):
        settings["n_correct"] = N_CORRECT
    names = _names(settings["n_annotators"])
    return hammer_spammer_annotators(y, by=by, **settings, missing=missing, annotators=names, seed=seed)


def _habit(X: NDArray[Any], y: NDArray[Any], settings: dict[str, Any], missing: float, seed: int) -> SyntheticCrowd:
    settings = settings if "habits" in settings else {"n_annotators": 3} | settings
    names = _names(len(settings["habits"]) if "habits" in settings else settings["n_annotators"])
    return habit_annotators(X, y, **settings, missing=missing, annotators=names, seed=seed)


def _names(count: int) -> list[str]:
    return [f"annotator-{r + 1}" for r in range(count)]


def _load(dataset: str, data: Path | None, *, download: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    if dataset == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return X, y
    from crowdfuse.datasets.mnist import load_mnist

    images = load_mnist(data, name=dataset, download=download)
    return images.X_train, images.y_train


def _write(made: SyntheticCrowd, out: Path, gold: Path | None) -> None:
    ann = made.annotations
    columns = ann.items[ann.item], ann.annotators[ann.annotator], ann.classes[ann.label]
    write_csv(out, ["item", "annotator", "label"], zip(*(column.tolist() for column in columns), strict=True))
    if gold is not None:
        write_csv(gold, ["item", "label"], zip(ann.items.tolist(), ann.classes[made.truth].tolist(), strict=True))


def _annotators(made: SyntheticCrowd) -> list[dict[str, Any]]:
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


# ---- what goes in --------------------------------------------------------------------------


def _check_items(dataset: str, items: int | None, *, default_rows: bool) -> int:
    default = DATASETS[dataset]
    if items is None:
        return default.items
    if items < 1:
        raise ValueError(f"items must be at least 1, got {items}")
    rows = default.weakness if default_rows else None
    if rows is not None and items <= max(rows):
        raise ValueError(
            f"items must be over {max(rows)}, since the weakness rows of {dataset} are "
            f"{', '.join(map(str, rows))}, got {items}; or give weakness= or accuracies="
        )
    return items


def _check_outputs(out: Path, gold: Path | None, *, force: bool) -> None:
    """What could not be written in the end is refused before any work."""
    for path in (out, gold):
        if path is not None:
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a folder; name a file to write")
            refuse_existing(path, force=force)
    if gold is not None and gold.resolve() == out.resolve():
        raise ValueError(f"labels and gold would both be written to {out}; give them two names")
