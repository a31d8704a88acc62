"""LookHere's attention on a CPU, one tile of queries at a time: what a tile cannot see is not computed, and the bias
of what it sees is read from the table of displacements, never stored."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.cpu import (
    LN_2,
    LOG2_E,
    run_parallel,
    softmax_backward,
    stable_exp2,
    strictly_once_differentiable,
)
from sightline.attention.onednn import matmul_t
from sightline.attention.pattern import Pattern
from sightline.attention.visible_blocks import QueryTile, Rectangle, Slots, query_order, visible_blocks
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
    return _TiledAttention.apply(q, k, v, pattern, segment, prefix).transpose(1, 2)  # pyright: ignore[reportOptionalMemberAccess]


class _TiledAttention(torch.autograd.Function):
    """Attention of one grid's images, q, k, v [rows, heads, prefix + cells, head_dim], which it keeps with the
    logarithm of each query's sum; the output is [rows, prefix + cells, heads, head_dim]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, segment: Segment, prefix: int) -> Tensor:
        plan = _Plan.of(pattern, segment, prefix, q)
        if len(plan.covers) != q.shape[1]:
            raise InputError(f"attention: a pattern of {len(plan.covers)} heads for queries of {q.shape[1]}")
        # Heads side by side in each token, as the projection after it reads them; a view of this inside.
        joined = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3])
        out = joined.transpose(1, 2)

        sums = q.new_empty(q.shape[:3], dtype=plan.tables.dtype)

        def attend(index: tuple[int, int]) -> None:
            one = _Head(plan, index[1], q[index], k[index], v[index])
            result, logs = torch.empty_like(one.queries), one.queries.new_empty(len(one.queries), 1)
            for tile, where in plan.slots.tiles(one.cover):
                result[where], logs[where] = one.attended(tile, where)
            out[index], sums[index] = one.forwards(result), one.forwards(logs).squeeze(1)

        run_parallel(attend, itertools.product(range(q.shape[0]), range(q.shape[1])))
        ctx.save_for_backward(q, k, v, sums)
        ctx.of = pattern, segment, prefix
        return joined

    @staticmethod
    @strictly_once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, sums = ctx.saved_tensors
        grad_out = grad_out.transpose(1, 2)
        plan = _Plan.of(*ctx.of, like=q)
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))

        def differentiate(index: tuple[int, int]) -> None:
            one = _Head(plan, index[1], q[index], k[index], v[index])
            grad, logs = one.backwards(grad_out[index]), one.backwards(sums[index].unsqueeze(1))
            grad_queries = torch.empty_like(one.queries)
            # In memory as products give what is added to them.
            grad_keys, grad_values = (one.keys.new_zeros(one.keys.shape[::-1]).t() for _ in "kv")
            for tile, where in plan.slots.tiles(one.cover):
                grad_queries[where], *parts = one.differentiated(tile, where, grad[where], logs[where])
                for total, part in zip((grad_keys, grad_values), parts, strict=True):
                    plan.slots.scatter(total, tile, part)
            dq[index] = one.forwards(grad_queries).mul_(plan.scale)
            dk[index], dv[index] = grad_keys.mul_(LN_2), grad_values

        run_parallel(differentiate, itertools.product(range(q.shape[0]), range(q.shape[1])))
        return dq, dk, dv, None, None, None


class _Plan(NamedTuple):
    """What all heads of one grid share; biases are those of scores to base 2."""

    slots: Slots
    scale: float
    tables: Tensor
    by_key: Tensor | None
    covers: list[tuple[QueryTile, ...]]

    @classmethod
    def of(cls, pattern: Pattern, segment: Segment, prefix: int, like: Tensor) -> _Plan:
        grid = Grid(*segment.grid)
        tables, by_key = pattern.tables(grid, like.device, segment.window_grid)
        # Scores are float32 where q is 16 bits: in bfloat16 the output's error is 1.7 times dense's (docs/LOG.md).
        wide = torch.promote_types(like.dtype, torch.float32)
        covers = visible_blocks(pattern.visible(tables), grid)
        return cls(
            Slots(grid, prefix),
            like.shape[-1] ** -0.5,
            (LOG2_E * tables.to(wide)).contiguous(),
            None if by_key is None else LOG2_E * by_key.to(wide),
            covers,
        )


class _Head:
    """One head of one image, with its queries in the order of its tiles."""

    def __init__(self, plan: _Plan, head: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.plan = plan
        self.table = plan.tables[head]
        self.by_key = None if plan.by_key is None else plan.by_key[head]
        self.cover = plan.covers[head]
        self.order = query_order(self.cover, *plan.slots)
        wide = plan.tables.dtype
        self.queries = q.index_select(0, self.order).to(wide) * (LOG2_E * plan.scale)
        self.keys, self.values = k.to(wide).contiguous(), v.to(wide).contiguous()

    def backwards(self, x: Tensor) -> Tensor:
        """Tokens in the layout's order to the tiles' order."""
        return x.index_select(0, self.order).to(self.queries.dtype)

    def forwards(self, x: Tensor) -> Tensor:
        """Tokens in the tiles' order to the layout's order."""
        return torch.empty_like(x).index_copy_(0, self.order, x)

    def attended(self, tile: QueryTile | None, where: slice) -> tuple[Tensor, Tensor]:
        """A tile's output [queries, head_dim], and the logarithms to base 2 of the sums of its softmax [queries, 1]."""
        gather = self.plan.slots.gather
        keys = gather(self.keys, tile)
        powers, sums, logs = stable_exp2(lambda: self._scores(tile, where, keys))
        return matmul_t(powers, gather(self.values, tile).t()).div_(sums), logs

    def differentiated(
        self, tile: QueryTile | None, where: slice, grad: Tensor, logs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of a tile's queries [queries, head_dim], and of its keys and values [n, head_dim].

        Args:
            grad: of its output; logs: as `attended`.
        """
        gather = self.plan.slots.gather
        keys = gather(self.keys, tile)
        attention = self._scores(tile, where, keys).sub_(logs).exp2_()
        of_values = matmul_t(grad.t(), attention.t()).t()
        # Of the softmax: P * (dP - sum of P * dP), and not of the output, which may be rounded to 16 bits.
        scores = softmax_backward(matmul_t(grad, gather(self.values, tile)), attention)
        return matmul_t(scores, keys.t()), matmul_t(self.queries[where].t(), scores.t()).t(), of_values

    def _scores(self, tile: QueryTile | None, where: slice, keys: Tensor) -> Tensor:
        """Of a tile's queries on its keys, to base 2: [queries, n]."""
        scores = matmul_t(self.queries[where], keys)
        if tile is not None:
            for piece, columns in self.plan.slots.pieces(tile.keys):
                self._add_bias(scores[:, columns], tile.queries, piece)
        return scores

    def _add_bias(self, scores: Tensor, queries: Rectangle, keys: Rectangle) -> None:
        bias = self.plan.slots.window(self.table, queries, keys)
        scores.unflatten(1, keys.shape).unflatten(0, queries.shape).add_(bias)
        if self.by_key is not None:
            scores += self.by_key[keys.top : keys.bottom, keys.left : keys.right].reshape(1, -1)
