"""Each formula against the obvious dense version, over generated shapes; gradients by gradcheck in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from crowdfuse.functional import (
    basis_penalty,
    dense_confusions,
    derangements,
    expected_class_log_likelihood,
    fuse_by_basis,
    kl_divergence,
    label_likelihoods,
    label_log_probabilities,
    penalty_form,
    permutation_basis,
    posterior,
    rowwise_mixture_log_likelihood,
    scatter_sum,
    segment_softmax,
    vote_shares,
)


@dataclass
class Case:
    """Items with some of the labels missing, one head's outputs for the pairs that exist."""

    n_items: int
    n_annotators: int
    n_classes: int
    basis: Tensor
    item: Tensor
    annotator: Tensor
    label: Tensor
    weight_logits: Tensor
    coefficient_logits: Tensor
    class_logits: Tensor

    @property
    def coefficients(self) -> Tensor:
        return self.coefficient_logits.softmax(1)

    @property
    def weights(self) -> Tensor:
        return segment_softmax(self.weight_logits, self.item, self.n_items)


def make_case(
    n_items: int, n_annotators: int, n_classes: int, n_bases: int, missing: float, kind: str, seed: int
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    present = torch.rand(n_items, n_annotators, generator=generator) >= missing
    item, annotator = present.nonzero(as_tuple=True)
    basis = permutation_basis(n_classes, n_bases, kind, seed)  # type: ignore[arg-type]  # drawn from the two kinds

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * 2

    return Case(
        n_items, n_annotators, n_classes, basis, item, annotator,
        label=torch.randint(n_classes, (len(item),), generator=generator),
        weight_logits=draw(len(item)),
        coefficient_logits=draw(len(item), len(basis)),
        class_logits=draw(n_items, n_classes),
    )  # fmt: skip


cases = st.builds(
    make_case,
    n_items=st.integers(1, 6),
    n_annotators=st.integers(1, 5),
    n_classes=st.integers(2, 7),
    n_bases=st.integers(1, 30),  # over K! for K = 2, 3, 4
    missing=st.sampled_from([0.0, 0.3, 0.8]),
    kind=st.sampled_from(["random", "latin"]),
    seed=st.integers(0, 10_000),
)


def dense_matrices(case: Case) -> Tensor:
    """(L, K, K): P = sum_m c_m B_m, with B_m e_j = e_pi_m(j), written out."""
    B = torch.zeros(len(case.basis), case.n_classes, case.n_classes, dtype=torch.float64)
    for m, permutation in enumerate(case.basis.tolist()):
        for j, image in enumerate(permutation):
            B[m, image, j] = 1
    return torch.einsum("lm,mij->lij", case.coefficients, B)


def dense_fused(case: Case) -> Tensor:
    """The textbook sum over all annotators, weights 0 where there is no label."""
    w = torch.zeros(case.n_items, case.n_annotators, dtype=torch.float64)
    scores = torch.full_like(w, -torch.inf)
    scores[case.item, case.annotator] = case.weight_logits
    for n in range(case.n_items):
        if (scores[n] > -torch.inf).any():
            w[n] = scores[n].softmax(0)
    one_hot = torch.zeros(case.n_items, case.n_annotators, case.n_classes, dtype=torch.float64)
    one_hot[case.item, case.annotator, case.label] = 1
    P = torch.eye(case.n_classes, dtype=torch.float64).expand(case.n_items, case.n_annotators, -1, -1).clone()
    P[case.item, case.annotator] = dense_matrices(case)
    return torch.einsum("nr,nrij,nrj->ni", w, P, one_hot)


@given(cases)
@settings(max_examples=150, deadline=None)
def test_fused_labels_equal_the_dense_einsum(case: Case) -> None:
    fused = fuse_by_basis(case.weights, case.coefficients, case.label, case.item, case.basis, case.n_items)
    torch.testing.assert_close(fused, dense_fused(case), atol=1e-12, rtol=0)
    in_float32 = fuse_by_basis(
        case.weights.float(), case.coefficients.float(), case.label, case.item, case.basis, case.n_items
    )
    torch.testing.assert_close(in_float32.double(), dense_fused(case), atol=1e-6, rtol=0)


@given(cases)
@settings(max_examples=150, deadline=None)
def test_penalty_equals_the_diagonals_written_out(case: Case) -> None:
    diagonal = dense_matrices(case).diagonal(dim1=1, dim2=2)
    expected = (1 - diagonal).square().sum(1)
    form = penalty_form(case.basis)
    torch.testing.assert_close(basis_penalty(case.coefficients, form.double()), expected, atol=1e-12, rtol=0)
    single = basis_penalty(case.coefficients.float(), form)
    torch.testing.assert_close(single.double(), expected, atol=1e-6 * case.n_classes, rtol=1e-6)


@given(cases)
@settings(max_examples=60, deadline=None)
def test_dense_confusions_are_the_sum_of_permutation_matrices(case: Case) -> None:
    matrices = dense_confusions(case.coefficients, case.basis)
    torch.testing.assert_close(matrices, dense_matrices(case))
    torch.testing.assert_close(matrices.sum(1), torch.ones_like(matrices.sum(1)))  # columns: P(true | label)


@given(cases)
@settings(max_examples=60, deadline=None)
def test_weights_are_a_softmax_over_the_labels_that_exist(case: Case) -> None:
    weights = case.weights
    for n in range(case.n_items):
        own = case.item == n
        torch.testing.assert_close(weights[own], case.weight_logits[own].softmax(0))


def drawn_matrices(case: Case) -> Tensor:
    """Logits of one matrix per annotator, (R, K, K)."""
    shape = (case.n_annotators, case.n_classes, case.n_classes)
    return torch.randn(shape, generator=torch.Generator().manual_seed(case.n_items), dtype=torch.float64) * 2


@given(cases)
@settings(max_examples=60, deadline=None)
def test_the_posterior_is_bayes_written_out(case: Case) -> None:
    A = drawn_matrices(case).softmax(2)
    prior = case.class_logits.softmax(1)
    q = posterior(prior.log(), label_log_probabilities(A.log(), case.annotator, case.label), case.item)
    for n in range(case.n_items):
        product = prior[n].clone()
        for r, y in zip(case.annotator[case.item == n], case.label[case.item == n], strict=True):
            for k in range(case.n_classes):
                product[k] *= A[r, k, y]
        torch.testing.assert_close(q[n], product / product.sum() if (case.item == n).any() else 0 * product)


@given(cases)
@settings(max_examples=60, deadline=None)
def test_vote_shares_are_counted(case: Case) -> None:
    shares = vote_shares(case.label, case.item, case.n_items, case.n_classes)
    for n in range(case.n_items):
        said = case.label[case.item == n].tolist()
        assert shares[n].tolist() == pytest.approx([said.count(k) / max(1, len(said)) for k in range(case.n_classes)])


def test_gradients_of_label_likelihoods_by_gradcheck() -> None:
    case = make_case(4, 3, 3, 1, 0.3, "random", seed=5)

    def loss(logits: Tensor, class_logits: Tensor) -> Tensor:
        evidence = label_log_probabilities(logits.log_softmax(2), case.annotator, case.label)
        said = (class_logits.log_softmax(1)[case.item] + evidence).logsumexp(1)
        return said.sum() + posterior(class_logits.log_softmax(1), evidence, case.item).square().sum()

    inputs = [drawn_matrices(case).requires_grad_(), case.class_logits.requires_grad_()]
    assert torch.autograd.gradcheck(loss, inputs)


@given(st.integers(1, 6), st.integers(2, 5), st.integers(1, 3), st.sampled_from([2, 16]), st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_rowwise_mixture_equals_its_definition(n_rows: int, n_classes: int, n_said: int, few: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n_rows, n_classes, generator=generator, dtype=torch.float64).requires_grad_()
    matrices = torch.randn(n_rows, n_classes, n_classes, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(n_classes, (n_rows, n_said), generator=generator)
    with patch.object(label_likelihoods, "MIN_CLASSES_FOR_ROWS_FIRST", few):  # both ways to lay it out
        found = rowwise_mixture_log_likelihood(logits, matrices, labels)
        assert torch.autograd.gradcheck(lambda c, m: rowwise_mixture_log_likelihood(c, m, labels), (logits, matrices))
    f, A = logits.softmax(1), matrices.softmax(2)
    for i in range(n_rows):
        for s in range(n_said):
            torch.testing.assert_close(found[i, s], (f[i] @ A[i])[labels[i, s]].log())


def test_rowwise_mixture_survives_extreme_logits() -> None:
    logits = torch.tensor([[300.0, 0.0]]).requires_grad_()
    matrices = torch.tensor([[[300.0, 0.0], [0.0, 300.0]]]).requires_grad_()
    found = rowwise_mixture_log_likelihood(logits, matrices, torch.tensor([[1]]))
    torch.testing.assert_close(found, torch.tensor([[math.log(2) - 300]]))
    found.sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.5, 0.5]]))


