"""Sizes and token drops of training: the paper's distributions, from an image's own draws."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest

from sightline.data.sizes import BetaDrop, Distribution, ResolutionSampling, ScheduledDrop, SizeSampler, grid_at


def sides(count: int = 20_000, **options) -> np.ndarray:
    generator = np.random.default_rng(0)
    sampling = ResolutionSampling(**options)
    return np.array([sampling.draw(generator) for _ in range(count)])


@pytest.mark.parametrize("distribution", get_args(Distribution))
@pytest.mark.parametrize("measure", ["side", "area"])
def test_resolutions_are_of_the_distribution(distribution, measure):
    """Against the density written out, over 64 to 384 pixels."""
    found = sides(distribution=distribution, measure=measure)
    assert 64 <= found.min() < 75
    assert 370 < found.max() <= 384
    u = np.linspace(-1, 1, 20_001)
    bias = {"uniform": None, "normal": 0.0, "low": -0.5, "high": 0.5}[distribution]
    density = np.ones_like(u) if bias is None else np.exp(-((u - bias) ** 2) / 2)
    share = (u + 1) / 2
    expected = 64 + share * 320 if measure == "side" else np.sqrt(64**2 + share * (384**2 - 64**2))
    mean = (expected * density).sum() / density.sum()
    assert found.mean() == pytest.approx(mean, abs=4 * found.std() / math.sqrt(len(found)))


def test_the_aspect_is_kept():
    assert grid_at((480, 640), 224, 16) == (12, 16)
    assert grid_at((640, 480), 224, 16) == (16, 12)
    assert grid_at((100, 100), 224, 16) == (14, 14)
    assert grid_at((1, 4000), 224, 16) == (1, 885)
    assert grid_at((480, 640), 224, 16, 100) == (8, 11)


@pytest.mark.parametrize(("mean", "most"), [(0.5, 0.8), (0.2, 0.5), (0.7, 1.0)])
def test_beta_has_its_mean_its_bound_and_its_variance(mean, most):
    generator = np.random.default_rng(0)
    drop = BetaDrop(mean, most)
    rates = np.array([drop.rate(generator, 100, 0) for _ in range(20_000)])
    u = rates / most
    assert (rates.min() >= 0, rates.max() <= most) == (True, True)
    assert u.mean() == pytest.approx(mean / most, abs=0.01)
    assert u.var() == pytest.approx(0.3 * (mean / most) * (1 - mean / most), rel=0.05)


def test_a_schedule_falls_or_rises_as_the_sigmoid():
    generator = np.random.default_rng(0)
    for width in (-500.0, 500.0):
        drop = ScheduledDrop(0.2, 0.8, middle=1000.0, width=width)
        for seen in (0, 700, 1000, 1600, 10**9):
            z = (seen - 1000) / width
            expected = 0.2 + 0.6 / (1 + math.exp(-z)) if abs(z) < 700 else (0.8 if z > 0 else 0.2)
            assert drop.rate(generator, 10, seen) == pytest.approx(expected, abs=1e-12)


def test_how_an_image_is_shown_hangs_on_nothing_but_itself():
    sampler = SizeSampler(16, ResolutionSampling(64, 256), BetaDrop(), max_tokens=200)

    def shown(index, **changes):
        grid, kept = sampler.sample((480, 640), **{"seed": 3, "index": index, "epoch": 1, **changes})
        return grid, tuple(kept)

    forwards = [shown(index) for index in range(20)]
    assert forwards == [shown(index) for index in reversed(range(20))][::-1]
    assert len({grid for grid, _ in forwards}) > 5
    for change in ({"seed": 4}, {"epoch": 2}):
        assert forwards != [shown(index, **change) for index in range(20)]
    for grid, kept in forwards:
        assert grid.cells <= 200
        assert 1 <= len(kept) <= grid.cells
