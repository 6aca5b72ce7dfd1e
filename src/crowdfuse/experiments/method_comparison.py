"""All methods by the same rules: on the same labels, split, network, optimiser and budget, as they come and tuned.

A fifth of the training items is kept out. Their labels say how good settings are by the crowd alone, and their gold,
beside that, how good they would have been with gold: so one run serves all ways to tune, and nothing is trained twice.
Gated chooses its epoch by labels that it holds out, the others keep the last; so that this is not what it is ahead by,
all are also run at their defaults with that choice.
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
from crowdfuse.experiments.memory import bytes_to_train
from crowdfuse.experiments.noise_types import MnistNoiseExecutor, weakness_spec
from crowdfuse.experiments.result_table import UPPER_BOUND
from crowdfuse.experiments.search_space import draw_settings
from crowdfuse.experiments.store import RunSpec, run_key
from crowdfuse.labels.annotations import Annotations
from crowdfuse.quality.model_selection import label_likelihood
from crowdfuse.training.loop import DivergedError

HELD_OUT_SHARE = 0.2  # of the items to train on
BINS = 15
NETWORK: dict[str, Any] = crowds.NETWORK | {"batch_size": 256, "epochs": 12}
COUNTED_EPOCHS = 12  # of one batch, to count memory: enough for every phase of every method
EXCLUDED_METHODS = ("single-annotator",)  # one row an annotator: no method to recommend
COMPARED_ROWS = {method: MethodVariant(method) for method in ESTIMATORS if method not in EXCLUDED_METHODS}
COMPARED_ROWS["majority-vote-hard"] = MethodVariant("majority-vote", {"vote": "hard"})


@dataclass(frozen=True)
class ComparisonDataset:
    """Something to compare methods on: data, annotators where they are made up, and what to know of it."""

    title: str
    data: dict[str, Any]
    note: str
    annotators: dict[str, Any] | None = None
    training: dict[str, Any] = field(default_factory=dict)
    """How networks are trained, where that is not as everywhere."""


def _mnist(title: str, note: str, annotators: dict[str, Any], task: str = "digits") -> ComparisonDataset:
    data = {"name": "mnist", "train": 10_000, "pixels": 14, "task": task}
    return ComparisonDataset(title, data, note, annotators, {"standardize": False})  # pixels come normalised


MNIST_DATASETS = {
    "uniform": _mnist("uniform", "wrong labels even over the other classes", weakness_spec(30)),
    "any": _mnist("any", "wrong labels even over all classes", weakness_spec(30, "any")),
    "looks": _mnist("looks", "wrong labels are what the item looks like to the annotator", weakness_spec(30, "looks")),
    "shift": _mnist("shift", "wrong labels are a fixed number of classes further", weakness_spec(30, "shift")),
    "neighbour": _mnist("neighbour", "wrong labels are the most confusable class", weakness_spec(30, "neighbour")),
    "copy": _mnist("copy", "who is wrong says the same wrong label", weakness_spec(30, "copy")),
    "hammer-spammer": _mnist(
        "hammer-spammer",
        "five annotators, each right on three classes and at random on the others",
        {"rule": "hammer-spammer", "n_correct": 3, "names": ["1", "2", "3", "4", "5"]},
    ),
    "two classes": _mnist("two classes", "odd or even", weakness_spec(30), task="odd"),
}
CROWDS = {
    "labelme": ComparisonDataset(
        "LabelMe", {"name": "labelme"}, "averaged VGG features", None, {"batch_size": 64, "epochs": 30}
    ),
    "sentiment": ComparisonDataset(
        "Sentiment Polarity",
        {"name": "sentiment", "words": 1_000},
        "tf-idf of 1,000 words and pairs; a fifth of the sentences, drawn by the seed, judges",
        None,
        {"batch_size": 128, "epochs": 15, "standardize": False},
    ),
    "cifar10n": ComparisonDataset(
        "CIFAR-10N (null control)",
        {"name": "cifar10n", "train": 10_000},
        "frozen features of 10,000 images; its columns are slots, not people, so that there is nobody to know",
        None,
        {"dropout": 0.5},
    ),
}
DATASET_GROUPS = {"mnist-kinds": MNIST_DATASETS, "crowds": CROWDS}


@dataclass(frozen=True)
class ComparisonCell(Cell):
    """A run of the grid, and which draw of the settings it tries."""

    draw: int = 0
    holds_out: bool = False
    """Whether it is the run at defaults whose epoch is chosen by held-out labels."""

    @property
    def name(self) -> str:
        """For people: what is being run."""
        what = "defaults" if self.draw == 0 else f"draw {self.draw}"
        return f"{super().name}, {what}{', epoch by held-out labels' if self.holds_out else ''}"


def comparison_cells(
    arenas: dict[str, ComparisonDataset],
    draws: int,
    values: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
) -> list[ComparisonCell]:
    """The grid: defaults everywhere first, then defaults with held-out labels, then the draws, seed by seed. The upper
    bound is run once a seed."""
    chosen = [check_choice("--values", value, arenas) for value in values or arenas]
    rows = [check_choice("--methods", method, COMPARED_ROWS) for method in methods or COMPARED_ROWS]
    stretches = [
        (seeds, range(1), False),
        (seeds, range(1), True),
        *(((seed,), range(1, draws), False) for seed in seeds),
    ]
    return [
        ComparisonCell(
            row, value, seed, _run(arenas[value], COMPARED_ROWS[row], seed, draw, holds_out), False, draw, holds_out
        )
        for of_seeds, numbers, holds_out in stretches
        for seed in of_seeds
        for value in chosen
        for row in rows
        for draw in numbers
        if row != UPPER_BOUND or (draw == 0 and not holds_out)
    ]


def _run(arena: ComparisonDataset, row: MethodVariant, seed: int, draw: int, holds_out: bool) -> RunSpec:
    settings = NETWORK | arena.training | draw_settings(row.method, draw, seed) | row.settings
    run: RunSpec = {"data": arena.data, "method": row.method, "settings": settings, "seed": seed}
    if arena.annotators is not None:
        run["annotators"] = arena.annotators
    if holds_out and not _holds_out_anyway(row.method):
        run["validation"] = "annotations"
    return run


def _holds_out_anyway(method: str) -> bool:
    return "hold_out" in estimator_class(method)._get_param_names()


@dataclass(frozen=True)
class MethodComparisonExecutor:
    """Does the runs; `folder` is where the data sets are, None for the environment's."""

    folder: Path | None
    _loaded: dict[str, CrowdDataset] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, runs: Sequence[RunSpec], *, download: bool = False) -> None:
        """Read every data set once, and prepare each method once on each."""
        once = {(str(run["data"]), str(run.get("annotators")), run["method"]): run for run in runs}
        for run in once.values():
            crowd = self.crowd(run)
            train, _ = split(crowd, run["seed"])
            _classifier(run, crowd).prepare(crowd.X[train], _learned_from(run, crowd, train))

    def crowd(self, run: RunSpec) -> CrowdDataset:
        """The last one is kept: most runs of a process are on the same."""
        key = run_key({name: run.get(name) for name in ("data", "annotators", "seed")})
        if key not in self._loaded:
            self._loaded.clear()
            self._loaded[key] = self._load(run)
        return self._loaded[key]

    def _load(self, run: RunSpec) -> CrowdDataset:
        data = run["data"]
        if data["name"] == "mnist":
            work = MnistNoiseExecutor(self.folder)
            parts = work.load(run)
            made = work.annotators(run, parts)
            X, X_test = (downsample(part.values, data["pixels"]) for part in (parts.X, parts.X_test))
            return CrowdDataset(X, made.annotations, parts.y, X_test, parts.y_test)
        if data["name"] == "sentiment":
            return load_sentiment(self.folder).split(run["seed"], words=data["words"])
        if data["name"] == "labelme":
            return load_labelme(self.folder)
        crowd = load_cifar10n(self.folder)
        first = slice(data["train"])
        return CrowdDataset(crowd.X[first], crowd.annotations[first], crowd.y[first], crowd.X_test, crowd.y_test)

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        crowd = self.crowd(run)
        train, judges = split(crowd, run["seed"])
        classifier = _classifier(run, crowd)
        began = time.process_time()
        try:
            classifier.fit(crowd.X[train], _learned_from(run, crowd, train), validation=run.get("validation"))
        except DivergedError as error:  # a result like others: these settings are not to be chosen
            return {"diverged": str(error)}
        seconds = time.process_time() - began
        if classifier.interrupted_:
            raise KeyboardInterrupt
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the labels cannot decide is not asked here
            return {
                "seconds of training": round(seconds, 2),
                "bytes of a step": _bytes_of_a_step(run, crowd, train),
                **_by_crowd(classifier, crowd, judges),
                "gold score": classifier.score(crowd.X[judges], crowd.y[judges]),
                **_by_gold(classifier.predict_proba(crowd.X_test), classifier.classes_, crowd.y_test),
                **_of_labels(classifier, crowd, train),
            }


