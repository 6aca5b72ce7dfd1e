"""Beyond the paper: kinds of mistakes on MNIST, one recipe for all methods, and no gold that chooses anything."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.mnist import load_mnist
from crowdfuse.experiments import cifar
from crowdfuse.experiments.correct_items import encode_correct
from crowdfuse.experiments.gold_sample import sample_gold
from crowdfuse.experiments.grid import Experiment, MethodVariant, Scale
from crowdfuse.experiments.mnist import N_TRAIN
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, make_classifier, split_data
from crowdfuse.experiments.store import RunSpec
from crowdfuse.io.inputs import Inputs
from crowdfuse.synthesis.label_files import PAPER_WEAKNESS

RECIPE: dict[str, Any] = {
    "backbone": "lenet",
    "standardize": False,  # pixels come normalised
    "optimizer": "adamw",
    "learning_rate": 0.002,
    "weight_decay": 1e-4,
    "schedule": "one-cycle",
    "batch_size": 256,
    "epochs": 12,
}
METHODS = ("gated", "majority-vote", "fusion", "trace-reg", "mbem", "wdn", "true-label")
NON_UNIFORM_NOISE = ("any", "looks", "shift", "neighbour", "copy")
# of the rows in mnist.MORE_WEAKNESS, and none of the paper's
TRIPLES = ((4000, 500, 3500), (1500, 10717, 4000), (500, 1500, 3500), (10717, 500, 4000), (3500, 10717, 1500))
RARE, RARE_SHARE = 5, 0.05  # the digit to be found, and its share


class GoldFreeExecutor(PaperExecutor):
    """Runs that are judged on test items as they are at the end: the last epoch, or a choice without gold."""

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        parts = self.parts(run)
        classifier = make_classifier(run, parts, checkpoint)
        made = self.annotators(run, parts) if "annotators" in run else None
        count = run.get("annotators", {}).get("gold", 0)
        given = {"gold": sample_gold(parts.y, count, run["seed"])} if count else {}
        classifier.fit(parts.X, parts.y if made is None else made.annotations, **given)
        if classifier.interrupted_:
            raise KeyboardInterrupt
        predicted = classifier.predict(parts.X_test)
        right = predicted == parts.y_test
        result: dict[str, Any] = {
            "test accuracy": float(right.mean()),
            "balanced accuracy": float(np.mean([right[parts.y_test == k].mean() for k in np.unique(parts.y_test)])),
            "best epoch": classifier.best_epoch_,
            "history": classifier.history_,
            **encode_correct(right),
        }
        if made is not None:
            result["share of right labels"] = made.accuracy.tolist()
            result["share of items with nobody right"] = made.all_wrong_share
        if made is not None and classifier.estimates_item_accuracy:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that they cannot be trusted is in the diagnostics
                gates = classifier.annotator_accuracy(parts.X)
            result["gate error"] = calibration_error(gates, made.is_correct)
            result["diagnostics"] = classifier.diagnostics_
        return result


class MnistNoiseExecutor(GoldFreeExecutor):
    """Runs on MNIST."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        parts = split_data(load_mnist(self.folder, download=download), slice(run["data"]["train"]), Fraction(11, 12))
        return TASKS[run["data"].get("task", "digits")](parts)


class CifarFeaturesGoldFreeExecutor(GoldFreeExecutor, cifar.CifarFeaturesExecutor):
    """Runs on CIFAR-100's frozen features."""


def calibration_error(gates: NDArray[Any], right: NDArray[np.bool_]) -> float:
    """How far gates (N, R) are from the shares of right labels, over ten bins each: the mean over annotators.

    >>> round(calibration_error(np.array([[0.95], [0.95], [0.05]]), np.array([[True], [False], [False]])), 4)
    0.3167
    """
    bins = np.minimum((gates * 10).astype(int), 9)
    found = 0.0
    for r in range(gates.shape[1]):
        count = np.bincount(bins[:, r], minlength=10)
        gap = np.bincount(bins[:, r], gates[:, r], minlength=10) - np.bincount(bins[:, r], right[:, r], minlength=10)
        found += float(np.abs(gap[count > 0]).sum()) / len(gates)
    return float(found / gates.shape[1])


def _odd(parts: DataSplit) -> DataSplit:
    """Odd or even."""
    y, y_validation, y_test = (part % 2 for part in (parts.y, parts.y_validation, parts.y_test))
    return replace(parts, y=y, y_validation=y_validation, y_test=y_test)


def _rare(parts: DataSplit) -> DataSplit:
    """One digit or not: of those digits so many are left that they make up 5 %."""

    def fewer(X: Inputs, y: NDArray[np.int64]) -> tuple[Inputs, NDArray[np.int64]]:
        found = y == RARE
        wanted = round(RARE_SHARE / (1 - RARE_SHARE) * (~found).sum())
        keep = ~found
        keep[np.flatnonzero(found)[:wanted]] = True
        return X.take(np.flatnonzero(keep)), found[keep].astype(np.int64)

    X, y = fewer(parts.X, parts.y)
    X_validation, y_validation = fewer(parts.X_validation, parts.y_validation)
    X_test, y_test = fewer(parts.X_test, parts.y_test)
    return DataSplit(X, y, X_validation, y_validation, X_test, y_test)


