"""Comparison of methods on real crowds, with the same small network for all methods; no choice uses gold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.aggregation import AGGREGATORS as AGGREGATORS
from crowdfuse.checks.choices import check_choice
from crowdfuse.datasets import label_only
from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.sentiment import load_sentiment
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class
from crowdfuse.experiments.correct_items import encode_correct
from crowdfuse.experiments.gold_sample import sample_gold
from crowdfuse.experiments.grid import Cell, MethodVariant
from crowdfuse.experiments.store import RunSpec
from crowdfuse.labels.annotations import Annotations

EXPERIMENT_NAME = "crowds"
ACCURACY, EXTERNAL_ACCURACY = "accuracy", "external_accuracy"
NETWORK_SETTINGS: dict[str, Any] = {
    "backbone": "mlp",
    "hidden": [128],
    "optimizer": "adamw",
    "learning_rate": 0.002,
    "weight_decay": 1e-4,
    "schedule": "one-cycle",
}
METHOD_ROWS = {
    "gated": MethodVariant("gated"),
    "fusion": MethodVariant("fusion"),
    "majority-vote": MethodVariant("majority-vote", {"vote": "soft"}),
    "majority-vote-hard": MethodVariant("majority-vote", {"vote": "hard"}),
    "trace-reg": MethodVariant("trace-reg"),
    "mbem": MethodVariant("mbem"),
    "wdn": MethodVariant("wdn"),
    "two-stage": MethodVariant("two-stage", {"aggregator": "dawid-skene"}),
    "true-label": MethodVariant("true-label"),
}
# by default, only gated chooses its epoch by held-out labels; in these rows, the other methods do so, too
HELD_OUT_SUFFIX = " (held-out)"
METHOD_ROWS |= {
    name + HELD_OUT_SUFFIX: METHOD_ROWS[name]
    for name in ("fusion", "majority-vote", "majority-vote-hard", "trace-reg", "mbem", "wdn", "two-stage")
}
SOME_GOLD_ROWS = {  # gold of some training items
    f"{name} {count} gold": METHOD_ROWS[name]._replace(annotators={"n_gold": count})
    for name in ("gated", "majority-vote")
    for count in (10, 50, 200)
}


@dataclass(frozen=True)
class CrowdBenchmark:
    """A data set of the comparison.

    Parameters
    ----------
    title : str
        Name for tables.
    methods : dict of str to MethodVariant
        Rows of the table (methods and variants of methods) that are run on this data set.
    seeds : int
        Number of seeds.
    note : str
        A remark on the data set, shown below the table; may be empty.
    training : dict or None, default=None
        Settings of the training; None if the data set has labels but no inputs.
    version : dict of str to str, default={}
        Further entries that identify the data in a stored run. If the form of the data changes, so do these entries,
        and stored runs on the old data are not reused.
    draws_test_items : bool, default=False
        Whether each seed draws its test items from the same data, instead of a fixed test set for all seeds.
    """

    title: str
    methods: dict[str, MethodVariant]
    seeds: int
    note: str
    training: dict[str, Any] | None = None
    version: dict[str, str] = field(default_factory=dict)
    draws_test_items: bool = False


DATASETS = {
    "labelme": CrowdBenchmark(
        "LabelMe",
        METHOD_ROWS | SOME_GOLD_ROWS,
        10,
        "averaged VGG features; evaluated on its own test images; the validation images are not used",
        {"batch_size": 64, "epochs": 40},
    ),
    "sentiment": CrowdBenchmark(
        "Sentiment Polarity",
        METHOD_ROWS | SOME_GOLD_ROWS,
        10,
        "a fifth of the labelled sentences, drawn by each seed, is the test set; the sentences of the external test "
        "come from another collection. tf-idf of at most 5,000 words and word pairs, not standardized",
        {"batch_size": 64, "epochs": 40, "standardize": False},
        draws_test_items=True,
    ),
    "cifar10n": CrowdBenchmark(
        "CIFAR-10N",
        METHOD_ROWS,
        3,
        "frozen features; the annotators are the workers. Dropout is 0.5, chosen by held-out labels of one seed after "
        "the test accuracy without dropout had been seen (benchmarks/crowd_settings.py)",
        {"batch_size": 256, "epochs": 20, "dropout": 0.5},
        {"annotators": "workers"},
    ),
    **{
        name: CrowdBenchmark(name, {method: MethodVariant(method) for method in AGGREGATORS}, 10, "")
        for name in label_only.LABEL_ONLY_DATASETS
    },
}


def crowd_cells(
    values: Sequence[str] = (), methods: Sequence[str] = (), seeds: Sequence[int] = (), epochs: int | None = None
) -> list[Cell]:
    """Return the runs of the comparison, or of a part of it, ordered by data set and seed.

    Parameters
    ----------
    values : sequence of str, default=()
        Names of the data sets. If empty, all data sets.
    methods : sequence of str, default=()
        Rows of the table. If empty, all rows. A row is run only on the data sets that list it.
    seeds : sequence of int, default=()
        Seeds. If empty, 0, 1, 2, ..., as many as the data set declares.
    epochs : int or None, default=None
        Number of epochs. If None, the number that the data set declares.

    Returns
    -------
    list of Cell

    Raises
    ------
    ValueError
        If a data set or row is unknown, or if none of the rows runs on these data sets.

    Examples
    --------
    >>> [cell.name for cell in crowd_cells(["dog"], ["wawa", "fusion"], [0])]
    ['wawa, dog, seed 0']
    """
    known = list(dict.fromkeys(name for one in DATASETS.values() for name in one.methods))
    for method in methods:
        if method in ESTIMATORS and method not in known:
            raise ValueError(
                f"--methods: {method} is not part of this comparison; to compare all methods, run 'crowdfuse reproduce "
                "crowds --tune 1'"
            )
        check_choice("--methods", method, known)
    found = []
    for value in values or DATASETS:
        chosen = DATASETS[check_choice("--values", value, DATASETS)]
        for seed in seeds or range(chosen.seeds):
            for name, row in chosen.methods.items():
                if not methods or name in methods:
                    found.append(_make_cell(value, name, row, seed, epochs))
    if not found:
        raise ValueError(
            f"--methods: none of {', '.join(methods)} runs on {', '.join(values)}; 'crowdfuse "
            "reproduce crowds --plan' lists all runs"
        )
    return found


def _make_cell(value: str, name: str, row: MethodVariant, seed: int, epochs: int | None) -> Cell:
    """Return the cell of one row."""
    chosen = DATASETS[value]
    settings = row.settings
    if chosen.training is not None:
        settings = NETWORK_SETTINGS | chosen.training | ({} if epochs is None else {"epochs": epochs}) | row.settings
    data = {"name": value, **chosen.version}
    run: RunSpec = {"data": data, "method": row.method, "settings": settings, "seed": seed}
    if name.endswith(HELD_OUT_SUFFIX):
        run["validation"] = "annotations"
    return Cell(name, value, seed, run | row.annotators)


@dataclass(frozen=True)
class CrowdsExecutor:
    """Executes runs on real crowds; a `RunExecutor`.

    Parameters
    ----------
    folder : Path or None
        Folder with the data sets. If None, the folder in the environment variable ``CROWDFUSE_DATA``.
    """

    folder: Path | None
    _loaded: dict[tuple[str, int], CrowdDataset] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, runs: Sequence[RunSpec], *, download: bool = False) -> None:
        """Read every data set once, and check the settings of each method. These data sets cannot be downloaded."""
        once = {(run["data"]["name"], run["method"], str(run["settings"])): run for run in runs}
        for run in once.values():
            name = run["data"]["name"]
            if DATASETS[name].training is None:
                label_only.load_label_only(name, self.folder)
            else:
                crowd = self.crowd(name, run["seed"])
                _classifier(run, crowd).prepare(crowd.X, training_labels(run, crowd))

    def crowd(self, name: str, seed: int) -> CrowdDataset:
        """Return a data set with inputs. The last data set stays in memory, because most runs of a process share it."""
        if (name, seed) not in self._loaded:
            self._loaded.clear()
            self._loaded[name, seed] = self._load(name, seed)
        return self._loaded[name, seed]

    def _load(self, name: str, seed: int) -> CrowdDataset:
        if name == "sentiment":
            return load_sentiment(self.folder).split(seed)
        return load_labelme(self.folder) if name == "labelme" else load_cifar10n(self.folder)

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """Execute a run and return its results."""
        name = run["data"]["name"]
        if DATASETS[name].training is None:
            return _aggregated(run, label_only.load_label_only(name, self.folder))
        crowd = self.crowd(name, run["seed"])
        classifier = _classifier(run, crowd, checkpoint)
        given = {"gold": sample_gold(crowd.y, run["n_gold"], run["seed"])} if "n_gold" in run else {}
        classifier.fit(crowd.X, training_labels(run, crowd), validation=run.get("validation"), **given)
        if classifier.interrupted_:
            raise KeyboardInterrupt
        right = classifier.predict(crowd.X_test) == crowd.y_test
        result = {
            ACCURACY: float(right.mean()),
            **encode_correct(right),
            "loss": classifier.history_[-1]["loss"],
            "best_epoch": classifier.best_epoch_,
            "crowd_summary": _summarize_crowd(
                crowd.annotations, crowd.annotations.classes[crowd.annotations.label], crowd.y
            ),
        }
        if crowd.external_test is not None:
            result |= {
                EXTERNAL_ACCURACY: classifier.score(*crowd.external_test),
                "n_external_evaluated": len(crowd.external_test[1]),
            }
        return result


def _classifier(run: RunSpec, crowd: CrowdDataset, checkpoint: Path | None = None) -> CrowdClassifier:
    """Return the classifier of a run, not yet fitted."""
    kind = estimator_class(run["method"])
    return kind(**run["settings"], random_state=run["seed"], classes=crowd.classes, checkpoint=checkpoint)


def training_labels(run: RunSpec, crowd: CrowdDataset) -> Annotations | NDArray[np.int64]:
    """Return the labels to train on: those of the annotators, or gold for a method that trains on gold.

    Parameters
    ----------
    run : RunSpec
        The run, with its `method`.
    crowd : CrowdDataset
        The data set.

    Returns
    -------
    labels : Annotations or ndarray of shape (n_items,)
    """
    return crowd.annotations if estimator_class(run["method"]).trains_on_labels else crowd.y


def _aggregated(run: RunSpec, crowd: label_only.LabelOnly) -> dict[str, Any]:
    """Return the results of a method that aggregates labels without inputs."""
    ann = crowd.annotations
    best = AGGREGATORS[run["method"]](ann, seed=run["seed"], **run["settings"]).consensus_codes
    right = best[crowd.judged] == crowd.truth
    gold = np.full(ann.n_items, -1)
    gold[crowd.judged] = crowd.truth
    return {
        ACCURACY: float(right.mean()),
        **encode_correct(right),
        "crowd_summary": _summarize_crowd(ann, ann.label, gold, np.isin(ann.item, crowd.judged)),
    }


def _summarize_crowd(
    ann: Annotations, said: NDArray[Any], gold: NDArray[Any], known: NDArray[np.bool_] | slice = slice(None)
) -> dict[str, Any]:
    """Return the size of the crowd and the accuracy of its labels, on items with gold."""
    return {
        "n_items": ann.n_items,
        "n_annotators": len(np.unique(ann.annotator)),
        "n_labels": ann.n_labels,
        "n_classes": ann.n_classes,
        "label_accuracy": float((said == gold[ann.item])[known].mean()),
    }
