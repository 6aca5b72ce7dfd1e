"""Experiments beyond the paper: types of label noise on MNIST. All methods share one recipe and choose without gold."""

from __future__ import annotations

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
    "standardize": False,  # pixels are already normalized
    "optimizer": "adamw",
    "learning_rate": 0.002,
    "weight_decay": 1e-4,
    "schedule": "one-cycle",
    "batch_size": 256,
    "epochs": 12,
}
METHODS = ("gated", "majority-vote", "fusion", "trace-reg", "mbem", "wdn", "true-label")
NON_UNIFORM_NOISE = ("any", "looks", "shift", "neighbour", "copy")
# from mnist.EIGHT_WEAKNESS_ROWS, without the paper's rows
WEAKNESS_TRIPLES = ((4000, 500, 3500), (1500, 10717, 4000), (500, 1500, 3500), (10717, 500, 4000), (3500, 10717, 1500))
RARE_DIGIT, RARE_SHARE = 5, 0.05  # the rare class, and its share of the items


class GoldFreeExecutor(PaperExecutor):
    """Executes runs without gold: the last epoch is evaluated, or the epoch that the method itself chose."""

    def __call__(self, run: RunSpec, checkpoint: Path) -> dict[str, Any]:
        """Execute a run and return its results."""
        split = self.cached_split(run)
        classifier = make_classifier(run, split, checkpoint)
        crowd = self.make_annotators(run, split) if "annotators" in run else None
        n_gold = run.get("annotators", {}).get("n_gold", 0)
        gold = {"gold": sample_gold(split.y, n_gold, run["seed"])} if n_gold else {}
        classifier.fit(split.X, split.y if crowd is None else crowd.annotations, **gold)
        if classifier.interrupted_:
            raise KeyboardInterrupt
        predicted = classifier.predict(split.X_test)
        is_correct = predicted == split.y_test
        result: dict[str, Any] = {
            "test_accuracy": float(is_correct.mean()),
            "balanced_accuracy": float(
                np.mean([is_correct[split.y_test == k].mean() for k in np.unique(split.y_test)])
            ),
            "best_epoch": classifier.best_epoch_,
            "history": classifier.history_,
            **encode_correct(is_correct),
        }
        if crowd is not None:
            result["true_annotator_accuracy"] = crowd.accuracy.tolist()
            result["nobody_right_share"] = crowd.all_wrong_share
        if crowd is not None and classifier.estimates_item_accuracy:
            gates = classifier.annotator_accuracy_per_item(split.X)
            result["gate_calibration_error"] = gate_calibration_error(gates, crowd.is_correct)
        return result


