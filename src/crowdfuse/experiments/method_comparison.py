"""Comparison of all methods, with default and with tuned settings. Everything else is the same for all methods.

A fifth of the training items is held out, to tune settings in two ways: by the annotators' labels of these items, or by
their gold. One run serves both ways.

By default, the method gated chooses its epoch by held-out labels, and the others keep the last epoch. To separate the
effect of this choice, all methods also run with default settings and the epoch chosen by held-out labels.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from crowdfuse.checks.choices import check_choice
from crowdfuse.datasets.cifar10n import load_cifar10n
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.sentiment import load_sentiment
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import ESTIMATORS, estimator_class
from crowdfuse.experiments import crowds
from crowdfuse.experiments.grid import Cell, MethodVariant
from crowdfuse.experiments.memory import peak_training_bytes
from crowdfuse.experiments.noise_types import MnistNoiseExecutor, weakness_spec
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.experiments.search_space import draw_settings
from crowdfuse.experiments.store import RunSpec, run_key
from crowdfuse.labels.annotations import Annotations
from crowdfuse.quality.model_selection import label_likelihood
from crowdfuse.training.loop import DivergedError

HELD_OUT_SHARE = 0.2  # of the training items
N_CALIBRATION_BINS = 15
NETWORK_SETTINGS: dict[str, Any] = crowds.NETWORK_SETTINGS | {"batch_size": 256, "epochs": 12}
MEMORY_COUNT_EPOCHS = 12  # to count memory, on one batch: enough epochs to reach every phase of every method
# single-annotator is not a method to recommend. consensus-training does not fit into this training budget;
# benchmarks/default_method.py compares it
EXCLUDED_METHODS = ("single-annotator", "consensus-training")
COMPARED_ROWS = {method: MethodVariant(method) for method in ESTIMATORS if method not in EXCLUDED_METHODS}
COMPARED_ROWS["majority-vote-hard"] = MethodVariant("majority-vote", {"vote": "hard"})


@dataclass(frozen=True)
class ComparisonDataset:
    """A data set of the comparison.

    Parameters
    ----------
    title : str
        Name for tables.
    data : dict
        Name of the data set, and the number of items used.
    note : str
        A description for tables.
    annotators : dict or None, default=None
        Definition of simulated annotators; None for real crowds.
    training : dict, optional
        Settings of the training that differ from `NETWORK_SETTINGS`.
    """

    title: str
    data: dict[str, Any]
    note: str
    annotators: dict[str, Any] | None = None
    training: dict[str, Any] = field(default_factory=dict)


def _mnist(title: str, note: str, annotators: dict[str, Any], task: str = "digits") -> ComparisonDataset:
    """Return a data set of 10,000 images of MNIST with simulated annotators."""
    data = {"name": "mnist", "n_train": 10_000, "image_side": 14, "task": task}
    return ComparisonDataset(title, data, note, annotators, {"standardize": False})  # pixels are already normalized


MNIST_DATASETS = {
    "uniform": _mnist("uniform", "wrong labels are uniform over the other classes", weakness_spec(30)),
    "any": _mnist("any", "labels of weak items are uniform over all classes", weakness_spec(30, "any")),
    "looks": _mnist(
        "looks", "wrong labels are the class that the item looks like to the annotator", weakness_spec(30, "looks")
    ),
    "shift": _mnist(
        "shift", "wrong labels are the true class shifted by a fixed number of classes", weakness_spec(30, "shift")
    ),
    "neighbour": _mnist("neighbour", "wrong labels are the most confusable class", weakness_spec(30, "neighbour")),
    "copy": _mnist("copy", "annotators who are wrong give the same wrong label", weakness_spec(30, "copy")),
    "hammer-spammer": _mnist(
        "hammer-spammer",
        "five annotators, each right on three classes and random on the others",
        {"rule": "hammer-spammer", "n_correct": 3, "names": ["1", "2", "3", "4", "5"]},
    ),
    "two-classes": _mnist("two classes", "odd or even", weakness_spec(30), task="odd"),
}
CROWD_DATASETS = {
    "labelme": ComparisonDataset(
        "LabelMe", {"name": "labelme"}, "averaged VGG features", None, {"batch_size": 64, "epochs": 30}
    ),
    "sentiment": ComparisonDataset(
        "Sentiment Polarity",
        {"name": "sentiment", "n_words": 1_000},
        "tf-idf of 1,000 words and word pairs; a fifth of the sentences, drawn by the seed, is the test set",
        None,
        {"batch_size": 128, "epochs": 15, "standardize": False},
    ),
    "cifar10n": ComparisonDataset(
        "CIFAR-10N",
        {"name": "cifar10n", "n_train": 10_000},
        "frozen features of 10,000 images; in the stored results its three columns of labels are the annotators, each "
        "of which mixes many people; a new run takes the workers as annotators, if the file has their ids",
        None,
        {"dropout": 0.5},
    ),
}
DATASET_GROUPS = {"mnist-kinds": MNIST_DATASETS, "crowds": CROWD_DATASETS}


@dataclass(frozen=True)
class ComparisonCell(Cell):
    """A cell of the comparison.

    Parameters
    ----------
    row, value, seed, run, same_for_all_values
        As in `Cell`. `value` is the name of the data set.
    draw : int, default=0
        Number of the random draw of settings; 0 means the default settings.
    uses_held_out_epoch : bool, default=False
        Whether this is the run with default settings whose epoch is chosen by held-out labels.
    """

    draw: int = 0
    uses_held_out_epoch: bool = False

    @property
    def name(self) -> str:
        """Readable name of the run."""
        settings = "defaults" if self.draw == 0 else f"draw {self.draw}"
        return f"{super().name}, {settings}{', epoch by held-out labels' if self.uses_held_out_epoch else ''}"


def comparison_cells(
    datasets: dict[str, ComparisonDataset],
    n_draws: int,
    values: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
) -> list[ComparisonCell]:
    """Return the runs of the comparison.

    The runs come in three parts: first with default settings, then with default settings and the epoch chosen by
    held-out labels, then with random draws of settings. The random draws are ordered by seed.

    Parameters
    ----------
    datasets : dict of str to ComparisonDataset
        The data sets of a group, by name.
    n_draws : int
        Number of draws of settings per method, including the defaults. The upper bound (training on gold) runs once per
        seed, with its defaults.
    values : sequence of str, default=()
        Names of the data sets to use. If empty, all data sets of the group.
    methods : sequence of str, default=()
        Methods to run. If empty, all methods.
    seeds : sequence of int, default=(0,)
        Seeds.

    Returns
    -------
    list of ComparisonCell
    """
    chosen = [check_choice("--values", value, datasets) for value in values or datasets]
    rows = [check_choice("--methods", method, COMPARED_ROWS) for method in methods or COMPARED_ROWS]
    blocks_of_cells = [
        (seeds, range(1), False),
        (seeds, range(1), True),
        *(((seed,), range(1, n_draws), False) for seed in seeds),
    ]
    return [
        ComparisonCell(
            row,
            value,
            seed,
            _run(datasets[value], COMPARED_ROWS[row], seed, draw, uses_held_out_epoch),
            False,
            draw,
            uses_held_out_epoch,
        )
        for of_seeds, numbers, uses_held_out_epoch in blocks_of_cells
        for seed in of_seeds
        for value in chosen
        for row in rows
        for draw in numbers
        if row != UPPER_BOUND or (draw == 0 and not uses_held_out_epoch)
    ]


def _run(dataset: ComparisonDataset, row: MethodVariant, seed: int, draw: int, uses_held_out_epoch: bool) -> RunSpec:
    settings = NETWORK_SETTINGS | dataset.training | draw_settings(row.method, draw, seed) | row.settings
    run: RunSpec = {"data": dataset.data, "method": row.method, "settings": settings, "seed": seed}
    if dataset.annotators is not None:
        run["annotators"] = dataset.annotators
    if uses_held_out_epoch and not _holds_out_anyway(row.method):
        run["validation"] = "annotations"
    return run


def _holds_out_anyway(method: str) -> bool:
    return "hold_out" in estimator_class(method)._get_param_names()


@dataclass(frozen=True)
class MethodComparisonExecutor:
    """Executes runs of the comparison; a `RunExecutor`.

    Parameters
    ----------
    folder : Path or None
        Folder with the data sets. If None, the folder in the environment variable ``CROWDFUSE_DATA``.
    """

    folder: Path | None
    _loaded: dict[str, CrowdDataset] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, runs: Sequence[RunSpec], *, download: bool = False) -> None:
        """Read every data set once, and check the settings of each method on it."""
        once = {(str(run["data"]), str(run.get("annotators")), run["method"]): run for run in runs}
        for run in once.values():
            crowd = self.crowd(run)
            train, _ = split_rows(crowd, run["seed"])
            _classifier(run, crowd).prepare(crowd.X[train], _training_labels(run, crowd, train))

    def crowd(self, run: RunSpec) -> CrowdDataset:
        """Return the data of a run. The last data set stays in memory, because most runs of a process share it."""
        key = run_key({name: run.get(name) for name in ("data", "annotators", "seed")})
        if key not in self._loaded:
            self._loaded.clear()
            self._loaded[key] = self._load(run)
        return self._loaded[key]

    def _load(self, run: RunSpec) -> CrowdDataset:
        data = run["data"]
        if data["name"] == "mnist":
            executor = MnistNoiseExecutor(self.folder)
            parts = executor.load(run)
            simulated = executor.make_annotators(run, parts)
            X, X_test = (downsample(part.values, data["image_side"]) for part in (parts.X, parts.X_test))
            return CrowdDataset(X, simulated.annotations, parts.y, X_test, parts.y_test)
        if data["name"] == "sentiment":
            return load_sentiment(self.folder).split(run["seed"], words=data["n_words"])
        if data["name"] == "labelme":
            return load_labelme(self.folder)
        crowd = load_cifar10n(self.folder)
        first = slice(data["n_train"])
        return CrowdDataset(crowd.X[first], crowd.annotations[first], crowd.y[first], crowd.X_test, crowd.y_test)

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """Execute a run and return its results; no checkpoint is written."""
        crowd = self.crowd(run)
        train, held_out = split_rows(crowd, run["seed"])
        classifier = _classifier(run, crowd)
        began = time.process_time()
        try:
            classifier.fit(crowd.X[train], _training_labels(run, crowd, train), validation=run.get("validation"))
        except DivergedError as error:  # this is a result, too: tuning never selects these settings
            return {"diverged": str(error)}
        seconds = time.process_time() - began
        if classifier.interrupted_:
            raise KeyboardInterrupt
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about labels are not of interest here
            return {
                "training_cpu_seconds": round(seconds, 2),
                "peak_step_bytes": _peak_step_bytes(run, crowd, train),
                **_by_crowd(classifier, crowd, held_out),
                "held_out_accuracy": classifier.score(crowd.X[held_out], crowd.y[held_out]),
                **_by_gold(classifier.predict_proba(crowd.X_test), classifier.classes_, crowd.y_test),
                **_label_metrics(classifier, crowd, train),
            }


def split_rows(crowd: CrowdDataset, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return training rows and held-out rows."""
    shuffled = np.random.default_rng([seed, 7]).permutation(len(crowd.X))
    count = round(HELD_OUT_SHARE * len(shuffled))
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])


