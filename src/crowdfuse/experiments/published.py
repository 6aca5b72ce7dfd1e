"""Published results of other methods' papers: their protocols on data at hand, with their numbers beside ours.

The protocol is that of Herde, Lührs, Huseljic and Sick (2024), the paper on Annot-mix: one network and one training
recipe for all methods, ten seeds, the last epoch, and no gold for any choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import nn

from crowdfuse.checks.choices import check_choice
from crowdfuse.datasets.crowd import CrowdDataset
from crowdfuse.datasets.labelme import load_labelme
from crowdfuse.datasets.music_genres import load_music_genres
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.estimators.registry import estimator_class
from crowdfuse.experiments.correct_items import encode_correct
from crowdfuse.experiments.crowds import ACCURACY, training_labels
from crowdfuse.experiments.grid import Cell, MethodVariant
from crowdfuse.experiments.store import RunSpec
from crowdfuse.training.recipes import OptimizerFactory, Schedule

EXPERIMENT_NAME = "published"
N_SEEDS = 10  # as published
N_MUSIC_VALIDATION = 100  # test songs that the authors use for validation; they are not evaluated

METHOD_ROWS = {
    "majority-vote-hard": MethodVariant("majority-vote", {"vote": "hard"}),
    "majority-vote-hard with mixup": MethodVariant("majority-vote", {"vote": "hard", "mixup": 1.0}),
    "two-stage with mixup": MethodVariant("two-stage", {"target": "hard", "mixup": 1.0}),
    "crowd-layer": MethodVariant("crowd-layer"),
    "trace-reg": MethodVariant("trace-reg", {"trace_weight": 0.01, "start": 0.978}),
    "conal": MethodVariant("conal", {"separation": 1e-5}),
    "union-net": MethodVariant("union-net"),
    "madl": MethodVariant("madl", {"confusions": "full"}),
    "geo-crowd-net f": MethodVariant("geo-crowd-net", {"volume_weight": 1e-3, "start": None}),
    "geo-crowd-net w": MethodVariant("geo-crowd-net", {"regularizer": "w", "volume_weight": 1e-3, "start": None}),
    "annot-mix": MethodVariant("annot-mix", {"embedding": 128}),
    "true-label": MethodVariant("true-label"),
    "gated": MethodVariant("gated"),
    "fusion": MethodVariant("fusion"),
    "max-mig": MethodVariant("max-mig"),
    "consensus-training": MethodVariant("consensus-training"),
}
"""Rows of the tables, with the settings of the authors' code where they differ from our defaults."""


class PublishedResult(NamedTuple):
    """A published accuracy.

    Attributes
    ----------
    mean : float
        Mean over the seeds, in percent.
    std : float
        Standard deviation over the seeds, in points.
    """

    mean: float
    std: float


@dataclass(frozen=True)
class Protocol:
    """The protocol of published results on one data set.

    Parameters
    ----------
    title : str
        Name of the data set, for tables.
    note : str
        How the protocol differs from the published one, and what is evaluated.
    recipe : dict
        The network and the training, as stored with each run: `hidden`, `dropout`, `learning_rate`, `weight_decay`,
        `epochs`, `batch_size` and `standardize`.
    results : dict of str to PublishedResult
        Published results by the row of the table.
    has_published_inputs : bool
        Whether we have the inputs on which the results were published. Otherwise, differences would mean little.
    """

    title: str
    note: str
    recipe: Mapping[str, Any]
    results: Mapping[str, PublishedResult]
    has_published_inputs: bool


