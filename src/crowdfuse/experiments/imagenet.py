"""The paper's ImageNet-100 experiment (Table 3), on image files or, at the small scale, on their features."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.datasets.data_folder import data_folder
from crowdfuse.datasets.image_folder import (
    IMAGENET_STD,
    ImageFolder,
    read_image_folder,
    split_image_folder,
    weakness_distances,
)
from crowdfuse.experiments import cifar
from crowdfuse.experiments.grid import Experiment, Scale
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, choose_weakness_rows
from crowdfuse.experiments.store import RunSpec
from crowdfuse.io.features import read_features
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.ids import format_names, positions_of

IMAGE_SIDE_PIXELS = 224
N_WEAKNESS_CANDIDATES = 256  # decoded at the same time, 154 MB
N_DECODING_WORKERS = min(8, max(1, (os.cpu_count() or 1) - 1))
# accuracy of the paper's single annotators at epsilon 580, divided by the accuracy of training on gold
TARGET_ACCURACIES = [0.52, 0.47, 0.76]
TARGET_EPSILON = 580
FEATURES_FILE = "features.npz"


class ImageNetImagesExecutor(PaperExecutor):
    """Executes runs on a folder of images with one folder per class, split 25:1:1 by the seed."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        listed = _listed(self.image_folder, run["data"]["on_unreadable"])
        files = listed.files(IMAGE_SIDE_PIXELS, workers=N_DECODING_WORKERS)
        train, validation, test = self._rows(run, listed)
        return DataSplit(
            self.inputs(files, train),
            listed.y[train],
            self.inputs(files, validation),
            listed.y[validation],
            self.inputs(files, test),
            listed.y[test],
        )

    @property
    def image_folder(self) -> Path:
        """The folder with one folder per class."""
        base = data_folder(self.folder, "imagenet100", "imagenet100/train/CLASS/*.jpg")
        return base / "imagenet100" if (base / "imagenet100").is_dir() else base

    def inputs(self, files: ImageFiles, rows: NDArray[np.int64]) -> Inputs:
        """Return the inputs of some rows."""
        return files.take(rows)

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Check the runs, and compute the distances so that worker processes find them in the cache."""
        super().check(runs, download=download)
        for run in {run["seed"]: run for run in runs if "annotators" in run}.values():
            self._distances(run)

    def weakness_settings(self, run: RunSpec, split: DataSplit) -> dict[str, Any]:
        return {"distances": self._distances(run), "epsilon": run["annotators"]["epsilon"]}

    def _rows(
        self, run: RunSpec, listed: ImageFolder
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return training, validation and test rows; the seed draws `n_train` of the training rows."""
        train, validation, test = split_image_folder(listed, run["seed"])
        wanted = run["data"]["n_train"]
        if wanted != "all":
            if wanted > len(train):
                raise ValueError(f"--items {wanted:,}: {self.image_folder} has only {len(train):,} training images")
            train = np.sort(np.random.default_rng(run["seed"]).permutation(train)[:wanted])
        return train, validation, test

    def _distances(self, run: RunSpec) -> NDArray[np.float32]:
        """Return distances (n_train, n_annotators) to weakness images that give about the target accuracies."""
        spec, listed = run["annotators"], _listed(self.image_folder, run["data"]["on_unreadable"])
        train, _, _ = self._rows(run, listed)
        files = listed.files(IMAGE_SIDE_PIXELS, workers=N_DECODING_WORKERS)
        few = np.random.default_rng(run["seed"]).permutation(train)[:N_WEAKNESS_CANDIDATES]
        pixels = files.rows(few) / (255 * np.array(IMAGENET_STD, np.float32)[:, None, None])
        weak = few[choose_weakness_rows(pixels, listed.y[few], spec["target_accuracies"], spec["target_epsilon"])]
        return weakness_distances(files, train, weak.tolist(), cache=self._cache(run))

    def _cache(self, run: RunSpec) -> Path:
        """Return the file that caches the distances of a run."""
        digest = hashlib.blake2b(
            f"{self.image_folder.resolve()} {run['data']} {run['seed']}".encode(), digest_size=8
        ).hexdigest()
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "crowdfuse"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"distances-{digest}.npz"


