"""Tables of displacements spread over pairs of tokens: of one image, and of many by one look-up."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.tokens.cache import ByteLRUCache, is_traced
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment

_PLACES = ByteLRUCache("places in tables of displacements", 4 << 20)
# Sides, and frames, of grids whose tables are one: multiples of so many cells.
_COVER_STEP, _COVER_FRAMES = 16, 4


def spread(table: Tensor, queries: Segment, keys: Segment, num_queries: int = 0, num_keys: int = 0) -> Tensor:
    """A table of displacements at the pairs of an image's tokens, 0 at those of prefix slots, which stand first.

    Args:
        table: [heads, 2 rows - 1, 2 cols - 1], or one axis for each of the grid's.
        num_queries, num_keys: prefix slots.

    Returns:
        [1 or rows, heads, num_queries + queries, num_keys + keys].
    """
    if not (len(keys.grid) == 2 and queries.row_major and keys.row_major):
        bias = spread_over_tokens(table, queries.coords, keys.coords, keys.grid)
    elif torch.compiler.is_compiling():
        bias = spread_by_index(table, keys.grid)
    elif may_be_traced(table):
        bias = spread_by_rows(table, keys.grid)
    else:
        return spread_beside_prefix(table, keys.grid, num_queries, num_keys)
    return with_prefix(bias, None, num_queries, num_keys)


def displacement_places(queries: Tensor, keys: Tensor, grid: Grid) -> Tensor:
    """Where the displacement key - query of each pair stands in a flat table of a grid: coords [1 or rows, n, axes] and
    [1 or rows, m, axes] -> int64 [1 or rows, n, m]."""
    places = torch.zeros((), dtype=torch.int64, device=keys.device)
    for axis, side in enumerate(grid):
        shift = keys[..., axis].unsqueeze(1) - queries[..., axis].unsqueeze(2)
        places = places * (2 * side - 1) + shift + (side - 1)
    return places


def spread_over_tokens(table: Tensor, queries: Tensor, keys: Tensor, grid: Grid) -> Tensor:
    """A table of displacements at pairs of any tokens: coords [1 or rows, n, axes] -> [1 or rows, heads, n, m]."""
    return table.flatten(1)[:, displacement_places(queries, keys, grid)].transpose(0, 1)


def spread_by_index(table: Tensor, grid: Grid) -> Tensor:
    """A table of displacements at all pairs of a grid, whose sizes may be symbolic: [1, heads, cells, cells]."""
    y, x = (torch.arange(side, device=table.device) for side in grid)
    # Rows and columns apart: the index is never made as cells x cells integers.
    dy = (y.view(1, 1, -1, 1) - y.view(-1, 1, 1, 1)) + (grid.rows - 1)
    dx = (x.view(1, 1, 1, -1) - x.view(1, -1, 1, 1)) + (grid.cols - 1)
    return table[:, dy, dx].reshape(1, table.shape[0], grid.rows * grid.cols, grid.rows * grid.cols)


def spread_by_rows(table: Tensor, grid: Grid) -> Tensor:
    """The same as `spread_by_index`, faster: the pairs of a row of queries are slices of one small buffer."""
    by_column, last = _by_column(table, grid), grid.rows - 1
    bias = torch.stack([by_column[:, :, last - row : last - row + grid.rows] for row in range(grid.rows)], dim=1)
    return bias.reshape(1, table.shape[0], grid.cells, grid.cells)


def spread_beside_prefix(table: Tensor, grid: Grid, num_queries: int, num_keys: int) -> Tensor:
    """`with_prefix` of `spread_by_rows`, prefix slots without a bias, in one pass over the pairs and not three; for a
    table of which nothing is learned."""
    by_column, last = _by_column(table, grid), grid.rows - 1
    keys = num_keys + grid.cells
    bias = table.new_empty(1, len(table), num_queries + grid.cells, keys + _spare(keys, table.device))[..., :keys]
    bias[:, :, :num_queries], bias[..., :num_keys] = 0.0, 0.0
    pairs = bias[0, :, num_queries:, num_keys:].unflatten(1, grid)
    if table.device.type == "cuda":
        # A head at a time: its windows are copied twice.
        for head, windows in enumerate(by_column.split(1)):
            pairs[head : head + 1].copy_(_windows(windows, grid).flatten(3))
        return bias
    if table.device.type == "cpu" and torch.get_num_threads() == 1:
        windows, into = _array(by_column[:, :, last:]), _array(pairs)
        heads, cols, rows, cells = windows.strides
        # A row further down has its window a step back, which torch's strides may not take; numpy has one thread.
        np.copyto(into, np.lib.stride_tricks.as_strided(windows, into.shape, (heads, -rows, cols, cells)))
        return bias
    for row in range(grid.rows):
        pairs[:, row] = by_column[:, :, last - row : last - row + grid.rows].flatten(2)
    return bias


def _spare(keys: int, device: torch.device) -> int:
    """Columns to leave beside a bias of so many keys: torch copies one whose rows do not start at 16 bytes on a GPU."""
    return -keys % 8 if device.type == "cuda" else 0


def _windows(by_column: Tensor, grid: Grid) -> Tensor:
    """The pairs [heads, *grid, *grid] of `_by_column`, in few calls: of the last row of queries first, since a row
    further down has its window a step back, which strides may not take."""
    heads, cols, shifts, _ = by_column.stride()
    sides = (len(by_column), *grid, *grid)
    return by_column.as_strided(sides, (heads, shifts, cols, shifts, 1)).flip(1)


def _array(x: Tensor) -> np.ndarray:
    """The same memory for numpy, which has no bfloat16."""
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()


def may_be_traced(table: Tensor) -> bool:
    """Whether anything follows what is done with a table: its gradient, a tracer, a mode."""
    return is_traced() or (table.requires_grad and torch.is_grad_enabled())


def _by_column(table: Tensor, grid: Grid) -> Tensor:
    """[heads, columns of queries, displacements of rows, columns of keys]."""
    # The last column that asks has the first displacements.
    return table.unfold(2, grid.cols, 1).transpose(1, 2).flip(1).contiguous()


def crop_table(table: Tensor, frame: Grid, grid: Grid) -> Tensor:
    """The displacements of a piece, of those of the whole: the middle of the table."""
    for axis, (whole, side) in enumerate(zip(frame, grid, strict=True), 1):
        if whole is not side:
            table = table.narrow(axis, whole - side, 2 * side - 1)
    return table


def covering(grids: Iterable[Grid]) -> Grid:
    """A grid whose table of displacements holds those of all these in its middle, the same one for neighbours."""
    most = [max(sides) for sides in zip(*grids, strict=True)]
    steps = ([_COVER_FRAMES] * (len(most) - 2) + [_COVER_STEP] * 2)[-len(most) :]
    return Grid(*(-(-side // step) * step for side, step in zip(most, steps, strict=True)))


def with_prefix(bias: Tensor, extra: Tensor | None, num_queries: int, num_keys: int) -> Tensor:
    """Put the prefix slots' rows and columns before those of the patches; `extra` as `BiasTerm.prefix`."""
    if num_queries == 0 and num_keys == 0:
        return bias
    if extra is None:
        keys = num_keys + bias.shape[-1]
        return F.pad(bias, (num_keys, _spare(keys, bias.device), num_queries, 0))[..., :keys]
    rows, heads, queries, keys = bias.shape
    on_patches, on_prefix, among = (value.view(1, heads, 1, 1) for value in extra.to(bias))
    left, right = among.expand(rows, -1, num_queries, num_keys), on_patches.expand(rows, -1, num_queries, keys)
    spare = bias.new_zeros(rows, heads, num_queries + queries, _spare(num_keys + keys, bias.device))
    above = torch.cat((left, right, spare[:, :, :num_queries]), dim=-1)
    below = torch.cat((on_prefix.expand(rows, -1, queries, num_keys), bias, spare[:, :, num_queries:]), dim=-1)
    return torch.cat((above, below), dim=-2)[..., : num_keys + keys]


