"""Attention computed again from queries, keys and the pattern, by blocks of queries, and never kept whole.

What `recording` shows of a call is all that it needs, whatever back end computed the output: one image's attention at
1024 px is 9 GiB in a ViT-B, a block of it a few megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sightline.attention.dispatch import Recorded
from sightline.attention.pattern import Pattern
from sightline.grid import Grid
from sightline.segment import Segment

BLOCK_BYTES = 4 << 20
"""Of the scores of a block: what a processor's caches hold."""
# In place of minus infinity: its exponential is 0 too, and 0 times it is no NaN.
_MASKED = -1e30


@dataclass(eq=False)
class AttentionBlock:
    """What some tokens of one image, or of images that stand alike, attend to.

    Prefix tokens stand before patches, among the queries and among the keys; patches are in row-major order where all
    of an image's are there.

    Attributes:
        layer: of the trunk, from 0; None for attention pooling.
        images: the numbers in the batch of the images, [rows] (as `TokenLayout.image_ids`).
        grid: of the images.
        first: the place among the image's slots of the first query, prefix tokens first.
        prefix_queries, prefix_keys: how many of the queries and of the keys are prefix tokens.
        queries: where the patches that ask stand: int64 [1 or rows, patches, axes] in cells.
        keys: where the patches that are asked stand, as `queries`.
        scores: float32 [rows, heads, queries, keys], less the greatest of each query; -1e30 where masked.
        sums: float32 [rows, heads, queries], of the exponentials of `scores`.
        attention: float32 [rows, heads, queries, keys], whose rows sum to 1.
    """

    layer: int | None
    images: Tensor
    grid: Grid
    first: int
    prefix_queries: int
    prefix_keys: int
    queries: Tensor
    keys: Tensor
    scores: Tensor
    sums: Tensor
    attention: Tensor

    @cached_property
    def entropy(self) -> Tensor:
        """Of each query's attention over all keys, in nats: float32 [rows, heads, queries]."""
        return self.sums.log() - torch.einsum("rhqk,rhqk->rhq", self.attention, self.scores)

    @cached_property
    def mean(self) -> Tensor:
        """The attention averaged over heads: float32 [rows, queries, keys]."""
        return self.attention.mean(1)

    @cached_property
    def distance(self) -> Tensor:
        """Euclidean, from each patch that asks to each patch, in cells: float32 [1 or rows, patches, patches]."""
        return (self.queries.unsqueeze(2) - self.keys.unsqueeze(1)).float().square().sum(-1).sqrt()

    @property
    def of_patches(self) -> Tensor:
        """What patches give patches: float32 [rows, heads, patches, patches]; prefix keys have the rest of each row."""
        return self.attention[:, :, self.prefix_queries :, self.prefix_keys :]


def attention_blocks(call: Recorded, block_bytes: int = BLOCK_BYTES) -> Iterator[AttentionBlock]:
    """The attention of a call of `attend`, block by block, in float32 whatever its precision (ViT appendix A).

    Args:
        block_bytes: of scores; a block has one query at least.
    """
    starts_q, starts_k = 0, 0
    lengths = zip(call.queries.lengths, call.keys.lengths, strict=True)
    for number, (queries, keys) in enumerate(lengths):
        part = slice(starts_q, starts_q + queries), slice(starts_k, starts_k + keys)
        yield from _of_image(call, number, *part, block_bytes)
        starts_q, starts_k = starts_q + queries, starts_k + keys


