"""Augmentations: by value what torchvision, timm and the public code of DeiT III make of the same draws."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.augmentations import apply_augmentations, make_augmentations, rand_augment
from sightline.data.config import MixingConfig
from sightline.data.loader import read_example
from sightline.data.open import open_source
from sightline.data.rng import generator
from sightline.distributed.machine import import_timm

ALL = {"three_augment": {}, "colour_jitter": {}, "rand_augment": {}, "random_erasing": {"chance": 1.0}}


@pytest.fixture(scope="module")
def transforms() -> Any:
    """torchvision's, also where it was built for another torch."""
    import_timm()
    return importlib.import_module("torchvision.transforms")


def picture(height: int, width: int) -> np.ndarray:
    """Smooth colours with noise on them: edges, flat places, and values from 0 to 255."""
    draws = np.random.default_rng(height * 1000 + width)
    coarse = Image.fromarray(draws.integers(0, 256, (4, 5, 3), dtype=np.uint8)).resize((width, height))
    return np.clip(np.asarray(coarse) + draws.normal(0, 20, (height, width, 3)), 0, 255).astype(np.uint8)


IMAGES = [picture(23, 41), picture(48, 17), picture(32, 32)]


def one(name: str, **options: Any) -> Any:
    return make_augmentations({name: options})[0]


def twins(index: int) -> tuple[np.random.Generator, np.random.Generator]:
    return generator("test/1", 0, index), generator("test/1", 0, index)


def as_random(draws: np.random.Generator) -> SimpleNamespace:
    """Python's module `random`, as far as timm asks it, with these draws."""
    return SimpleNamespace(
        random=draws.random,
        uniform=draws.uniform,
        randint=lambda low, high: int(draws.integers(low, high + 1)),
        choice=lambda values: values[draws.integers(len(values))],
    )


def test_three_augment_is_that_of_timm(monkeypatch):
    """Its order of the three is another, and its grey an enhancement to nothing."""
    import_timm()
    timm = importlib.import_module("timm.data.auto_augment")
    policy = timm.auto_augment_policy_3a({"img_mean": (0, 0, 0)})
    for index in range(30):
        image, (draws, theirs) = IMAGES[index % 3], twins(index)
        which = (1, 0, 2)[theirs.integers(3)]
        monkeypatch.setattr(timm, "random", as_random(theirs))
        expected = timm.AutoAugment([policy[which]])
        monkeypatch.setattr(timm.random, "choice", lambda values: values[0])
        assert np.array_equal(one("three_augment")(image, draws), np.asarray(expected(Image.fromarray(image))))


@pytest.mark.parametrize("amounts", [(0.3, 0.3, 0.3, 0.0), (0.4, 0.0, 1.5, 0.1), (0.0, 0.0, 0.0, 0.5)])
def test_colour_jitter_is_that_of_torchvision(amounts, transforms, monkeypatch):
    names = ("brightness", "contrast", "saturation", "hue")
    ours, theirs = one("colour_jitter", **dict(zip(names, amounts, strict=True))), transforms.ColorJitter(*amounts)
    changed = 0
    for index in range(24):
        image, (draws, again) = IMAGES[index % 3], twins(index)

        def drawn(*ranges: Any, draws: np.random.Generator = again) -> Any:
            order = torch.tensor(draws.permutation(4))
            return order, *(None if one is None else draws.uniform(*one) for one in ranges)

        monkeypatch.setattr(transforms.ColorJitter, "get_params", staticmethod(drawn))
        found = ours(image, draws)
        assert np.array_equal(found, np.asarray(theirs(Image.fromarray(image))))
        changed += not np.array_equal(found, image)
    assert changed >= 20


@pytest.mark.parametrize("operation", range(14))
def test_each_operation_of_rand_augment_at_each_magnitude_and_sign(operation, transforms, monkeypatch):
    changed = 0
    for magnitude in range(rand_augment.BINS):
        theirs = transforms.RandAugment(num_ops=1, magnitude=magnitude)
        ours = one("rand_augment", operations=1, magnitude=magnitude)
        # Without black and white, so that there is contrast to be gained.
        for image in (IMAGES[0] // 2 + 40, IMAGES[1] // 3 + 90):
            for sign in (0, 1):
                drawn = [iter((operation, sign)) for _ in range(2)]
                monkeypatch.setattr(torch, "randint", lambda _, size, own=drawn[0]: torch.tensor([next(own)]))
                expected = np.asarray(theirs(Image.fromarray(image)))
                found = ours(image, SimpleNamespace(integers=lambda _, own=drawn[1]: next(own)))
                assert np.array_equal(found, expected), (magnitude, sign)
                changed += not np.array_equal(found, image)
    # All but the identity do something.
    assert (changed > 0) == (operation > 0)


@pytest.mark.parametrize(("fill", "mode"), [("pixel", "pixel"), ("mean", "const")])
def test_random_erasing_is_that_of_timm(fill, mode, monkeypatch):
    import_timm()
    timm = importlib.import_module("timm.data.random_erasing")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ours = one("random_erasing", chance=0.8, fill=fill)
    theirs = timm.RandomErasing(probability=0.8, mode=mode, device="cpu")
    whole = 0
    for index in range(60):
        image, (draws, again) = IMAGES[index % 3], twins(index)
        monkeypatch.setattr(timm, "random", as_random(again))
        if fill == "pixel":

            def noise(*told: Any, draws: np.random.Generator = again, **also: Any) -> torch.Tensor:
                _, rows, cols = told[2]
                return torch.from_numpy(draws.standard_normal((rows, cols, 3))).permute(2, 0, 1)

            monkeypatch.setattr(timm, "_get_pixels", noise)
        shift, scale = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))
        normal = (torch.from_numpy(image).permute(2, 0, 1) / 255.0 - shift) / scale
        expected = ((theirs(normal) * scale + shift) * 255).round().clamp(0, 255).to(torch.uint8)
        found = ours(image, draws)
        assert np.array_equal(found, expected.permute(1, 2, 0).numpy())
        whole += np.array_equal(found, image)
    assert 4 <= whole <= 22


@pytest.mark.parametrize("name", ALL)
def test_it_is_a_function_of_its_draws_and_leaves_what_it_is_given(name):
    for index, image in enumerate(IMAGES):
        image, kind = image.copy(), one(name, **ALL[name])
        image.flags.writeable = False
        draws, again = twins(index)
        first = kind(image, draws)
        assert (first.dtype, first.shape) == (np.uint8, image.shape)
        assert np.array_equal(first, kind(image, again))
    # Of an image of one pixel too.
    assert kind(np.zeros((1, 1, 3), np.uint8), draws).shape == (1, 1, 3)


def test_both_of_two_mixed_images_are_augmented():
    """Mixed wholly away, an image is its partner as that is shown by itself."""
    scenes, kinds, told = open_source("scenes:pairs"), make_augmentations(ALL), {"seed": 2, "epoch": 1}
    found = 0
    for index in range(10):
        how = {"mixing": MixingConfig(mixup=1e-9), "augment": kinds, **told}
        mixed: Any = read_example(scenes, "train", index, (16, 24), **how)[0]
        if mixed.target.share == 0:
            draws = generator("mixing/1", 2, index, epoch=1)
            draws.random(4)
            partner = int(draws.integers(2**62))
            image = scenes.example("train", partner, (16, 24), **told).image
            assert np.array_equal(mixed.image, apply_augmentations(image, kinds, index=partner, **told))
            found += 1
    assert found >= 2
