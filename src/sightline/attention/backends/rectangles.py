"""LookHere's attention on a CPU by torch's own fused kernel: a call for each tile of queries against the keys that it
sees, with the bias of those pairs as its mask. What the kernel gains by a processor's tiles (AMX) comes with it."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.backends.base import OfTiles
from sightline.attention.coverage import QueryTile, Slots, query_order, visible_blocks
from sightline.attention.kernel import differentiated_once, fused_kernel, in_rows
from sightline.attention.pattern import Pattern
from sightline.attention.threads import run_parallel
from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.layout import Segment, TokenLayout

# Of queries that see everything: the kernel takes its largest blocks from 768 on (docs/LOG.md).
_OPEN_QUERIES = 1024
# Most tokens of an image that may be in a pack.
_PACKED_TOKENS = 1100
# Heads that see alike are one call while their masks are no larger.
_MASK_BYTES = 8 << 20


class Rectangles(OfTiles):
    """Query tiles against the few rectangles of keys that they see, by torch's fused kernel; forward and backward."""

    name = "rectangles"
    preference = 9

    def supports(self, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> bool:
        # First whether a compiler looks: the kernel is not for it.
        mine = super().supports(pattern, queries, keys, q)
        return mine and q.dtype in (torch.float32, torch.bfloat16) and fused_kernel() is not None

    def pays(self, pattern: Pattern | None, keys: TokenLayout, q: Tensor) -> bool:
        if q.shape[0] == 1 and q.dtype == torch.bfloat16 and min(keys.seqlens) <= _PACKED_TOKENS:
            # Packs, and images that may be in one, are computed in float32: a short one among longer ones too.
            return False
        return super().pays(pattern, keys, q)

    def attend_grid(self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, segment: Segment, prefix: int) -> Tensor:
        return _Attention.apply(*map(in_rows, (q, k, v)), pattern, segment, prefix)  # pyright: ignore[reportReturnType]


class _Attention(torch.autograd.Function):
    """Attention of one grid's images, q, k, v [rows, heads, prefix + cells, head_dim]; keeps these, the output [rows,
    prefix + cells, heads, head_dim], and the logarithm of each query's sum."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, segment: Segment, prefix: int) -> Tensor:
        plan = _Plan.of(pattern, segment, prefix, q)
        if len(plan.tables) != q.shape[1]:
            raise InputError(f"attention: a pattern of {len(plan.tables)} heads for queries of {q.shape[1]}")
        joined = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3])
        out, sums = joined.transpose(1, 2), q.new_empty(q.shape[:3], dtype=torch.float32)
        kernel = fused_kernel()
        assert kernel is not None

        def attend(group: _Group) -> None:
            heads = group.heads
            queries = q[:, heads].index_select(2, group.order)
            result, logs = torch.empty_like(queries), sums.new_empty(queries.shape[:3])
            for tile, where in plan.slots.tiles(group.cover):
                keys, values = (plan.slots.gather(x[:, heads], tile) for x in (k, v))
                mask = plan.mask(group, tile, keys.shape[2])
                result[:, :, where], logs[:, :, where] = kernel.forward(
                    queries[:, :, where], keys, values, attn_mask=mask
                )
            out[:, heads] = torch.empty_like(result).index_copy_(2, group.order, result)
            sums[:, heads] = torch.empty_like(logs).index_copy_(2, group.order, logs)

        run_parallel(attend, plan.groups)
        ctx.save_for_backward(q, k, v, joined, sums)
        ctx.of = pattern, segment, prefix
        return joined

    @staticmethod
    @differentiated_once
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, joined, sums = ctx.saved_tensors
        out, grad_out = joined.transpose(1, 2), grad_out.to(q.dtype).transpose(1, 2)
        plan = _Plan.of(*ctx.of, like=q)
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        kernel = fused_kernel()
        assert kernel is not None

        def differentiate(group: _Group) -> None:
            heads = group.heads
            queries, result, grad, logs = (x[:, heads].index_select(2, group.order) for x in (q, out, grad_out, sums))
            found = torch.empty_like(queries)
            # Rounded once: a token is a key of many tiles.
            totals = [torch.zeros_like(x[:, heads], dtype=torch.float32) for x in (k, v)]
            for tile, where in plan.slots.tiles(group.cover):
                keys, values = (plan.slots.gather(x[:, heads], tile) for x in (k, v))
                mask = plan.mask(group, tile, keys.shape[2])
                given = (grad, queries, result, logs)
                of_out, of_queries, of_result, of_logs = (x[:, :, where] for x in given)
                found[:, :, where], *parts = kernel.backward(
                    of_out, of_queries, keys, values, of_result, of_logs, 0.0, False, attn_mask=mask
                )
                for total, part in zip(totals, parts, strict=True):
                    plan.slots.scatter(total, tile, part)
            dq[:, heads] = torch.empty_like(found).index_copy_(2, group.order, found)
            dk[:, heads], dv[:, heads] = totals

        run_parallel(differentiate, plan.groups)
        return dq, dk, dv, None, None, None


class _Group(NamedTuple):
    """Heads side by side that see alike."""

    heads: slice
    cover: tuple[QueryTile, ...]
    order: Tensor


class _Plan(NamedTuple):
    """What all heads of one grid share."""

    slots: Slots
    tables: Tensor
    by_key: Tensor | None
    groups: list[_Group]

    @classmethod
    def of(cls, pattern: Pattern, segment: Segment, prefix: int, like: Tensor) -> _Plan:
        grid = Grid(*segment.grid)
        tables, by_key = pattern.tables(grid, like.device, segment.window_grid)
        covers = visible_blocks(pattern.visible(tables), grid, open_queries=_OPEN_QUERIES)
        groups: list[_Group] = []
        for _, alike in itertools.groupby(enumerate(covers), key=lambda one: one[1]):
            numbers = [number for number, _ in alike]
            tiles = covers[numbers[0]]
            most = max(tile.queries.cells * (prefix + sum(one.cells for one in tile.keys)) for tile in tiles)
            step = max(1, _MASK_BYTES // (most * like.element_size()))
            order = query_order(tiles, grid, prefix)
            for first in numbers[::step]:
                groups.append(_Group(slice(first, min(first + step, numbers[-1] + 1)), tiles, order))
        by_key = None if by_key is None else by_key.to(like.dtype)
        return cls(Slots(grid, prefix), tables.to(like.dtype).contiguous(), by_key, groups)

    def mask(self, group: _Group, tile: QueryTile | None, keys: int) -> Tensor | None:
        """The bias of a tile's pairs: [1, heads, queries, keys]."""
        if tile is None:
            return None
        table, queries = self.tables[group.heads], tile.queries
        mask = table.new_empty(len(table), queries.cells, keys)
        mask[:, :, : self.slots.prefix] = 0.0
        for piece, where in self.slots.pieces(tile.keys):
            here, bias = mask[:, :, where], self.slots.window(table, queries, piece)
            here.unflatten(2, piece.shape).unflatten(1, queries.shape).copy_(bias)
            if self.by_key is not None:
                cells = self.by_key[group.heads, piece.top : piece.bottom, piece.left : piece.right]
                here += cells.flatten(1).unsqueeze(1)
        return mask.unsqueeze(0)
