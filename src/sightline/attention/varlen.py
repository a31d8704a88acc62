"""Variable-length attention on a GPU: all images of a pack in one kernel, where there is no pattern."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sightline.attention.pattern import Pattern
from sightline.tokens.layout import TokenLayout

# What the kernel (FlashAttention) takes.
DTYPES = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256


def supports_varlen(pattern: Pattern | None, keys: TokenLayout, q: Tensor) -> bool:
    """Whether torch's variable-length kernel can compute a call: several images a row on CUDA, without a pattern."""
    return (
        pattern is None
        and len(keys.segments) > 1
        and q.device.type == "cuda"
        and q.dtype in DTYPES
        and q.shape[-1] <= MAX_HEAD_DIM
        and q.shape[-1] % 8 == 0
        and type(q) in (Tensor, torch.nn.Parameter)
        and not torch.compiler.is_compiling()
    )


def attend_varlen(q: Tensor, k: Tensor, v: Tensor, queries: TokenLayout, keys: TokenLayout) -> Tensor:
    """All images of all rows in one kernel: [rows, heads, slots, head_dim] each and the result."""
    # Under autocast a norm may have left one of them in another precision.
    flat_q, flat_k, flat_v = (x.to(v.dtype).transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    ends = cumulative_lengths(queries), cumulative_lengths(keys)
    # Importing it takes seconds: not before it is needed.
    from torch.nn.attention.varlen import varlen_attn

    out: Any = varlen_attn(flat_q, flat_k, flat_v, ends[0], ends[1], max(queries.seqlens), max(keys.seqlens))
    return out.unflatten(0, (q.shape[0], q.shape[2])).transpose(1, 2)


def cumulative_lengths(layout: TokenLayout) -> Tensor:
    """Where each image of all rows starts in [rows * slots] tokens, and where the last one ends.

    Made once for a layout, on its device.

    Returns:
        int32 [images + 1].
    """
    starts = [0, *layout.seqlens * layout.rows]
    return layout.cached("cumulative lengths", lambda: torch.tensor(starts).cumsum(0).int().to(layout.device))
