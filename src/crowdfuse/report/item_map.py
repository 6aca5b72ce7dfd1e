"""A map of the items: the first two principal components of the network's features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from torch.nn.functional import adaptive_avg_pool2d

from crowdfuse.labels.ids import IntArray
from crowdfuse.report.printable import printable
from crowdfuse.report.report_data import FittedModel, FloatArray, ReportData
from crowdfuse.training.joined_blocks import JoinedBlocks

MAP_IMAGE_SIZE = 8  # pixels per side, if the images themselves are the features
N_PCA_ITEMS = 2_000  # the principal components are fitted on this many random items
MAX_MAP_ITEMS = 10_000
MAX_FEATURE_VALUES = 50_000_000  # numbers in the feature matrix of the items on the map
MAP_COLUMNS, MAP_ROWS = 13, 9  # cells of the grid on which maps are drawn
MAX_NAMED_CLASSES = 8  # classes whose name is written on the map


@dataclass(frozen=True)
class ItemMap:
    """Positions of items on the map.

    Attributes
    ----------
    rows : ndarray of shape (n_mapped,)
        Rows of the items on the map, sorted.
    coordinates : ndarray of shape (n_mapped, 2)
        Positions of these items in the unit square.
    """

    rows: IntArray
    coordinates: FloatArray

    def cells(self, rows: IntArray) -> IntArray:
        """Return the grid cell of each given row, -1 for rows that are not on the map."""
        position = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        scaled = self.coordinates[position] * (MAP_COLUMNS, MAP_ROWS)
        column, line = np.minimum(scaled, (MAP_COLUMNS - 1, MAP_ROWS - 1)).astype(int).T
        return np.where(self.rows[position] == rows, line * MAP_COLUMNS + column, -1)


def map_items(data: ReportData, wanted: IntArray) -> ItemMap | None:
    """Place items on a map: the rows in `wanted`, and a random sample of the labelled items.

    Parameters
    ----------
    data : ReportData
        Labels and model.
    wanted : ndarray of shape (n_wanted,)
        Rows to add to the sample. The map holds at most 10,000 items.

    Returns
    -------
    ItemMap or None
        The map. None if there is no model, or if no labelled item has inputs.
    """
    if data.model is None:
        return None
    generator = np.random.default_rng(0)
    has_inputs = data.model.input_rows >= 0
    labelled = np.flatnonzero((data.labels_per_item > 0) & has_inputs)
    if not len(labelled):
        return None
    wanted = wanted[has_inputs[wanted]]
    sample = generator.permutation(labelled)[:N_PCA_ITEMS]
    n_features = len(_features(data.model, sample[:1])[0])
    max_items = max(200, min(MAX_MAP_ITEMS, MAX_FEATURE_VALUES // n_features))
    others = generator.permutation(np.setdiff1d(wanted, sample))[: max(0, max_items - len(sample))]
    sample = sample[:max_items]
    features = _features(data.model, np.concatenate([sample, others]))
    n_components = min(2, n_features, len(sample))
    pca = PCA(n_components, random_state=0).fit(features[: len(sample)])
    coordinates = np.zeros((len(features), 2))
    coordinates[:, :n_components] = pca.transform(features)
    low, high = np.quantile(
        coordinates[: len(sample)], [0.01, 0.99], axis=0
    )  # so that outliers do not compress the rest of the map
    coordinates = np.clip((coordinates - low) / np.where(high > low, high - low, 1), 0, 1)
    rows = np.concatenate([sample, others])
    order = np.argsort(rows)
    return ItemMap(rows[order], coordinates[order])


def map_facts(data: ReportData, item_map: ItemMap | None) -> dict[str, Any] | None:
    """Return the number of items in each cell of the map, and the positions of the most frequent predicted classes."""
    if item_map is None:
        return None
    cell = item_map.cells(item_map.rows)
    predicted = data.predictions.codes[item_map.rows]
    classes = []
    counts = np.bincount(predicted, minlength=data.ann.n_classes)
    for k in np.argsort(-counts, kind="stable")[:MAX_NAMED_CLASSES]:
        if counts[k]:
            x, y = np.median(item_map.coordinates[predicted == k], axis=0)
            classes.append({"class": printable(data.ann.classes[k]), "x": round(float(x), 3), "y": round(float(y), 3)})
    return {
        "n_items": len(item_map.rows),
        "n_columns": MAP_COLUMNS,
        "n_rows": MAP_ROWS,
        "counts": np.bincount(cell, minlength=MAP_COLUMNS * MAP_ROWS).tolist(),
        "classes": classes,
    }


def _features(model: FittedModel, rows: IntArray) -> FloatArray:
    """Return the network's features of the given rows, shape (n_rows, n_features).

    Some methods have no features of their own, since several networks read the inputs. Images are then reduced in size.
    """
    joined = JoinedBlocks(len(rows))
    for h in model.classifier._features(model.take(rows)):
        joined.append((adaptive_avg_pool2d(h, MAP_IMAGE_SIZE) if h.ndim == 4 else h).flatten(1))
    return joined.rows.astype(np.float64)
