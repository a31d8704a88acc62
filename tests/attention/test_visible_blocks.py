"""The covering of what tiles of queries see: whole, without overlap, and as small as it was measured to be."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sightline.attention.pattern import BFLOAT16_MAX
from sightline.attention.visible_blocks import QueryTile, fraction, query_order, visible_blocks
from sightline.encodings import create_encoding
from sightline.tokens.grid import Grid

CPU = torch.device("cpu")
# The share of all pairs that is computed on 64 x 64 cells: what the back end saves, which may only fall. What is
# visible: 0.67, 0.50 and 0.42.
SHARES = {"lookhere_180": 0.7760, "lookhere_90": 0.6198, "lookhere_45": 0.5417}


def views(name: str, grid: Grid) -> Tensor:
    pattern = create_encoding(name, depth=1, heads=12, dim=48).layer_pattern(0)
    return pattern.tables(grid, CPU)[0] > -BFLOAT16_MAX


def check(tiles: tuple[QueryTile, ...], visible: Tensor, grid: Grid) -> None:
    queries = torch.zeros(*grid, dtype=torch.int)
    y, x = (torch.arange(side) for side in grid)
    for tile, pieces in tiles:
        top, bottom, left, right = tile
        assert tile.cells > 0
        assert tile.shape == (bottom - top, right - left)
        queries[top:bottom, left:right] += 1
        keys = torch.zeros(*grid, dtype=torch.int)
        for piece in pieces:
            assert 0 <= piece.top < piece.bottom <= grid.rows
            assert 0 <= piece.left < piece.right <= grid.cols
            keys[piece.top : piece.bottom, piece.left : piece.right] += 1
        assert int(keys.max()) <= 1, "rectangles do not overlap"
        dy = y.view(1, 1, -1, 1) - y[top:bottom].view(-1, 1, 1, 1) + grid.rows - 1
        dx = x.view(1, 1, 1, -1) - x[left:right].view(1, -1, 1, 1) + grid.cols - 1
        seen = visible[dy, dx].flatten(0, 1).any(0)
        assert not (seen & (keys == 0)).any()
    assert (queries == 1).all(), "each query stands in one tile"


@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (7, 1), (3, 5), (14, 14), (16, 17), (40, 3), (3, 40), (33, 47)])
@pytest.mark.parametrize("name", SHARES)
def test_views(name: str, grid: tuple[int, int]) -> None:
    grid = Grid(*grid)
    visible = views(name, grid)
    covers = visible_blocks(visible, grid)
    assert len(covers) == 12
    for tiles, mask in zip(covers, visible, strict=True):
        check(tiles, mask, grid)
    assert fraction(covers, grid) <= 1


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.0, 0.001, 0.01, 0.3, 1.0]), st.integers(0, 99))
def test_random_masks(rows: int, cols: int, share: float, seed: int) -> None:
    """Of any shape, also empty ones and full ones."""
    grid = Grid(rows, cols)
    visible = torch.rand(2, 2 * rows - 1, 2 * cols - 1, generator=torch.Generator().manual_seed(seed)) < share
    for tiles, mask in zip(visible_blocks(visible, grid), visible, strict=True):
        check(tiles, mask, grid)


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("grid", [(1, 1), (3, 5), (33, 47)])
def test_order_of_queries(grid: tuple[int, int], prefix: int) -> None:
    """Prefix slots first, then tile by tile, each from its last cell to its first."""
    grid = Grid(*grid)
    tiles = visible_blocks(views("lookhere_45", grid), grid)[0]
    order = query_order(tiles, grid, prefix)
    assert order[:prefix].tolist() == list(range(prefix))
    assert order.sort().values.tolist() == list(range(prefix + grid.cells))
    start = prefix
    for (top, bottom, left, right), _ in tiles:
        cells = [prefix + y * grid.cols + x for y in range(top, bottom) for x in range(left, right)]
        assert order[start : start + len(cells)].tolist() == cells[::-1]
        start += len(cells)
