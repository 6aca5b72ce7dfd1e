"""The paper's MNIST experiments: annotators with a weakness (Table 1), hammers and spammers (supplement A)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from crowdfuse.datasets.mnist import load_mnist
from crowdfuse.experiments.grid import Experiment, MethodVariant, Scale
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, split_data
from crowdfuse.experiments.store import RunSpec
from crowdfuse.synthesis.label_files import PAPER_WEAKNESS

N_TRAIN = 55_000  # the other 5,000 items are used to choose the epoch

# LeNet, SGD with momentum; the epoch is chosen by the gold of 5,000 items
RECIPE: dict[str, Any] = {
    "backbone": "lenet",
    "standardize": False,  # pixels are already normalized
    "optimizer": "sgd",
    "learning_rate": 0.01,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "schedule": "constant",
    "batch_size": 64,
    "epochs": 40,
}
PAPER_METHODS = ("fusion", "majority-vote", "trace-reg", "mbem", "wdn", "single-annotator", "true-label")
# the paper's three rows, and five more that give similar accuracies (44 to 71 % at epsilon 30)
EIGHT_WEAKNESS_ROWS = (*PAPER_WEAKNESS, 4000, 500, 3500, 1500, 10717)


def _annotator_names(count: int) -> list[str]:
    """Return "annotator-1", "annotator-2", ..."""
    return [f"annotator-{r + 1}" for r in range(count)]


def _check_share(missing: float) -> float:
    """Return a share of missing labels if it is below 1."""
    if missing >= 1:
        raise ValueError(f"--values: the share of missing labels must be below 1, got {missing:g}")
    return missing


class MnistExecutor(PaperExecutor):
    """Executes runs on MNIST: 55,000 images for training, the other 5,000 for choosing the epoch."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        return split_data(load_mnist(self.folder, download=download), slice(run["data"]["n_train"]), Fraction(11, 12))


PROTOCOL = (
    "The epoch is chosen by the accuracy on gold of 5,000 validation items. As in the paper's code, MBEM chooses "
    "between the last epochs of its two rounds (mbem-any-epoch: among the epochs of the last round), and WDN among "
    "the 5 epochs of its second stage. Gold is used for no other choice; only true-label, the upper bound, is trained "
    "on gold."
)
SCALE = Scale("MNIST", {"name": "mnist", "n_train": N_TRAIN}, {}, RECIPE, MnistExecutor, PROTOCOL)
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
        "names": _annotator_names(3),
    },
    extra_rows={
        "fusion-shared-heads": MethodVariant("fusion", {"annotator_heads": "shared"}),
        "mbem-any-epoch": MethodVariant("mbem", {"chosen": "epoch"}),
    },
    paper_table_id="1",
)
SUPP1 = Experiment(
    name="supp1",
    description="five annotators, each right on some classes and wrong on the others",
    parameter="n_correct",
    values=(3,),
    count_range=(0, 10),
    methods=PAPER_METHODS,
    scale=SCALE,
    annotators=lambda n_correct: {"rule": "hammer-spammer", "n_correct": int(n_correct), "names": _annotator_names(5)},
    paper_table_id="supp-1",
)
ANNOTATOR_COUNT = Experiment(
    name="crowd",
    description="one to eight annotators with a weakness, epsilon 30",
    parameter="annotators",
    values=(1, 2, 3, 4, 5, 6, 7, 8),
    count_range=(1, 8),
    methods=("fusion", "majority-vote"),
    scale=SCALE,
    annotators=lambda count: {
        "rule": "weakness",
        "weakness": list(EIGHT_WEAKNESS_ROWS[: int(count)]),
        "epsilon": 30,
        "names": _annotator_names(int(count)),
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
        "missing": _check_share(share),
        "names": _annotator_names(3),
    },
)
EXPERIMENTS = (TABLE1, SUPP1, ANNOTATOR_COUNT, MISSING_LABELS)
