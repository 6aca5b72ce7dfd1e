"""Several methods on a user's own files: the same split, network, budget and seed for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdfuse.annotations import Annotations
from crowdfuse.classifier import CrowdClassifier
from crowdfuse.experiments.grid import Cell
from crowdfuse.experiments.store import Run
from crowdfuse.files import sha256
from crowdfuse.ids import find
from crowdfuse.registry import ESTIMATORS, estimator_class
from crowdfuse.runs.job import Job, make_classifier
from crowdfuse.runs.material import Material, read_material

FEW_ANNOTATORS = 5  # up to here each is also tried alone
WITH_GOLD, WITHOUT_GOLD = "test accuracy", "agreement with held-out labels"


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by, by one seed."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Comparison:
    """What is compared on what, read and checked. It is also the work: called with a run, it trains and judges."""

    job: Job
    material: Material
    test_share: float

    @property
    def has_gold(self) -> bool:
        return self.material.gold is not None

    @property
    def metric(self) -> str:
        """What the methods are compared by."""
        return WITH_GOLD if self.has_gold else WITHOUT_GOLD

    @property
    def labelled(self) -> NDArray[np.int64]:
        """Rows that have labels."""
        return np.flatnonzero(np.diff(self.material.annotations.indptr) > 0)

    @property
    def unlabelled_gold(self) -> NDArray[np.int64]:
        """Rows with gold that nobody labelled: made for judging."""
        return (
            np.zeros(0, np.int64) if self.material.gold is None else np.setdiff1d(self.material.gold[0], self.labelled)
        )

    def split(self, seed: int) -> Split:
        """Gold items without labels judge, where there are any; else a share of the gold (or labelled) items,
        drawn by the seed and kept out of training."""
        if len(self.unlabelled_gold):
            return Split(self.labelled, np.sort(self.unlabelled_gold))
        judges = self.labelled if self.material.gold is None else self.material.gold[0]
        count = round(self.test_share * len(judges))
        if not 0 < count < len(judges):
            raise ValueError(f"a test share of {self.test_share:g} leaves no items on one side of {len(judges)}")
        test = np.sort(np.random.default_rng([seed, 3]).permutation(judges)[:count])
        return Split(np.setdiff1d(self.labelled, test), test)

    def notes(self) -> list[str]:
        """What the reader must know: how the judging items came about, what cannot be told."""
        test = len(self.split(0).test)
        if not self.has_gold:
            return [
                *self.material.notes,
                f"there is no gold: {test:,} labelled items, drawn by each seed, are kept out of training, and a "
                "method is judged by how many of their labels it predicts",
                "this cannot tell who is right: a method that repeats the annotators' common mistakes scores as well "
                "as one that sees through them, and nobody reaches 100 where annotators disagree. A hundred gold "
                "items (--gold) show differences of ten points, a thousand of three",
            ]
        how = (
            f"{test:,} gold items without labels judge"
            if len(self.unlabelled_gold)
            else f"{test:,} of the gold items, drawn by each seed, judge and are kept out of training"
        )
        return [*self.material.notes, f"{how}; gold trains nothing but true-label, and chooses nothing"]

    def cells(self, methods: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
        """A run for every method and seed."""
        cells = []
        for seed in seeds:
            for method in methods:
                for row, extra in (
                    estimator_class(method).variants(self.material.annotations.annotators.tolist()).items()
                ):
                    settings = self.job.settings | extra
                    run: Run = {"data": self._identity(), "method": method, "settings": settings, "seed": seed}
                    cells.append(Cell(row, "", seed, run))
        return cells

    def _identity(self) -> dict[str, Any]:
        """Everything about files and reading that decides a run."""
        return {
            **{name: sha256(path) for name, path in self.job.files().items()},
            "inputs": self.material.loaded.fingerprint(),
            "columns": {name: value for name, value in self.job.columns.items() if value is not None},
            "classes": self.job.classes,
            "on_conflict": self.job.on_conflict,
            "test share": None if len(self.unlabelled_gold) else self.test_share,
        }

    def rehearse(self, cells: Sequence[Cell]) -> None:
        """Everything but the training, for each method once: bad settings are refused before any work."""
        seen = set()
        for cell in cells:
            if cell.row not in seen:
                seen.add(cell.row)
                self._classifier(cell.run, None)._prepare(**self._training_set(cell.run))

    def check(self, *, download: bool) -> None:
        """Everything has been read already."""

    def __call__(self, run: Run, checkpoint: Path) -> dict[str, Any]:
        classifier = self._classifier(run, checkpoint).fit(**self._training_set(run))
        if classifier.interrupted_:
            raise KeyboardInterrupt
        split = self.split(run["seed"])
        X = self.material.loaded.inputs.values
        seconds = [epoch["seconds"] for epoch in classifier.history_]
        result: dict[str, Any] = {
            "items judged": len(split.test),
            "predicted": find(classifier.predict(X[split.test]), classifier.classes_).tolist(),
            "seconds an epoch": round(float(np.median(seconds)), 4),
        }
        if self.has_gold:
            result[WITH_GOLD] = classifier.score(X[split.test], self._gold()[split.test])
            result |= self._fused(classifier, split)
        else:
            result[WITHOUT_GOLD] = classifier.score(X[split.test], self.material.annotations[split.test])
        return result

    def _fused(self, classifier: CrowdClassifier, split: Split) -> dict[str, float]:
        """How many of the training items get their true class: by the fused labels, and by the classifier."""
        rows = np.intersect1d(split.train, self.material.gold[0] if self.material.gold else [])
        if not len(rows) or not type(classifier).trains_on_labels:
            return {}
        X, gold = self.material.loaded.inputs.values[rows], self._gold()[rows]
        fused = classifier.fused_labels(X, self.material.annotations[rows])
        known = ~np.isnan(fused).any(1)
        right = classifier.classes_[np.nan_to_num(fused).argmax(1)][known] == gold[known]
        return {
            "fused labels right": float(right.mean()) if known.any() else float("nan"),
            "predictions right on training items": classifier.score(X, gold),
        }

    def _gold(self) -> NDArray[Any]:
        """Gold by row, None where unknown."""
        gold = self.material.gold_by_row()
        if gold is None:
            raise ValueError("true-label trains on gold, and there is none: give --gold, or leave it out of --methods")
        return gold

    def _classifier(self, run: Run, checkpoint: Path | None) -> CrowdClassifier:
        job = replace(self.job, method=run["method"], settings=run["settings"] | {"random_state": run["seed"]})
        return make_classifier(job, checkpoint, 0)

    def _training_set(self, run: Run) -> dict[str, Any]:
        """Inputs and labels of the rows to train on; gold for the one method that is trained on it."""
        train = self.split(run["seed"]).train
        kind = estimator_class(run["method"])
        ann: Annotations = self.material.annotations
        if kind.trains_on_labels:
            return {"X": self.material.loaded.inputs.values[train], "y": ann[train]}
        gold = self._gold()
        gold[self.split(run["seed"]).test] = None
        rows = np.flatnonzero(gold != None)  # noqa: E711 (an array of objects)
        return {"X": self.material.loaded.inputs.values[rows], "y": ann[rows], "gold": gold[rows]}


def make_comparison(job: Job, test_share: float) -> Comparison:
    """Read a job's files for comparing; `gold` judges."""
    return Comparison(job, read_material(job), test_share)


def fitting_methods(comparison: Comparison) -> tuple[list[str], list[str]]:
    """All methods that can be compared on these files, and remarks on those left out."""
    n_annotators, left_out = comparison.material.annotations.n_annotators, {}
    if n_annotators > FEW_ANNOTATORS:
        left_out["single-annotator"] = f"there are {n_annotators:,} annotators; name it to try each"
    if comparison.material.gold is None:
        left_out["true-label"] = "there is no gold"
    elif not len(np.setdiff1d(comparison.material.gold[0], comparison.split(0).test)):
        left_out["true-label"] = "all gold is for judging, none is left to train on"
    remarks = [f"{method} is left out: {reason}" for method, reason in left_out.items()]
    return [method for method in ESTIMATORS if method not in left_out], remarks
