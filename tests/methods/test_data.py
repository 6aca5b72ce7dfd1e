"""Batches cut from the training data, each against its rows looked up one by one."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse.io.inputs import check_inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.data import BATCHES_PER_LOOKUP, TrainingData


@given(st.integers(1, 3 * BATCHES_PER_LOOKUP), st.integers(1, 5), st.floats(0, 1), st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_every_batch_has_its_rows_and_all_their_labels(n_batches: int, size: int, missing: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    n_rows = n_batches * size - generator.integers(size)  # the last batch may be smaller
    said = generator.integers(0, 3, (n_rows, 4))
    said[generator.random(said.shape) < missing] = -1
    data = TrainingData(
        check_inputs(generator.normal(size=(n_rows, 2))),
        Annotations.from_matrix(said, classes=[0, 1, 2]),
        generator.integers(-1, 3, n_rows),
        generator.random(n_rows).astype(np.float32),
    )
    order = generator.permutation(n_rows)
    cut = [order[start : start + size] for start in range(0, n_rows, size)]
    found = list(data.stream(cut))
    assert len(found) == len(cut)
    for batch, rows in zip(found, cut, strict=True):
        assert batch.row.tolist() == rows.tolist()
        torch.testing.assert_close(batch.x, torch.from_numpy(data.inputs.rows(rows)))
        assert batch.weight.tolist() == data.weight[rows].tolist()
        assert batch.gold.tolist() == data.gold[rows].tolist()
        triples = [
            (place, annotator, said[row, annotator])
            for place, row in enumerate(rows)
            for annotator in np.flatnonzero(said[row] >= 0)
        ]
        assert list(zip(*(part.tolist() for part in batch[4:]), strict=True)) == triples
