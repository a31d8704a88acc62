"""The outlines of all objects of a data set, in columns: there may be a million."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from sightline.data.outlines import check_runs, mask_of_polygons, mask_of_runs, runs_of_text

_NONE, _POLYGONS, _RUNS = 0, 1, 2
_LEAST_NUMBERS = 6
# How far outside of its image a corner may be, in pixels, at least.
_REACH = 2**16


class OutlineList:
    """Outlines in the order in which they were added; each has parts (polygons, or the runs), each part numbers.

    Attributes:
        too_short: int64 [outlines] as an array, of each how many polygons have too few corners, and are left out.
    """

    def __init__(self) -> None:
        self._kind, self.too_short = bytearray(), array("q")
        # Where the parts of each outline begin, and the numbers of each part.
        self._parts, self._starts, self._numbers = array("q", [0]), array("q", [0]), array("d")
        # (outline, height, width) of those that say a size.
        self._sizes: list[tuple[int, int, int]] = []

    def add(self, said: Any) -> str | None:
        """Take an outline as COCO says it: polygons, or runs as numbers or text; None and [] say that it is not known.

        A polygon of fewer than three points is left out, and so is a last number without a second one.

        Returns:
            Why it is none, or None. It is then held as not known.
        """
        starts, fault = len(self._starts), None
        self.too_short.append(0)
        try:
            kind = self._taken(said)
        except (ValueError, TypeError, OverflowError) as error:
            kind, fault = _NONE, str(error)
            del self._starts[starts:], self._numbers[self._starts[starts - 1] :]
        self._kind.append(kind)
        self._parts.append(len(self._starts) - 1)
        return fault

    def _taken(self, said: Any) -> int:
        if not said:
            return _NONE
        if isinstance(said, list):
            for polygon in said:
                self._add_polygon(polygon)
            return _POLYGONS
        if not isinstance(said, dict) or "counts" not in said:
            raise ValueError(f"{str(said)[:40]!r} (expected: polygons, or size and counts)")
        size, counts = said.get("size"), said["counts"]
        if not (isinstance(size, list) and len(size) == 2 and all(type(side) is int and side > 0 for side in size)):
            raise ValueError(f"size {str(size)[:40]} (expected: height, width)")
        if isinstance(counts, str):
            runs = runs_of_text(counts)
        elif isinstance(counts, list) and all(type(run) is int for run in counts):
            runs = np.array(counts, np.int64)
        else:
            raise ValueError(f"counts {str(counts)[:40]} (expected: whole numbers, or text)")
        check_runs(runs, (size[0], size[1]))
        self._sizes.append((len(self._kind), size[0], size[1]))
        self._add_part(runs.tolist())
        return _RUNS

    def _add_polygon(self, polygon: Any) -> None:
        if not isinstance(polygon, list):
            raise ValueError(f"{str(polygon)[:40]!r} (expected: a list of x, y, ...)")
        if len(polygon) < _LEAST_NUMBERS:
            self.too_short[-1] += 1
        else:
            self._add_part(polygon[: len(polygon) // 2 * 2])

    def _add_part(self, numbers: list[float]) -> None:
        self._numbers.extend(numbers)
        self._starts.append(len(self._numbers))

    def faults(self, sizes: np.ndarray) -> Iterator[tuple[int, str]]:
        """(outline, what is wrong) of those that are of no image of such a size; at most one thing of each kind.

        Args:
            sizes: float64 [outlines, 2], (height, width) of the image of each.
        """
        starts = np.frombuffer(self._starts, np.int64)
        outline_of_part = np.repeat(np.arange(len(self._kind)), np.diff(np.frombuffer(self._parts, np.int64)))
        outline_of = np.repeat(outline_of_part, np.diff(starts))
        numbers, kind = np.frombuffer(self._numbers), np.frombuffer(self._kind, np.uint8)
        # Far outside there is nothing to draw, and no end of it; what is near is cut off, as COCO's tools do.
        reach = np.maximum(2 * sizes.max(axis=1, initial=0), _REACH)
        far = (kind[outline_of] == _POLYGONS) & ~(abs(numbers) <= reach[outline_of])
        for at in np.flatnonzero(far).tolist():
            yield int(outline_of[at]), f"a corner at {numbers[at]} (expected: within the image)"
        for outline, height, width in self._sizes:
            if (height, width) != tuple(sizes[outline]):
                expected = " x ".join(f"{side:.0f}" for side in sizes[outline])
                yield outline, f"runs of {height} x {width} pixels (expected: {expected}, as its image)"

    def known(self, outline: int) -> bool:
        """Whether an outline is said."""
        return self._kind[outline] != _NONE

    def mask(self, outline: int, size: tuple[int, int]) -> np.ndarray:
        """What it encloses in its image, whose size is (height, width): bool [height, width]."""
        parts = range(self._parts[outline], self._parts[outline + 1])
        numbers = [np.frombuffer(self._numbers)[self._starts[part] : self._starts[part + 1]] for part in parts]
        if self._kind[outline] == _RUNS:
            return mask_of_runs(numbers[0].astype(np.int64), size)
        return mask_of_polygons(numbers, size)
