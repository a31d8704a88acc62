"""Masks of objects from what annotations say of them: polygons, and lengths of runs, plain or as text.

Pixel for pixel as pycocotools decodes them: runs go down the columns, the first of them says how many pixels are
outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# Digits of a number in a text of runs: 35 bits, more than any image has pixels.
_MOST_DIGITS = 7


def runs_of_text(text: str) -> np.ndarray:
    """The lengths of runs, int64, from COCO's text of them: six bits a letter from `0` on, the lowest five of a number
    first, a sixth that says whether it goes on; from the fourth number on, each is said less the last but one.

    Raises:
        ValueError: it is no such text.
    """
    letters = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8).astype(np.int64) - 48
    if letters.size == 0:
        return letters
    if letters.min() < 0 or letters.max() > 63:
        raise ValueError("a letter that no run is written with")
    ends = np.flatnonzero(letters < 32)
    if len(ends) == 0 or ends[-1] != len(letters) - 1:
        raise ValueError("its last run is cut off")
    starts = np.concatenate([[0], ends[:-1] + 1])
    digits = ends - starts + 1
    if digits.max() > _MOST_DIGITS:
        raise ValueError("a run longer than any image")
    place = np.arange(len(letters)) - np.repeat(starts, digits)
    numbers = np.add.reduceat((letters & 31) << 5 * place, starts)
    # The highest bit of the last digit is the sign.
    numbers -= (letters[ends] >> 4 & 1) << 5 * digits
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers


def check_runs(runs: np.ndarray, size: tuple[int, int]) -> None:
    """Raise ValueError unless lengths of runs fill an image of (height, width)."""
    height, width = size
    if len(runs) and runs.min() < 0:
        raise ValueError(f"a run of {int(runs.min())} pixels")
    # In Python's own numbers: what a file says may be more than 64 bits hold.
    total = sum(runs.tolist())
    if total != height * width:
        raise ValueError(f"its runs add up to {total} pixels (expected: {height} x {width} = {height * width})")


def mask_of_runs(runs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The mask whose runs have these lengths, bool [height, width]; they must fill `size`, as `check_runs` says."""
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(size[::-1]).T


def mask_of_polygons(polygons: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """What lies in any of some polygons, bool [height, width].

    Args:
        polygons: each float64 [2 x points], (x, y) of its points one after the other, in pixels, as COCO writes it.
        size: (height, width) in pixels.
    """
    from pycocotools import mask as coco_masks

    if not polygons:
        return np.zeros(size, bool)
    drawn: Any = coco_masks.merge(coco_masks.frPyObjects([points.tolist() for points in polygons], *size))
    return mask_of_runs(runs_of_text(drawn["counts"].decode()), size)
