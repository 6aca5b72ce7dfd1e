"""The paper's CIFAR-100 experiments at desk size: frozen features instead of images, an MLP instead of a ResNet."""

from __future__ import annotations

from typing import Any

from crowdfuse.datasets.cifar_features import load_cifar_features
from crowdfuse.experiments.grid import Experiment, Row
from crowdfuse.experiments.work import PaperWork, Parts

N_TRAIN = 40_000  # the rest of the 50,000 choose the epoch
DATA = {"name": "cifar100 features", "train": N_TRAIN}
NAMES = ["annotator-1", "annotator-2", "annotator-3"]
DESK: dict[str, Any] = {
    "backbone": "mlp",
    "hidden": [256],
    "optimizer": "adamw",
    "learning_rate": 0.002,
    "weight_decay": 1e-4,
    "schedule": "one-cycle",
    "batch_size": 256,
    "epochs": 20,
}
BY_METHOD: dict[str, dict[str, Any]] = {
    "fusion": {"n_bases": 150, "loss_scale": "plain"},
    "majority-vote": {"vote": "hard", "loss_scale": "plain"},
    "wdn": {"weights": "softmax", "loss_scale": "plain"},
}
EXTRAS = {
    "majority-vote-soft": Row("majority-vote", {"vote": "soft"}),
    "fusion-weights-only": Row("fusion", {"n_bases": 1}),
    "fusion-confusions-only": Row("fusion", {"weights": "uniform"}),
    "fusion-latin": Row("fusion", {"basis": "latin"}),
}
PROTOCOL = (
    "Frozen features of all images and a network of one hidden layer: the paper trains a ResNet-18 on the images, so "
    "its numbers are of another size. The epoch is chosen by gold on 10,000 validation items (of MBEM one of the ends "
    "of its rounds, of WDN one of the epochs of its second stage); gold is used for nothing else, but for true-label, "
    "the upper bound, which trains on it."
)


def weak_at(epsilon: float) -> dict[str, Any]:
    """Three annotators with a weakness image each, whose distances come with the features."""
    return {"rule": "weakness", "epsilon": epsilon, "names": NAMES}


class FeaturesWork(PaperWork):
    """Runs on the features: 40,000 items to train on, 10,000 to choose the epoch."""

    def load(self, *, download: bool = False) -> Parts:
        data = load_cifar_features(self.folder)
        return Parts.cut(data, slice(None, N_TRAIN), slice(N_TRAIN, None), data.distances)


COMMON: dict[str, Any] = {
    "data": DATA,
    "recipe": DESK,
    "by_method": BY_METHOD,
    "extras": EXTRAS,
    "work": FeaturesWork,
    "protocol": PROTOCOL,
    "is_papers_recipe": False,
}
TABLE2 = Experiment(
    name="table2",
    title="CIFAR-100 features, three annotators with a weakness",
    knob="epsilon",
    values=(20, 21, 22, 23, 24),
    methods=(
        "fusion",
        "majority-vote",
        "majority-vote-soft",
        "trace-reg",
        "mbem",
        "wdn",
        "single-annotator",
        "true-label",
    ),
    annotators=weak_at,
    paper="2",
    **COMMON,
)
SUPP2 = Experiment(
    name="supp2",
    title="CIFAR-100 features, what weights and confusions each do",
    knob="epsilon",
    values=(22, 23),
    methods=("fusion", "fusion-weights-only", "fusion-confusions-only"),
    annotators=weak_at,
    paper="supp-2",
    **COMMON,
)
AT_22, AT_23 = "fusion at epsilon 22", "fusion at epsilon 23"
LAMBDA = Experiment(
    name="ablation-lambda",
    title="CIFAR-100 features, how strongly matrices are drawn to the identity",
    knob="lambda",
    values=(0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    methods=(AT_22, AT_23),
    annotators=lambda value: weak_at(22),
    settings=lambda value: {"penalty": float(value)},
    **COMMON | {"extras": {AT_22: Row("fusion"), AT_23: Row("fusion", annotators={"epsilon": 23})}},
)
BASES = Experiment(
    name="ablation-bases",
    title="CIFAR-100 features, how many permutations span the matrices",
    knob="M",
    values=(1, 5, 10, 20, 50, 100, 150, 200, 300),
    counts=(1, 10_000),
    methods=(AT_22, AT_23),
    annotators=lambda value: weak_at(22),
    settings=lambda value: {"n_bases": int(value)},
    **COMMON
    | {
        "extras": {
            AT_22: Row("fusion"),
            AT_23: Row("fusion", annotators={"epsilon": 23}),
            f"{AT_22}, latin": Row("fusion", {"basis": "latin"}),
        }
    },
)
EXPERIMENTS = {experiment.name: experiment for experiment in (TABLE2, SUPP2, LAMBDA, BASES)}