def _of_image(call: Recorded, number: int, ask: slice, keep: slice, block_bytes: int) -> Iterator[AttentionBlock]:
    before_q, before_k = call.queries.num_prefix_tokens, call.keys.num_prefix_tokens
    query, key = call.queries.segments[number], call.keys.segments[number]
    q, k = call.q[:, :, ask].float(), call.k[:, :, keep].float()
    # Tiles are an order for back ends; what is looked at stands in rows.
    q, query = _in_rows(q, query, before_q)
    k, key = _in_rows(k, key, before_k)
    q = q * q.shape[-1] ** -0.5
    rows, heads, asking = q.shape[:3]
    bias = _Bias(call.pattern, query, key, before_q, before_k, number)
    a_query = heads * k.shape[2] * 4
    # Many small images at once, or some queries of one.
    together = max(1, block_bytes // max(1, a_query * asking))
    # The prefix tokens ask together: terms of images are rendered so.
    step = max(1, before_q, min(asking, block_bytes // max(1, a_query)))
    for top in range(0, rows, together):
        images = slice(top, min(top + together, rows))
        numbers = torch.arange(images.start, images.stop) * len(call.keys.segments) + number
        turned = k[images].transpose(-1, -2)
        for first in range(0, asking, step):
            last = min(first + step, asking)
            scores = q[images, :, first:last] @ turned
            bias.add(scores, first, last, images)
            scores -= scores.amax(-1, keepdim=True)
            attention = scores.exp()
            sums = attention.sum(-1)
            attention /= sums.unsqueeze(-1)
            prefix = max(0, min(before_q, last) - first)
            places = slice(max(first, before_q) - before_q, max(last - before_q, 0))
            yield AttentionBlock(
                layer=call.layer,
                images=numbers,
                grid=key.grid,
                first=first,
                prefix_queries=prefix,
                prefix_keys=before_k,
                queries=_of_rows(query.coords, images)[:, places],
                keys=_of_rows(key.coords, images),
                scores=scores,
                sums=sums,
                attention=attention,
            )


def _of_rows(coords: Tensor, images: slice) -> Tensor:
    return coords if coords.shape[0] == 1 else coords[images]


def _in_rows(x: Tensor, segment: Segment, prefix: int) -> tuple[Tensor, Segment]:
    """Slots [rows, heads, slots, head_dim] of an image and where they stand, row-major where all are there."""
    if segment.row_major or not segment.complete or segment.window is not None:
        return x, segment
    order = segment.indices[0].argsort() + prefix
    order = torch.cat((torch.arange(prefix, device=x.device), order))
    return x.index_select(2, order), Segment.whole(segment.grid, x.device)


class _Bias:
    """What a pattern adds to the scores of some queries of one image."""

    def __init__(
        self, pattern: Pattern | None, query: Segment, key: Segment, before_q: int, before_k: int, number: int
    ) -> None:
        self.pattern, self.query, self.key, self.number = pattern, query, key, number
        self.before_q, self.before_k = before_q, before_k
        self.by_column: Tensor | None = None
        if pattern is None:
            return
        whole = len(key.grid) == 2 and key.row_major and query.row_major and not pattern.of_images
        if whole:
            relative, by_key = pattern.tables(key.grid, key.coords.device)
            self.by_key = by_key
            self.extra = [one for term in pattern.terms if (one := term.prefix()) is not None]
            relative = relative.clamp(min=_MASKED)
            x = torch.arange(key.grid.cols, device=relative.device)
            # [heads, column that asks, 2 rows - 1, columns]: what a query adds to all keys is one slice of it.
            places = x.unsqueeze(0) - x.unsqueeze(1) + (key.grid.cols - 1)
            self.by_column = relative[:, :, places].transpose(1, 2).contiguous()

    def add(self, scores: Tensor, first: int, last: int, images: slice) -> None:
        """Add it to the scores [rows, heads, last - first, keys] of the queries in the slots from `first` to `last`."""
        if self.pattern is None:
            return
        if self.by_column is None:
            scores += self._rendered(first, last, images).clamp(min=_MASKED)
            return
        grid, before_q, before_k = self.key.grid, self.before_q, self.before_k
        on_patches = scores[..., before_k:].unflatten(-1, tuple(grid))
        place = max(first, before_q)
        while place < last:
            row, col = divmod(place - before_q, grid.cols)
            count = min(grid.cols - col, last - place)
            at = on_patches[:, :, place - first : place - first + count]
            shown = slice(grid.rows - 1 - row, 2 * grid.rows - 1 - row)
            at += self.by_column[:, col : col + count, shown]
            if self.by_key is not None:
                at += self.by_key.unsqueeze(1).clamp(min=_MASKED)
            place += count
        for extra in self.extra:
            prefix_on_patches, patch_on_prefix, among = extra.float().clamp(min=_MASKED).unsqueeze(-1).unsqueeze(-1)
            top = max(0, before_q - first)
            scores[:, :, :top, before_k:] += prefix_on_patches
            scores[:, :, :top, :before_k] += among
            scores[:, :, top:, :before_k] += patch_on_prefix

    def _rendered(self, first: int, last: int, images: slice) -> Tensor:
        assert self.pattern is not None
        prefix = max(0, min(self.before_q, last) - first)
        places = slice(max(first, self.before_q) - self.before_q, max(last - self.before_q, 0))
        query = Segment(self.query.grid, self.query.coords[:, places], complete=False)
        bias = self.pattern.bias(query, self.key, prefix, self.before_k, image=self.number)
        return bias if bias.shape[0] == 1 else bias[images]
