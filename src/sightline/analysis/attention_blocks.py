"""Attention computed again from queries, keys and the pattern, by blocks of queries, and never kept whole.

What `recording` shows of a call is all that it needs, whatever back end computed the output: one image's attention at
1024 px is 9 GiB in a ViT-B, a block of it a few megabytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.content_bias import TokenPairs, content_of_scores
from sightline.attention.dispatch import AttentionRecord
from sightline.attention.pattern import Pattern
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment

BLOCK_BYTES = 12 << 20
"""Of the attention of a block: 64 queries of a ViT-B at 1024 px, for which a matrix product pays (docs/LOG.md)."""
# Of what is computed at once of it, some heads of an image: what a core's own cache holds.
_PART_BYTES = 1 << 20
# Of a table of displacements that is spread over columns: 24 at 1024 px, eight times that at 2048.
_TABLE_BYTES = 32 << 20
# In place of minus infinity: its exponential is 0 too, and 0 times it is no NaN.
_MASKED = -1e30
Asking = Callable[[Segment, int], Sequence[int] | None]
"""Which slots of an image ask, of its segment and the number of its prefix tokens; None for all."""


@dataclass(eq=False)
class AttentionBlock:
    """What some tokens of one image, or of images that stand alike, attend to.

    Prefix tokens stand before patches, among the queries and among the keys; patches are in row-major order where all
    of an image's are there.

    Of a window of an image (`TokenLayout.windows`) its own slots ask and are asked; the image, its grid and where the
    tokens stand are those of the image that it was cut from.

    Attributes:
        layer: of the trunk, from 0; None for attention pooling.
        images: the numbers in the batch of the images, [rows] (as `TokenLayout.image_ids`).
        grid: of the images.
        first: the place among the image's slots of the first query, prefix tokens first.
        prefix_queries, prefix_keys: how many of the queries and of the keys are prefix tokens.
        queries: where the patches that ask stand: int64 [1 or rows, patches, axes] in cells.
        keys: where the patches that are asked stand, as `queries`.
        entropy: of each query's attention over all keys, in nats: float32 [rows, heads, queries].
        attention: float32 [rows, heads, queries, keys], whose rows sum to 1.
        count_visible: gives `visible`.
    """

    layer: int | None
    images: Tensor
    grid: Grid
    first: int
    prefix_queries: int
    prefix_keys: int
    queries: Tensor
    keys: Tensor
    entropy: Tensor
    attention: Tensor
    count_visible: Callable[[], Tensor]

    @cached_property
    def visible(self) -> Tensor:
        """How many keys each query may see, prefix tokens too: float32 [1 or rows, 1 or heads, queries]."""
        return self.count_visible()

    @cached_property
    def mean(self) -> Tensor:
        """The attention averaged over heads: float32 [rows, queries, keys]."""
        return self.attention.mean(1)

    @cached_property
    def distance(self) -> Tensor:
        """Euclidean, from each patch that asks to each patch, in cells: float32 [1 or rows, patches, patches]."""
        total = torch.zeros((), device=self.keys.device)
        for ask, key in zip(self.queries.float().unbind(-1), self.keys.float().unbind(-1), strict=True):
            total = (ask.unsqueeze(2) - key.unsqueeze(1)).square_().add_(total)
        return total.sqrt_()

    @property
    def of_patches(self) -> Tensor:
        """What patches give patches: float32 [rows, heads, patches, patches]; prefix keys have the rest of each row."""
        return self.attention[:, :, self.prefix_queries :, self.prefix_keys :]

    def weighted(self, values: Tensor) -> Tensor:
        """The sum of values of pairs of patches [1 or rows, patches, patches], weighted by what patches give patches:
        float32 [rows, heads, patches]."""
        weights = self.of_patches
        values = values.expand(len(weights), -1, -1)
        total = weights.new_empty(weights.shape[:3])
        for images, heads in _parts(weights):
            total[images, heads] = (weights[images, heads] * values[images].unsqueeze(1)).sum(-1)
        return total


def attention_blocks(
    call: AttentionRecord, block_bytes: int = BLOCK_BYTES, asking: Asking = lambda *_: None
) -> Iterator[AttentionBlock]:
    """The attention of a call of `attend`, block by block, in float32 whatever its precision (ViT appendix A).

    Args:
        block_bytes: of attention; a block has one query at least.
        asking: where some slots alone ask, prefix tokens are shown together and each patch in a block of its own.
    """
    starts_q, starts_k = 0, 0
    # Windows of one image have its first slot in common.
    firsts = sorted({one.window.start for one in call.keys.segments if one.window is not None})
    places, images = {first: number for number, first in enumerate(firsts)}, len(firsts) or len(call.keys.segments)
    lengths = zip(call.queries.seqlens, call.keys.seqlens, strict=True)
    for number, (queries, keys) in enumerate(lengths):
        part = slice(starts_q, starts_q + queries), slice(starts_k, starts_k + keys)
        window = call.keys.segments[number].window
        image = number if window is None else places[window.start]
        yield from _of_image(call, number, *part, block_bytes, asking, (image, images))
        starts_q, starts_k = starts_q + queries, starts_k + keys


def _of_image(
    call: AttentionRecord,
    number: int,
    ask: slice,
    keep: slice,
    block_bytes: int,
    asking: Asking,
    image: tuple[int, int],
) -> Iterator[AttentionBlock]:
    before_q, before_k = call.queries.num_prefix_tokens, call.keys.num_prefix_tokens
    query, key = call.queries.segments[number], call.keys.segments[number]
    # Tiles are an order for back ends; what is looked at stands in rows.
    q, query = _in_rows(call.q[:, :, ask].detach(), query, before_q)
    k, key = _in_rows(call.k[:, :, keep].detach(), key, before_k)
    k = k.float().contiguous()
    rows, heads, slots = q.shape[:3]
    keys = k.shape[2]
    chosen = asking(query, before_q)
    bias = _Bias(call.pattern, query, key, before_q, before_k, number)
    a_query = heads * keys * 4
    # Many small images at once, or some queries of one.
    together = max(1, block_bytes // max(1, a_query * slots))
    # The prefix tokens ask together: terms of images are rendered so.
    spans = _spans(slots, max(1, before_q, block_bytes // max(1, a_query)), before_q, chosen)
    for top in range(0, rows, together):
        images = slice(top, min(top + together, rows))
        numbers = torch.arange(images.start, images.stop) * image[1] + image[0]
        for first, last in spans:
            attention = k.new_empty(images.stop - top, heads, last - first, keys)
            entropy = attention.new_empty(attention.shape[:3])
            asked = q[images, :, first:last].float() * q.shape[-1] ** -0.5
            rendered = bias.rendered(first, last, images)
            content = bias.of_content(q[images, :, first:last].float(), k[images], first, last, images)
            for at, part in _parts(attention):
                scores = _products(asked[at, part], k[images][at, part])
                bias.add(scores, rendered, first, last, at, part)
                if content is not None:
                    scores += content[at, part]
                scores -= scores.amax(-1, keepdim=True)
                weights = attention[at, part]
                torch.softmax(scores, -1, out=weights)
                # The greatest score is 0 now, so that its weight is 1 over the sum of exponentials.
                entropy[at, part] = -weights.amax(-1).log() - scores.mul_(weights).sum(-1)
            prefix = max(0, min(before_q, last) - first)
            places = slice(max(first, before_q) - before_q, max(last - before_q, 0))
            yield AttentionBlock(
                layer=call.layer,
                images=numbers,
                grid=key.grid if key.window is None else key.window.grid,
                first=first,
                prefix_queries=prefix,
                prefix_keys=before_k,
                queries=_of_rows(query.image_coords, images)[:, places],
                keys=_of_rows(key.image_coords, images),
                entropy=entropy,
                attention=attention,
                count_visible=partial(bias.visible, first, last, images),
            )


def _spans(slots: int, step: int, prefix: int, chosen: Sequence[int] | None) -> list[tuple[int, int]]:
    """The first slot of each block and the one after its last."""
    if chosen is None:
        step = max(prefix, -(-slots // -(-slots // step)))
        return [(first, min(first + step, slots)) for first in range(0, slots, step)]
    together = [(0, prefix)] if any(slot < prefix for slot in chosen) else []
    return together + [(slot, slot + 1) for slot in sorted(set(chosen)) if slot >= prefix]


def _parts(block: Tensor) -> list[tuple[slice, slice]]:
    """A block [rows, heads, queries, keys] in parts of some images and heads that a core's own cache holds."""
    rows, heads, *pairs = block.shape
    fit = max(1, _PART_BYTES // max(1, 4 * math.prod(pairs)))
    if block.device.type != "cpu" or fit >= rows * heads:
        return [(slice(0, rows), slice(0, heads))]
    images, some = max(1, fit // heads), min(fit, heads)
    starts = itertools.product(range(0, rows, images), range(0, heads, some))
    return [(slice(row, min(row + images, rows)), slice(head, min(head + some, heads))) for row, head in starts]


def _products(q: Tensor, k: Tensor) -> Tensor:
    """q k^T: [rows, heads, queries, head_dim] and [rows, heads, keys, head_dim] -> [rows, heads, queries, keys]."""
    return q @ k.transpose(-1, -2)


def _of_rows(coords: Tensor, images: slice) -> Tensor:
    return coords if coords.shape[0] == 1 else coords[images]


def _in_rows(x: Tensor, segment: Segment, prefix: int) -> tuple[Tensor, Segment]:
    """Slots [rows, heads, slots, head_dim] of an image and where they stand, row-major where all are there."""
    if segment.row_major or not segment.complete or segment.window is not None:
        return x, segment
    order = segment.indices[0].argsort() + prefix
    order = torch.cat((torch.arange(prefix, device=x.device), order))
    return x.index_select(2, order), Segment.from_grid(segment.grid, x.device)


class _Bias:
    """What a pattern adds to the scores of some queries of one image."""

    def __init__(
        self, pattern: Pattern | None, query: Segment, key: Segment, before_q: int, before_k: int, number: int
    ) -> None:
        self.pattern, self.query, self.key, self.number = pattern, query, key, number
        self.before_q, self.before_k = before_q, before_k
        self.by_key: Tensor | None = None
        self.table: Tensor | None = None
        self.extra: list[Tensor] = []
        whole = len(key.grid) == 2 and key.row_major and query.row_major
        if pattern is None or not whole or pattern.of_images:
            return
        table, self.by_key = pattern.tables(key.grid, key.coords.device, key.window_grid)
        self.table = table.detach().clamp(min=_MASKED)
        if self.by_key is not None:
            self.by_key = self.by_key.detach().clamp(min=_MASKED)
        given = [one for term in pattern.terms if (one := term.prefix()) is not None]
        self.extra = [one.detach().float().clamp(min=_MASKED)[..., None, None] for one in given]

    @cached_property
    def by_column(self) -> Tensor | None:
        """The table for each column that asks: [heads, columns, 2 rows - 1, columns]. What a query adds to all keys is
        one slice of it. None where it is large."""
        assert self.table is not None
        cols = self.key.grid.cols
        heads, height, width = self.table.shape
        if 4 * heads * cols * height * cols > _TABLE_BYTES:
            return None
        strides = height * width, 1, width, 1
        return self.table.contiguous().as_strided((heads, cols, height, cols), strides).flip(1)

    def rendered(self, first: int, last: int, images: slice) -> Tensor | None:
        """The whole bias of the queries in the slots from `first` to `last`, where no table serves: float32
        [1 or rows, heads, queries, keys]."""
        if self.pattern is None or self.table is not None:
            return None
        prefix, query = self._asking(first, last)
        bias = self.pattern.bias(query, self.key, prefix, self.before_k, image=self.number).detach()
        return _of_rows(bias, images).clamp(min=_MASKED)

    def _asking(self, first: int, last: int) -> tuple[int, Segment]:
        """How many prefix tokens are in the slots from `first` to `last`, and the patches there."""
        prefix = max(0, min(self.before_q, last) - first)
        places = slice(max(first, self.before_q) - self.before_q, max(last - self.before_q, 0))
        return prefix, Segment(self.query.grid, self.query.coords[:, places], complete=False)

    @torch.no_grad()
    def of_content(self, q: Tensor, k: Tensor, first: int, last: int, images: slice) -> Tensor | None:
        """What is made of the queries in these slots, not scaled, and of all keys of the images, beside the bias:
        float32 [rows, heads, queries, keys], or None."""
        if self.pattern is None:
            return None
        prefix, query = self._asking(first, last)
        query, key = (replace(one, coords=_of_rows(one.coords, images)) for one in (query, self.key))
        return content_of_scores(self.pattern, q, k, TokenPairs(query, key, prefix, self.before_k))

    @cached_property
    def _visible(self) -> Tensor:
        """Of each slot on a whole grid: float32 [1, heads, slots]."""
        assert self.table is not None
        # How many of the displacements before one are visible: the number in a window is a difference of four.
        before = F.pad((self.table > _MASKED / 2).double().cumsum(1).cumsum(2), (1, 0, 1, 0))
        for axis, side in enumerate(self.key.grid, start=1):
            low = torch.arange(side - 1, -1, -1, device=before.device)
            before = before.index_select(axis, low + side) - before.index_select(axis, low)
        return F.pad(before.flatten(1), (self.before_q, 0), value=self.key.patches).float().unsqueeze(0) + self.before_k

    def visible(self, first: int, last: int, images: slice) -> Tensor:
        """As `AttentionBlock.visible`."""
        if self.table is not None:
            return self._visible[..., first:last]
        rendered = self.rendered(first, last, images)
        if rendered is None:
            return torch.full(
                (1, 1, last - first), float(self.before_k + self.key.patches), device=self.key.coords.device
            )
        return (rendered > _MASKED / 2).sum(-1).float()

    def add(self, scores: Tensor, rendered: Tensor | None, first: int, last: int, images: slice, heads: slice) -> None:
        """Add it to the scores [rows, heads, last - first, keys] of some images and heads."""
        if rendered is not None:
            scores += rendered[images if len(rendered) > 1 else slice(None), heads]
            return
        if self.table is None:
            return
        grid, before_q, before_k = self.key.grid, self.before_q, self.before_k
        on_patches = scores[..., before_k:].unflatten(-1, tuple(grid))
        place = max(first, before_q)
        while place < last:
            row, col = divmod(place - before_q, grid.cols)
            count = min(grid.cols - col, last - place)
            at = on_patches[:, :, place - first : place - first + count]
            shown = slice(grid.rows - 1 - row, 2 * grid.rows - 1 - row)
            if self.by_column is not None:
                at += self.by_column[heads, col : col + count, shown]
            else:
                for number in range(count):
                    start = grid.cols - 1 - col - number
                    at[:, :, number] += self.table[heads, shown, start : start + grid.cols]
            place += count
        top = max(0, before_q - first)
        if self.by_key is not None:
            on_patches[:, :, top:] += self.by_key[heads].unsqueeze(1)
        for extra in self.extra:
            prefix_on_patches, patch_on_prefix, among = extra[:, heads]
            scores[:, :, :top, before_k:] += prefix_on_patches
            scores[:, :, :top, :before_k] += among
            scores[:, :, top:, :before_k] += patch_on_prefix