RECIPE: dict[str, Any] = {"dropout": 0.5, "learning_rate": 0.01, "epochs": 50, "batch_size": 64}
PROTOCOLS = {
    "music": Protocol(
        "Music",
        "700 songs with 124 features, 44 annotators; evaluated on 200 test songs. The other 100 test songs, drawn by "
        "class, are the authors' validation set and are not used. Our file may have the test songs in another order, "
        "so these may be other songs",
        RECIPE | {"hidden": [256, 128], "weight_decay": 0.0, "standardize": True},
        {
            "majority-vote-hard": PublishedResult(66.1, 2.8),
            "majority-vote-hard with mixup": PublishedResult(68.2, 2.1),
            "two-stage with mixup": PublishedResult(68.9, 1.5),
            "crowd-layer": PublishedResult(69.8, 1.0),
            "trace-reg": PublishedResult(66.4, 1.4),
            "conal": PublishedResult(69.0, 0.9),
            "union-net": PublishedResult(68.6, 1.0),
            "madl": PublishedResult(72.0, 2.0),
            "geo-crowd-net f": PublishedResult(70.2, 0.7),
            "geo-crowd-net w": PublishedResult(70.1, 0.9),
            "annot-mix": PublishedResult(73.8, 1.1),
            "true-label": PublishedResult(79.6, 0.9),
        },
        has_published_inputs=True,
    ),
    "labelme": Protocol(
        "LabelMe",
        "1,000 images, 59 annotators; evaluated on 1,188 test images. Our features are averaged VGG features; the "
        "published ones are DINOv2 features, so the accuracies can be compared within a column only. Weight decay "
        "applies to all parameters, not only to those of the classifier",
        RECIPE | {"hidden": [128], "weight_decay": 1e-4, "standardize": False},
        {
            "majority-vote-hard": PublishedResult(80.5, 1.1),
            "majority-vote-hard with mixup": PublishedResult(82.8, 0.7),
            "two-stage with mixup": PublishedResult(85.3, 0.4),
            "crowd-layer": PublishedResult(85.7, 0.5),
            "trace-reg": PublishedResult(82.6, 0.6),
            "conal": PublishedResult(83.7, 0.4),
            "union-net": PublishedResult(85.2, 0.3),
            "madl": PublishedResult(82.5, 0.8),
            "geo-crowd-net f": PublishedResult(85.4, 0.5),
            "geo-crowd-net w": PublishedResult(85.5, 0.5),
            "annot-mix": PublishedResult(85.8, 0.6),
            "true-label": PublishedResult(93.9, 0.3),
        },
        has_published_inputs=False,
    ),
}
"""The protocols by the name of the data set. Source of the results: the table in the authors' repository."""


def published_cells(
    values: Sequence[str] = (), methods: Sequence[str] = (), seeds: Sequence[int] = (), epochs: int | None = None
) -> list[Cell]:
    """Return the runs of the published protocols, or a part of them, ordered by data set and seed.

    Parameters
    ----------
    values : sequence of str, default=()
        Names of the data sets. If empty, all data sets.
    methods : sequence of str, default=()
        Rows of the table. If empty, all rows.
    seeds : sequence of int, default=()
        Seeds. If empty, 0 to 9.
    epochs : int or None, default=None
        Number of epochs. If None, 50, as published.

    Returns
    -------
    list of Cell

    Raises
    ------
    ValueError
        If a data set or row is unknown.

    Examples
    --------
    >>> [cell.name for cell in published_cells(["music"], ["madl"], [0, 1])]
    ['madl, music, seed 0', 'madl, music, seed 1']
    """
    for name in methods:
        check_choice("--methods", name, METHOD_ROWS)
    cells = []
    for value in values or PROTOCOLS:
        recipe = dict(PROTOCOLS[check_choice("--values", value, PROTOCOLS)].recipe)
        for seed in seeds or range(N_SEEDS):
            for name, row in METHOD_ROWS.items():
                if not methods or name in methods:
                    run: RunSpec = {
                        "data": {"name": value},
                        "recipe": recipe if epochs is None else recipe | {"epochs": epochs},
                        "method": row.method,
                        "settings": row.settings,
                        "seed": seed,
                    }
                    cells.append(Cell(name, value, seed, run))
    return cells


@dataclass(frozen=True)
class PublishedExecutor:
    """Executes runs of the published protocols; a `RunExecutor`.

    Parameters
    ----------
    folder : Path or None
        Folder with the data sets. If None, the folder in the environment variable ``CROWDFUSE_DATA``.
    """

    folder: Path | None
    _loaded: dict[str, CrowdDataset] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, runs: Sequence[RunSpec], *, download: bool = False) -> None:
        """Read every data set once, and check the settings of each row. These data sets cannot be downloaded."""
        once = {(run["data"]["name"], run["method"], str(run["settings"])): run for run in runs}
        for run in once.values():
            crowd = self.crowd(run["data"]["name"])
            _make_classifier(run, crowd).prepare(crowd.X, training_labels(run, crowd))

    def crowd(self, name: str) -> CrowdDataset:
        """Return a data set. Its test items are those that the protocol evaluates."""
        if name not in self._loaded:
            self._loaded[name] = _load_music(self.folder) if name == "music" else load_labelme(self.folder)
        return self._loaded[name]

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """Execute a run and return its results."""
        crowd = self.crowd(run["data"]["name"])
        classifier = _make_classifier(run, crowd, checkpoint).fit(crowd.X, training_labels(run, crowd))
        if classifier.interrupted_:
            raise KeyboardInterrupt
        is_correct = classifier.predict(crowd.X_test) == crowd.y_test
        return {ACCURACY: float(is_correct.mean()), **encode_correct(is_correct)}


