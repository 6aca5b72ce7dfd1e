"""Committees: the stacked form computes the same function and gradients as networks one after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from crowdfuse.nets.committee import Committee, StackedMLPs, is_plain_mlp, make_committee
from crowdfuse.nets.lenet import LeNet
from crowdfuse.nets.mlp import mlp


def make_networks(hidden: tuple[int, ...], dropout: float = 0.0) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Flatten(), mlp(6, hidden, 3, dropout)) for _ in range(4)]


@pytest.mark.parametrize("hidden", [(), (8,), (8, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_stacked_networks_equal_networks_one_by_one(hidden: tuple[int, ...], training: bool) -> None:
    networks = make_networks(hidden)
    stacked, plain = StackedMLPs(networks).train(training), Committee(networks).train(training)
    x = torch.randn(7, 2, 3)
    torch.testing.assert_close(stacked(x), plain(x))
    torch.testing.assert_close(stacked(x, slice(1, 3)), plain(x, slice(1, 3)))
    stacked(x).square().sum().backward()
    plain(x).square().sum().backward()
    last = networks[2][1][-1]  # type: ignore[index]
    assert isinstance(last, nn.Linear)
    assert isinstance(last.weight.grad, Tensor)
    gradient = stacked.weights[-1].grad
    assert gradient is not None
    torch.testing.assert_close(gradient[2], last.weight.grad)


def test_dropout_acts_in_training_only() -> None:
    stacked = StackedMLPs(make_networks((200,), dropout=0.5))
    x = torch.randn(5, 6)
    assert not torch.equal(stacked(x), stacked(x))
    stacked.eval()
    assert torch.equal(stacked(x), stacked(x))


def test_dropout_keeps_the_mean_of_the_outputs() -> None:
    stacked = StackedMLPs(make_networks((300,), dropout=0.5))
    x = torch.randn(2, 6)
    mean = torch.stack([stacked(x) for _ in range(2_000)]).mean(0)
    stacked.eval()
    torch.testing.assert_close(mean, stacked(x), atol=0.02, rtol=0)


@pytest.mark.parametrize(
    "network",
    [
        LeNet(1),
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 3), nn.ReLU()),
        nn.Flatten(),
    ],
)
def test_other_networks_are_not_stacked(network: nn.Module) -> None:
    assert not is_plain_mlp(network)
    assert isinstance(make_committee([network, network]), Committee)


def test_a_frozen_layer_stays_frozen_in_a_committee() -> None:
    networks = [mlp(4, (8,), 3), mlp(4, (8,), 3)]
    next(networks[1].parameters()).requires_grad_(False)
    committee = make_committee(networks)
    assert isinstance(committee, Committee)
    assert sum(not parameter.requires_grad for parameter in committee.parameters()) == 1
