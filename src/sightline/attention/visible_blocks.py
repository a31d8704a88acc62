"""Which keys a block of queries may see, as few rectangles of the grid as will do: what `tiles` loops over."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline.tokens.cache import cached_by_bytes
from sightline.tokens.grid import Grid

# Key rows that share one range of columns; finer steps cost more calls (docs/explanation/decisions/cpu-tiles.md).
_ROW_STEP = 8
_COLUMN_STEP = 4
# Rows and columns of a tile of queries, about: fewer hide more, more make better matrix products.
_TILE = 16


class Rectangle(NamedTuple):
    """Cells top <= y < bottom and left <= x < right of a grid."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.bottom - self.top, self.right - self.left

    @property
    def cells(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    def of(self, cells: Tensor) -> Tensor:
        """A view of these cells of [rows, cols, ...]."""
        return cells[self.top : self.bottom, self.left : self.right]


class QueryTile(NamedTuple):
    """Queries of a rectangle, and the rectangles that hold every key that any of them sees."""

    queries: Rectangle
    keys: tuple[Rectangle, ...]


def visible_blocks(visible: Tensor, grid: Grid) -> list[tuple[QueryTile, ...]]:
    """Cut a grid's queries into tiles, and cover what each tile sees.

    Args:
        visible: bool [heads, 2 rows - 1, 2 cols - 1] by displacement key - query, as `BiasTerm.relative`.
        grid: of the queries and keys.

    Returns:
        For each head, tiles that hold each cell once. Their rectangles do not overlap; together they hold all
        visible keys, and some that are not visible.
    """
    return [_cover_head(mask.tobytes(), Grid(*grid)) for mask in visible.numpy()]


# A tile's rectangles are small objects of Python, about 100 bytes each (measured).
@cached_by_bytes(4 << 20, lambda tiles, packed, *_: len(packed) + sum(200 + 100 * len(tile.keys) for tile in tiles))
def _cover_head(packed: bytes, grid: Grid) -> tuple[QueryTile, ...]:
    visible = np.frombuffer(packed, dtype=bool).reshape(2 * grid.rows - 1, 2 * grid.cols - 1)
    height, width = _even(grid.rows, _TILE), _even(grid.cols, _TILE)
    if visible.all():
        # Whole rows of queries: what they see is the whole grid, which needs no copy.
        height, width = _even(grid.rows, max(1, _TILE**2 // grid.cols)), grid.cols
    steps = [(row, min(row + _ROW_STEP, grid.rows)) for row in range(0, grid.rows, _ROW_STEP)]
    keys = np.arange(grid.cols)
    tiles = []
    for top in range(0, grid.rows, height):
        bottom = min(top + height, grid.rows)
        # A step of key rows sees what any displacement between its rows and the queries' rows sees.
        columns = [visible[low - bottom + grid.rows : high - top + grid.rows - 1].any(0) for low, high in steps]
        counts = [np.concatenate(([0], np.cumsum(column))) for column in columns]
        for left in range(0, grid.cols, width):
            right = min(left + width, grid.cols)
            first, last = keys - right + grid.cols, keys - left + grid.cols
            pieces: list[Rectangle] = []
            for (low, high), count in zip(steps, counts, strict=True):
                hit = np.flatnonzero(count[last] > count[first])
                if len(hit):
                    start = int(hit[0]) // _COLUMN_STEP * _COLUMN_STEP
                    stop = min(grid.cols, (int(hit[-1]) // _COLUMN_STEP + 1) * _COLUMN_STEP)
                    # One with the rectangle above it where their columns are the same.
                    if pieces and (pieces[-1].bottom, *pieces[-1][2:]) == (low, start, stop):
                        low = pieces.pop().top
                    pieces.append(Rectangle(low, high, start, stop))
            tiles.append(QueryTile(Rectangle(top, bottom, left, right), tuple(pieces)))
    return tuple(tiles)


def _even(side: int, step: int) -> int:
    """Cells of a tile where a side is cut into equal ones of about `step`: a remainder costs as many calls as one."""
    return -(-side // max(1, round(side / step)))


@cached_by_bytes(2 << 20, lambda order, *_: order.nbytes)
def query_order(tiles: tuple[QueryTile, ...], grid: Grid, prefix: int) -> Tensor:
    """The slot of each query in the order of the tiles, reversed inside each: int64 [prefix + cells]."""
    with torch.inference_mode(False):
        index = torch.arange(grid.cells).view(*grid) + prefix
        return torch.cat((torch.arange(prefix), *(tile.queries.of(index).flatten().flip(0) for tile in tiles)))


def fraction(tiles: list[tuple[QueryTile, ...]], grid: Grid) -> float:
    """The share of all (query, key) pairs of all heads that a covering computes."""
    pairs = sum(tile.queries.cells * sum(piece.cells for piece in tile.keys) for head in tiles for tile in head)
    return pairs / (len(tiles) * grid.cells**2)