class DisplacementIndex(NamedTuple):
    """Which entries of one table of displacements the pairs of several images are.

    Attributes:
        cover: the grid of the table.
        places: int32 [pairs of all that stand apart], 0 for a pair with a prefix slot, else 1 + the table's index.
        images: of each image where its pairs start and how many slots it has.
    """

    cover: Grid
    places: Tensor
    images: list[tuple[int, int]]

    @classmethod
    def of(cls, images: Sequence[Segment], layout: TokenLayout) -> DisplacementIndex:
        prefix, cover = layout.num_prefix_tokens, covering(one.grid for one in images)
        by_kind: dict[object, tuple[int, int]] = {}
        places, start = [], 0
        for one in images:
            if one.cache_key not in by_kind:
                by_kind[one.cache_key] = start, prefix + one.patches
                key = (one.cache_key, prefix, cover, layout.device)
                make = functools.partial(_places, one, prefix, cover)
                places.append(_PLACES.get_tensor(key, layout.device, make) if one.complete else make())
                # Not in place: a trace has tensors for numbers.
                start = start + places[-1].shape[0]
        return cls(cover, torch.cat(places), [by_kind[one.cache_key] for one in images])

    def biases(self, table: Tensor) -> list[Tensor]:
        """The bias of each image, as `Pattern.bias`, from the table of `cover`: [1, heads, slots, slots]."""
        values = F.pad(table.flatten(1), (1, 0)).index_select(1, self.places)
        return [values[:, start : start + n * n].view(1, len(values), n, n) for start, n in self.images]


def _places(image: Segment, prefix: int, cover: Grid) -> Tensor:
    index = displacement_places(image.coords, image.coords, cover)[0] + 1
    return F.pad(index, (prefix, 0, prefix, 0)).int().flatten()