class ImageNetFeaturesExecutor(ImageNetImagesExecutor):
    """Executes runs on features that `crowdfuse embed` made from the same folder of images."""

    def inputs(self, files: ImageFiles, rows: NDArray[np.int64]) -> Inputs:
        path = self.image_folder / FEATURES_FILE
        if not path.exists():
            raise FileNotFoundError(
                f"{path} does not exist. --scale desk reads frozen features of the images. Create them with "
                f"'crowdfuse embed {self.image_folder} --backbone module:callable --out {path}', or use --scale paper, "
                "which reads the images"
            )
        loaded = read_features(path)
        names = np.array([os.path.relpath(name, self.image_folder) for name in files.paths], dtype=object)
        at = positions_of(names[rows], loaded.items)
        if (at < 0).any():
            raise ValueError(
                f"{path} has no features of {format_names(names[rows][at < 0])}; create the file again with "
                "'crowdfuse embed'"
            )
        return loaded.inputs.take(at)


@cache
def _listed(folder: Path, on_unreadable: str) -> ImageFolder:
    """Return the images of a folder, listed once per process because checking all of them takes long."""
    return read_image_folder(folder, on_unreadable=on_unreadable, workers=N_DECODING_WORKERS)


PROTOCOL = (
    "The images are split 25:1:1 by the seed. The paper does not name its weakness images; ours are those of "
    f"{N_WEAKNESS_CANDIDATES} candidates whose annotator accuracies come closest to "
    f"{', '.join(f'{100 * accuracy:.0f}' for accuracy in TARGET_ACCURACIES)} % at epsilon {TARGET_EPSILON}. The epoch "
    "is chosen by the accuracy on gold of the validation images. Gold is used for no other choice; only true-label, "
    "the upper bound, is trained on gold."
)
SHARED_SCALE_FIELDS: dict[str, Any] = {
    "annotators": {
        "rule": "weakness",
        "target_accuracies": TARGET_ACCURACIES,
        "target_epsilon": TARGET_EPSILON,
        "names": cifar.ANNOTATOR_NAMES,
    },
}
PAPER_SCALE = Scale(
    title="ImageNet-100",
    data={"name": "imagenet100", "n_train": "all", "on_unreadable": "error"},
    recipe=cifar.RESNET_RECIPE | {"augment": "resized-crop-flip", "weight_decay": 1e-4, "batch_size": 256},
    executor=ImageNetImagesExecutor,
    protocol=(
        f"A ResNet-18 at {IMAGE_SIDE_PIXELS} pixels, batch size 256, weight decay 0.0001, cosine schedule, crops and "
        f"flips. {PROTOCOL}"
    ),
    **SHARED_SCALE_FIELDS,
)
SMALL_SCALE = Scale(
    title="ImageNet-100 features",
    data={"name": "imagenet100-features", "n_train": "all", "on_unreadable": "error"},
    recipe=cifar.MLP_RECIPE,
    executor=ImageNetFeaturesExecutor,
    protocol=f"Frozen features and one hidden layer, so the paper's accuracies are not comparable. {PROTOCOL}",
    uses_paper_recipe=False,
    **SHARED_SCALE_FIELDS,
)


def declare_experiments(scale: Scale) -> list[Experiment]:
    """Return the experiment at one scale."""
    return [
        Experiment(
            name="table3",
            description="three annotators with a weakness",
            parameter="epsilon",
            values=(580, 600, 620, 650, 680),
            methods=cifar.TABLE_METHODS,
            scale=scale,
            annotators=lambda epsilon: {"epsilon": epsilon},
            paper_table_id="3",
            **cifar.SHARED_EXPERIMENT_FIELDS,
        )
    ]
