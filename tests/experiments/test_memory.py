"""Counting the memory of training: sizes, release, and storage that is shared."""

from __future__ import annotations

import torch
from torch import nn

from crowdfuse.experiments.memory import ADAM_COPIES_PER_PARAMETER, count_saved_tensors, peak_training_bytes


def test_a_linear_layer_saves_its_input_but_not_its_weights() -> None:
    layer, x = nn.Linear(8, 3), torch.ones(100, 8)
    with count_saved_tensors() as saved:
        loss = layer(x).sum()
        assert saved.current == 100 * 8 * 4
        loss.backward()
        del loss
    assert (saved.current, saved.peak) == (0, 100 * 8 * 4)


def test_storage_that_is_saved_twice_counts_once() -> None:
    x = torch.ones(50, requires_grad=True)
    with count_saved_tensors() as saved:
        y = x.exp()
        (y.sin().sum() + y.cos().sum()).backward()
    assert saved.peak == 50 * 4  # exp saves y, and so do sin and cos


def test_counting_does_not_change_gradients() -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(16, 4)
    net(x).square().sum().backward()
    plain = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
    net.zero_grad()
    with count_saved_tensors():
        net(x).square().sum().backward()
    for before, parameter in zip(plain, net.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.equal(before, parameter.grad)


def test_the_peak_of_several_steps_is_that_of_the_largest_step() -> None:
    layer = nn.Linear(8, 3)

    def fit() -> nn.Module:
        for size in (10, 100, 20):
            layer(torch.ones(size, 8)).sum().backward()
        return layer

    assert peak_training_bytes(fit) == 100 * 8 * 4 + ADAM_COPIES_PER_PARAMETER * (8 * 3 + 3) * 4
