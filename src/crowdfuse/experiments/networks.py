"""Networks as annotators (supplement B): trained models label the items, and err where models do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from crowdfuse.datasets.cifar import CifarData, load_cifar
from crowdfuse.datasets.cifar_features import CifarFeatures, load_cifar_features
from crowdfuse.estimators import TrueLabelClassifier
from crowdfuse.estimators.persistence import WEIGHTS_FILE, load, model_folder
from crowdfuse.experiments import cifar
from crowdfuse.experiments.grid import Experiment, Scale
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, split_data
from crowdfuse.experiments.store import RunSpec
from crowdfuse.io.files import sha256
from crowdfuse.nets.importing import import_named
from crowdfuse.synthesis import SyntheticCrowd, network_annotators

N_ITEMS = 20_000
PROTOCOL = (
    "Three small networks are the annotators of 20,000 items. Own: they were trained on these very items, as in the "
    "paper; unseen: on 20,000 others; given: they were named, and whoever named them knows what they were trained on. "
    "The epoch is chosen by gold on 10,000 validation items; gold is used for nothing else, but for the annotators "
    "and for true-label, the upper bound."
)


class NetworkAnnotatorsExecutor(PaperExecutor):
    """Runs on items that networks label: the second `train` rows; the first are for those that must not know them."""

    networks: ClassVar[dict[str, dict[str, Any]]]
    """The settings of those that are trained here, by name."""

    @abstractmethod
    def read(self, *, download: bool) -> CifarData | CifarFeatures:
        """The data set."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        n_items = run["data"]["train"]
        return split_data(self.read(download=download), slice(n_items, 2 * n_items), cifar.TO_TRAIN_ON)

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        super().check(runs, download=download)
        for run in runs:
            for name, given in run.get("annotators", {}).get("models", {}).items():
                _model(name, given)

    def annotators(self, run: RunSpec, parts: DataSplit) -> SyntheticCrowd:
        """Train the networks, or take those that are named, and let them label the items."""
        spec, seed, classes = run["annotators"], run["seed"], list(range(parts.n_classes))
        if "models" in spec:
            models = {name: _model(name, given) for name, given in spec["models"].items()}
        else:
            X, y = (parts.X.values, parts.y) if spec["protocol"] == "own" else self._others(run)
            common: dict[str, Any] = {"batch_size": 256, "random_state": seed, "classes": classes}
            models = {name: TrueLabelClassifier(**common | self.networks[name]).fit(X, y) for name in spec["names"]}
        return network_annotators(models, parts.X.values, parts.y, classes=classes, seed=seed)

    def _others(self, run: RunSpec) -> tuple[Any, Any]:
        data, n_items = self.read(download=False), run["data"]["train"]
        return data.X_train[:n_items], data.y_train[:n_items]


class FeatureNetworksExecutor(NetworkAnnotatorsExecutor):
    """Three kinds and three skills: no hidden layer and little time, a narrow layer, a wide one mostly dropped out."""

    networks: ClassVar[dict[str, dict[str, Any]]] = {
        "linear": {"backbone": "identity", "hidden": (), "epochs": 1, "learning_rate": 0.001},
        "narrow": {"backbone": "mlp", "hidden": (12,), "epochs": 6},
        "forgetful": {"backbone": "mlp", "hidden": (64,), "dropout": 0.7, "epochs": 4},
    }

    def read(self, *, download: bool) -> CifarFeatures:
        return load_cifar_features(self.folder)


class ImageNetworksExecutor(NetworkAnnotatorsExecutor):
    """Three kinds and three skills: one that sees no neighbourhoods, a small convolutional one, a young ResNet."""

    networks: ClassVar[dict[str, dict[str, Any]]] = {
        "mlp": {"backbone": "mlp", "hidden": (256,), "epochs": 10},
        "lenet": {"backbone": "lenet", "epochs": 20},
        "young": {"backbone": "resnet18", "augment": "crop-flip", "epochs": 5},
    }

    def read(self, *, download: bool) -> CifarData:
        return load_cifar(self.folder, download=download)


def declare(scale: Scale) -> list[Experiment]:
    """The experiment at one size."""
    work = FeatureNetworksExecutor if scale is cifar.SMALL_SCALE else ImageNetworksExecutor
    names = list(work.networks)
    own = replace(
        scale,
        data=scale.data | {"train": N_ITEMS},
        annotators={"rule": "networks", "names": names},
        executor=work,
        protocol=PROTOCOL,
    )
    return [
        Experiment(
            name="supp3",
            description="networks as annotators",
            parameter="protocol",
            values=("own", "unseen"),
            methods=tuple(method for method in cifar.TABLE_METHODS if method != "single-annotator"),
            scale=own,
            annotators=lambda protocol: {"protocol": protocol},
            paper="supp-3",
            paper_values={"own": "mobilenet+vgg11+shufflenet"},
            **cifar.SHARED_EXPERIMENT_FIELDS,
        )
    ]


def with_models(experiment: Experiment, named: dict[str, str]) -> Experiment:
    """The experiment with these models as annotators: folders of saved models, or `module:callable`."""
    models = {name: _identity(name, source) for name, source in named.items()}
    spec = {"rule": "networks", "names": list(named), "models": models}
    return replace(experiment, values=("given",), scale=replace(experiment.scale, annotators=spec))


def _identity(name: str, source: str) -> dict[str, str]:
    """What a model is known by: where it comes from and, if it is saved, what it weighs."""
    if ":" in source and not Path(source).exists():
        return {"callable": source}
    return {"saved": source, "sha256": sha256(model_folder(source) / WEIGHTS_FILE)}


def _model(name: str, given: dict[str, str]) -> Any:
    if "callable" in given:
        return import_named(given["callable"], f"annotator {name!r},")
    if sha256(model_folder(given["saved"]) / WEIGHTS_FILE) != given["sha256"]:
        raise ValueError(f"annotator {name!r}: {given['saved']} is no longer the model that it was")
    return load(given["saved"])
