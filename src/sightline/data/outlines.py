"""Masks of objects from what annotations say of them: polygons, and lengths of runs, plain or as text.

Pixel for pixel as COCO's own tools decode them (`maskApi.c` of the COCO API): runs go down the columns, the first of
them says how many pixels are outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Boundaries are drawn on a grid so many times as fine.
_FINE = 5
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
    return _alternating(runs).reshape(size[::-1]).T


def mask_of_polygons(polygons: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """What lies in any of some polygons, bool [height, width].

    Args:
        polygons: each float64 [2 x points], (x, y) of its points one after the other, in pixels, as COCO writes it.
        size: (height, width) in pixels.
    """
    mask = np.zeros(size[0] * size[1], bool)
    for points in polygons:
        mask |= _filled(_crossings(points, size), len(mask))
    return mask.reshape(size[::-1]).T


def _alternating(runs: np.ndarray) -> np.ndarray:
    """Runs of False and True in turn, bool."""
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs)


def _filled(turns: np.ndarray, pixels: int) -> np.ndarray:
    """What lies behind an odd number of places, bool [pixels]; two at one place change nothing."""
    return _alternating(np.diff(np.sort(turns), prepend=0, append=pixels))


def _crossings(points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Where a polygon crosses the middles of the columns: numbers of pixels, down the columns."""
    height, width = size
    # As C converts to whole numbers: towards 0, also of what is negative.
    x, y = np.trunc(_FINE * points.reshape(-1, 2).T + 0.5).astype(np.int64)
    fine_x, fine_y = _boundary(x, y)
    step = np.flatnonzero(fine_x[1:] != fine_x[:-1])
    left = np.minimum(fine_x[step], fine_x[step + 1])
    column = (left + 0.5) / _FINE - 0.5
    row = (np.minimum(fine_y[step], fine_y[step + 1]) + 0.5) / _FINE - 0.5
    crosses = (np.floor(column) == column) & (column >= 0) & (column <= width - 1)
    row = np.ceil(row.clip(0, height))
    # A crossing below the last row is above the first of the next column, as in runs.
    return column[crosses].astype(np.int64) * height + row[crosses].astype(np.int64)


def _boundary(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every point of the fine grid on the sides of a polygon, side after side, from the first corner back to it."""
    to_x, to_y = np.roll(x, -1), np.roll(y, -1)
    wide, high = abs(to_x - x), abs(to_y - y)
    flat = wide >= high
    # A side is drawn from its lower end along its longer axis, whichever way it is gone.
    back = np.where(flat, x > to_x, y > to_y)
    from_x, from_y = np.where(back, to_x, x), np.where(back, to_y, y)
    length = np.where(flat, wide, high)
    rise = np.where(flat, np.where(back, y - to_y, to_y - y), np.where(back, x - to_x, to_x - x))
    slope = rise / np.maximum(length, 1)
    side = np.repeat(np.arange(len(x)), length + 1)
    along = np.arange(len(side)) - np.repeat(np.cumsum(length + 1) - (length + 1), length + 1)
    along = np.where(back[side], length[side] - along, along)
    base = np.where(flat, from_y, from_x)[side]
    across = np.trunc(base + slope[side] * along + 0.5).astype(np.int64)
    straight = along + np.where(flat, from_x, from_y)[side]
    return np.where(flat[side], straight, across), np.where(flat[side], across, straight)
