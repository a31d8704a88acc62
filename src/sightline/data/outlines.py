"""Outlines of objects as annotations say them, polygons or lengths of runs, plain or as text; held in columns, since
there may be a million and workers get a copy.

Masks are pixel for pixel as pycocotools decodes them: runs go down the columns, the first of them says how many pixels
are outside.
"""

from __future__ import annotations

import itertools
from array import array
from typing import Any

import numpy as np

_POLYGONS, _RUNS = 1, 2
_LEAST_NUMBERS = 6
# How far outside of its image a corner may be, in pixels, at least.
_REACH = 2**16
# Digits of a number in a text of runs: 35 bits, more than any image has pixels.
_MOST_DIGITS = 7


class OutlineList:
    """Outlines in the order in which they were added; each has parts (polygons, or the runs), each part numbers."""

    def __init__(self) -> None:
        self._kind, self._parts, self._starts = bytearray(), array("q", [0]), array("q", [0])
        self._numbers = array("d")

    def add(self, said: Any, size: tuple[int, int]) -> int:
        """Take the outline of an object in an image of (height, width); None and [] say that it is not known.

        Returns:
            How many polygons of fewer than three points were left out. So is a last number without a second one.

        Raises:
            ValueError: it is no outline, or not one in such an image; nothing is taken.
        """
        kind, parts, short = 0, [], 0
        try:
            if isinstance(said, dict) and said:
                kind, parts = _RUNS, [_runs(said, size)]
            elif said:
                kind, parts = _POLYGONS, _polygons(said, size)
                short = len(said) - len(parts)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"its outline: {error}") from None
        self._kind.append(kind)
        for part in parts:
            self._numbers.extend(part)
            self._starts.append(len(self._numbers))
        self._parts.append(len(self._starts) - 1)
        return short

    def known(self, outline: int) -> bool:
        """Whether an outline is said."""
        return self._kind[outline] != 0

    def mask(self, outline: int, size: tuple[int, int]) -> np.ndarray:
        """What it encloses in its image of (height, width): bool [height, width]."""
        from pycocotools import mask as coco_masks

        starts = self._starts[self._parts[outline] : self._parts[outline + 1] + 1]
        parts = [self._numbers[start:end].tolist() for start, end in itertools.pairwise(starts)]
        if not parts:
            return np.zeros(size, bool)
        if self._kind[outline] == _POLYGONS:
            encoded: Any = coco_masks.frPyObjects(parts, *size)  # pyright: ignore[reportArgumentType, reportCallIssue]
            drawn: Any = coco_masks.merge(encoded)
            parts = [runs_of_text(drawn["counts"].decode())]
        runs = np.array(parts[0], np.int64)
        return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(size[::-1]).T


def _polygons(said: Any, size: tuple[int, int]) -> list[array[float]]:
    """(x, y) of the corners of each polygon, one after the other, in pixels; without those of fewer than three."""
    # Far outside there is nothing to draw, and no end of it; what is near is cut off, as COCO's tools do.
    reach, parts = max(2 * max(size), _REACH), []
    for polygon in said:
        if not isinstance(polygon, list):
            raise ValueError(f"{str(polygon)[:40]!r} (expected: a list of x, y, ...)")
        if len(polygon) >= _LEAST_NUMBERS:
            part = array("d", polygon[: len(polygon) // 2 * 2])
            if far := [corner for corner in part if not abs(corner) <= reach]:
                raise ValueError(f"a corner at {far[0]} (expected: within the image)")
            parts.append(part)
    return parts


def _runs(said: dict[str, Any], size: tuple[int, int]) -> list[int]:
    """The lengths of runs, which fill the image."""
    own, counts = said.get("size"), said.get("counts")
    if not (isinstance(own, list) and len(own) == 2 and all(type(side) is int and side > 0 for side in own)):
        raise ValueError(f"size {str(own)[:40]} (expected: height, width)")
    runs = runs_of_text(counts) if isinstance(counts, str) else counts
    if not isinstance(runs, list) or not all(type(run) is int for run in runs):
        raise ValueError(f"counts {str(counts)[:40]} (expected: whole numbers, or text)")
    if tuple(own) != size:
        raise ValueError(f"runs of {own[0]} x {own[1]} pixels (expected: {size[0]} x {size[1]}, as its image)")
    if min(runs, default=0) < 0:
        raise ValueError(f"a run of {min(runs)} pixels")
    if sum(runs) != own[0] * own[1]:
        expected = f"{own[0]} x {own[1]} = {own[0] * own[1]}"
        raise ValueError(f"its runs add up to {sum(runs)} pixels (expected: {expected})")
    return runs


def runs_of_text(text: str) -> list[int]:
    """The lengths of runs from COCO's text of them: six bits a letter from `0` on, the lowest five of a number first, a
    sixth that says whether it goes on; from the fourth number on, each is said less the last but one.

    Raises:
        ValueError: it is no such text.
    """
    if not text:
        return []
    letters = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(letters < 32)
    if letters.min() < 0 or letters.max() > 63:
        raise ValueError("a letter that no run is written with")
    if letters[-1] >= 32:
        raise ValueError("its last run is cut off")
    digits = np.diff(ends, prepend=-1)
    if digits.max() > _MOST_DIGITS:
        raise ValueError("a run longer than any image")
    starts = ends + 1 - digits
    place = np.arange(len(letters)) - np.repeat(starts, digits)
    # The highest bit of the last digit is the sign.
    numbers = np.add.reduceat((letters & 31) << 5 * place, starts) - ((letters[ends] >> 4 & 1) << 5 * digits)
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers.tolist()
