"""The trainings that test_distributed.py runs in two processes, in one launch of torchrun.

`torchrun --nproc-per-node 2 tests/training/in_two_processes.py FOLDER` writes the results of each process to FOLDER.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from crowdfuse import (
    FusionClassifier,
    GatedClassifier,
    MajorityVoteClassifier,
    MBEMClassifier,
    TraceRegClassifier,
    WDNClassifier,
)
from crowdfuse.estimators.base import CrowdClassifier
from crowdfuse.nets.annotator_tables import MAX_DENSE_GRADIENT_ROWS
from crowdfuse.training import loop
from crowdfuse.training.distributed import all_gather, raise_in_all_processes, rank

N_ROWS, BATCH, EPOCHS = 106, 32, 13  # 98 rows have labels: each epoch ends in a batch of two, too small to be split
N_ANNOTATORS = MAX_DENSE_GRADIENT_ROWS + 1


class Own(nn.Module):
    """A backbone that is initialized differently in each process, with a layer that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(5, 8)
        self.unused = nn.Linear(5, 8)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.used(x).relu()
        return features


class Normed(nn.Module):
    """A backbone with batch norm, whose statistics differ from process to process."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


def make_crowd() -> tuple[Any, Any, Any]:
    """Rows with none to six labels, those with many in one half, so that processes and batches have uneven shares."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(N_ROWS, 5)).astype(np.float32)
    truth = X[:, :3].argmax(1)
    Y = np.where(generator.random((N_ROWS, 6)) < 0.7, truth[:, None], generator.integers(0, 3, (N_ROWS, 6)))
    Y[generator.random((N_ROWS, 6)) < np.linspace(0.1, 0.9, N_ROWS)[:, None]] = -1
    Y[:, 0] = truth
    Y[:8] = -1
    many = np.full((N_ROWS, N_ANNOTATORS), -1)  # enough annotators for sparse gradients
    who = (generator.integers(0, N_ANNOTATORS, N_ROWS)[:, None] + np.arange(6)) % N_ANNOTATORS
    np.put_along_axis(many, who, Y, 1)
    return X, truth, many


SETTINGS: dict[str, Any] = {"batch_size": BATCH, "epochs": EPOCHS, "precision": "64-true", "device": "cpu"}
CASES: dict[str, CrowdClassifier] = {
    "fusion": FusionClassifier(**SETTINGS, annotator_heads="shared"),
    "embedded, sgd": FusionClassifier(**SETTINGS, annotator_heads="embedded", optimizer="sgd", learning_rate=0.05),
    "embedded, own optimizer": FusionClassifier(**SETTINGS, annotator_heads="embedded", optimizer=torch.optim.Adam),
    "trace-reg": TraceRegClassifier(**SETTINGS),
    "fusion, sgd": FusionClassifier(**SETTINGS, optimizer="sgd", learning_rate=0.05, annotator_heads="separate"),
    "hard vote": MajorityVoteClassifier(**SETTINGS, vote="hard"),
    "mbem": MBEMClassifier(**SETTINGS),
    "wdn": WDNClassifier(**SETTINGS, weight_epochs=3),
    "gated": GatedClassifier(**SETTINGS),
    "gated, tables, sgd": GatedClassifier(**SETTINGS, wrong="annotator", optimizer="sgd", learning_rate=0.05),
    "batches of one": FusionClassifier(**(SETTINGS | {"batch_size": 1, "epochs": 1})),
}


def trained(classifier: CrowdClassifier) -> loop.TrainingResult:
    """The result of a training in double precision; `fit` would convert the weights to single precision."""
    X, truth, Y = make_crowd()
    own = (
        isinstance(classifier, GatedClassifier) and classifier.optimizer == "sgd"
    )  # held-out labels choose the epoch, not gold
    validation = "annotations" if own else (X[:30], truth[:30])
    data, held_out, recipe = classifier.prepare(X, Y, validation=validation)
    return loop.train(
        classifier.method_,
        data,
        recipe,
        validation=held_out,
        checkpointing=classifier._checkpointing(data, held_out, recipe),
    )


def with_own_backbone(number: int) -> MajorityVoteClassifier:
    """A classifier whose backbone is initialized with another seed in each process."""
    torch.manual_seed(number)
    return MajorityVoteClassifier(**SETTINGS, backbone=Own(), standardize=True)


def interrupted_at(step: int, number: int) -> FusionClassifier:
    """A training in which process `number`, and no other, is asked to stop at a step."""

    def schedule(progress: float) -> float:
        if rank() == number and round(progress * EPOCHS * 4) == step:
            os.kill(os.getpid(), signal.SIGINT)
        return 1.0

    return FusionClassifier(**SETTINGS, schedule=schedule)


def refusals() -> list[str]:
    """The messages in this process when each of the two processes raises an error in turn."""
    heard = []
    for number in (0, 1):
        try:
            with raise_in_all_processes():
                if rank() == number:
                    raise FileNotFoundError("labels.csv is not there")
        except ValueError as error:
            heard.append(str(error))
    return heard


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    notes: dict[str, Any] = {"refusals": refusals()}
    X, _, _ = make_crowd()
    cases = CASES | {
        "own backbone": with_own_backbone(rank()),
        "batch norm": MajorityVoteClassifier(**SETTINGS, backbone=Normed(), standardize=True),
        "resumed": FusionClassifier(**SETTINGS, checkpoint=folder / "stopped"),
    }
    for name, classifier in cases.items():
        result = trained(classifier)
        save_file(result.weights, folder / f"{name}.{rank()}.safetensors")
        notes[name] = {"history": result.history, "best": result.best_epoch}
    try:
        trained(FusionClassifier(**SETTINGS, checkpoint=folder / "stopped", penalty=0.5))
    except ValueError as error:
        notes["another training"] = str(error)
    stopped = trained(interrupted_at(7, number=1))
    notes["interrupted"] = [stopped.interrupted, len(stopped.history)]
    save_file(stopped.weights, folder / f"interrupted.{rank()}.safetensors")
    try:
        FusionClassifier(optimizer="sgd", learning_rate=1e25, schedule="constant").fit(X, make_crowd()[2])
    except loop.DivergedError as error:
        notes["diverged"] = str(error)
    for number, found in enumerate(all_gather(notes)):
        if rank() == 0:
            (folder / f"notes.{number}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
