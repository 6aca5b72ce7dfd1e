"""Aggregate first, then train."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from crowdfuse import TwoStageClassifier
from crowdfuse.aggregation import AGGREGATORS, dawid_skene
from crowdfuse.io.inputs import Inputs
from crowdfuse.labels.annotations import Annotations
from crowdfuse.methods.data import TrainingData
from crowdfuse.methods.two_stage import TwoStage
from tests.methods.test_known_answers import PLANTED, ask, blobs
from tests.methods.test_methods import spec


def crowd(n_items: int = 60) -> TrainingData:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, n_items)
    said = np.where(generator.random((n_items, 3)) < 0.7, truth[:, None], generator.integers(0, 3, (n_items, 3)))
    said[generator.random(said.shape) < 0.3] = -1
    X = generator.normal(size=(n_items, 4)).astype(np.float32)
    weight = np.ones(n_items, np.float32)
    return TrainingData(Inputs(X), Annotations.from_matrix(said), np.full(n_items, -1), weight)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_two_stage_trains_on_the_consensus(aggregator: str) -> None:
    data = crowd()
    labelled = np.diff(data.annotations.indptr) > 0
    result = AGGREGATORS[aggregator](data.annotations, seed=0)
    for target in ("soft", "hard"):
        method = TwoStage(spec(), aggregator=aggregator, target=target)
        method.prepare(data)
        batch = data.batch(np.arange(len(data)))
        total, count = method.loss(batch)
        log_f = method.logits(batch.x).log_softmax(1)
        if target == "soft":
            soft = torch.from_numpy(result.class_probabilities[labelled])
            expected = (torch.special.xlogy(soft, soft) - soft * log_f[labelled]).sum()
        else:
            expected = cross_entropy(
                log_f[labelled], torch.from_numpy(result.consensus_codes[labelled]), reduction="sum"
            )
        torch.testing.assert_close(total, expected)
        assert count == labelled.sum()


def test_rows_of_weight_0_are_not_aggregated() -> None:
    data = crowd()
    data.weight[30:] = 0
    method = TwoStage(spec(), aggregator="dawid-skene", target="soft")
    method.prepare(data)
    labelled = np.flatnonzero(np.diff(data.annotations.indptr)[:30] > 0)
    alone = dawid_skene(data.annotations[labelled], seed=0)
    np.testing.assert_array_equal(method.target[labelled], alone.class_probabilities)
    assert not method.target[30:].any()


def test_planted_confusions_are_recovered_and_fuse_the_labels() -> None:
    X, truth = blobs(5000, 0.5, seed=0)
    Y = ask(truth, PLANTED, missing=0.2, seed=1)
    clf = TwoStageClassifier(epochs=5).fit(X, Y)
    assert np.abs(clf.confusion_matrices_ - PLANTED).max() < 0.06
    result = dawid_skene(Annotations.from_matrix(Y))
    labelled = (Y >= 0).any(1)
    np.testing.assert_allclose(clf.fused_labels(X, Y)[labelled], result.class_probabilities[labelled], atol=0.02)


def test_an_unknown_aggregator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"aggregator .*dawid"):
        TwoStageClassifier(aggregator="dawid").fit(np.eye(3), np.arange(3))
