"""LookHere's attention on a CPU, one tile of queries at a time: what a tile cannot see is not computed, and the bias
of what it sees is read from the table of displacements, never stored."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.cpu import (
    LN_2,
    LOG2_E,
    empty_like_heads,
    run_parallel,
    softmax_backward,
    stable_exp2,
    strictly_once_differentiable,
)
from sightline.attention.onednn import matmul_t
from sightline.attention.pattern import Pattern
from sightline.attention.visible_blocks import QueryTile, Rectangle, query_order, visible_blocks
from sightline.attention.wide import wide_dtype
from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.layout import Segment


def attend_tiles(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, segment: Segment, prefix: int) -> Tensor:
    """Attention of one grid's images by query tiles of 16 x 16 cells; forward and backward.

    Args:
        q, k, v: [rows, heads, prefix + cells, head_dim], on a CPU.
        pattern: a directed one; segment: a whole grid, row by row.

    Returns:
        [rows, heads, prefix + cells, head_dim], with the heads of a token side by side in memory.
    """
    return _TiledAttention.apply(q, k, v, pattern, segment, prefix)  # pyright: ignore[reportReturnType]


class _TiledAttention(torch.autograd.Function):
    """Keeps q, k and v, and the logarithm to base 2 of each query's sum."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, segment: Segment, prefix: int) -> Tensor:
        plan = _Plan.of(pattern, segment, prefix, q)
        if len(plan.covers) != q.shape[1]:
            raise InputError(f"attention: a pattern of {len(plan.covers)} heads for queries of {q.shape[1]}")
        out, sums = empty_like_heads(q), q.new_empty(q.shape[:3], dtype=plan.tables.dtype)

        def attend(index: tuple[int, int]) -> None:
            head = _Head(plan, index[1], q[index], k[index], v[index])
            result, logs = torch.empty_like(head.queries), head.queries.new_empty(len(head.queries), 1)
            for tile, where in head.tiles():
                result[where], logs[where] = head.attended(tile, where)
            out[index], sums[index] = head.forwards(result), head.forwards(logs).squeeze(1)

        run_parallel(attend, itertools.product(range(q.shape[0]), range(q.shape[1])))
        ctx.save_for_backward(q, k, v, sums)
        ctx.of = pattern, segment, prefix
        return out

    @staticmethod
    @strictly_once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, sums = ctx.saved_tensors
        plan = _Plan.of(*ctx.of, like=q)
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))

        def differentiate(index: tuple[int, int]) -> None:
            head = _Head(plan, index[1], q[index], k[index], v[index])
            grad, logs = head.backwards(grad_out[index]), head.backwards(sums[index].unsqueeze(1))
            grad_queries = torch.empty_like(head.queries)
            # In memory as products give what is added to them.
            grad_keys, grad_values = (head.keys.new_zeros(head.keys.shape[::-1]).t() for _ in "kv")
            for tile, where in head.tiles():
                grad_queries[where], of_keys, of_values = head.differentiated(tile, where, grad[where], logs[where])
                head.scatter(grad_keys, tile, of_keys)
                head.scatter(grad_values, tile, of_values)
            dq[index] = head.forwards(grad_queries).mul_(plan.scale)
            dk[index], dv[index] = grad_keys.mul_(LN_2), grad_values

        run_parallel(differentiate, itertools.product(range(q.shape[0]), range(q.shape[1])))
        return dq, dk, dv, None, None, None


class _Plan(NamedTuple):
    """What all heads of one grid share; biases are those of scores to base 2."""

    grid: Grid
    prefix: int
    scale: float
    tables: Tensor
    by_key: Tensor | None
    covers: list[tuple[QueryTile, ...]]

    @classmethod
    def of(cls, pattern: Pattern, segment: Segment, prefix: int, like: Tensor) -> _Plan:
        grid = Grid(*segment.grid)
        tables, by_key = pattern.tables(grid, like.device, segment.window_grid)
        # Scores are float32 for a q of 16 bits, else 1.7 times dense's error (docs/explanation/decisions/cpu-tiles.md).
        wide = wide_dtype(like.dtype)
        return cls(
            grid,
            prefix,
            like.shape[-1] ** -0.5,
            (LOG2_E * tables.to(wide)).contiguous(),
            None if by_key is None else LOG2_E * by_key.to(wide),
            visible_blocks(pattern.visible(tables), grid),
        )


