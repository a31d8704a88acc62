"""Variable-length attention on a GPU: all images of a pack in one kernel, where there is no pattern."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.tokens.layout import TokenLayout

# What the kernel (FlashAttention) takes.
DTYPES = (torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256


class VarlenCall(NamedTuple):
    """All images of all rows in one kernel, padding as one more; see `plan_varlen`.

    Attributes:
        query_ends, key_ends: int32 [images + 1], where each image starts in [rows * slots] tokens, and where the last
            one ends.
        max_queries, max_keys: no image has more; powers of two, so that packs share a compiled program.
    """

    query_ends: Tensor
    key_ends: Tensor
    max_queries: int
    max_keys: int

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, heads, slots, head_dim] each and the result."""
        # Under autocast a norm may have left one of them in another precision.
        flat_q, flat_k, flat_v = (x.to(v.dtype).transpose(1, 2).flatten(0, 1) for x in (q, k, v))
        # Importing it takes seconds: not before it is needed.
        from torch.nn.attention.varlen import varlen_attn

        out: Any = varlen_attn(flat_q, flat_k, flat_v, *self)
        return out.unflatten(0, (q.shape[0], q.shape[2])).transpose(1, 2)


def plan_varlen(queries: TokenLayout, keys: TokenLayout) -> VarlenCall:
    """What the kernel is told of two layouts; made once for each, on its device."""
    most = (1 << (max(one.seqlens) - 1).bit_length() for one in (queries, keys))
    return VarlenCall(_cumulative_lengths(queries), _cumulative_lengths(keys), *most)


def _cumulative_lengths(layout: TokenLayout) -> Tensor:
    lengths = [*layout.seqlens, layout.padding] if layout.padding else layout.seqlens
    starts = [0, *lengths * layout.rows]
    return layout.cached("cumulative lengths", lambda: torch.tensor(starts).cumsum(0).int().to(layout.device))