def test_segment_softmax_survives_extreme_scores() -> None:
    scores = torch.tensor([1e4, -1e4, 1e4, 3.0], requires_grad=True)
    weights = segment_softmax(scores, torch.tensor([0, 0, 0, 2]), 3)
    assert weights.tolist() == [0.5, 0.0, 0.5, 1.0]
    (weights * torch.arange(4.0)).sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    "shape",
    [(3, 2, 3, 4, 0.3, "random"), (2, 1, 2, 2, 0.0, "random"), (3, 3, 4, 1, 0.3, "random"), (2, 2, 3, 9, 0.0, "latin")],
)
def test_gradients_of_the_whole_loss_by_gradcheck(shape: tuple[int, int, int, int, float, str]) -> None:
    case = make_case(*shape, seed=3)
    form = penalty_form(case.basis).double()

    def loss(weight_logits: Tensor, coefficient_logits: Tensor, class_logits: Tensor) -> Tensor:
        w = segment_softmax(weight_logits, case.item, case.n_items)
        c = coefficient_logits.softmax(1)
        t = fuse_by_basis(w, c, case.label, case.item, case.basis, case.n_items)
        penalty = scatter_sum(basis_penalty(c, form), case.item, case.n_items)
        return (kl_divergence(t, class_logits.log_softmax(1)) + penalty).sum()

    logits = [case.weight_logits, case.coefficient_logits, case.class_logits]
    assert torch.autograd.gradcheck(loss, [tensor.requires_grad_() for tensor in logits])


