"""What lies at boundaries, against what it is by definition: mask by mask, as the paper's authors erode it."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from sightline.data.targets import IGNORE
from sightline.metrics.boundary import boundary_mask
from tests.metrics.test_iou import measured, values

SIZES = [(32, 32), (48, 80), (120, 77)]


def eroded(mask: np.ndarray, times: int) -> np.ndarray:
    """Pixels all of whose 3 x 3 neighbours are in the mask, so many times over; nothing is beyond the image."""
    for _ in range(times):
        rows, cols = mask.shape
        beyond = np.pad(mask, 1)
        parts = [beyond[y : y + rows, x : x + cols] for y, x in product(range(3), repeat=2)]
        mask = np.logical_and.reduce(parts)
    return mask


def drawn(draw: np.random.Generator, size: tuple[int, int], classes: list[int]) -> np.ndarray:
    """A map of rectangles over each other."""
    labels = np.full(size, classes[0], np.uint8)
    for _ in range(int(draw.integers(0, 7))):
        y, x = (np.sort(draw.integers(0, side + 1, 2)) for side in size)
        labels[y[0] : y[1], x[0] : x[1]] = draw.choice(classes)
    return labels


@pytest.mark.parametrize("seed", range(20))
def test_bands_are_masks_less_what_is_left_of_them(seed: int) -> None:
    draw = np.random.default_rng(seed)
    size, width = (int(draw.integers(1, 40)), int(draw.integers(1, 40))), int(draw.integers(1, 7))
    labels = drawn(draw, size, [0, 3, 7, IGNORE])
    expected = np.zeros(size, bool)
    for one in np.unique(labels):
        expected |= (labels == one) & ~eroded(labels == one, width)
    assert (boundary_mask(labels, width) == expected).all()


@pytest.mark.parametrize("seed", range(12))
def test_boundary_iou_is_that_of_the_paper(seed: int) -> None:
    """Of each class G, P: |(Gd and G) and (Pd and P)| / |(Gd and G) or (Pd and P)|, counted over the whole split."""
    draw, classes = np.random.default_rng(seed), 5
    sizes = [SIZES[int(one)] for one in draw.integers(0, 3, 4)]
    labels = [drawn(draw, size, [0, 1, 3, IGNORE]) for size in sizes]
    answers = [np.where(draw.random(one.shape) < 0.02, 2, one) for one in labels]
    answers = [np.roll(np.where(one == IGNORE, 1, one), 2, axis=1).astype(np.uint8) for one in answers]
    found = values(measured(answers, labels, classes))
    ious = {}
    for one in range(classes):
        both = either = 0
        for true, said in zip(labels, answers, strict=True):
            width = max(1, round(0.02 * math.sqrt(true.shape[0] ** 2 + true.shape[1] ** 2)))
            masks = [true == one, (said == one) & (true != IGNORE)]
            true_band, said_band = (mask & ~eroded(mask, width) for mask in masks)
            both, either = both + (true_band & said_band).sum(), either + (true_band | said_band).sum()
        if either:
            ious[one] = both / either
    assert found["boundary_iou",] == pytest.approx(np.mean(list(ious.values())), abs=1e-9)
    names = ["background", "1", "2", "3", "4"]
    assert {key[1]: value for key, value in found.items() if key[0] == "boundary_iou" and len(key) > 1} == (
        pytest.approx({names[one]: value for one, value in ious.items()}, abs=1e-9)
    )
    assert 0 < found["boundary_iou",] < found["miou",] < 1
