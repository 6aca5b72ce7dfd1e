from __future__ import annotations

import pytest
import torch
from torch import nn

from crowdfuse.nets import make_trunk
from crowdfuse.nets.annotator_heads import AnnotatorHead, PerAnnotatorLinear, SeparateHeads
from crowdfuse.nets.lenet import LeNet, NormPool
from crowdfuse.nets.mlp import mlp


@pytest.mark.parametrize("n_annotators", [1, 3, 50, 150])  # dense product, gathered weights, sparse gradients
def test_annotator_head_equals_one_mlp_with_an_output_for_every_annotator(n_annotators: int) -> None:
    torch.manual_seed(0)
    head = AnnotatorHead(5, (7,), n_annotators, 4).double()
    features = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    item = torch.tensor([0, 0, 2, 5, 5, 5])
    annotator = torch.tensor([0, 2, 1, 0, 1, 2]) % n_annotators
    full = torch.einsum("bi,rio->bro", head.hidden(features), head.last.weight) + head.last.bias
    torch.testing.assert_close(head(features, item, annotator), full[item, annotator])
    assert torch.autograd.gradcheck(lambda f: head(f, item, annotator), features)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
def test_separate_heads_are_one_mlp_per_annotator(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    heads = SeparateHeads(5, hidden, 3, 4).double()
    features = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    item, annotator = torch.tensor([0, 0, 2, 5, 5, 5]), torch.tensor([0, 2, 1, 0, 1, 2])
    alone = [mlp(5, hidden, 4).double() for _ in range(3)]
    for r, network in enumerate(alone):
        linear = [layer for layer in network if isinstance(layer, nn.Linear)]
        for own, layer in zip(linear, heads.layers, strict=True):
            assert isinstance(layer, PerAnnotatorLinear)
            own.weight.data, own.bias.data = layer.weight[r].T, layer.bias[r]
    expected = torch.stack([alone[r](features[i]) for i, r in zip(item.tolist(), annotator.tolist(), strict=True)])
    torch.testing.assert_close(heads(features, item, annotator), expected)
    assert torch.autograd.gradcheck(lambda f: heads(f, item, annotator), features)


def test_lenet_has_the_papers_layers() -> None:
    net = LeNet()
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 256)
    assert net(torch.zeros(2, 28, 28)).shape == (2, 256)
    assert sum(p.numel() for p in net.parameters()) == 6 * 25 + 16 * 6 * 25  # no bias, no affine


def test_the_backbone_given_is_copied_and_its_features_counted() -> None:
    given = nn.Sequential(nn.Linear(3, 11), nn.ReLU())
    trunk = make_trunk(given, (3,), (128,), 0.0)
    assert trunk.n_features == 11
    assert trunk.module is not given
    assert make_trunk(lambda: nn.Linear(3, 5), (3,), (), 0.0).n_features == 5


@pytest.mark.parametrize(
    ("backbone", "shape", "said"),
    [
        ("lenett", (1, 28, 28), "unknown backbone 'lenett'"),
        ("lenet", (5,), "reads images"),
        (nn.Linear(4, 2), (3,), "cannot read inputs of shape"),
        (nn.Identity(), (3, 4), r"must return features of shape \(N, D\)"),
    ],
)
def test_bad_backbones_are_refused(backbone: str | nn.Module, shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_trunk(backbone, shape, (8,), 0.0)


@pytest.mark.parametrize("shape", [(5, 3, 8, 8), (4, 2, 7, 9), (2, 1, 2, 2)])
def test_norm_pool_is_batch_norm_and_average_pooling(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (3 + torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
    ours = NormPool(shape[1]).double()
    plain = nn.Sequential(nn.BatchNorm2d(shape[1], affine=False), nn.AvgPool2d(2)).double()
    upstream = torch.randn(ours(x).shape, generator=generator, dtype=torch.float64)
    plain(x)
    torch.testing.assert_close(ours(x), plain(x))
    gradients = [torch.autograd.grad(module(x), x, upstream)[0] for module in (ours, plain)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(ours.mean, plain[0].running_mean)
    torch.testing.assert_close(ours.variance, plain[0].running_var)
    torch.testing.assert_close(ours.eval()(x), plain.eval()(x))


def test_norm_pool_gradients() -> None:
    x = torch.randn((3, 2, 5, 4), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: NormPool(2).double()(x), x)
