"""Outlines of objects: which are taken, and that runs are those of pycocotools; what it draws is not tested here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_masks

from sightline.data.outlines import OutlineList, runs_of_text

SQUARE = [1.0, 1, 5, 1, 5, 4, 1, 4]


def mask(outline: Any, size: tuple[int, int]) -> np.ndarray:
    outlines = OutlineList()
    outlines.add(outline, size)
    found = outlines.mask(0, size)
    assert (found.dtype, found.shape) == (bool, size)
    return found


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (40, 300)])
def test_runs_are_read_as_pycocotools_writes_them(size):
    for seed, share in enumerate((0, 0.03, 0.5, 0.97, 1)):
        drawn = np.random.default_rng(seed).random(size) < share
        text = coco_masks.encode(np.asfortranarray(drawn.astype(np.uint8)))["counts"].decode()
        for counts in (text, runs_of_text(text)):
            assert (mask({"size": list(size), "counts": counts}, size) == drawn).all()


def test_several_polygons_are_what_lies_in_any():
    """Within one the number of crossings counts."""
    assert mask([SQUARE], (10, 10)).sum() == 12
    assert not mask([SQUARE + SQUARE], (10, 10)).any()
    assert (mask([SQUARE, SQUARE], (10, 10)) == mask([SQUARE], (10, 10))).all()


@pytest.mark.parametrize("outline", [
    [SQUARE, "x"], [SQUARE, [1, 2, "3", 4, 5, 6]], [[1, 2, 10**400, 4, 5, 6]], 7,
    [[0, 0, 1e5, 0, 50, 5]], [[0, 0, float("nan"), 0, 9, 9]],
    {"size": [6, 7]}, {"size": [6], "counts": [42]}, {"size": [7, 6], "counts": [42]},
    *({"size": [6, 7], "counts": counts}
      for counts in ([1, 2], [], [43, -1], [1.5, 40.5], [2**70], "5P", "1\x1f", "1ü", "q1")),
])  # fmt: skip
def test_what_is_no_outline_of_an_image_is_refused_without_a_trace(outline):
    outlines = OutlineList()
    outlines.add([SQUARE], (6, 7))
    with pytest.raises(ValueError, match="its outline: "):
        outlines.add(outline, (6, 7))
    assert outlines.add([SQUARE[:4], SQUARE], (6, 7)) == 1
    assert outlines.add([], (6, 7)) == 0
    assert (outlines.mask(0, (6, 7)) == outlines.mask(1, (6, 7))).all()
    assert outlines.mask(0, (6, 7)).sum() == 12
    assert [outlines.known(number) for number in range(3)] == [True, True, False]
