"""Which keys a block of queries may see, as few rectangles of the grid as will do: what sparse back ends loop over, and
how they read tokens and tables by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline.tokens.cache import cached_by_bytes
from sightline.tokens.grid import Grid

# Key rows that share one range of columns; finer steps hide more and cost more calls (docs/LOG.md).
_ROW_STEP = 8
_COLUMN_STEP = 4
# Rows and columns of a tile of queries, about: fewer hide more, more make better matrix products (docs/LOG.md).
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


class QueryTile(NamedTuple):
    """Queries of a rectangle, and the rectangles that hold every key that any of them sees."""

    queries: Rectangle
    keys: tuple[Rectangle, ...]


class Slots(NamedTuple):
    """The slots of an image whose queries are cut into tiles: its prefix tokens, then the cells of its grid."""

    grid: Grid
    prefix: int

    def tiles(self, tiles: tuple[QueryTile, ...]) -> Iterator[tuple[QueryTile | None, slice]]:
        """Each tile and where its queries stand in `query_order`; None for the prefix tokens', which see everything."""
        if self.prefix:
            yield None, slice(0, self.prefix)
        places = self.pieces(tile.queries for tile in tiles)
        yield from ((tile, where) for tile, (_, where) in zip(tiles, places, strict=True))

    def pieces(self, rectangles: Iterable[Rectangle]) -> Iterator[tuple[Rectangle, slice]]:
        """Rectangles, and where their cells stand one rectangle after the other behind the prefix tokens."""
        start = self.prefix
        for piece in rectangles:
            yield piece, slice(start, start + piece.cells)
            start += piece.cells

    def gather(self, tokens: Tensor, tile: QueryTile | None) -> Tensor:
        """Of [..., slots, head_dim] the prefix tokens and those that a tile sees: [..., n, head_dim]."""
        if tile is None or self._sees_all(tile):
            return tokens
        cells = tokens[..., self.prefix :, :].unflatten(-2, self.grid)
        seen = [cells[..., top:bottom, left:right, :].flatten(-3, -2) for top, bottom, left, right in tile.keys]
        return torch.cat((tokens[..., : self.prefix, :], *seen), dim=-2)

    def scatter(self, total: Tensor, tile: QueryTile | None, part: Tensor) -> None:
        """Add to `total` [..., slots, head_dim] the gradient [..., n, head_dim] of what `gather` gave."""
        if tile is None or self._sees_all(tile):
            total += part
            return
        total[..., : self.prefix, :] += part[..., : self.prefix, :]
        cells = total[..., self.prefix :, :].unflatten(-2, self.grid)
        for (top, bottom, left, right), where in self.pieces(tile.keys):
            cells[..., top:bottom, left:right, :] += part[..., where, :].unflatten(-2, (bottom - top, right - left))

    def window(self, table: Tensor, queries: Rectangle, keys: Rectangle) -> Tensor:
        """The entries of a table of displacements that queries, reversed as in `query_order`, read of keys.

        Args:
            table: [..., 2 rows - 1, 2 cols - 1], by displacement key - query.

        Returns:
            A view of it: [..., rows and columns of the queries, rows and columns of the keys].
        """
        # With the queries in reverse, a step of either query or key is a step in the table in the same direction.
        strides = table.stride()
        start = (keys.top - queries.bottom + self.grid.rows) * strides[-2]
        start += (keys.left - queries.right + self.grid.cols) * strides[-1]
        shape = (*table.shape[:-2], *queries.shape, *keys.shape)
        return table.as_strided(shape, (*strides, *strides[-2:]), table.storage_offset() + start)

    def _sees_all(self, tile: QueryTile) -> bool:
        return tile.keys == (Rectangle(0, self.grid.rows, 0, self.grid.cols),)


def visible_blocks(visible: Tensor, grid: Grid, open_queries: int = _TILE**2) -> list[tuple[QueryTile, ...]]:
    """Cut a grid's queries into tiles, and cover what each tile sees.

    Args:
        visible: bool [heads, 2 rows - 1, 2 cols - 1] by displacement key - query, as `BiasTerm.relative`.
        grid: of the queries and keys.
        open_queries: of a tile of a head that sees everything, about.

    Returns:
        For each head, tiles that hold each cell once. Their rectangles do not overlap; together they hold all
        visible keys, and some that are not visible.
    """
    masks = visible.numpy()
    return [_cover_head(mask.tobytes(), Grid(*grid), open_queries) for mask in masks]


# A tile's rectangles are small objects of Python, about 100 bytes each (measured).
@cached_by_bytes(4 << 20, lambda tiles, packed, *_: len(packed) + sum(200 + 100 * len(tile.keys) for tile in tiles))
def _cover_head(packed: bytes, grid: Grid, open_queries: int) -> tuple[QueryTile, ...]:
    visible = np.frombuffer(packed, dtype=bool).reshape(2 * grid.rows - 1, 2 * grid.cols - 1)
    if visible.all():
        # Whole rows of queries: what they see is the whole grid, which needs no copy.
        height, width = _even(grid.rows, max(1, open_queries // grid.cols)), grid.cols
    else:
        height, width = _even(grid.rows, _TILE), _even(grid.cols, _TILE)
    tiles = []
    for top in range(0, grid.rows, height):
        bottom = min(top + height, grid.rows)
        steps = [(row, min(row + _ROW_STEP, grid.rows)) for row in range(0, grid.rows, _ROW_STEP)]
        # A step of key rows sees what any displacement between its rows and the queries' rows sees.
        columns = [visible[low - bottom + grid.rows : high - top + grid.rows - 1].any(0) for low, high in steps]
        counts = [np.concatenate(([0], np.cumsum(column))) for column in columns]
        for left in range(0, grid.cols, width):
            right = min(left + width, grid.cols)
            keys = np.arange(grid.cols)
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
        parts = [index[y0:y1, x0:x1].flatten().flip(0) for (y0, y1, x0, x1), _ in tiles]
        return torch.cat((torch.arange(prefix), *parts))


def fraction(tiles: list[tuple[QueryTile, ...]], grid: Grid) -> float:
    """The share of all (query, key) pairs of all heads that a covering computes."""
    pairs = sum(tile.queries.cells * sum(piece.cells for piece in tile.keys) for head in tiles for tile in head)
    return pairs / (len(tiles) * grid.cells**2)