TASKS: dict[str, Callable[[DataSplit], DataSplit]] = {"digits": lambda parts: parts, "odd": _odd, "rare": _rare}
PROTOCOL = (
    "One recipe for all methods. No gold is used for choosing anything: gated chooses start and epoch by held-out "
    "labels, all others keep the last epoch; true-label trains on gold, and a row '50 gold' is given that of 50 items."
)
SCALE = Scale(
    "MNIST", {"name": "mnist", "train": N_TRAIN}, {}, RECIPE, MnistNoiseExecutor, PROTOCOL, is_papers_recipe=False
)


def weakness_spec(epsilon: float, wrong: str = "uniform", **more: Any) -> dict[str, Any]:
    spec = {"rule": "weakness", "weakness": list(PAPER_WEAKNESS), "epsilon": epsilon}
    return spec | ({} if wrong == "uniform" else {"wrong": wrong}) | {"names": ["1", "2", "3"]} | more


def _kind(value: str) -> dict[str, Any]:
    """Annotators by the name of a kind of mistake and epsilon."""
    wrong, epsilon = value.split()
    return weakness_spec(int(epsilon), wrong)


def _triple(value: str) -> dict[str, Any]:
    which, epsilon = value.split()
    return weakness_spec(int(epsilon), weakness=list(TRIPLES[int(which) - 1]))


def _with_gold(method: str, counts: tuple[int, ...]) -> dict[str, MethodVariant]:
    return {f"{method} {count} gold": MethodVariant(method, {}, {"gold": count}) for count in counts}


UNIFORM = Experiment(
    name="uniform",
    description="three annotators with a weakness, one recipe for all methods",
    parameter="epsilon",
    values=(30, 31, 32, 33, 34, 35),
    methods=METHODS,
    scale=SCALE,
    annotators=lambda epsilon: weakness_spec(epsilon),
    main_method="gated",
)
NOISE_TYPES = Experiment(
    name="kinds",
    description="kinds of wrong labels",
    parameter="kind and epsilon",
    values=tuple(f"{wrong} {epsilon}" for epsilon in (28, 30, 32) for wrong in ("uniform", *NON_UNIFORM_NOISE)),
    methods=("gated", "majority-vote"),
    scale=SCALE,
    annotators=_kind,
    main_method="gated",
    extra_rows=_with_gold("gated", (10, 50, 200)) | _with_gold("majority-vote", (10, 50, 200)),
)
HAMMER = Experiment(
    name="hammer",
    description="five annotators, each right on some classes and wrong on the others, one recipe for all methods",
    parameter="n_correct",
    values=(3,),
    counts=(0, 10),
    methods=METHODS,
    scale=SCALE,
    annotators=lambda n: {"rule": "hammer-spammer", "n_correct": int(n), "names": ["1", "2", "3", "4", "5"]},
    main_method="gated",
)
TRIPLE = Experiment(
    name="triples",
    description="other triples of weakness images",
    parameter="triple and epsilon",
    values=tuple(f"{which + 1} {epsilon}" for which in range(len(TRIPLES)) for epsilon in (32, 35)),
    methods=("gated", "majority-vote"),
    scale=SCALE,
    annotators=_triple,
    main_method="gated",
)
HALF = Experiment(
    name="half-missing",
    description="half of the labels missing, three annotators with a weakness, one recipe for all methods",
    parameter="epsilon",
    values=(32,),
    methods=("gated", "majority-vote", "fusion"),
    scale=SCALE,
    annotators=lambda epsilon: weakness_spec(epsilon, missing=0.5),
    main_method="gated",
)

CIFAR_FEATURES = Experiment(
    name="features",
    description="three annotators with a weakness, no gold that chooses",
    parameter="epsilon",
    values=(20, 21, 22, 23, 24),
    methods=("gated", "fusion", "majority-vote", "majority-vote-soft", "trace-reg", "mbem", "wdn", "true-label"),
    scale=replace(cifar.SMALL_SCALE, executor=CifarFeaturesGoldFreeExecutor, protocol=PROTOCOL),
    annotators=lambda epsilon: {"epsilon": epsilon},
    by_method={
        "fusion": {"n_bases": 150, "loss_scale": "plain"},
        "majority-vote": {"vote": "hard"},
        "trace-reg": {"start": 0.75},
    },
    extra_rows={"majority-vote-soft": MethodVariant("majority-vote", {"vote": "soft"})},
    main_method="gated",
)


def _two(name: str, what: str, task: str) -> Experiment:
    return Experiment(
        name=name,
        description=what,
        parameter="epsilon",
        values=(28, 30, 32),
        methods=("gated", "majority-vote"),
        scale=replace(SCALE, data=SCALE.data | {"task": task}),
        annotators=lambda epsilon: weakness_spec(epsilon),
        main_method="gated",
        extra_rows=_with_gold("gated", (10, 50, 200)) | _with_gold("majority-vote", (10, 50, 200)),
    )


EXPERIMENTS = (
    UNIFORM,
    NOISE_TYPES,
    HAMMER,
    TRIPLE,
    HALF,
    CIFAR_FEATURES,
    _two("odd-even", "odd or even, three annotators with a weakness", "odd"),
    _two("rare", "a class of 5 %, three annotators with a weakness", "rare"),
)
