"""The paper's CIFAR-100 experiments, declared once for two scales: images as in the paper, and frozen features."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from crowdfuse.datasets.cifar import load_cifar
from crowdfuse.datasets.cifar_features import load_cifar_features
from crowdfuse.experiments.grid import Experiment, MethodVariant, Scale
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, choose_weakness_rows, split_data
from crowdfuse.experiments.store import RunSpec

N_TRAIN = 40_000
TRAIN_SHARE = Fraction(4, 5)  # of 50,000 items; the other items are used to choose the epoch
ANNOTATOR_NAMES = ["annotator-1", "annotator-2", "annotator-3"]
TARGET_ACCURACIES = [0.818, 0.529, 0.846]  # of the annotators, at TARGET_EPSILON
TARGET_EPSILON = 20
MAX_PIXEL_VALUE = 255  # pixels are bytes, but epsilon is for pixels from 0 to 1
SELECTION_NOTE = (
    "(MBEM: among the last epochs of its rounds; WDN: among the epochs of its second stage). Gold is used for no "
    "other choice; only true-label, the upper bound, is trained on gold."
)

# ---- the paper's scale ------------------------------------------------------------------------

RESNET_RECIPE: dict[str, Any] = {
    "backbone": "resnet18",
    "augment": "crop-flip",
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "schedule": "cosine",
    "batch_size": 128,
    "epochs": 200,
}


class CifarImagesExecutor(PaperExecutor):
    """Executes runs on the images: 40,000 for training, 10,000 for choosing the epoch."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        return split_data(load_cifar(self.folder, download=download), slice(run["data"]["n_train"]), TRAIN_SHARE)

    def weakness_settings(self, run: RunSpec, split: DataSplit) -> dict[str, Any]:
        """Return weakness images that give the annotators about the target accuracies."""
        spec, X = run["annotators"], split.X.values
        weak = choose_weakness_rows(X, split.y, spec["target_accuracies"], MAX_PIXEL_VALUE * spec["target_epsilon"])
        return {"X": X, "weakness": weak.tolist(), "epsilon": MAX_PIXEL_VALUE * spec["epsilon"]}


PAPER_SCALE = Scale(
    title="CIFAR-100",
    data={"name": "cifar100", "n_train": N_TRAIN},
    annotators={
        "rule": "weakness",
        "target_accuracies": TARGET_ACCURACIES,
        "target_epsilon": TARGET_EPSILON,
        "names": ANNOTATOR_NAMES,
    },
    recipe=RESNET_RECIPE,
    executor=CifarImagesExecutor,
    protocol=(
        "A ResNet-18 on the images. The paper does not state batch size, weight decay, schedule and augmentation; we "
        "use the common 128, 0.0005, cosine, crops and flips. It does not name its weakness images either; ours are "
        "those of 512 candidates whose annotator accuracies come closest to "
        f"{', '.join(f'{100 * accuracy:.1f}' for accuracy in TARGET_ACCURACIES)} % at epsilon {TARGET_EPSILON}. The "
        f"epoch is chosen by the accuracy on gold of a fifth of the training images {SELECTION_NOTE}"
    ),
)

# ---- the small scale --------------------------------------------------------------------------------

MLP_RECIPE: dict[str, Any] = {
    "backbone": "mlp",
    "hidden": [512],
    "dropout": 0.5,
    "optimizer": "adamw",
    "learning_rate": 0.002,
    "weight_decay": 1e-4,
    "schedule": "one-cycle",
    "batch_size": 256,
    "epochs": 20,
}


