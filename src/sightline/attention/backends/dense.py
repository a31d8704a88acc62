"""The readable reference: one image at a time, with the bias of one layer built when it is needed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.attention.backends.base import Backend
from sightline.attention.pattern import Pattern
from sightline.layout import Segment, TokenLayout

# Most tokens at which matmul and softmax beat SDPA on a CPU, by dtype, with and without a backward pass: measured
# (benchmarks/dense_forms.py, rows in benchmarks/results). Beyond 320 tokens the scores that are kept cost more memory.
EXPLICIT_MAX_TOKENS = {(torch.bfloat16, True): 320, (torch.bfloat16, False): 160}


class Dense(Backend):
    """SDPA, or explicit matmul and softmax where that is faster, with an additive bias."""

    def supports(self, pattern: Pattern | None, keys: TokenLayout) -> bool:
        return True

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None, queries: TokenLayout, keys: TokenLayout
    ) -> Tensor:
        if len(keys.segments) == 1:
            return _one_image(q, k, v, pattern, queries.segments[0], keys.segments[0], queries, keys)
        parts = zip(
            q.split(queries.lengths, dim=2),
            k.split(keys.lengths, dim=2),
            v.split(keys.lengths, dim=2),
            queries.segments,
            keys.segments,
            strict=True,
        )
        return torch.cat([_one_image(qi, ki, vi, pattern, qs, ks, queries, keys) for qi, ki, vi, qs, ks in parts], 2)


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
    def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert pattern is not None
        bias = pattern.bias(query, key, queries.num_prefix_tokens, keys.num_prefix_tokens, q.dtype)
        return form(q, k, v, bias)

    explicit = _explicit_is_faster(q, k)
    form = explicit_attention if explicit else sdpa
    if pattern is None:
        return form(q, k, v, None)
    # SDPA would keep its mask for the backward pass, a bias for every layer; the explicit form does not keep it.
    if not explicit and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return checkpoint(biased, q, k, v, use_reentrant=False, preserve_rng_state=False)  # type: ignore[return-value]
    return biased(q, k, v)


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
