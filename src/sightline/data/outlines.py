"""Outlines of objects as annotations say them, polygons or lengths of runs, plain or as COCO's text; in columns, since
there may be a million and workers get a copy. Masks are pixel for pixel those of pycocotools."""

from __future__ import annotations

import itertools
from array import array
from typing import Any

import numpy as np

_POLYGONS, _RUNS = 1, 2
# x, y of three points.
_LEAST_NUMBERS = 6
# How far outside of its image a corner may be, in pixels, at least: far outside there is nothing to draw.
_REACH = 2**16


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
        kind = _RUNS if isinstance(said, dict) and said else _POLYGONS if said else 0
        try:
            parts = [_runs(said, size)] if kind == _RUNS else [_polygon(one, size) for one in said or ()]
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"its outline: {error}") from None
        taken = [part for part in parts if kind == _RUNS or len(part) >= _LEAST_NUMBERS]
        for part in taken:
            self._numbers.extend(part)
            self._starts.append(len(self._numbers))
        self._parts.append(len(self._starts) - 1)
        self._kind.append(kind)
        return len(parts) - len(taken)

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
        if self._kind[outline] == _RUNS:
            runs = np.array(parts[0], np.int64)
            return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(size[::-1]).T
        encoded: Any = coco_masks.frPyObjects(parts, *size)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return coco_masks.decode(coco_masks.merge(encoded)).astype(bool)


def _polygon(said: Any, size: tuple[int, int]) -> array[float]:
    """(x, y) of the corners, one after the other, in pixels."""
    if not isinstance(said, list):
        raise ValueError(f"{str(said)[:40]!r} (expected: a list of x, y, ...)")
    part, reach = array("d", said[: len(said) // 2 * 2]), max(2 * max(size), _REACH)
    if len(part) >= _LEAST_NUMBERS and (far := [corner for corner in part if not abs(corner) <= reach]):
        raise ValueError(f"a corner at {far[0]} (expected: within the image)")
    return part


def _runs(said: dict[str, Any], size: tuple[int, int]) -> list[int]:
    """The lengths of runs down the columns, the first of them outside, which fill the image."""
    own, counts = said.get("size"), said.get("counts")
    if own != list(size):
        raise ValueError(f"size {str(own)[:40]} (expected: {list(size)}, height and width of its image)")
    runs = runs_of_text(counts) if isinstance(counts, str) else counts
    if not isinstance(runs, list) or not all(type(run) is int and run >= 0 for run in runs):
        raise ValueError(f"counts {str(counts)[:40]} (expected: whole numbers, or text)")
    if sum(runs) != size[0] * size[1]:
        expected = f"{size[0]} x {size[1]} = {size[0] * size[1]}"
        raise ValueError(f"its runs add up to {sum(runs)} pixels (expected: {expected})")
    return runs


def runs_of_text(text: str) -> list[int]:
    """The lengths of runs from COCO's text of them: six bits a letter from `0` on, the lowest five of a number first, a
    sixth that says whether it goes on; from the fourth number on, each is said less the last but one.

    Raises:
        ValueError: it is no such text.
    """
    runs, number, bits = list[int](), 0, 0
    for letter in text.encode():
        digit = letter - ord("0")
        if not 0 <= digit < 64:
            raise ValueError(f"counts {text[:40]!r} (expected: letters that runs are written with)")
        number |= (digit & 31) << bits
        bits += 5
        if digit < 32:
            # The highest bit of the last digit is the sign.
            number -= (digit >> 4 & 1) << bits
            runs.append(number + (runs[-2] if len(runs) > 2 else 0))
            number = bits = 0
    if bits:
        raise ValueError(f"counts {text[:40]!r} (expected: no last run that is cut off)")
    return runs