def _load_music(folder: Path | None) -> CrowdDataset:
    """Return the music genres with the test songs of the published protocol."""
    crowd = load_music_genres(folder)
    rows = np.arange(len(crowd.y_test))
    if len(rows) <= N_MUSIC_VALIDATION:
        raise ValueError(
            f"the protocol needs more than {N_MUSIC_VALIDATION} test songs, because {N_MUSIC_VALIDATION} are set "
            f"aside, but the data has {len(rows)}"
        )
    _, test = train_test_split(rows, train_size=N_MUSIC_VALIDATION, random_state=0, stratify=crowd.y_test)
    return CrowdDataset(
        crowd.X, crowd.annotations, crowd.y, crowd.X_test[test], crowd.y_test[test], class_names=crowd.class_names
    )


def _make_classifier(run: RunSpec, crowd: CrowdDataset, checkpoint: Path | None = None) -> CrowdClassifier:
    """Return the classifier of a run, not yet fitted."""
    recipe = run["recipe"]
    settings: dict[str, Any] = {
        "backbone": partial(make_network, crowd.X.shape[1], recipe["hidden"], recipe["dropout"]),
        "head_hidden": (),
        "dropout": 0.0,
        "standardize": recipe["standardize"],
        "optimizer": make_radam(recipe["learning_rate"], recipe["weight_decay"]),
        "learning_rate": recipe["learning_rate"],
        "schedule": cosine_by_epoch(recipe["epochs"]),
        "epochs": recipe["epochs"],
        "batch_size": recipe["batch_size"],
    }
    kind = estimator_class(run["method"])
    return kind(**settings, **run["settings"], random_state=run["seed"], classes=crowd.classes, checkpoint=checkpoint)


def make_network(n_features: int, hidden: Sequence[int], dropout: float) -> nn.Sequential:
    """Return the published network: hidden layers with batch normalization, ReLU and dropout.

    Parameters
    ----------
    n_features : int
        Number of features.
    hidden : sequence of int
        Width of each hidden layer.
    dropout : float
        Dropout rate after each hidden layer.

    Returns
    -------
    network : Sequential

    Examples
    --------
    >>> make_network(124, [256, 128], 0.5)(torch.ones(2, 124)).shape
    torch.Size([2, 128])
    """
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in pairwise([n_features, *hidden]):
        layers += [nn.Linear(n_inputs, n_outputs), nn.BatchNorm1d(n_outputs), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def make_radam(learning_rate: float, weight_decay: float) -> OptimizerFactory:
    """Return a function that makes the optimizer RAdam for given parameters.

    Parameters
    ----------
    learning_rate : float
        The learning rate.
    weight_decay : float
        The weight decay.

    Returns
    -------
    make_optimizer : callable
    """

    def radam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.RAdam(parameters, lr=learning_rate, weight_decay=weight_decay)

    return radam


def cosine_by_epoch(n_epochs: int) -> Schedule:
    """Return a cosine schedule that changes the learning rate after each epoch only, as PyTorch's usual scheduler does.

    Parameters
    ----------
    n_epochs : int
        Number of epochs.

    Returns
    -------
    schedule : callable

    Examples
    --------
    >>> schedule = cosine_by_epoch(2)
    >>> [round(schedule(progress), 2) for progress in (0, 0.49, 0.5, 0.99)]
    [1.0, 1.0, 0.5, 0.5]
    """

    def cosine(progress: float) -> float:
        epoch = min(math.floor(progress * n_epochs + 1e-9), n_epochs)
        return (1 + math.cos(math.pi * epoch / n_epochs)) / 2

    return cosine
