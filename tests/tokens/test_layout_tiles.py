"""TokenLayout in tile order: neighbours in the image are neighbours in memory, and everything comes back row-major."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout, grid_coords

CPU = torch.device("cpu")
sides = st.tuples(st.integers(1, 9), st.integers(1, 9))
tiles = st.builds(Grid, st.integers(1, 4), st.integers(1, 4))


def by_hand(grid: tuple[int, int], tile: Grid) -> list[list[int]]:
    """Tiles row-major, patches row-major in each; the tiles at the edges are smaller."""
    rows, cols = grid
    return [
        [y, x]
        for top in range(0, rows, tile.rows)
        for left in range(0, cols, tile.cols)
        for y in range(top, min(top + tile.rows, rows))
        for x in range(left, min(left + tile.cols, cols))
    ]


@given(grid=sides, tile=tiles)
def test_tiles_follow_each_other_row_major(grid: tuple[int, int], tile: Grid) -> None:
    coords = grid_coords(Grid(*grid), CPU, tile)
    assert coords.dtype == torch.int64
    assert coords.tolist() == by_hand(grid, tile)
    assert sorted(coords.tolist()) == grid_coords(Grid(*grid), CPU).tolist()


def test_tiles_at_the_edges_are_smaller() -> None:
    assert grid_coords(Grid(3, 3), CPU, Grid(2, 2)).tolist() == [
        *([0, 0], [0, 1], [1, 0], [1, 1]),
        *([0, 2], [1, 2]),
        *([2, 0], [2, 1]),
        [2, 2],
    ]


def test_orders_do_not_share_a_cache_entry() -> None:
    grid = Grid(4, 6)
    orders = [grid_coords(grid, CPU, tile).tolist() for tile in (None, Grid(2, 2), Grid(2, 3), None)]
    assert orders[0] == orders[3]
    assert len({str(one) for one in orders}) == 3


@given(shapes=st.lists(sides, min_size=1, max_size=3), tile=tiles, prefix=st.integers(0, 2))
def test_laid_and_back(shapes: list[tuple[int, int]], tile: Grid, prefix: int) -> None:
    tiled = TokenLayout.packed(shapes, num_prefix_tokens=prefix, tile=tile)
    plain = TokenLayout.packed(shapes, num_prefix_tokens=prefix)
    assert (tiled.slots, tiled.seqlens, tiled.grids.tolist()) == (plain.slots, plain.seqlens, plain.grids.tolist())
    assert not any(segment.row_major for segment in tiled.segments)
    count = sum(rows * cols for rows, cols in shapes)
    patches = torch.arange(count).view(1, count, 1)
    laid = tiled.to_layout_order(patches)
    # Where a patch stands is where its coordinates say.
    start = 0
    for segment, piece in zip(tiled.segments, laid.split([one.patches for one in tiled.segments], dim=1), strict=True):
        assert torch.equal(piece[0, :, 0], segment.indices[0] + start)
        start += segment.patches
    tokens = tiled.join(laid, torch.full((prefix, 1), -1))
    assert torch.equal(tiled.to_row_major(tokens), plain.join(patches, torch.full((prefix, 1), -1)))


def test_uniform_rows_are_reordered_alike() -> None:
    tiled = TokenLayout.uniform((3, 5), 2, num_prefix_tokens=1, tile=Grid(2, 2))
    patches = torch.randn(2, 15, 4)
    laid = tiled.to_layout_order(patches)
    assert torch.equal(laid[1], patches[1][tiled.segments[0].indices[0]])
    assert torch.equal(tiled.to_row_major(tiled.join(laid))[:, 1:], patches)


def test_row_major_layouts_are_left_alone() -> None:
    layout = TokenLayout.uniform((3, 5), 2)
    patches, tokens = torch.randn(2, 15, 4), torch.randn(2, 16, 4)
    assert layout.to_layout_order(patches) is patches
    assert layout.to_row_major(tokens) is tokens


@pytest.mark.parametrize("packed", [False, True])
def test_pickled(packed: bool) -> None:
    tile = Grid(2, 3)
    layout = TokenLayout.packed([(3, 5), (4, 4)], tile=tile) if packed else TokenLayout.uniform((3, 5), 2, tile=tile)
    data = pickle.dumps(layout)
    assert len(data) < 500, "grids, not coordinates"
    copy = pickle.loads(data)
    assert torch.equal(copy.coords, layout.coords)
    assert [segment.tile for segment in copy.segments] == [tile] * len(layout.segments)


def test_kept_patches_do_not_depend_on_the_order() -> None:
    """Indices are row-major in both, and so is what comes out: as given."""
    indices = torch.tensor([[7, 0, 14, 3], [2, 9, 1, 11]])
    tiled = TokenLayout.uniform((3, 5), 2, tile=Grid(2, 2)).keep(indices)
    plain = TokenLayout.uniform((3, 5), 2).keep(indices)
    assert torch.equal(tiled.coords, plain.coords)
    assert torch.equal(tiled.segments[0].indices, indices)
    assert torch.equal(pickle.loads(pickle.dumps(tiled)).coords, tiled.coords)
    tokens = torch.randn(2, 5, 4)
    assert tiled.to_row_major(tokens) is tokens


def test_a_pack_keeps_as_a_row_major_one() -> None:
    shapes, kept = [(3, 5), (4, 4)], [torch.tensor([14, 2, 8]), torch.tensor([0, 5])]
    tiled = TokenLayout.packed(shapes, tile=Grid(2, 2)).keep(kept)
    assert torch.equal(tiled.coords, TokenLayout.packed(shapes).keep(kept).coords)
    assert tiled.seqlens == [4, 3]
