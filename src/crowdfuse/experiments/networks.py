"""Networks as annotators (supplement B): trained models label the items, and err where models do."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.cifar_features import load_cifar_features
from crowdfuse.estimators import TrueLabelClassifier
from crowdfuse.experiments.cifar import BY_METHOD, DESK, EXTRAS, N_TRAIN
from crowdfuse.experiments.grid import Experiment
from crowdfuse.experiments.work import PaperWork, Parts
from crowdfuse.synthesis import MadeUp, network_annotators

# three kinds and three skills: no hidden layer and little time, a narrow layer, a wide one with half of it dropped out
NETWORKS: dict[str, dict[str, Any]] = {
    "linear": {"backbone": "identity", "hidden": (), "epochs": 1, "learning_rate": 0.001},
    "narrow": {"backbone": "mlp", "hidden": (12,), "epochs": 6},
    "forgetful": {"backbone": "mlp", "hidden": (64,), "dropout": 0.7, "epochs": 4},
}
PROTOCOL = (
    "Frozen features of the images; three small networks are the annotators of 20,000 items. Own: they were trained on "
    "these very items, as in the paper; unseen: on 20,000 others. The epoch is chosen by gold on 10,000 validation "
    "items; gold is used for nothing else, but for the annotators, and for true-label, the upper bound."
)


class NetworksWork(PaperWork):
    """Runs on the second half of the training items, with the first half for networks that must not know them."""

    @cached_property
    def others(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The first half: features and classes."""
        data = load_cifar_features(self.folder)
        return data.X_train[: N_TRAIN // 2], data.y_train[: N_TRAIN // 2]

    def load(self, *, download: bool = False) -> Parts:
        return Parts.cut(load_cifar_features(self.folder), slice(N_TRAIN // 2, N_TRAIN), slice(N_TRAIN, None))

    def annotators(self, spec: dict[str, Any], parts: Parts, seed: int) -> MadeUp:
        """Train the networks and let them label the items."""
        X, y = (parts.X, parts.y) if spec["protocol"] == "own" else self.others
        classes = list(range(parts.n_classes))
        common: dict[str, Any] = {"batch_size": 256, "random_state": seed, "classes": classes}
        models = {name: TrueLabelClassifier(**common, **NETWORKS[name]).fit(X, y) for name in spec["names"]}
        return network_annotators(models, parts.X, parts.y, classes=classes, seed=seed)


SUPP3 = Experiment(
    name="supp3",
    title="CIFAR-100 features, networks as annotators",
    knob="protocol",
    values=("own", "unseen"),
    methods=("fusion", "majority-vote", "majority-vote-soft", "trace-reg", "mbem", "wdn", "true-label"),
    data={"name": "cifar100 features", "train": N_TRAIN // 2},
    annotators=lambda protocol: {"rule": "networks", "protocol": protocol, "names": list(NETWORKS)},
    recipe=DESK,
    by_method=BY_METHOD,
    extras=EXTRAS,
    work=NetworksWork,
    protocol=PROTOCOL,
    paper="supp-3",
    paper_values={"own": "mobilenet+vgg11+shufflenet"},
    is_papers_recipe=False,
)
