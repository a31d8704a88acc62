"""Preparations: value by value what the papers' code and timm make of an image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.crops import RandomResizedCrop
from sightline.data.sizes import View
from sightline.distributed.machine import import_timm
from sightline.evaluation.preparations.base import Whole, preparation_class
from sightline.models import ViTConfig

# Odd ones, either side longer, one that is enlarged, one far longer than wide, and one that rounds badly.
SIZES = [(375, 500), (501, 334), (97, 64), (71, 903), (224, 224), (333, 333), (130, 259)]


def photo(size, seed=0):
    """uint8 [height, width, 3]: waves and noise, so that every filter has something to do."""
    draws = np.random.default_rng(seed)
    y, x = np.mgrid[: size[0], : size[1]]
    waves = np.stack([np.sin(x / 7 + y / (5 + one)) for one in range(3)], axis=-1)
    return (127 + 80 * waves + draws.normal(0, 25, (*size, 3))).clip(0, 255).astype(np.uint8)


def shown(preparation, image, side):
    return preparation.cut(image, preparation.measured(image.shape[:2], (side, side)))


@pytest.mark.parametrize(
    ("crop", "filter_name"), [(0.9, "bicubic"), (0.875, "bilinear"), (1.0, "bicubic"), (0.95, "bicubic")]
)
def test_the_models_own_is_timms_pixel_by_pixel(crop, filter_name):
    transforms = import_timm().data
    config = ViTConfig(crop=crop, interpolation=filter_name)
    own = preparation_class("model").of(config)
    for number, size in enumerate(SIZES):
        image = photo(size, number)
        for side in (224, 80):
            theirs = transforms.create_transform(
                (3, side, side), is_training=False, interpolation=filter_name, crop_pct=crop, normalize=False
            )
            expected = theirs(Image.fromarray(image)).permute(1, 2, 0).numpy()
            assert np.array_equal(shown(own, image, side), expected), (size, side)


def lookhere(image, side):
    """As its code's data_prep.py, step by step, of torchvision's own transforms."""
    # First, where torchvision lacks operators.
    import_timm()
    from torchvision import transforms

    small = 256 if side == 224 else side
    pixels = torch.from_numpy(image).permute(2, 0, 1).float() / 255
    height, width = pixels.shape[1:]
    ratio = float(small) / min(height, width)
    pixels = transforms.Resize((int(height * ratio), int(width * ratio)), antialias=True)(pixels)
    return transforms.CenterCrop((side, side))(pixels).permute(1, 2, 0).numpy()


@pytest.mark.slow
def test_lookheres_own_by_value():
    paper = preparation_class("paper").of(ViTConfig(interpolation="bicubic"))
    for number, size in enumerate([*SIZES[:2], (71, 203), (154, 170), (319, 303)]):
        image = photo(size, number)
        for side in (224, 160):
            assert shown(paper, image, side) / 255 == pytest.approx(lookhere(image, side), abs=1e-6)
    # A pixel short by rounding, and a black line at the end, as in its code.
    assert paper.scaled((154, 170), 160) == (159, 176)
    assert not shown(paper, photo((154, 170)), 160)[-1].any()
    assert not shown(paper, photo((319, 303)), 160)[:, -1].any()


def test_navit_keeps_aspect_and_counts_patches():
    navit = preparation_class("navit")
    assert navit.view(224, 16) == View("tokens", 196)
    assert navit.view(View("native", 77), 16) == View("native", 77)
    assert preparation_class("model").view(224, 16) == 224


def test_navits_baseline_by_hand():
    """A marked image: what is seen of it, in its own pixels."""
    baseline = preparation_class("navit_vit_baseline")
    # Squares of 70 pixels: 80 by 80, whatever the aspect, of which 5 are left out on each side.
    crop = baseline.of(ViTConfig()).measured((160, 400), (70, 70))
    assert crop.box == pytest.approx((10, 25, 150, 375))
    # Those of ImageNet-A keep it: 80 by 200 of which the middle 60 by 60.
    crop = baseline.of(ViTConfig(), careful=True).measured((160, 400), (60, 60))
    assert crop.box == pytest.approx((20, 140, 140, 260))
    image = photo((160, 400))
    steps = np.asarray(Image.fromarray(image).resize((200, 80), Image.Resampling.BICUBIC))[10:70, 70:130]
    assert np.array_equal(shown(baseline.of(ViTConfig(), careful=True), image, 60), steps)
    steps = np.asarray(Image.fromarray(image).resize((80, 80), Image.Resampling.BICUBIC))[5:75, 5:75]
    assert np.array_equal(shown(baseline.of(ViTConfig()), image, 70), steps)


@pytest.mark.parametrize("name", ["model", "paper", "navit", "navit_vit_baseline"])
def test_every_preparation_shows_whole_images_at_their_own_aspect(name):
    """Where a view keeps the aspect nothing is cut off, whatever the preparation; and images cut before stay whole."""
    made = preparation_class(name).of(ViTConfig())
    whole = replace(made, crop=None)
    image = photo((40, 90))
    crop = whole.measured((40, 90), (32, 64))
    assert crop.box == (0, 0, 40, 90)
    assert whole.cut(image, crop).shape == (32, 64, 3)
    assert isinstance(made, RandomResizedCrop)
    assert Whole().measured((50, 50), (32, 32)).box == (0, 0, 50, 50)
