from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from crowdfuse.nets.augment import CropAndFlip, RandomResizedCropAndFlip, choose_augmentation, make_augmentation


def distinct(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """One image without repeated pixels, none of them 0."""
    count = int(torch.Size(shape).numel())
    return (1 + torch.randperm(count, generator=torch.Generator().manual_seed(0))).view(shape).to(dtype)


def all_crops(image: Tensor, padding: int) -> list[Tensor]:
    """Every crop of a padded image (..., H, W), and its mirror image: one loop, one slice each."""
    height, width = image.shape[-2:]
    padded = pad(image, (padding,) * 4)
    span = range(2 * padding + 1)
    crops = [padded[..., i : i + height, j : j + width] for i in span for j in span]
    return [*crops, *(crop.flip(-1) for crop in crops)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 9, 10), (9, 10)], ids=["channels", "grey"])
def test_every_output_is_a_crop_and_every_crop_occurs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    image = distinct(shape, dtype)
    torch.manual_seed(0)
    out = CropAndFlip(padding=4)(image.expand(3000, *shape))
    assert out.dtype == dtype
    possible = torch.stack(all_crops(image, 4)).flatten(1)
    chosen = (out.flatten(1)[:, None] == possible).all(2)  # (N, 162)
    assert chosen.any(1).all()
    counts = chosen.sum(0)
    assert len(counts) == 2 * 81
    assert int(counts.min()) > 0
    assert int(counts.max()) < 45  # 18.5 expected of each
    assert int(counts[:81].sum()) == pytest.approx(1500, abs=150)


def test_each_image_is_cropped_independently_and_in_order() -> None:
    x = torch.arange(1, 5, dtype=torch.float32)[:, None, None, None].expand(4, 3, 8, 8)
    torch.manual_seed(0)
    out = CropAndFlip(padding=2)(x)
    for image, own in zip(out, x, strict=True):
        assert set(image.unique().tolist()) <= {0.0, float(own[0, 0, 0])}
    assert len({tuple((image != 0).flatten().tolist()) for image in out}) > 1


def test_no_flips_and_no_padding() -> None:
    x = torch.rand(50, 1, 5, 6)
    assert CropAndFlip(padding=0, flip=False)(x).equal(x)
    out = CropAndFlip(padding=0)(x)
    is_kept = (out == x).flatten(1).all(1)
    assert 10 < int(is_kept.sum()) < 40
    assert out[~is_kept].equal(x[~is_kept].flip(-1))