def test_kl_equals_the_sum_written_out() -> None:
    target = torch.tensor([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    f = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3]], dtype=torch.float64)
    expected = [0.2 * math.log(0.2 / 0.5) + 0.8 * math.log(0.8 / 0.25), math.log(1 / 0.1)]
    torch.testing.assert_close(kl_divergence(target, f.log()), torch.tensor(expected, dtype=torch.float64))


def test_kl_has_finite_gradients_at_zero_targets_where_torch_has_none() -> None:
    target = torch.tensor([[0.0, 1.0, 0.0]], requires_grad=True)
    logits = torch.randn(1, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    kl_divergence(target, logits.log_softmax(1)).sum().backward()
    assert target.grad is not None
    assert logits.grad is not None
    assert target.grad.isfinite().all()
    assert logits.grad.isfinite().all()
    assert target.grad[0, 0] == target.grad[0, 2] == 0

    plain = torch.tensor([[0.0, 1.0, 0.0]], requires_grad=True)
    torch.nn.functional.kl_div(logits.detach().log_softmax(1), plain, reduction="sum").backward()
    assert plain.grad is not None
    assert not plain.grad.isfinite().all()  # the trap that stops the authors' released code


@given(st.integers(2, 12), st.integers(1, 200), st.sampled_from(["random", "latin"]), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_basis_is_distinct_permutations_identity_first(n_classes: int, n_bases: int, kind: str, seed: int) -> None:
    basis = permutation_basis(n_classes, n_bases, kind, seed)  # type: ignore[arg-type]  # drawn from the two kinds
    assert len(basis) == min(n_bases, math.factorial(n_classes))
    assert basis[0].tolist() == list(range(n_classes))
    assert (basis.sort(1).values == torch.arange(n_classes)).all()
    assert len({tuple(row) for row in basis.tolist()}) == len(basis)
    assert torch.equal(basis, permutation_basis(n_classes, n_bases, kind, seed))  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(("n_classes", "n_bases"), [(2, 2), (3, 3), (10, 10), (10, 20), (100, 150)])
def test_latin_basis_reaches_every_class_from_every_label(n_classes: int, n_bases: int) -> None:
    basis = permutation_basis(n_classes, n_bases, "latin", seed=1)
    for label in range(n_classes):
        assert len(set(basis[:, label].tolist())) == n_classes


def test_random_basis_leaves_some_classes_out_of_reach() -> None:
    basis = permutation_basis(100, 150, "random", seed=0)
    reached = sum(len(set(basis[:, label].tolist())) for label in range(100)) / 100**2
    assert 0.75 < reached < 0.81  # about 22 % of the pairs are out of reach


@pytest.mark.parametrize(("arguments", "said"), [((1, 3), "2 classes"), ((3, 0), "n_bases"), ((3, 2, "odd"), "'odd'")])
def test_bad_bases_are_refused(arguments: tuple[int, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        permutation_basis(*arguments)


@pytest.mark.parametrize("n_classes", [2, 3, 5, 10])
@pytest.mark.parametrize("above_chance", [True, False])
def test_class_scores_use_the_best_accuracy(n_classes: int, above_chance: bool) -> None:
    """Compare with the maximum over a grid of g of the mean log-likelihood of the labels."""
    generator = torch.Generator().manual_seed(n_classes)
    said = torch.cat(
        [
            torch.rand(6, n_classes, generator=generator, dtype=torch.float64).pow(3),
            torch.eye(n_classes, dtype=torch.float64),
            1 - torch.eye(n_classes, dtype=torch.float64),
            torch.ones(1, n_classes, dtype=torch.float64),
        ]
    )
    said = said / said.sum(1, keepdim=True)
    grid = torch.linspace(1 / n_classes if above_chance else 1e-7, 1 - 1e-7, 20_001, dtype=torch.float64)
    log_right, log_wrong = grid.log(), ((1 - grid) / (n_classes - 1)).log()
    best = torch.empty_like(said)
    for n, shares in enumerate(said):
        for k in range(n_classes):
            worth = shares[k] * log_right
            for other in range(n_classes):
                if other != k:
                    worth = worth + shares[other] * log_wrong
            best[n, k] = worth.max()
    torch.testing.assert_close(expected_class_log_likelihood(said, above_chance=above_chance), best, rtol=0, atol=2e-5)


def test_a_guessing_annotator_gives_no_evidence_for_any_class() -> None:
    even = torch.full((4,), 0.25)
    for above_chance in (True, False):
        torch.testing.assert_close(expected_class_log_likelihood(even, above_chance=above_chance), even.log())


DERANGEMENTS = {2: 1, 3: 2, 4: 9, 5: 44, 6: 265, 7: 1854, 8: 14_833}


@pytest.mark.parametrize("n_classes", DERANGEMENTS)
def test_derangements_move_every_class_and_are_complete(n_classes: int) -> None:
    """Also where more are asked for than exist: that must end."""
    for asked in (1, 5, 20_000):
        found = derangements(n_classes, asked, np.random.default_rng(0))
        assert found.shape == (min(asked, DERANGEMENTS[n_classes]), n_classes)
        assert (found.sort(1).values == torch.arange(n_classes)).all()
        assert (found != torch.arange(n_classes)).all()
        assert len(found.unique(dim=0)) == len(found)


@pytest.mark.parametrize("n_classes", [7, 9, 300])
def test_derangements_follow_from_the_seed(n_classes: int) -> None:
    first, again, other = (derangements(n_classes, 6, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == (6, n_classes)
    assert (first != torch.arange(n_classes)).all()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
