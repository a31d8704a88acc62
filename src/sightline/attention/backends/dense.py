"""The readable reference: one image at a time, with the bias of one layer built when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline import runtime
from sightline.attention.backends.base import Backend
from sightline.attention.pattern import Pattern
from sightline.attention.transforms import transforming
from sightline.errors import InputError
from sightline.layout import Segment, TokenLayout

# Most tokens at which bfloat16 on a CPU is not left to SDPA in bfloat16, whose backward pass of short images is slow.
# Beyond, a bias that is kept for each layer, or scores, would cost more memory.
SHORT_TOKENS = 320


# The most bytes of bias at once: beyond, it is made for fewer heads, then for fewer queries.
BIAS_BYTES = 96 * 2**20


class Dense(Backend):
    """SDPA with an additive bias; for short images in bfloat16 on a CPU in float32, or explicit matmul and softmax."""

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
            # Still one row to `_form`: a neighbour of another kind would end the likeness, and may change no image.
            out = _one_image(q, k, v, pattern, queries.segments[0], keys.segments[0], queries, keys, 1)
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
    batch: int | None = None,
) -> Tensor:
    form = _form(q, k, q.shape[0] if batch is None else batch)
    if pattern is None:
        return form(q, k, v, None)
    dtype = torch.float32 if form is sdpa_in_float32 else q.dtype
    whole = _Part(slice(None), query, queries.num_prefix_tokens)

    def biased(q: Tensor, k: Tensor, v: Tensor, part: _Part = whole) -> Tensor:
        bias = pattern.bias(part.query, key, part.prefix, keys.num_prefix_tokens, dtype, part.heads)
        if bias.shape[1] != q.shape[1]:
            raise InputError(f"attention: a pattern of {bias.shape[1]} heads for queries of {q.shape[1]}")
        return form(q, k, v, bias)

    # What a short image keeps for the backward pass costs less than making it again.
    if torch.compiler.is_compiling() or (form is not sdpa and torch.is_grad_enabled()):
        return biased(q, k, v)
    images = max(query.coords.shape[0], key.coords.shape[0])
    by_head = []
    for heads in _heads_at_once(q.shape[1], images * q.shape[2] * k.shape[2] * dtype.itemsize):
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


def _form(q: Tensor, k: Tensor, rows: int) -> Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]:
    if torch.compiler.is_compiling() or q.device.type != "cpu" or q.dtype != torch.bfloat16:
        return sdpa
    if k.shape[-2] > SHORT_TOKENS:
        return sdpa
    trains = torch.is_grad_enabled() and explicit_pays(rows, k.shape[-2], q.shape[-1])
    return explicit_attention if trains else sdpa_in_float32


def explicit_pays(rows: int, tokens: int, head_dim: int) -> bool:
    """Whether training on short images in bfloat16 takes the explicit form on this processor.

    Attention is 1.2 to 2 times faster there, a whole step of the demonstration's model 1.14 times. The error of the
    output is 1.6 times that of SDPA in bfloat16 and more, which makes the error of a whole model's gradients 1.2 times
    as large (1.1 % for 0.9 %: far below what a batch leaves to chance); a model's answers never take it.

    Nothing is timed, so that a run is the same every time; and a pack (one row) asks for each image alone, so that its
    neighbours change nothing. Measured by benchmarks/dense_forms.py; with AMX, not measured, it is as it was.
    """
    if runtime.has_amx():
        return tokens <= SHORT_TOKENS
    if not runtime.has_avx512_bf16():
        return False
    least, most = _EXPLICIT_TOKENS[head_dim >= 64, rows > 1]
    return least <= tokens <= most


# Fewest and most tokens, by whether heads are 64 or wider and whether there are many rows.
_EXPLICIT_TOKENS = {
    (False, False): (1, 0),
    (False, True): (24, 104),
    (True, False): (80, SHORT_TOKENS),
    (True, True): (24, SHORT_TOKENS),
}


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Matmul, softmax, matmul; the scale is applied to q."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(dim=-1) @ v


def sdpa_in_float32(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """`sdpa` of 16-bit tensors with everything between them and the output in float32, the bias too."""
    with torch.autocast("cpu", enabled=False):
        return sdpa(q.float(), k.float(), v.float(), bias).to(q.dtype)


def sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """torch's fused attention."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
