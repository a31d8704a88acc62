"""TokenLayout in tile order: neighbours in the image are neighbours in memory, and everything comes back row-major."""

from __future__ import annotations

import pickle

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