def downsample(images: NDArray[Any], side: int) -> NDArray[np.float32]:
    """Shrink square images by averaging blocks of pixels; each image becomes one row.

    Parameters
    ----------
    images : ndarray of shape (n_items, ...)
        Square images.
    side : int
        Pixels per side of the result.

    Returns
    -------
    ndarray of shape (n_items, side * side)

    Examples
    --------
    >>> downsample(np.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[2.5, 4.5, 10.5, 12.5]]
    """
    block = round(float(np.prod(images.shape[1:])) ** 0.5) // side
    blocks = images.reshape(len(images), side, block, side, block)
    return np.asarray(blocks.mean((2, 4)).reshape(len(images), -1), np.float32)


def _peak_step_bytes(run: RunSpec, crowd: CrowdDataset, rows: NDArray[np.int64]) -> int:
    """Return the peak memory of training on one batch, over all phases of the method."""
    classifier = _classifier(run, crowd).set_params(epochs=MEMORY_COUNT_EPOCHS)
    few = rows[: classifier.batch_size]
    return peak_training_bytes(lambda: classifier.fit(crowd.X[few], _training_labels(run, crowd, few)).method_)


def _classifier(run: RunSpec, crowd: CrowdDataset) -> CrowdClassifier:
    """Return the classifier of a run, not yet fitted."""
    return estimator_class(run["method"])(**run["settings"], random_state=run["seed"], classes=crowd.classes)