def split(crowd: CrowdDataset, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on, and rows to judge settings by."""
    shuffled = np.random.default_rng([seed, 7]).permutation(len(crowd.X))
    count = round(HELD_OUT_SHARE * len(shuffled))
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])


def downsample(images: NDArray[Any], pixels: int) -> NDArray[np.float32]:
    """Square images (N, ...) as rows of means over squares, so many a side: a fourth of the work at half the side.

    >>> coarser(np.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[2.5, 4.5, 10.5, 12.5]]
    """
    side = round(float(np.prod(images.shape[1:])) ** 0.5)
    squares = images.reshape(len(images), pixels, side // pixels, pixels, side // pixels)
    return np.asarray(squares.mean((2, 4)).reshape(len(images), -1), np.float32)


def _bytes_of_a_step(run: RunSpec, crowd: CrowdDataset, rows: NDArray[np.int64]) -> int:
    """What training on one batch holds at most, through all phases of the method."""
    classifier = _classifier(run, crowd).set_params(epochs=COUNTED_EPOCHS)
    few = rows[: classifier.batch_size]
    return bytes_to_train(lambda: classifier.fit(crowd.X[few], _learned_from(run, crowd, few)).method_)


def _classifier(run: RunSpec, crowd: CrowdDataset) -> CrowdClassifier:
    return estimator_class(run["method"])(**run["settings"], random_state=run["seed"], classes=crowd.classes)


def _learned_from(run: RunSpec, crowd: CrowdDataset, rows: NDArray[np.int64]) -> Annotations | NDArray[np.int64]:
    return crowd.annotations[rows] if estimator_class(run["method"]).trains_on_labels else crowd.y[rows]


def _by_crowd(classifier: CrowdClassifier, crowd: CrowdDataset, judges: NDArray[np.int64]) -> dict[str, Any]:
    """How likely labels of items are that were not trained on, and what speaks against the classifier."""
    verdict = label_likelihood(classifier, crowd.X[judges], crowd.annotations[judges])
    return {"crowd score": verdict.mean, "failed_checks": list(verdict.failed_checks)}


def _by_gold(probabilities: NDArray[Any], classes: NDArray[Any], gold: NDArray[Any]) -> dict[str, float]:
    """How good class probabilities (N, K) are: the share right, the log-likelihood of gold, and whether they are
    honest: how far the largest is from the share right, over 15 bins.

    >>> _by_gold(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1]), np.array([0, 1]))["calibration error"]
    0.3
    """
    place = np.searchsorted(classes, gold)
    right = probabilities.argmax(1) == place
    sure = probabilities.max(1)
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gap = np.bincount(bins, sure, minlength=BINS) - np.bincount(bins, right, minlength=BINS)
    likely = probabilities[np.arange(len(place)), place]
    return {
        "accuracy": float(right.mean()),
        "log loss": float(-np.log(np.maximum(likely, 1e-12)).mean()),
        "calibration error": round(float(np.abs(gap).sum()) / len(right), 6),
    }


def _of_labels(classifier: CrowdClassifier, crowd: CrowdDataset, rows: NDArray[np.int64]) -> dict[str, float]:
    """What the labels trained on are made of: are fused labels right, and do they tell which labels are wrong?"""
    ann, gold = crowd.annotations[rows], crowd.y[rows]
    if not estimator_class(classifier.method_name).trains_on_labels:
        return {}
    ann = ann.with_classes(classifier.classes_)
    fused = classifier.fused_labels(crowd.X[rows], ann)
    wrong = classifier.classes_[ann.label] != gold[ann.item]
    has_labels = np.diff(ann.indptr) > 0
    right = classifier.classes_[fused.argmax(1)] == gold
    found = {"fused labels right": float(right[has_labels].mean())}
    if wrong.any():
        found["suspicion"] = float(average_precision_score(wrong, -fused[ann.item, ann.label]))
    return found
