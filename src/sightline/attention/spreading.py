"""Tables of displacements spread over pairs of tokens."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.tokens.cache import is_traced
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment


def spread(table: Tensor, queries: Segment, keys: Segment) -> Tensor:
    """A table of displacements at the pairs of an image's patches: [1 or rows, heads, queries, keys]."""
    if not in_rows(queries, keys):
        return spread_over_tokens(table, queries.coords, keys.coords, keys.grid)
    return (spread_by_index if torch.compiler.is_compiling() else spread_by_rows)(table, keys.grid)


def in_rows(queries: Segment, keys: Segment) -> bool:
    """Whether both are whole grids of an image, row by row."""
    return len(keys.grid) == 2 and queries.row_major and keys.row_major


def spread_over_tokens(table: Tensor, queries: Tensor, keys: Tensor, grid: Grid) -> Tensor:
    """A table of displacements at pairs of any tokens: coords [1 or rows, n, axes] -> [1 or rows, heads, n, m]."""
    shift = keys.unsqueeze(1) - queries.unsqueeze(2)
    return table[(slice(None), *(shift[..., axis] + (side - 1) for axis, side in enumerate(grid)))].transpose(0, 1)


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
    bias = table.new_empty(1, len(table), num_queries + grid.cells, num_keys + grid.cells)
    bias[:, :, :num_queries], bias[..., :num_keys] = 0.0, 0.0
    pairs = bias[0, :, num_queries:, num_keys:].unflatten(1, grid)
    if table.device.type == "cpu" and torch.get_num_threads() == 1:
        windows, into = _array(by_column[:, :, last:]), _array(pairs)
        heads, cols, rows, cells = windows.strides
        # A row further down has its window a step back, which torch's strides may not take; numpy has one thread.
        np.copyto(into, np.lib.stride_tricks.as_strided(windows, into.shape, (heads, -rows, cols, cells)))
        return bias
    for row in range(grid.rows):
        pairs[:, row] = by_column[:, :, last - row : last - row + grid.rows].flatten(2)
    return bias


def _array(x: Tensor) -> np.ndarray:
    """The same memory for numpy, which has no bfloat16."""
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()


def may_be_traced(table: Tensor) -> bool:
    """Whether anything follows what is done with a table: its gradient, a compiler, a tracer, a mode."""
    return torch.compiler.is_compiling() or is_traced() or (table.requires_grad and torch.is_grad_enabled())


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


def with_prefix(bias: Tensor, extra: Tensor | None, num_queries: int, num_keys: int) -> Tensor:
    """Put the prefix slots' rows and columns before those of the patches."""
    if num_queries == 0 and num_keys == 0:
        return bias
    if extra is None:
        return F.pad(bias, (num_keys, 0, num_queries, 0))
    rows, heads, queries, keys = bias.shape
    on_patches, on_prefix, among = (value.view(1, heads, 1, 1) for value in extra.to(bias))
    left, right = among.expand(rows, -1, num_queries, num_keys), on_patches.expand(rows, -1, num_queries, keys)
    below = torch.cat((on_prefix.expand(rows, -1, queries, num_keys), bias), dim=-1)
    return torch.cat((torch.cat((left, right), dim=-1), below), dim=-2)
