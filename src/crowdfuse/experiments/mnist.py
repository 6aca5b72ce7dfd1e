"""The paper's MNIST experiments: annotators with a weakness (Table 1), hammers and spammers (supplement A)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from crowdfuse.datasets.mnist import load_mnist
from crowdfuse.experiments.grid import Experiment, MethodVariant, Scale
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, split_data
from crowdfuse.experiments.store import RunSpec
from crowdfuse.synthesis.label_files import PAPER_WEAKNESS

N_TRAIN = 55_000  # the rest of the 60,000 choose the epoch

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


def _share(missing: float) -> float:
    if missing >= 1:
        raise ValueError(f"--values: a share of missing labels must be below 1, got {missing:g}")
    return missing


class MnistExecutor(PaperExecutor):
    """Runs on MNIST: 55,000 images to train on, the other 5,000 to choose the epoch."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        return split_data(load_mnist(self.folder, download=download), slice(run["data"]["train"]), Fraction(11, 12))


PROTOCOL = (
    "The epoch is chosen by gold on 5,000 validation items; of MBEM, as in the paper's code, it is one of the ends of "
    "its two rounds (of mbem-any-epoch, an epoch of the last), of WDN one of the 5 epochs of its second stage. Gold is "
    "used for nothing else, but for true-label, the upper bound, which trains on it."
)
SCALE = Scale("MNIST", {"name": "mnist", "train": N_TRAIN}, {}, RECIPE, MnistExecutor, PROTOCOL)
TABLE1 = Experiment(
    name="table1",
    description="three annotators with a weakness",
    parameter="epsilon",
    values=(30, 31, 32, 33, 34, 35),
    methods=PAPER_METHODS,
    scale=SCALE,
    annotators=lambda epsilon: {
        "rule": "weakness",
        "weakness": list(PAPER_WEAKNESS),
        "epsilon": epsilon,
        "names": _names(3),
    },
    extra_rows={
        "fusion-shared-heads": MethodVariant("fusion", {"annotator_heads": "shared"}),
        "mbem-any-epoch": MethodVariant("mbem", {"chosen": "epoch"}),
    },
    paper="1",
)
SUPP1 = Experiment(
    name="supp1",
    description="five annotators, each right on some classes and wrong on the others",
    parameter="n_correct",
    values=(3,),
    counts=(0, 10),
    methods=PAPER_METHODS,
    scale=SCALE,
    annotators=lambda n_correct: {"rule": "hammer-spammer", "n_correct": int(n_correct), "names": _names(5)},
    paper="supp-1",
)
CROWD = Experiment(
    name="crowd",
    description="one to eight annotators with a weakness, epsilon 30",
    parameter="annotators",
    values=(1, 2, 3, 4, 5, 6, 7, 8),
    counts=(1, 8),
    methods=("fusion", "majority-vote"),
    scale=SCALE,
    annotators=lambda count: {
        "rule": "weakness",
        "weakness": list(MORE_WEAKNESS[: int(count)]),
        "epsilon": 30,
        "names": _names(int(count)),
    },
)
MISSING_LABELS = Experiment(
    name="missing",
    description="labels missing at random, three annotators with a weakness, epsilon 30",
    parameter="missing",
    values=(0, 0.3, 0.5, 0.7),
    methods=("fusion", "majority-vote"),
    scale=SCALE,
    annotators=lambda share: {
        "rule": "weakness",
        "weakness": list(PAPER_WEAKNESS),
        "epsilon": 30,
        "missing": _share(share),
        "names": _names(3),
    },
)
EXPERIMENTS = (TABLE1, SUPP1, CROWD, MISSING_LABELS)
