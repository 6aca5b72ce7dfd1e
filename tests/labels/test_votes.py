"""Vote shares and the tie-break."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse import functional
from crowdfuse.labels.votes import argmax_breaking_ties, vote_counts, vote_shares


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5), st.integers(0, 300))
def test_numpy_and_tensor_vote_shares_agree_bit_for_bit(seed: int, n_items: int, n_classes: int, n_labels: int) -> None:
    generator = np.random.default_rng(seed)
    item, label = generator.integers(0, n_items, n_labels), generator.integers(0, n_classes, n_labels)
    shares = vote_shares(item * n_classes + label, n_items, n_classes)
    tensor = functional.vote_shares(torch.from_numpy(label), torch.from_numpy(item), n_items, n_classes)
    np.testing.assert_array_equal(np.nan_to_num(shares).astype(np.float32), tensor.numpy())
    assert (np.isnan(shares).all(1) == (np.bincount(item, minlength=n_items) == 0)).all()


def test_weights_replace_counts() -> None:
    cell = np.array([0, 0, 1, 3])
    assert vote_counts(cell, 2, 2, np.array([0.5, 0.25, 1.0, 2.0])).tolist() == [[0.75, 1.0], [0.0, 2.0]]


@pytest.mark.parametrize("shape", [(9000,), (9000, 4)])
def test_ties_are_broken_evenly_and_only_ties(shape: tuple[int, ...]) -> None:
    scores = np.tile(np.array([[0.4, 0.1, 0.4, 0.4], [0.1, 0.2, 0.3, 0.25], [0, 0, 0, 0]]), (3000, 1))
    chosen = argmax_breaking_ties(scores, np.random.default_rng(0).random(shape)).reshape(-1, 3)
    counts = [np.bincount(column, minlength=4) for column in chosen.T]
    np.testing.assert_allclose(counts[0], [1000, 0, 1000, 1000], atol=120)
    assert counts[1].tolist() == [0, 0, 3000, 0]
    np.testing.assert_allclose(counts[2], 750, atol=120)
