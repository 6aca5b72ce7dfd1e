"""The paper's ImageNet-100 experiment (Table 3): images that stay in their files; at a desk, their features."""

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
from crowdfuse.experiments.run_executor import DataSplit, PaperExecutor, weakness_rows
from crowdfuse.experiments.store import RunSpec
from crowdfuse.io.features import read_features
from crowdfuse.io.image_files import ImageFiles
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.ids import format_names, positions_of

SIZE = 224
CANDIDATES = 256  # for weakness images; decoded at once, 154 MB
WORKERS = min(8, max(1, (os.cpu_count() or 1) - 1))
# what the paper's single annotators reach at epsilon 580, as shares of what true labels reach
TARGET_ACCURACIES = [0.52, 0.47, 0.76]
TARGET_EPSILON = 580
FEATURES_FILE = "features.npz"


class ImageNetImagesExecutor(PaperExecutor):
    """Runs on a folder of images, a folder a class, split 25:1:1 by the seed."""

    def load(self, run: RunSpec, *, download: bool = False) -> DataSplit:
        listed = _listed(self.place, run["data"]["unreadable"])
        files = listed.files(SIZE, workers=WORKERS)
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
    def place(self) -> Path:
        """Where the folders of the classes are."""
        base = data_folder(self.folder, "imagenet100", "imagenet100/train/CLASS/*.jpg")
        return base / "imagenet100" if (base / "imagenet100").is_dir() else base

    def inputs(self, files: ImageFiles, rows: NDArray[np.int64]) -> Inputs:
        """What is trained on."""
        return files.take(rows)

    def check(self, runs: Sequence[RunSpec], *, download: bool) -> None:
        """Also measure the distances, so that no two processes do."""
        super().check(runs, download=download)
        for run in {run["seed"]: run for run in runs if "annotators" in run}.values():
            self._distances(run)

    def weakness(self, run: RunSpec, parts: DataSplit) -> dict[str, Any]:
        return {"distances": self._distances(run), "epsilon": run["annotators"]["epsilon"]}

    def _rows(
        self, run: RunSpec, listed: ImageFolder
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Training, validation and test rows; of the training rows as many as are asked for."""
        train, validation, test = split_image_folder(listed, run["seed"])
        wanted = run["data"]["train"]
        if wanted != "all":
            if wanted > len(train):
                raise ValueError(f"--items {wanted:,}: there are {len(train):,} images to train on in {self.place}")
            train = np.sort(np.random.default_rng(run["seed"]).permutation(train)[:wanted])
        return train, validation, test

    def _distances(self, run: RunSpec) -> NDArray[np.float32]:
        """How far the training images are from the weakness images; these are chosen by the skill they should give."""
        spec, listed = run["annotators"], _listed(self.place, run["data"]["unreadable"])
        train, _, _ = self._rows(run, listed)
        files = listed.files(SIZE, workers=WORKERS)
        few = np.random.default_rng(run["seed"]).permutation(train)[:CANDIDATES]
        pixels = files.rows(few) / (255 * np.array(IMAGENET_STD, np.float32)[:, None, None])
        weak = few[weakness_rows(pixels, listed.y[few], spec["skills"], spec["skills at"])]
        return weakness_distances(files, train, weak.tolist(), cache=self._cache(run))

    def _cache(self, run: RunSpec) -> Path:
        of = hashlib.blake2b(f"{self.place.resolve()} {run['data']} {run['seed']}".encode(), digest_size=8).hexdigest()
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = base / "crowdfuse"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"distances-{of}.npz"


class ImageNetFeaturesExecutor(ImageNetImagesExecutor):
    """Runs on features of the images, which `crowdfuse embed` made of the same folder."""

    def inputs(self, files: ImageFiles, rows: NDArray[np.int64]) -> Inputs:
        path = self.place / FEATURES_FILE
        if not path.exists():
            raise FileNotFoundError(
                f"{path} is not there. The desk version reads frozen features of the images: make them with crowdfuse "
                f"embed {self.place} --backbone module:callable --out {path}; --scale paper reads the images themselves"
            )
        loaded = read_features(path)
        names = np.array([os.path.relpath(name, self.place) for name in files.paths], dtype=object)
        at = positions_of(names[rows], loaded.items)
        if (at < 0).any():
            raise ValueError(
                f"{path} has no features of {format_names(names[rows][at < 0])}; make them again with crowdfuse embed"
            )
        return loaded.inputs.take(at)


@cache
def _listed(place: Path, on_unreadable: str) -> ImageFolder:
    """All images there are; once in each process, since to try them all takes long."""
    return read_image_folder(place, on_unreadable=on_unreadable, workers=WORKERS)


PROTOCOL = (
    "The images of the folder, split 25:1:1 by the seed. The paper names no weakness images: ours are those, of "
    f"{CANDIDATES}, that come closest to {', '.join(f'{100 * skill:.0f}' for skill in TARGET_ACCURACIES)} % of right "
    "labels at "
    f"epsilon {TARGET_EPSILON}. The epoch is chosen by gold on the validation images; gold is used for nothing else, "
    "but for "
    "true-label, the upper bound, which trains on it."
)
SHARED_SCALE_FIELDS: dict[str, Any] = {
    "annotators": {"rule": "weakness", "skills": TARGET_ACCURACIES, "skills at": TARGET_EPSILON, "names": cifar.NAMES},
}
PAPER_SCALE = Scale(
    title="ImageNet-100",
    data={"name": "imagenet100", "train": "all", "unreadable": "error"},
    recipe=cifar.RESNET | {"augment": "resized-crop-flip", "weight_decay": 1e-4, "batch_size": 256},
    executor=ImageNetImagesExecutor,
    protocol=f"A ResNet-18 at {SIZE} pixels, batch 256, weight decay 0.0001, cosine, crops and flips. {PROTOCOL}",
    **SHARED_SCALE_FIELDS,
)
SMALL_SCALE = Scale(
    title="ImageNet-100 features",
    data={"name": "imagenet100 features", "train": "all", "unreadable": "error"},
    recipe=cifar.MLP,
    executor=ImageNetFeaturesExecutor,
    protocol=f"Frozen features and one hidden layer, so the paper's numbers are of another size. {PROTOCOL}",
    is_papers_recipe=False,
    **SHARED_SCALE_FIELDS,
)


def declare(scale: Scale) -> list[Experiment]:
    """The experiment at one size."""
    return [
        Experiment(
            name="table3",
            description="three annotators with a weakness",
            parameter="epsilon",
            values=(580, 600, 620, 650, 680),
            methods=cifar.TABLE_METHODS,
            scale=scale,
            annotators=lambda epsilon: {"epsilon": epsilon},
            paper="3",
            **cifar.SHARED_EXPERIMENT_FIELDS,
        )
    ]
