"""Networks as annotators (supplement B): trained models label the items and make errors typical of models."""

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
    "Three small networks annotate 20,000 items. Own: they were trained on the same items, as in the paper. Unseen: "
    "they were trained on 20,000 other items. Given: they are models of the user. The epoch is chosen by the accuracy "
    "on gold of 10,000 validation items. Gold is used for no other choice; only the annotators and true-label, the "
    "upper bound, are trained on gold."
)


class NetworkAnnotatorsExecutor(PaperExecutor):
    """Executes runs whose annotators are networks.

    The networks label the rows from `n_train` to `2 * n_train` of the data. Networks that must not have seen these
    items are trained on the first `n_train` rows.
    """

    networks: ClassVar[dict[str, dict[str, Any]]]
    """Settings of the networks that are trained here, by name."""

    @abstractmethod
    def read(self, *, download: bool) -> CifarData | CifarFeatures:
        """Return the data set."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        n_items = run["data"]["n_train"]
        return split_data(self.read(download=download), slice(n_items, 2 * n_items), cifar.TRAIN_SHARE)

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        super().check(runs, download=download)
        for run in runs:
            for name, given in run.get("annotators", {}).get("models", {}).items():
                _model(name, given)

    def make_annotators(self, run: RunSpec, split: DataSplit) -> SyntheticCrowd:
        """Return the labels of the networks: trained here, or models of the user."""
        spec, seed, classes = run["annotators"], run["seed"], list(range(split.n_classes))
        if "models" in spec:
            models = {name: _model(name, given) for name, given in spec["models"].items()}
        else:
            X, y = (split.X.values, split.y) if spec["protocol"] == "own" else self._first_rows(run)
            common: dict[str, Any] = {"batch_size": 256, "random_state": seed, "classes": classes}
            models = {name: TrueLabelClassifier(**common | self.networks[name]).fit(X, y) for name in spec["names"]}
        return network_annotators(models, split.X.values, split.y, classes=classes, seed=seed)

    def _first_rows(self, run: RunSpec) -> tuple[Any, Any]:
        """Return inputs and gold of the rows that are not labelled."""
        data, n_items = self.read(download=False), run["data"]["n_train"]
        return data.X_train[:n_items], data.y_train[:n_items]


class FeatureNetworksExecutor(NetworkAnnotatorsExecutor):
    """Three networks on features: without a hidden layer and briefly trained; narrow; wide with strong dropout."""

    networks: ClassVar[dict[str, dict[str, Any]]] = {
        "linear": {"backbone": "identity", "hidden": (), "epochs": 1, "learning_rate": 0.001},
        "narrow": {"backbone": "mlp", "hidden": (12,), "epochs": 6},
        "forgetful": {"backbone": "mlp", "hidden": (64,), "dropout": 0.7, "epochs": 4},
    }

    def read(self, *, download: bool) -> CifarFeatures:
        return load_cifar_features(self.folder)


class ImageNetworksExecutor(NetworkAnnotatorsExecutor):
    """Three networks on images: a multilayer perceptron, a small convolutional network, a briefly trained ResNet."""

    networks: ClassVar[dict[str, dict[str, Any]]] = {
        "mlp": {"backbone": "mlp", "hidden": (256,), "epochs": 10},
        "lenet": {"backbone": "lenet", "epochs": 20},
        "young": {"backbone": "resnet18", "augment": "crop-flip", "epochs": 5},
    }

    def read(self, *, download: bool) -> CifarData:
        return load_cifar(self.folder, download=download)


def declare_experiments(scale: Scale) -> list[Experiment]:
    """Return the experiment at one scale."""
    executor = FeatureNetworksExecutor if scale is cifar.SMALL_SCALE else ImageNetworksExecutor
    names = list(executor.networks)
    own = replace(
        scale,
        data=scale.data | {"n_train": N_ITEMS},
        annotators={"rule": "networks", "names": names},
        executor=executor,
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
            paper_table_id="supp-3",
            paper_value_names={"own": "mobilenet+vgg11+shufflenet"},
            **cifar.SHARED_EXPERIMENT_FIELDS,
        )
    ]


def with_models(experiment: Experiment, named: dict[str, str]) -> Experiment:
    """Return the experiment with the user's own models as annotators.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    named : dict of str to str
        Maps the name of each annotator to the folder of a saved model, or to a function, written as `module:callable`.
    """
    models = {name: _model_identity(source) for name, source in named.items()}
    spec = {"rule": "networks", "names": list(named), "models": models}
    return replace(experiment, values=("given",), scale=replace(experiment.scale, annotators=spec))


def _model_identity(source: str) -> dict[str, str]:
    """Return what identifies a model: its source and, if it is saved, the hash of its weights."""
    if ":" in source and not Path(source).exists():
        return {"callable": source}
    return {"saved": source, "sha256": sha256(model_folder(source) / WEIGHTS_FILE)}


def _model(name: str, given: dict[str, str]) -> Any:
    """Return a model of the user, after a check that a saved model has not changed."""
    if "callable" in given:
        return import_named(given["callable"], f"annotator {name!r},")
    if sha256(model_folder(given["saved"]) / WEIGHTS_FILE) != given["sha256"]:
        raise ValueError(
            f"annotator {name!r}: {given['saved']} has changed since the runs were defined; give the original model"
        )
    return load(given["saved"])
