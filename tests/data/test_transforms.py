"""Crops: what is cut, what is kept, and at which size, seen by the pixels that they leave."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.crops import RandomResizedCrop, apply_crop, whole_crop
from sightline.data.rng import generator
from sightline.data.sizes import native_grid
from sightline.distributed.machine import import_timm

IMAGE = np.random.default_rng(0).integers(0, 256, (61, 97, 3), dtype=np.uint8)


def resize(image: np.ndarray, image_size: tuple[int, int], interpolation: str = "bicubic") -> np.ndarray:
    return apply_crop(image, whole_crop(image.shape[:2], image_size), interpolation)


def native_view(image, patch_size: int, max_tokens: int | None = None) -> np.ndarray:
    grid = native_grid(image.shape[:2], patch_size, max_tokens)
    return apply_crop(image, whole_crop(image.shape[:2], (grid.rows * patch_size, grid.cols * patch_size)))


@pytest.mark.parametrize("mode", [None, "simple", "bit", "whole"])
def test_an_image_of_pillow_is_cut_as_its_pixels_are(mode) -> None:
    mirrored = set()
    for index in range(8):
        transform = RandomResizedCrop(train_crop_mode=mode)
        crop = transform.train_crop(IMAGE.shape[:2], (40, 24), seed=3, epoch=0, index=index)
        view = apply_crop(IMAGE, crop)
        assert np.array_equal(apply_crop(Image.fromarray(IMAGE), crop), view)
        if crop.mirrored:
            assert np.array_equal(view, apply_crop(IMAGE, dataclasses.replace(crop, mirrored=False))[:, ::-1])
        mirrored.add(crop.mirrored)
    assert mirrored == {True, False}
    assert np.array_equal(apply_crop(Image.fromarray(IMAGE), whole_crop((61, 97), (61, 97))), IMAGE)


@pytest.mark.parametrize(
    ("size", "limit", "expected"),
    [
        ((32, 48), None, (2, 3)),
        ((39, 41), None, (2, 3)),
        ((1, 1), None, (1, 1)),
        ((8, 24), None, (1, 2)),
        ((1, 2000), None, (1, 125)),
        ((1, 2000), 64, (1, 64)),
        ((2000, 1), 64, (64, 1)),
        ((1600, 1600), 100, (10, 10)),
        ((1600, 1600), 99, (9, 9)),
        ((640, 320), 128, (16, 8)),
        ((160, 160), 1, (1, 1)),
    ],
)
def test_native_grid(size: tuple[int, int], limit: int | None, expected: tuple[int, int]) -> None:
    assert native_grid(size, 16, limit) == expected


def test_a_whole_crop_keeps_what_fits_and_resizes_the_rest() -> None:
    fitting = IMAGE[:48, :96]
    assert native_view(fitting, 16) is fitting
    view = native_view(IMAGE, 16)
    assert view.shape == (64, 96, 3)
    assert (view == resize(IMAGE, (64, 96))).all()
    assert native_view(IMAGE, 16, max_tokens=6).shape == (32, 48, 3)


@pytest.mark.parametrize("shape", [(61, 97), (97, 61), (40, 40), (33, 300), (5, 60)])
@pytest.mark.parametrize("side", [24, 40, 100, 3])
@pytest.mark.parametrize("mode", ["simple", "bit"])
def test_a_crop_of_training_is_that_of_torchvision(shape, side, mode, monkeypatch) -> None:
    """Resize, reflect, crop anywhere, mirror: as the public code of DeiT III composes them; BiT's resizes to 448 px of
    384 and cuts."""
    import_timm()
    transforms = importlib.import_module("torchvision.transforms")
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    for index in range(8):
        draws = generator("simple_crop/1", 6, index, epoch=2)
        large, border = (side, {"padding": 4, "padding_mode": "reflect"})
        if mode == "bit":
            large, border = (round(side * 448 / 384),) * 2, {}
        theirs = transforms.Compose(
            [
                transforms.Resize(large, interpolation=transforms.InterpolationMode.BICUBIC),
                transforms.RandomCrop(side, **border),
                transforms.RandomHorizontalFlip(),
            ]
        )
        whole = lambda low, high, size, draws=draws: torch.tensor([int(draws.integers(low, high))])  # noqa: E731
        monkeypatch.setattr(torch, "randint", whole)
        monkeypatch.setattr(torch, "rand", lambda _, draws=draws: torch.tensor([draws.random()]))
        transform = RandomResizedCrop(train_crop_mode=mode)
        crop = transform.train_crop(shape, (side, side), seed=6, epoch=2, index=index)
        assert np.array_equal(apply_crop(image, crop), np.asarray(theirs(Image.fromarray(image))))


def test_a_long_strip_is_never_scaled_as_a_whole() -> None:
    """It would have 20 million pixels here; what is shown differs by rounding alone."""
    strip = np.random.default_rng(1).integers(100, 156, (2, 5000, 3), dtype=np.uint8)
    whole = np.asarray(Image.fromarray(strip).resize((160_000, 64), Image.Resampling.BICUBIC))
    for index in range(6):
        crop = RandomResizedCrop(train_crop_mode="simple", flip=0.0).train_crop(
            (2, 5000), (64, 64), seed=3, epoch=0, index=index
        )
        _, (height, width), _ = crop.scaled((2, 5000))
        assert (height, width) == (64, 64)
        top, left = round(crop.box[0] * 32), round(crop.box[1] * 32)
        padded = np.pad(whole, ((4, 4), (0, 0), (0, 0)), "reflect")
        expected = padded[top + 4 : top + 68, left : left + 64]
        assert np.abs(apply_crop(strip, crop).astype(int) - expected).max() <= 2
