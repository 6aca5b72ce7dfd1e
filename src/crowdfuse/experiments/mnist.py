"""The paper's MNIST experiments: annotators with a weakness (Table 1), hammers and spammers (supplement A)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from crowdfuse.annotations import Annotations
from crowdfuse.classifier import CrowdClassifier
from crowdfuse.datasets.mnist import ImageData, load_mnist
from crowdfuse.experiments.grid import Experiment
from crowdfuse.experiments.store import Run
from crowdfuse.registry import estimator_class
from crowdfuse.synthesis import MadeUp, hammer_spammer_annotators, weakness_annotators
from crowdfuse.synthesis.write import PAPER_WEAKNESS

N_TRAIN = 55_000  # the rest of the 60,000 choose the epoch
FEW = 100  # items to try settings on
DATA = {"name": "mnist", "train": N_TRAIN}

# LeNet by plain SGD, the epoch chosen by gold on 5,000 items
RECIPE: dict[str, Any] = {
    "backbone": "lenet",
    "standardize": False,  # pixels come normalised
    "optimizer": "sgd",
    "learning_rate": 0.01,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "schedule": "constant",
    "batch_size": 64,
    "epochs": 40,
}
PAPER_METHODS = ("fusion", "majority-vote", "trace-reg", "mbem", "wdn", "single-annotator", "true-label")
# the paper has three; five more rows that make annotators of about the same skill (44 to 71 % right at epsilon 30)
MORE_WEAKNESS = (*PAPER_WEAKNESS, 4000, 500, 3500, 1500, 10717)


def _names(count: int) -> list[str]:
    return [f"annotator-{r + 1}" for r in range(count)]


def make_annotators(spec: dict[str, Any], X: NDArray[np.float32], y: NDArray[np.int64], seed: int) -> MadeUp:
    """The annotators that a run describes."""
    if spec["rule"] == "weakness":
        return weakness_annotators(
            X, y, weakness=spec["weakness"], epsilon=spec["epsilon"], annotators=spec["names"], seed=seed
        )
    return hammer_spammer_annotators(
        y, n_annotators=len(spec["names"]), n_correct=spec["n_correct"], annotators=spec["names"], seed=seed
    )


def _classifier(run: Run, checkpoint: Path | None) -> CrowdClassifier:
    return estimator_class(run["method"])(
        **run["settings"], random_state=run["seed"], classes=list(range(10)), checkpoint=checkpoint
    )


@dataclass(frozen=True)
class MnistWork:
    """Trains and measures one run on MNIST; `folder` is where the files are, None for the environment's."""

    folder: Path | None

    def check(self, runs: Sequence[Run], *, download: bool) -> None:
        """Read the files once, and fetch them if asked to; prepare each method once on a few items."""
        if not runs:
            return
        data = load_mnist(self.folder, download=download)
        for run in {(run["method"], str(run["settings"])): run for run in runs}.values():
            few, y = data.X_train[:FEW], data.y_train[:FEW]
            names = run["annotators"]["names"] if "annotators" in run else None
            labels = y if names is None else Annotations.from_matrix(np.stack([y] * len(names), 1), annotators=names)
            _classifier(run, None)._prepare(few, labels)

    @cached_property
    def data(self) -> ImageData:
        """Loaded once in each process."""
        return load_mnist(self.folder)

    def __call__(self, run: Run, checkpoint: Path) -> dict[str, Any]:
        X, y = self.data.X_train[:N_TRAIN], self.data.y_train[:N_TRAIN]
        held_out = self.data.X_train[N_TRAIN:], self.data.y_train[N_TRAIN:]
        classifier = _classifier(run, checkpoint)
        made = make_annotators(run["annotators"], X, y, run["seed"]) if "annotators" in run else None
        classifier.fit(X, y if made is None else made.annotations, validation=held_out)
        if classifier.interrupted_:
            raise KeyboardInterrupt
        best = classifier.best_epoch_
        assert best is not None
        result: dict[str, Any] = {
            "test accuracy": classifier.score(self.data.X_test, self.data.y_test),
            "validation accuracy": classifier.history_[best - 1]["validation"],
            "best epoch": best,
            "history": classifier.history_,
        }
        if made is not None:
            result["share of right labels"] = made.accuracy.tolist()
            result |= _believes_the_right(classifier, X, made)
        return result


def _believes_the_right(classifier: CrowdClassifier, X: NDArray[np.float32], made: MadeUp) -> dict[str, Any]:
    """The paper's point, measured: do weights and diagonals say on which items an annotator is right?

    An AUROC an annotator, over the training items: of the weight, and of the diagonal entry P[said, said] of
    its matrix, against being right. Only for methods whose matrices depend on the item.
    """
    right = made.right
    if classifier.confusion_given_ != "said" or right.all(0).any() or (~right).all(0).any():
        return {}
    ann = made.annotations
    weights = classifier.annotator_weights(X)
    matrices = classifier.confusion_matrices(X, ann)
    diagonal = matrices[np.arange(ann.n_labels), ann.label, ann.label]
    of = [ann.annotator == r for r in range(ann.n_annotators)]
    return {
        "auroc of weights": [float(roc_auc_score(right[:, r], weights[:, r])) for r in range(ann.n_annotators)],
        "auroc of diagonals": [
            float(roc_auc_score(right[ann.item[mask], r], diagonal[mask])) for r, mask in enumerate(of)
        ],
    }


PROTOCOL = (
    "The epoch is chosen by gold on 5,000 validation items; of MBEM, as in the paper's code, it is one of the ends of "
    "its two rounds (of mbem-any-epoch, an epoch of the last), of WDN one of the 5 epochs of its second stage. Gold is "
    "used for nothing else, but for true-label, the upper bound, which trains on it."
)
TABLE1 = Experiment(
    name="table1",
    title="MNIST, three annotators with a weakness",
    knob="epsilon",
    values=(30, 31, 32, 33, 34, 35),
    methods=PAPER_METHODS,
    data=DATA,
    annotators=lambda epsilon: {
        "rule": "weakness",
        "weakness": list(PAPER_WEAKNESS),
        "epsilon": epsilon,
        "names": _names(3),
    },
    recipe=RECIPE,
    work=MnistWork,
    protocol=PROTOCOL,
    extras={
        "fusion-shared-heads": ("fusion", {"annotator_heads": "shared"}),
        "mbem-any-epoch": ("mbem", {"chosen": "epoch"}),
    },
    paper="1",
)
SUPP1 = Experiment(
    name="supp1",
    title="MNIST, five annotators, each right on some classes and wrong on the others",
    knob="n_correct",
    values=(3,),
    counts=(0, 10),
    methods=PAPER_METHODS,
    data=DATA,
    annotators=lambda n_correct: {"rule": "hammer-spammer", "n_correct": int(n_correct), "names": _names(5)},
    recipe=RECIPE,
    work=MnistWork,
    protocol=PROTOCOL,
    paper="supp-1",
)
CROWD = Experiment(
    name="crowd",
    title="MNIST, one to eight annotators with a weakness, epsilon 30",
    knob="annotators",
    values=(1, 2, 3, 4, 5, 6, 7, 8),
    counts=(1, 8),
    methods=("fusion", "majority-vote"),
    data=DATA,
    annotators=lambda count: {
        "rule": "weakness",
        "weakness": list(MORE_WEAKNESS[: int(count)]),
        "epsilon": 30,
        "names": _names(int(count)),
    },
    recipe=RECIPE,
    work=MnistWork,
    protocol=PROTOCOL,
)
EXPERIMENTS = {experiment.name: experiment for experiment in (TABLE1, SUPP1, CROWD)}