@pytest.mark.parametrize("augment", [CropAndFlip(), RandomResizedCropAndFlip(16)])
def test_the_seed_decides_and_evaluation_draws_nothing(augment: torch.nn.Module) -> None:
    x = torch.rand(8, 3, 16, 16)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(augment.train()(x))
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])
    state = torch.get_rng_state()
    assert augment.eval()(x) is x
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("augment", [CropAndFlip(), RandomResizedCropAndFlip(16)])
def test_channels_stay_last(augment: torch.nn.Module) -> None:
    x = torch.rand(4, 3, 16, 16)
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        out = augment.train()(x.contiguous(memory_format=layout))
        assert out.is_contiguous(memory_format=layout)
        torch.manual_seed(0)
        torch.testing.assert_close(out, augment(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [7, 10, 25])
def test_the_whole_image_is_resized_as_usual(size: int, dtype: torch.dtype) -> None:
    x = (255 * torch.rand(3, 2, 10, 10, generator=torch.Generator().manual_seed(0))).to(dtype)
    whole = RandomResizedCropAndFlip(size, scale=(1, 1), ratio=(1, 1), flip=False)
    out = whole(x)
    assert (out.shape, out.dtype) == ((3, 2, size, size), dtype)
    usual = interpolate(x.double(), (size, size), mode="bilinear")
    # halves may be rounded either way
    torch.testing.assert_close(out.double(), usual, rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=0.51)
    if size == 10:
        torch.testing.assert_close(out, x, rtol=0, atol=0 if dtype is torch.uint8 else 1e-2)
    assert whole.eval()(x).shape == (3, 2, size, size)


def test_crops_are_parts_of_the_image_of_the_shapes_asked_for() -> None:
    height, width, count = 30, 40, 400
    rows, columns = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
    x = torch.stack([columns, rows]).expand(count, 2, height, width)  # each pixel says where it is
    torch.manual_seed(0)
    size = 64
    out = RandomResizedCropAndFlip(size, scale=(0.1, 0.5), ratio=(0.5, 2.0))(x)
    # away from the image's edge, where values are held, a step is the crop's side by `size`
    middle = out[:, :, size // 2 - 1 : size // 2 + 1, size // 2 - 1 : size // 2 + 1]
    across = (middle[:, 0, 0, 1] - middle[:, 0, 0, 0]) * size
    down = (middle[:, 1, 1, 0] - middle[:, 1, 0, 0]) * size
    area, ratio = across.abs() * down / (height * width), across.abs() / down
    assert 0.099 < float(area.min()) < 0.12
    assert 0.48 < float(area.max()) < 0.501
    assert 0.499 < float(ratio.min()) < 0.55
    assert 1.8 < float(ratio.max()) < 2.01
    assert float(ratio.log().mean()) == pytest.approx(0, abs=0.1)
    assert int((across < 0).sum()) == pytest.approx(count / 2, abs=40)
    assert bool((down > 0).all())
    # crops lie within the image, and reach its edges
    centre, half = middle.mean((2, 3)), torch.stack([across.abs(), down], 1) / 2
    first, last = centre - half, centre + half
    assert float(first.min()) > -0.51
    assert bool((first.min(0).values < 1).all())
    for place, side in ((0, width), (1, height)):
        assert side - 2.5 < float(last[:, place].max()) < side - 0.49


def test_a_crop_that_cannot_fit_is_clipped_to_the_image() -> None:
    x = torch.arange(8.0).expand(4, 1, 8, 8)
    out = RandomResizedCropAndFlip(8, scale=(1, 1), ratio=(4, 4), flip=False)(x)
    torch.testing.assert_close(out, x)  # as wide as the image; its height does not show


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"size": 0}, "size must be at least 1 pixel, got 0"),
        ({"size": 8, "scale": (0.5, 1.5)}, r"scale must be two fractions of the image's area.*got \(0.5, 1.5\)"),
        ({"size": 8, "ratio": (2, 1)}, r"ratio must be .*got \(2, 1\)"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RandomResizedCropAndFlip(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="padding must be at least 0 pixels"):
        CropAndFlip(padding=-1)


@pytest.mark.parametrize(("shape", "padding"), [((3, 64, 64), 8), ((1, 28, 40), 3), ((8, 8), 1), ((3, 5, 5), 0)])
def test_shift_moves_images_by_up_to_an_eighth_of_the_shorter_side(shape: tuple[int, ...], padding: int) -> None:
    image = distinct(shape, torch.float32)
    shift = make_augmentation("shift", shape)
    assert shift is not None
    torch.manual_seed(0)
    out = shift(image.expand(2000, *shape))
    not_mirrored = torch.stack(all_crops(image, padding)[: (2 * padding + 1) ** 2]).flatten(1)
    chosen = torch.stack([(not_mirrored == row).all(1) for row in out.flatten(1)])
    assert chosen.any(1).all()
    assert chosen.any(0).all()


@pytest.mark.parametrize(
    ("choice", "backbone", "shape", "name"),
    [
        ("auto", "auto", (3, 64, 64), "shift"),
        ("auto", "lenet", (3, 64, 64), None),
        ("auto", torch.nn.Flatten(), (3, 64, 64), None),
        ("auto", "auto", (64,), None),
        ("auto", "auto", (28, 28), None),  # may be a series of measurements, where a shift changes the meaning
        (None, "auto", (3, 64, 64), None),
        ("crop-flip", "auto", (3, 64, 64), "crop-flip"),
    ],
)
def test_images_are_shifted_if_neither_network_nor_augmentation_is_named(
    choice: str | None, backbone: object, shape: tuple[int, ...], name: str | None
) -> None:
    assert choose_augmentation(choice, backbone, shape) == name


def test_an_unknown_augmentation_is_refused() -> None:
    with pytest.raises(ValueError, match="augment must be one of auto, shift"):
        choose_augmentation("shfit", "auto", (3, 8, 8))
