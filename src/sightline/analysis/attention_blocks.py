"""Attention computed again from queries, keys and the pattern, by blocks of queries, and never kept whole.

What `record_attention` shows of a call is all that it needs, whatever back end computed the output: one image's
attention at 1024 px is 9 GiB in a ViT-B, a block of it a few megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from sightline.analysis.one_query import patch_bias
from sightline.attention.content_bias import TokenPairs, content_of_scores
from sightline.attention.dispatch import AttentionRecord
from sightline.attention.pattern import Pattern
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment

BLOCK_BYTES = 12 << 20
"""Of the attention of a block: 64 queries of a ViT-B at 1024 px, where a product pays."""
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
        bias: what the pattern added to the scores, float32 [1 or rows, 1 or heads, queries, keys]; None for nothing.
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
    bias: Tensor | None

    @cached_property
    def visible(self) -> Tensor:
        """How many keys each query may see, prefix tokens too: float32 [1 or rows, 1 or heads, queries]."""
        if self.bias is None:
            *_, queries, keys = self.attention.shape
            return self.attention.new_full((1, 1, queries), keys)
        return (self.bias > _MASKED / 2).sum(-1).float()

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


@torch.no_grad()
def attention_blocks(
    call: AttentionRecord, block_bytes: int = BLOCK_BYTES, asking: Asking = lambda *_: None
) -> Iterator[AttentionBlock]:
    """The attention of a call of `attend`, block by block, in float32 whatever its precision (ViT appendix A).

    Args:
        block_bytes: of attention; a block has one query at least.
        asking: where some slots alone ask, prefix tokens are shown together and each patch in a block of its own.
    """
    segments = call.keys.segments
    # Windows of one image have its first slot in common.
    firsts = sorted({one.window.start for one in segments if one.window is not None})
    places, images = {first: number for number, first in enumerate(firsts)}, len(firsts) or len(segments)
    before = call.queries.num_prefix_tokens, call.keys.num_prefix_tokens
    qs, ks = (
        x[:, :, : sum(layout.seqlens)].split(layout.seqlens, dim=2)
        for x, layout in ((call.q, call.queries), (call.k, call.keys))
    )
    for number, (q, k, query, key) in enumerate(zip(qs, ks, call.queries.segments, segments, strict=True)):
        # Tiles are an order for back ends; what is looked at stands in rows.
        shown = *_in_rows(q, query, before[0]), *_in_rows(k.float(), key, before[1])
        one = _Image(call.pattern, number, *shown, *before)
        image = number if key.window is None else places[key.window.start]
        rows, heads, slots = one.q.shape[:3]
        a_query = heads * one.k.shape[2] * 4
        # Many small images at once, or some queries of one; prefix tokens ask together, as terms of images have them.
        together = max(1, block_bytes // max(1, a_query * slots))
        most = max(1, before[0], block_bytes // max(1, a_query))
        spans = _spans(slots, most, before[0], asking(one.query, before[0]))
        for top in range(0, rows, together):
            some = slice(top, min(top + together, rows))
            numbers = torch.arange(some.start, some.stop) * images + image
            for first, last in spans:
                yield one.block(call.layer, some, numbers, first, last)


def _spans(slots: int, step: int, prefix: int, chosen: Sequence[int] | None) -> list[tuple[int, int]]:
    """The first slot of each block and the one after its last."""
    if chosen is None:
        step = max(prefix, -(-slots // -(-slots // step)))
        return [(first, min(first + step, slots)) for first in range(0, slots, step)]
    together = [(0, prefix)] if any(slot < prefix for slot in chosen) else []
    return together + [(slot, slot + 1) for slot in sorted(set(chosen)) if slot >= prefix]


def _of_rows(x: Tensor, images: slice) -> Tensor:
    return x if x.shape[0] == 1 else x[images]


def _in_rows(x: Tensor, segment: Segment, prefix: int) -> tuple[Tensor, Segment]:
    """Slots [rows, heads, slots, head_dim] of an image and where they stand, row-major where all are there."""
    if segment.row_major or not segment.complete or segment.window is not None:
        return x, segment
    order = segment.indices[0].argsort() + prefix
    order = torch.cat((torch.arange(prefix, device=x.device), order))
    return x.index_select(2, order), Segment.from_grid(segment.grid, x.device)


@dataclass(eq=False)
class _Image:
    """Queries and keys of the images of one segment: q, k [rows, heads, slots, head_dim], k in float32."""

    pattern: Pattern | None
    number: int
    q: Tensor
    query: Segment
    k: Tensor
    key: Segment
    before_q: int
    before_k: int

    def block(self, layer: int | None, images: slice, numbers: Tensor, first: int, last: int) -> AttentionBlock:
        """Of some images the queries in the slots from `first` to `last`."""
        prefix = max(0, min(self.before_q, last) - first)
        places = slice(max(first, self.before_q) - self.before_q, max(last - self.before_q, 0))
        asking = Segment(self.query.grid, self.query.coords[:, places], complete=False)
        q, k, bias = self.q[images, :, first:last].float(), self.k[images], self._bias(asking, prefix, first, last)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if bias is not None:
            bias = _of_rows(bias, images)
            scores += bias
        if self.pattern is not None:
            query, key = (replace(one, coords=_of_rows(one.coords, images)) for one in (asking, self.key))
            content = content_of_scores(self.pattern, q, k, TokenPairs(query, key, prefix, self.before_k))
            scores = scores if content is None else scores + content
        scores -= scores.amax(-1, keepdim=True)
        attention = torch.softmax(scores, -1)
        # The greatest score is 0 now, so that its weight is 1 over the sum of exponentials.
        entropy = -attention.amax(-1).log() - scores.mul_(attention).sum(-1)
        return AttentionBlock(
            layer=layer,
            images=numbers,
            grid=self.key.grid if self.key.window is None else self.key.window.grid,
            first=first,
            prefix_queries=prefix,
            prefix_keys=self.before_k,
            queries=_of_rows(self.query.image_coords, images)[:, places],
            keys=_of_rows(self.key.image_coords, images),
            entropy=entropy,
            attention=attention,
            bias=bias,
        )

    def _bias(self, asking: Segment, prefix: int, first: int, last: int) -> Tensor | None:
        """What the pattern adds to the scores: float32 [1 or rows, 1 or heads, queries, keys], or None."""
        if self.pattern is None:
            return None
        if self._by_patch is None:
            return self.pattern.bias(asking, self.key, prefix, self.before_k, image=self.number).clamp(min=_MASKED)
        found = [self._by_patch(slot - self.before_q).unsqueeze(1) for slot in range(max(first, self.before_q), last)]
        if prefix:
            nobody = Segment(self.key.grid, self.key.coords[:, :0], complete=False)
            found.insert(0, self.pattern.bias(nobody, self.key, prefix, self.before_k)[0])
        rows = torch.cat([one.expand(self.q.shape[1], -1, -1) for one in found], dim=1)
        return rows.clamp_(min=_MASKED).unsqueeze(0)

    @cached_property
    def _by_patch(self) -> Callable[[int], Tensor] | None:
        """As `patch_bias`, where tables serve."""
        assert self.pattern is not None
        whole = len(self.key.grid) == 2 and self.key.row_major and self.query.row_major
        return patch_bias(self.pattern, self.before_k, self.key) if whole and not self.pattern.of_images else None