class _Head:
    """One head of one image: its tokens are prefix tokens, then the cells of its grid; its queries stand in the order
    of its tiles. A tile that is None is that of the prefix tokens, which see everything."""

    def __init__(self, plan: _Plan, head: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.grid, self.prefix = plan.grid, plan.prefix
        self.table = plan.tables[head]
        self.by_key = None if plan.by_key is None else plan.by_key[head]
        self.cover = plan.covers[head]
        self.order = query_order(self.cover, plan.grid, plan.prefix)
        wide = plan.tables.dtype
        self.queries = q.index_select(0, self.order).to(wide) * (LOG2_E * plan.scale)
        self.keys, self.values = k.to(wide).contiguous(), v.to(wide).contiguous()

    def backwards(self, x: Tensor) -> Tensor:
        """Tokens in the layout's order to the tiles' order."""
        return x.index_select(0, self.order).to(self.queries.dtype)

    def forwards(self, x: Tensor) -> Tensor:
        """Tokens in the tiles' order to the layout's order."""
        return torch.empty_like(x).index_copy_(0, self.order, x)

    def tiles(self) -> Iterator[tuple[QueryTile | None, slice]]:
        """Each tile and where its queries stand."""
        if self.prefix:
            yield None, slice(0, self.prefix)
        places = self._pieces(tile.queries for tile in self.cover)
        yield from ((tile, where) for tile, (_, where) in zip(self.cover, places, strict=True))

    def attended(self, tile: QueryTile | None, where: slice) -> tuple[Tensor, Tensor]:
        """A tile's output [queries, head_dim], and the logarithms to base 2 of the sums of its softmax [queries, 1]."""
        keys = self._gather(self.keys, tile)
        powers, sums, logs = stable_exp2(lambda: self._scores(tile, where, keys))
        return matmul_t(powers, self._gather(self.values, tile).t()).div_(sums), logs

    def differentiated(
        self, tile: QueryTile | None, where: slice, grad: Tensor, logs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of a tile's queries [queries, head_dim], and of its keys and values [n, head_dim].

        Args:
            grad: of its output; logs: as `attended`.
        """
        keys = self._gather(self.keys, tile)
        attention = self._scores(tile, where, keys).sub_(logs).exp2_()
        of_values = matmul_t(grad.t(), attention.t()).t()
        # Of the softmax: P * (dP - sum of P * dP), and not of the output, which may be rounded to 16 bits.
        scores = softmax_backward(matmul_t(grad, self._gather(self.values, tile)), attention)
        return matmul_t(scores, keys.t()), matmul_t(self.queries[where].t(), scores.t()).t(), of_values

    def scatter(self, total: Tensor, tile: QueryTile | None, part: Tensor) -> None:
        """Add to all tokens [tokens, head_dim] the gradient [n, head_dim] of those that a tile sees."""
        if tile is None or self._sees_all(tile):
            total += part
            return
        total[: self.prefix] += part[: self.prefix]
        cells = total[self.prefix :].unflatten(0, self.grid)
        for piece, where in self._pieces(tile.keys):
            piece.of(cells).add_(part[where].unflatten(0, piece.shape))

    def _gather(self, tokens: Tensor, tile: QueryTile | None) -> Tensor:
        """Of all tokens [tokens, head_dim] the prefix tokens and those that a tile sees: [n, head_dim]."""
        if tile is None or self._sees_all(tile):
            return tokens
        cells = tokens[self.prefix :].unflatten(0, self.grid)
        return torch.cat((tokens[: self.prefix], *(piece.of(cells).flatten(0, 1) for piece in tile.keys)))

    def _sees_all(self, tile: QueryTile) -> bool:
        return tile.keys == (Rectangle(0, self.grid.rows, 0, self.grid.cols),)

    def _pieces(self, rectangles: Iterable[Rectangle]) -> Iterator[tuple[Rectangle, slice]]:
        """Rectangles, and where their cells stand one rectangle after the other behind the prefix tokens."""
        start = self.prefix
        for piece in rectangles:
            yield piece, slice(start, start + piece.cells)
            start += piece.cells

    def _scores(self, tile: QueryTile | None, where: slice, keys: Tensor) -> Tensor:
        """Of a tile's queries on its keys, to base 2: [queries, n]."""
        scores = matmul_t(self.queries[where], keys)
        if tile is not None:
            for piece, columns in self._pieces(tile.keys):
                self._add_bias(scores[:, columns], tile.queries, piece)
        return scores

    def _add_bias(self, scores: Tensor, queries: Rectangle, keys: Rectangle) -> None:
        # With the queries in reverse, a step of either query or key is a step in the table in the same direction.
        row, column = self.table.stride()
        start = (keys.top - queries.bottom + self.grid.rows) * row
        start += (keys.left - queries.right + self.grid.cols) * column
        shape, strides = (*queries.shape, *keys.shape), (row, column, row, column)
        bias = self.table.as_strided(shape, strides, self.table.storage_offset() + start)
        scores.unflatten(1, keys.shape).unflatten(0, queries.shape).add_(bias)
        if self.by_key is not None:
            scores += keys.of(self.by_key).reshape(1, -1)