class MnistNoiseExecutor(GoldFreeExecutor):
    """Executes runs on MNIST."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        split = split_data(load_mnist(self.folder, download=download), slice(run["data"]["n_train"]), Fraction(11, 12))
        return TASKS[run["data"].get("task", "digits")](split)


class CifarFeaturesGoldFreeExecutor(GoldFreeExecutor, cifar.CifarFeaturesExecutor):
    """Executes runs on frozen features of CIFAR-100."""


def gate_calibration_error(gates: NDArray[Any], is_correct: NDArray[np.bool_]) -> float:
    """Return the calibration error of the gates over ten bins, as a mean over annotators.

    Parameters
    ----------
    gates : ndarray of shape (n_items, n_annotators)
        The gates: the estimated probability that each annotator is right on each item.
    is_correct : ndarray of shape (n_items, n_annotators)
        Whether each annotator is right.

    Examples
    --------
    >>> round(gate_calibration_error(np.array([[0.95], [0.95], [0.05]]), np.array([[True], [False], [False]])), 4)
    0.3167
    """
    bins = np.minimum((gates * 10).astype(int), 9)
    error = 0.0
    for r in range(gates.shape[1]):
        count = np.bincount(bins[:, r], minlength=10)
        n_correct = np.bincount(bins[:, r], is_correct[:, r], minlength=10)
        gap = np.bincount(bins[:, r], gates[:, r], minlength=10) - n_correct
        error += float(np.abs(gap[count > 0]).sum()) / len(gates)
    return float(error / gates.shape[1])


def _odd(split: DataSplit) -> DataSplit:
    """Return the task to tell odd from even digits."""
    y, y_validation, y_test = (part % 2 for part in (split.y, split.y_validation, split.y_test))
    return replace(split, y=y, y_validation=y_validation, y_test=y_test)


def _rare(split: DataSplit) -> DataSplit:
    """Return the task to find one digit, reduced to 5 % of the items."""

    def reduce(X: Inputs, y: NDArray[np.int64]) -> tuple[Inputs, NDArray[np.int64]]:
        is_rare = y == RARE_DIGIT
        n_rare = round(RARE_SHARE / (1 - RARE_SHARE) * (~is_rare).sum())
        keep = ~is_rare
        keep[np.flatnonzero(is_rare)[:n_rare]] = True
        return X.take(np.flatnonzero(keep)), is_rare[keep].astype(np.int64)

    X, y = reduce(split.X, split.y)
    X_validation, y_validation = reduce(split.X_validation, split.y_validation)
    X_test, y_test = reduce(split.X_test, split.y_test)
    return DataSplit(X, y, X_validation, y_validation, X_test, y_test)


TASKS: dict[str, Callable[[DataSplit], DataSplit]] = {"digits": lambda split: split, "odd": _odd, "rare": _rare}
PROTOCOL = (
    "One recipe for all methods. Gold is not used to choose anything: gated chooses its initial classes and its epoch "
    "by held-out labels, and all other methods keep the last epoch. Only true-label is trained on gold, and the rows "
    "named '50 gold' on the gold of 50 items."
)
SCALE = Scale(
    "MNIST", {"name": "mnist", "n_train": N_TRAIN}, {}, RECIPE, MnistNoiseExecutor, PROTOCOL, uses_paper_recipe=False
)


def weakness_spec(epsilon: float, wrong: str = "uniform", **more: Any) -> dict[str, Any]:
    """Return the definition of three annotators with the weakness images that Gao et al. (2022) use for MNIST.

    Parameters
    ----------
    epsilon : float
        Distance from an annotator's weakness image. Items within this distance get wrong labels; `wrong` says which.
    wrong : str, default="uniform"
        How wrong labels are drawn; see `weakness_annotators`.
    **more : object
        Further entries, such as `missing`, the share of missing labels.
    """
    spec = {"rule": "weakness", "weakness": list(PAPER_WEAKNESS), "epsilon": epsilon}
    return spec | ({} if wrong == "uniform" else {"wrong": wrong}) | {"names": ["1", "2", "3"]} | more


def _noise_type(value: str) -> dict[str, Any]:
    """Return annotators for a value such as "looks 30": how wrong labels are drawn, and epsilon."""
    wrong, epsilon = value.split()
    return weakness_spec(int(epsilon), wrong)


def _triple(value: str) -> dict[str, Any]:
    """Return annotators for a value such as "2 32": the number of the triple, and epsilon."""
    which, epsilon = value.split()
    return weakness_spec(int(epsilon), weakness=list(WEAKNESS_TRIPLES[int(which) - 1]))


def _with_gold(method: str, counts: tuple[int, ...]) -> dict[str, MethodVariant]:
    """Return rows that train with gold of some items."""
    return {f"{method} {count} gold": MethodVariant(method, {}, {"n_gold": count}) for count in counts}


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
    description="types of wrong labels",
    parameter="type and epsilon",
    values=tuple(f"{wrong} {epsilon}" for epsilon in (28, 30, 32) for wrong in ("uniform", *NON_UNIFORM_NOISE)),
    methods=("gated", "majority-vote"),
    scale=SCALE,
    annotators=_noise_type,
    main_method="gated",
    extra_rows=_with_gold("gated", (10, 50, 200)) | _with_gold("majority-vote", (10, 50, 200)),
)
HAMMER = Experiment(
    name="hammer",
    description="five annotators, each right on some classes and wrong on the others, one recipe for all methods",
    parameter="n_correct",
    values=(3,),
    count_range=(0, 10),
    methods=METHODS,
    scale=SCALE,
    annotators=lambda n: {"rule": "hammer-spammer", "n_correct": int(n), "names": ["1", "2", "3", "4", "5"]},
    main_method="gated",
)
OTHER_TRIPLES = Experiment(
    name="triples",
    description="other triples of weakness images",
    parameter="triple and epsilon",
    values=tuple(f"{which + 1} {epsilon}" for which in range(len(WEAKNESS_TRIPLES)) for epsilon in (32, 35)),
    methods=("gated", "majority-vote"),
    scale=SCALE,
    annotators=_triple,
    main_method="gated",
)
HALF_MISSING = Experiment(
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
    description="three annotators with a weakness, no choice uses gold",
    parameter="epsilon",
    values=(20, 21, 22, 23, 24),
    methods=("gated", "fusion", "majority-vote", "majority-vote-soft", "trace-reg", "mbem", "wdn", "true-label"),
    scale=replace(cifar.SMALL_SCALE, executor=CifarFeaturesGoldFreeExecutor, protocol=PROTOCOL),
    annotators=lambda epsilon: {"epsilon": epsilon},
    method_settings={
        "fusion": {"n_bases": 150, "loss_scale": "plain"},
        "majority-vote": {"vote": "hard"},
        "trace-reg": {"start": 0.75},
    },
    extra_rows={"majority-vote-soft": MethodVariant("majority-vote", {"vote": "soft"})},
    main_method="gated",
)


def _two_class_experiment(name: str, description: str, task: str) -> Experiment:
    """Return an experiment on a task with two classes."""
    return Experiment(
        name=name,
        description=description,
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
    OTHER_TRIPLES,
    HALF_MISSING,
    CIFAR_FEATURES,
    _two_class_experiment("odd-even", "odd or even, three annotators with a weakness", "odd"),
    _two_class_experiment("rare", "a class with 5 % of the items, three annotators with a weakness", "rare"),
)
