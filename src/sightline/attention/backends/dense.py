"""The readable reference: one image at a time, with the bias of one layer built when it is needed."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.attention.backends.base import Backend
from sightline.attention.pattern import Pattern
from sightline.attention.transforms import transforming
from sightline.errors import InputError
from sightline.layout import Segment, TokenLayout

# Most tokens at which matmul and softmax beat SDPA on a CPU, by dtype, with and without a backward pass: measured
# (benchmarks/dense_forms.py, rows in benchmarks/results). Beyond 320 tokens the scores that are kept cost more memory.
EXPLICIT_MAX_TOKENS = {(torch.bfloat16, True): 320, (torch.bfloat16, False): 160}


# The most bytes of bias at once: beyond, it is made for fewer heads, then for fewer queries.
BIAS_BYTES = 96 * 2**20


class Dense(Backend):
    """SDPA, or explicit matmul and softmax where that is faster, with an additive bias."""

    name = "dense"
    preference = 0

    def supports(self, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout, q: Tensor) -> bool:
        return True

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout
    ) -> Tensor:
        if len(keys.segments) == 1:
            return _one_image(q, k, v, pattern, queries.segments[0], keys.segments[0], queries, keys)
        if q.shape[0] == 1 and _alike(pattern, queries) and _alike(pattern, keys):
            # Images that differ in nothing but their content are a batch: one call, not one an image.
            count = len(keys.segments)
            q, k, v = (x[0].unflatten(1, (count, -1)).transpose(0, 1) for x in (q, k, v))
            out = _one_image(q, k, v, pattern, queries.segments[0], keys.segments[0], queries, keys)
            return out.transpose(0, 1).flatten(1, 2).unsqueeze(0)
        parts = zip(
            q.split(queries.lengths, dim=2),
            k.split(keys.lengths, dim=2),
            v.split(keys.lengths, dim=2),
            queries.segments,
            keys.segments,
            strict=True,
        )
        return torch.cat([_one_image(qi, ki, vi, pattern, qs, ks, queries, keys) for qi, ki, vi, qs, ks in parts], 2)


def _alike(pattern: Pattern | None, layout: TokenLayout) -> bool:
    """Whether all images of a pack have as many slots and, where a pattern looks at it, stand alike."""
    if torch.compiler.is_compiling():
        return False
    first = layout.segments[0]
    if pattern is None:
        return all(one.patches == first.patches for one in layout.segments)
    return all(one.complete and (one.grid, one.tile) == (first.grid, first.tile) for one in layout.segments)


def _one_image(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern | None,
    query: Segment,
    key: Segment,
    queries: TokenLayout,
    keys: TokenLayout,
) -> Tensor:
    explicit = _explicit_is_faster(q, k)
    form = explicit_attention if explicit else sdpa
    if pattern is None:
        return form(q, k, v, None)
    whole = _Part(slice(None), query, queries.num_prefix_tokens)

    def biased(q: Tensor, k: Tensor, v: Tensor, part: _Part = whole) -> Tensor:
        bias = pattern.bias(part.query, key, part.prefix, keys.num_prefix_tokens, q.dtype, part.heads)
        if bias.shape[1] != q.shape[1]:
            raise InputError(f"attention: a pattern of {bias.shape[1]} heads for queries of {q.shape[1]}")
        return form(q, k, v, bias)

    if torch.compiler.is_compiling() or explicit:
        return biased(q, k, v)
    images = max(query.coords.shape[0], key.coords.shape[0])
    by_head = []
    for heads in _heads_at_once(q.shape[1], images * q.shape[2] * k.shape[2] * q.element_size()):
        rows = []
        for part, block in _query_blocks(heads, query, key, queries.num_prefix_tokens, images * k.shape[2]):
            here = (q[:, heads, block], k[:, heads], v[:, heads])
            # SDPA would keep its mask for the backward pass, a bias for every layer.
            # Under torch.func's transforms there is no such saving, nor the hooks that checkpoints need.
            if torch.is_grad_enabled() and not transforming():
                rows.append(checkpoint(biased, *here, part, use_reentrant=False, preserve_rng_state=False))
            else:
                rows.append(biased(*here, part))
        by_head.append(rows[0] if len(rows) == 1 else torch.cat(rows, dim=2))
    return by_head[0] if len(by_head) == 1 else torch.cat(by_head, dim=1)


class _Part(NamedTuple):
    """Some heads and some queries of an image, for which a bias is made at once."""

    heads: slice
    query: Segment
    prefix: int


def _heads_at_once(heads: int, bytes_a_head: int) -> list[slice]:
    """As many heads at a time as keep their bias within the bound, at least one."""
    if heads * bytes_a_head <= BIAS_BYTES:
        return [slice(None)]
    step = max(1, BIAS_BYTES // bytes_a_head)
    return [slice(first, min(first + step, heads)) for first in range(0, heads, step)]


def _query_blocks(heads: slice, query: Segment, key: Segment, prefix: int, keys: int) -> list[tuple[_Part, slice]]:
    """The queries, in blocks where the bias of a single head is beyond the bound; the first has the prefix slots."""
    # The displacements of any tokens but whole grids in rows are spread by index, with 20 bytes a pair.
    bytes_a_pair = 4 if query.row_major and key.row_major else 20
    if (prefix + query.patches) * keys * bytes_a_pair <= BIAS_BYTES:
        return [(_Part(heads, query, prefix), slice(None))]
    step = max(1, BIAS_BYTES // (20 * keys))
    blocks = []
    for first in range(0, max(1, query.patches), step):
        some = Segment(query.grid, query.coords[:, first : first + step], complete=False)
        before = prefix if first == 0 else 0
        start = prefix + first - before
        blocks.append((_Part(heads, some, before), slice(start, prefix + first + some.patches)))
    return blocks


def _explicit_is_faster(q: Tensor, k: Tensor) -> bool:
    if torch.compiler.is_compiling() or q.device.type != "cpu":
        return False
    return k.shape[-2] <= EXPLICIT_MAX_TOKENS.get((q.dtype, torch.is_grad_enabled()), 0)


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Matmul, softmax, matmul; the scale is applied to q."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(dim=-1) @ v


def sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """torch's fused attention."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