def _training_labels(run: RunSpec, crowd: CrowdDataset, rows: NDArray[np.int64]) -> Annotations | NDArray[np.int64]:
    """Return the crowd labels of some rows, or their gold for a method that trains on gold."""
    return crowd.annotations[rows] if estimator_class(run["method"]).trains_on_labels else crowd.y[rows]


def _by_crowd(classifier: CrowdClassifier, crowd: CrowdDataset, held_out: NDArray[np.int64]) -> dict[str, Any]:
    """Return the log-likelihood of the annotators' labels of held-out items, and the sanity checks that failed."""
    verdict = label_likelihood(classifier, crowd.X[held_out], crowd.annotations[held_out])
    return {"held_out_log_likelihood": verdict.mean, "failed_checks": list(verdict.failed_checks)}


def _by_gold(probabilities: NDArray[Any], classes: NDArray[Any], gold: NDArray[Any]) -> dict[str, float]:
    """Return accuracy, log loss and calibration error (over 15 bins) of class probabilities (n_items, n_classes).

    >>> _by_gold(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1]), np.array([0, 1]))["calibration_error"]
    0.3
    """
    code = np.searchsorted(classes, gold)
    right = probabilities.argmax(1) == code
    confidence = probabilities.max(1)
    bins = np.minimum((confidence * N_CALIBRATION_BINS).astype(int), N_CALIBRATION_BINS - 1)
    gap = np.bincount(bins, confidence, minlength=N_CALIBRATION_BINS) - np.bincount(
        bins, right, minlength=N_CALIBRATION_BINS
    )
    likely = probabilities[np.arange(len(code)), code]
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(np.maximum(likely, 1e-12)).mean()),
        "calibration_error": round(float(np.abs(gap).sum()) / len(right), 6),
    }


def _label_metrics(classifier: CrowdClassifier, crowd: CrowdDataset, rows: NDArray[np.int64]) -> dict[str, float]:
    """Return the accuracy of the fused labels, and how well they rank wrong labels (average precision)."""
    ann, gold = crowd.annotations[rows], crowd.y[rows]
    if not estimator_class(classifier.method_name).trains_on_labels:
        return {}
    ann = ann.with_classes(classifier.classes_)
    fused = classifier.fused_labels(crowd.X[rows], ann)
    wrong = classifier.classes_[ann.label] != gold[ann.item]
    has_labels = np.diff(ann.indptr) > 0
    right = classifier.classes_[fused.argmax(1)] == gold
    found = {"fused_label_accuracy": float(right[has_labels].mean())}
    if wrong.any():
        found["suspicion_average_precision"] = float(average_precision_score(wrong, -fused[ann.item, ann.label]))
    return found
