"""The shape of an image in patches. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sightline.errors import InputError


class Grid(tuple[int, ...]):
    """Its sides in patches, row-major: (rows, cols), or (frames, rows, cols), as many as there are axes; y before x.

    The sizes may be symbolic while exporting.
    """

    __slots__ = ()

    def __new__(cls, *sides: int) -> Grid:
        # From one iterable too, as `dataclasses.asdict` copies tuples.
        return super().__new__(cls, sides[0] if len(sides) == 1 and isinstance(sides[0], Iterable) else sides)

    def __getnewargs__(self) -> tuple[int, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"Grid({', '.join(map(str, self))})"

    @property
    def rows(self) -> int:
        """The last side but one."""
        return self[-2]

    @property
    def cols(self) -> int:
        """The last side."""
        return self[-1]

    @property
    def cells(self) -> int:
        """The number of patches, the product of the sides."""
        cells = 1
        for side in self:
            cells = side * cells
        return cells

    def planar(self, what: str) -> Grid:
        """Itself, for `what` knows rows and columns alone.

        Raises:
            InputError: there are more axes.
        """
        if len(self) != 2:
            raise InputError(f"{what}: a grid of {len(self)} axes, {self!r} (expected 2: rows and columns)")
        return self

    @classmethod
    def checked(cls, value: Sequence[int] | int, what: str = "grid", axes: int | None = 2) -> Grid:
        """A grid from (rows, cols), or one side of a square; with other `axes` from as many sides, None for any number.

        Raises:
            InputError: not so many whole numbers of at least 1.
        """
        if isinstance(value, bool) or not isinstance(value, int | tuple | list):
            raise InputError(f"{what} {value!r}: expected (rows, cols) or one whole number")
        sides = (value,) * (axes or 2) if isinstance(value, int) else tuple(value)
        if len(sides) != (axes or max(len(sides), 1)) or not all(type(side) is int for side in sides):
            expected = "(rows, cols), two whole numbers" if axes == 2 else f"{axes or 'some'} whole numbers"
            raise InputError(f"{what} {value!r}: expected {expected}")
        if min(sides) < 1:
            raise InputError(f"{what} {value!r}: rows and cols must be at least 1")
        return cls(*sides)
