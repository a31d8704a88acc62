"""The shape of an image in patches. No torch here."""

from __future__ import annotations

from typing import NamedTuple

from sightline.errors import InputError


class Grid(NamedTuple):
    """Rows and columns of patches, row-major, y before x; the sizes may be symbolic while exporting."""

    rows: int
    cols: int

    @property
    def cells(self) -> int:
        """The number of patches, rows * cols."""
        return self.rows * self.cols

    @classmethod
    def checked(cls, value: Grid | tuple[int, int] | int, what: str = "grid") -> Grid:
        """A grid from (rows, cols) or one side of a square.

        Raises:
            InputError: not one or two whole numbers of at least 1.
        """
        if isinstance(value, bool) or not isinstance(value, int | tuple | list):
            raise InputError(f"{what} {value!r}: expected (rows, cols) or one whole number")
        sides = (value, value) if isinstance(value, int) else tuple(value)
        if len(sides) != 2 or not all(isinstance(side, int) and not isinstance(side, bool) for side in sides):
            raise InputError(f"{what} {value!r}: expected (rows, cols), two whole numbers")
        if min(sides) < 1:
            raise InputError(f"{what} {value!r}: rows and cols must be at least 1")
        return cls(*sides)
