from __future__ import annotations

import math
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, max_pool2d

from crowdfuse.nets.resnet import BasicBlock, ResNet18, Stem, resnet_stem


@pytest.fixture(scope="module")
def small() -> ResNet18:
    torch.manual_seed(0)
    return ResNet18()


def by_hand(net: torch.nn.Module, name: str, x: Tensor, stride: int = 1, *, training: bool) -> Tensor:
    """Convolution and batch norm from the weights alone: `name` is the pair's, as in "layer1.0.{}1"."""
    weights = dict(net.state_dict())
    conv, norm = (name.format("conv"), name.format("bn")) if "{}" in name else (f"{name}.0", f"{name}.1")
    kernel = weights[f"{conv}.weight"]
    x = conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
    mean, variance = (weights[f"{norm}.running_{kind}"].clone() for kind in ("mean", "var"))
    return batch_norm(x, mean, variance, weights[f"{norm}.weight"], weights[f"{norm}.bias"], training)


def block_by_hand(net: torch.nn.Module, name: str, x: Tensor, stride: int, *, training: bool) -> Tensor:
    h = by_hand(net, f"{name}{{}}1", x, stride, training=training).clamp(min=0)
    h = by_hand(net, f"{name}{{}}2", h, training=training)
    if f"{name}downsample.0.weight" in net.state_dict():
        x = by_hand(net, f"{name}downsample", x, stride, training=training)
    return (h + x).clamp(min=0)


def shake(net: torch.nn.Module) -> None:
    """Weights and running statistics of batch norm that are not 1 and 0, so that leaving one out is seen."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in net.state_dict().items():
        if tensor.ndim == 1:
            noise = torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype)
            tensor.copy_(noise + (0.5 if name.endswith(("weight", "var")) else -0.5))


@pytest.mark.parametrize(("n_in", "n_out", "stride"), [(4, 4, 1), (4, 6, 2), (4, 6, 1)])
@pytest.mark.parametrize("training", [True, False])
def test_a_block_equals_its_definition(n_in: int, n_out: int, stride: int, training: bool) -> None:
    block = BasicBlock(n_in, n_out, stride).double().train(training)
    shake(block)
    x = torch.randn(3, n_in, 7, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = block_by_hand(block, "", x, stride, training=training)
    assert (block.downsample is None) == (n_in == n_out)
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("stem", ["small", "large"])
def test_the_network_equals_its_definition(stem: Stem) -> None:
    torch.manual_seed(0)
    net = ResNet18(channels=2, stem=stem).eval()
    shake(net)
    x = torch.randn(2, 2, 37, 32)
    h = by_hand(net, "{}1", x, 2 if stem == "large" else 1, training=False).clamp(min=0)
    h = max_pool2d(h, 3, 2, 1) if stem == "large" else h
    for layer in range(1, 5):
        for block in range(2):
            stride = 2 if layer > 1 and block == 0 else 1
            h = block_by_hand(net, f"layer{layer}.{block}.", h, stride, training=False)
    torch.testing.assert_close(net(x), h.flatten(2).mean(2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("stem", "side", "total"), [("small", 3, 11_168_832), ("large", 7, 11_176_512)])
def test_the_number_of_parameters_is_right(stem: Stem, side: int, total: int) -> None:
    def norm(n: int) -> int:
        return 2 * n

    def blocks(n_in: int, n: int) -> int:
        shortcut = n_in * n + norm(n) if n_in != n else 0
        return n_in * n * 9 + 3 * n * n * 9 + 4 * norm(n) + shortcut

    expected = 3 * 64 * side**2 + norm(64) + blocks(64, 64) + blocks(64, 128) + blocks(128, 256) + blocks(256, 512)
    assert expected == total  # torchvision's 11,689,512 less 513,000 of its last layer
    assert sum(p.numel() for p in ResNet18(stem=stem).parameters()) == total


def test_parameter_names_are_those_of_torchvision(small: ResNet18) -> None:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = {"conv1.weight", *(f"bn1.{part}" for part in norm)}
    for block in (f"layer{layer}.{block}" for layer in range(1, 5) for block in range(2)):
        names |= {f"{block}.conv1.weight", f"{block}.conv2.weight"}
        names |= {f"{block}.bn{number}.{part}" for number in (1, 2) for part in norm}
    for layer in range(2, 5):
        names |= {f"layer{layer}.0.downsample.0.weight", *(f"layer{layer}.0.downsample.1.{part}" for part in norm)}
    assert set(small.state_dict()) == names
    assert len(names) == 120


def test_initial_weights_are_as_in_the_paper(small: ResNet18) -> None:
    for name, tensor in small.named_parameters():
        if tensor.ndim == 4:
            fan_out = tensor.shape[0] * tensor.shape[2] * tensor.shape[3]
            assert tensor.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.05), name
        else:
            assert bool((tensor == (1 if name.endswith("weight") else 0)).all()), name


@pytest.mark.parametrize(("stem", "side", "maps"), [("small", 32, 4), ("small", 64, 8), ("large", 224, 7)])
def test_feature_maps_have_the_right_sizes(stem: Stem, side: int, maps: int) -> None:
    net = ResNet18(stem=stem).eval()
    seen: list[torch.Size] = []
    net.layer4.register_forward_hook(lambda module, inputs, out: seen.append(out.shape))
    with torch.no_grad():
        assert net(torch.zeros(1, 3, side, side)).shape == (1, 512)
    assert seen == [torch.Size([1, 512, maps, maps])]


def test_grey_images_need_no_channel() -> None:
    net, x = ResNet18(channels=1).eval(), torch.rand(2, 16, 16)
    with torch.no_grad():
        assert net(x).equal(net(x[:, None]))


def test_gradients_reach_everything_and_evaluation_changes_nothing(small: ResNet18) -> None:
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    small.train()
    small(x).square().sum().backward()
    assert [name for name, p in small.named_parameters() if p.grad is None or not p.grad.any()] == []
    small.eval()
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    with torch.no_grad():
        alone, together = small(x[:1]), small(x)
        assert small(x).equal(together)
    torch.testing.assert_close(alone, together[:1])
    assert all(tensor.equal(before[name]) for name, tensor in small.state_dict().items())


def test_the_stem_depends_on_the_image_size() -> None:
    shapes = [(3, 32, 32), (64, 64), (3, 65, 20), (3, 224, 224)]
    assert [resnet_stem(shape) for shape in shapes] == ["small", "small", "large", "large"]
    with pytest.raises(ValueError, match="stem must be one of small, large, got 'smal'; did you mean 'small'"):
        ResNet18(stem=cast(Stem, "smal"))
