"""Dawid-Skene, against plain loops and planted confusion matrices."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfuse import Annotations
from crowdfuse.aggregation import dawid_skene
from tests.aggregation.crowds import crowds, labels_of


def by_loops(
    ann: Annotations, max_iter: int, smoothing: float, gold: dict[int, int] | None = None
) -> tuple[Any, Any, list[float]]:
    """The textbook algorithm: probabilities of the labelled items, confusion matrices, log-likelihoods."""
    items = [labels for labels in labels_of(ann) if labels]
    R, K = ann.n_annotators, ann.n_classes
    soft = [[sum(said == k for _, said in labels) / len(labels) for k in range(K)] for labels in items]
    known = {
        place: gold[n] for place, n in enumerate(np.flatnonzero(np.diff(ann.indptr)).tolist()) if gold and n in gold
    }
    for n, k in known.items():
        soft[n] = [float(j == k) for j in range(K)]
    log_likelihoods = []
    for iteration in range(max_iter + 1):
        prior = [sum(row[k] for row in soft) / len(items) for k in range(K)]
        confusion = [[[smoothing] * K for _ in range(K)] for _ in range(R)]
        for labels, row in zip(items, soft, strict=True):
            for annotator, said in labels:
                for k in range(K):
                    confusion[annotator][k][said] += row[k]
        for matrix in confusion:
            for k in range(K):
                total = sum(matrix[k])
                matrix[k] = [value / total if total else 1 / K for value in matrix[k]]
        if iteration == max_iter:
            break
        log_likelihood = smoothing and sum(
            smoothing * log(value) for matrix in confusion for line in matrix for value in line
        )
        for n, labels in enumerate(items):
            joint = list(prior)
            for annotator, said in labels:
                for k in range(K):
                    joint[k] *= confusion[annotator][k][said]
            if n in known:
                joint = [value if k == known[n] else 0 for k, value in enumerate(joint)]
            log_likelihood += log(sum(joint))
            soft[n] = [value / sum(joint) for value in joint]
        log_likelihoods.append(log_likelihood)
    return soft, confusion, log_likelihoods


@settings(deadline=None, max_examples=30)
@given(ann=crowds(), seed=st.integers(0, 99))
def test_gold_is_certain(ann: Annotations, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(-1, ann.n_classes, len(ann))
    named = [ann.classes[code] if code >= 0 else None for code in codes]
    result = dawid_skene(ann, gold=named, max_iter=4, tol=0)
    soft, confusion, log_likelihoods = by_loops(
        ann, 4, 0.01, {n: int(code) for n, code in enumerate(codes) if code >= 0}
    )
    labelled = np.diff(ann.indptr) > 0
    np.testing.assert_allclose(result.class_probabilities[labelled], soft, atol=1e-6)
    np.testing.assert_allclose(result.log_likelihood, log_likelihoods, rtol=1e-9, atol=1e-9)
    assert result.confusion_matrices is not None
    seen = np.bincount(ann.annotator, minlength=ann.n_annotators) > 0
    np.testing.assert_allclose(result.confusion_matrices[seen], np.array(confusion)[seen], atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.01, 1.0])
@settings(deadline=None, max_examples=50)
@given(ann=crowds())
def test_dawid_skene_equals_plain_loops(smoothing: float, ann: Annotations) -> None:
    result = dawid_skene(ann, max_iter=4, tol=0, smoothing=smoothing)
    soft, confusion, log_likelihoods = by_loops(ann, 4, smoothing)
    labelled = np.diff(ann.indptr) > 0
    np.testing.assert_allclose(result.class_probabilities[labelled], soft, atol=1e-6)
    np.testing.assert_allclose(result.log_likelihood, log_likelihoods, rtol=1e-9, atol=1e-9)
    assert result.confusion_matrices is not None
    seen = np.bincount(ann.annotator, minlength=ann.n_annotators) > 0
    np.testing.assert_allclose(result.confusion_matrices[seen], np.array(confusion)[seen], atol=1e-6)
    assert np.isnan(result.confusion_matrices[~seen]).all()
    np.testing.assert_allclose(result.parameters["class_prior"], np.mean(soft, 0), atol=1e-6)


def test_many_labels_on_one_item_do_not_underflow() -> None:
    generator = np.random.default_rng(0)
    said = generator.integers(0, 2, (20, 3000))
    result = dawid_skene(Annotations.from_matrix(said))
    assert np.isfinite(result.class_probabilities).all()
    assert np.isfinite(result.log_likelihood).all()


def test_planted_confusion_matrices_are_recovered() -> None:
    generator = np.random.default_rng(1)
    truth = generator.integers(0, 3, 4000)
    planted = generator.dirichlet(np.ones(3), (5, 3)) * 0.4 + 0.6 * np.eye(3)
    luck = generator.random((4000, 5, 1))
    said = (luck > planted.cumsum(2)[:, truth].transpose(1, 0, 2)).sum(2)
    said[generator.random(said.shape) < 0.2] = -1
    result = dawid_skene(Annotations.from_matrix(said))
    assert result.confusion_matrices is not None
    np.testing.assert_allclose(result.confusion_matrices, planted, atol=0.05)
    np.testing.assert_allclose(result.confusion_matrices.sum(2), 1)
    assert (result.consensus == truth).mean() > 0.9


def test_a_systematic_confusion_of_one_class_is_corrected() -> None:
    """Three of five annotators often label class 1 as 0: the vote is wrong there, Dawid-Skene is not."""
    generator = np.random.default_rng(2)
    truth = generator.integers(0, 3, 600)
    said = np.where(generator.random((600, 5)) < 0.95, truth[:, None], generator.integers(0, 3, (600, 5)))
    said[:, :3] = np.where((truth == 1)[:, None] & (generator.random((600, 3)) < 0.7), 0, said[:, :3])
    ann = Annotations.from_matrix(said)
    assert (dawid_skene(ann).consensus == truth).mean() > (ann.vote_shares().argmax(1) == truth).mean() + 0.05