class CifarFeaturesExecutor(PaperExecutor):
    """Executes runs on frozen features. The distances to weakness images are stored with the features."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        data = load_cifar_features(self.folder)
        train = slice(run["data"]["n_train"])
        return replace(split_data(data, train, TRAIN_SHARE), distances=data.distances[train])


SMALL_SCALE = Scale(
    title="CIFAR-100 features",
    data={"name": "cifar100-features", "n_train": N_TRAIN},
    annotators={"rule": "weakness", "names": ANNOTATOR_NAMES},
    recipe=MLP_RECIPE,
    executor=CifarFeaturesExecutor,
    protocol=(
        "Frozen features of all images and a network with one hidden layer. The paper trains a ResNet-18 on the "
        "images, so its accuracies are not comparable. The epoch is chosen by the accuracy on gold of 10,000 "
        f"validation items {SELECTION_NOTE}"
    ),
    uses_paper_recipe=False,
)

# ---- experiments ------------------------------------------------------------------------

TABLE_METHODS = (
    "fusion",
    "majority-vote",
    "majority-vote-soft",
    "trace-reg",
    "trace-reg-start-0.75",
    "mbem",
    "wdn",
    "single-annotator",
    "true-label",
)
SHARED_EXPERIMENT_FIELDS: dict[str, Any] = {
    "method_settings": {
        "fusion": {"n_bases": 150, "loss_scale": "plain"},
        "majority-vote": {"vote": "hard", "loss_scale": "plain"},
        "wdn": {"weights": "softmax", "loss_scale": "plain"},
    },
    "extra_rows": {
        "majority-vote-soft": MethodVariant("majority-vote", {"vote": "soft"}),
        "fusion-weights-only": MethodVariant("fusion", {"n_bases": 1}),
        "fusion-confusions-only": MethodVariant("fusion", {"weights": "uniform"}),
        "trace-reg-start-0.75": MethodVariant("trace-reg", {"start": 0.75}),
        "fusion-latin": MethodVariant("fusion", {"basis": "latin"}),
    },
}
AT_22, AT_23 = "fusion-epsilon-22", "fusion-epsilon-23"
FUSION_VARIANTS = SHARED_EXPERIMENT_FIELDS["extra_rows"] | {
    AT_22: MethodVariant("fusion"),
    AT_23: MethodVariant("fusion", annotators={"epsilon": 23}),
    "fusion-latin-epsilon-22": MethodVariant("fusion", {"basis": "latin"}),
}


def declare_experiments(scale: Scale) -> list[Experiment]:
    """Return the experiments at one scale."""
    return [
        Experiment(
            name="table2",
            description="three annotators with a weakness",
            parameter="epsilon",
            values=(20, 21, 22, 23, 24),
            methods=TABLE_METHODS,
            scale=scale,
            annotators=lambda epsilon: {"epsilon": epsilon},
            paper_table_id="2",
            **SHARED_EXPERIMENT_FIELDS,
        ),
        Experiment(
            name="supp2",
            description="the effect of weights and of confusion matrices",
            parameter="epsilon",
            values=(22, 23),
            methods=("fusion", "fusion-weights-only", "fusion-confusions-only"),
            scale=scale,
            annotators=lambda epsilon: {"epsilon": epsilon},
            paper_table_id="supp-2",
            **SHARED_EXPERIMENT_FIELDS,
        ),
        Experiment(
            name="ablation-lambda",
            description="weight of the penalty that draws confusion matrices to the identity",
            parameter="lambda",
            values=(0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            methods=(AT_22, AT_23),
            scale=scale,
            annotators=lambda value: {"epsilon": 22},
            settings=lambda value: {"penalty": float(value)},
            is_logarithmic=True,
            paper_best_value=1,
            **SHARED_EXPERIMENT_FIELDS | {"extra_rows": FUSION_VARIANTS},
        ),
        Experiment(
            name="ablation-bases",
            description="number of permutations in the basis of the confusion matrices",
            parameter="M",
            values=(1, 5, 10, 20, 50, 100, 150, 200, 300),
            count_range=(1, 10_000),
            methods=(AT_22, AT_23),
            scale=scale,
            annotators=lambda value: {"epsilon": 22},
            settings=lambda value: {"n_bases": int(value)},
            is_logarithmic=True,
            paper_best_value=150,
            **SHARED_EXPERIMENT_FIELDS | {"extra_rows": FUSION_VARIANTS},
        ),
    ]
