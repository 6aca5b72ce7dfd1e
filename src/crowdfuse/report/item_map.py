"""Items on a plane: the two directions in which the network's features differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA

from crowdfuse.labels.ids import IntArray
from crowdfuse.report.names import printable
from crowdfuse.report.report_data import FloatArray, Model, ReportData

SAMPLED = 2_000  # items that decide the directions
MAX_MAP_ITEMS, MAX_FEATURE_VALUES = 10_000, 50_000_000  # rows, and numbers, of features at most
COLUMNS, MAP_ROWS = 13, 9  # of the grid that maps are drawn on
NAMED = 8  # classes that are written on the map


@dataclass(frozen=True)
class ItemMap:
    """Where some rows lie: `place` (S, 2) in the unit square, of `rows` (S,), which are sorted."""

    rows: IntArray
    place: FloatArray

    def cells(self, rows: IntArray) -> IntArray:
        """The cell of the grid that each row lies in, -1 where it is not on the map."""
        position = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        column, line = np.minimum(self.place[position] * (COLUMNS, MAP_ROWS), (COLUMNS - 1, MAP_ROWS - 1)).astype(int).T
        return np.where(self.rows[position] == rows, line * COLUMNS + column, -1)


def map_items(look: ReportData, wanted: IntArray) -> ItemMap | None:
    """A map of a sample of the labelled items, and of the `wanted` rows as far as there is room."""
    if look.model is None:
        return None
    generator = np.random.default_rng(0)
    there = look.model.position >= 0
    labelled = np.flatnonzero((look.labels_per_item > 0) & there)
    if not len(labelled):
        return None
    wanted = wanted[there[wanted]]
    sample = generator.permutation(labelled)[:SAMPLED]
    n_features = len(_features(look.model, sample[:1])[0])
    room = max(200, min(MAX_MAP_ITEMS, MAX_FEATURE_VALUES // n_features))
    others = generator.permutation(np.setdiff1d(wanted, sample))[: max(0, room - len(sample))]
    sample = sample[:room]
    features = _features(look.model, np.concatenate([sample, others]))
    n_components = min(2, n_features, len(sample))
    pca = PCA(n_components, random_state=0).fit(features[: len(sample)])
    place = np.zeros((len(features), 2))
    place[:, :n_components] = pca.transform(features)
    low, high = np.quantile(place[: len(sample)], [0.01, 0.99], axis=0)  # a few far away must not shrink the rest
    place = np.clip((place - low) / np.where(high > low, high - low, 1), 0, 1)
    rows = np.concatenate([sample, others])
    order = np.argsort(rows)
    return ItemMap(rows[order], place[order])


def _features(model: Model, rows: IntArray) -> FloatArray:
    return torch.cat(list(model.classifier._features(model.take(rows)))).numpy().astype(np.float64)


def map_facts(look: ReportData, where: ItemMap | None) -> dict[str, Any] | None:
    """The map itself: how many items lie where, and where the most frequent classes have their middle."""
    if where is None:
        return None
    cell = where.cells(where.rows)
    predicted = look.predicted[where.rows]
    names = []
    counts = np.bincount(predicted, minlength=look.ann.n_classes)
    for k in np.argsort(-counts, kind="stable")[:NAMED]:
        if counts[k]:
            x, y = np.median(where.place[predicted == k], axis=0)
            names.append({"class": printable(look.ann.classes[k]), "x": round(float(x), 3), "y": round(float(y), 3)})
    return {
        "items": len(where.rows),
        "columns": COLUMNS,
        "rows": MAP_ROWS,
        "counts": np.bincount(cell, minlength=COLUMNS * MAP_ROWS).tolist(),
        "classes": names,
    }
