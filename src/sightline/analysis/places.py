"""Where in an image a query stands, said for grids of any size."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.errors import InputError
from sightline.tokens.grid import Grid

Place = tuple[float, float]
"""(y, x) from 0 to 1 of the image."""
CENTRE: Place = (0.5, 0.5)


def checked_place(what: str, place: object) -> Place:
    """A place as it was given.

    Raises:
        InputError: it is none.
    """
    sides = list(place) if isinstance(place, Sequence) and not isinstance(place, str) else []
    if len(sides) != 2 or not all(isinstance(one, int | float) and 0 <= one <= 1 for one in sides):
        raise InputError(f"{what} {place!r}: expected (y, x) from 0 to 1, as (0.5, 0.5)")
    return float(sides[0]), float(sides[1])


def cell_of(grid: Grid, place: Place) -> int:
    """The row-major index of the patch at a place; at the centre stands (rows // 2, cols // 2)."""
    rows, cols = grid.planar("a place in an image")
    row, col = (min(int(at * side), side - 1) for at, side in zip(place, (rows, cols), strict=True))
    return row * cols + col
