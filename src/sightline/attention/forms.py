"""Ways to compute attention of whole images with a bias that is there, among which `dense` chooses by what they cost
here (`costs.py`). All give what `sdpa` gives, in bfloat16 with an error of no more than 1.2 times its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.by_head import by_head, dense, like
from sightline.attention.kernel import differentiated_once
from sightline.attention.softmax import LOG2_E, softmax2

Form = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
FormName = Literal["sdpa", "sdpa_in_float32", "by_head", "explicit"]


def sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """torch's fused attention."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def sdpa_in_float32(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """`sdpa` of 16-bit tensors with everything between them and the output in float32, the bias too."""
    with torch.autocast("cpu", enabled=False):
        return sdpa(q.float(), k.float(), v.float(), bias).to(q.dtype)


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Matmul, softmax, matmul, as torch differentiates them; the scale is applied to q."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(dim=-1) @ v


def explicit(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Matmul, softmax, matmul with everything between inputs and output in float32, and products of gradients in the
    inputs' own precision; some images at a time, and in training it keeps the attention weights in float32.

    In bfloat16 the output's error is .88 times that of SDPA, and those of gradients .8 to 1.05 times (docs/LOG.md).
    """
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (q, k, v, bias)):
        return _Explicit.apply(q, k, v, bias)  # pyright: ignore[reportReturnType]
    return _computed(q, k, v, bias)


FORMS: dict[FormName, Form] = {
    "sdpa": sdpa,
    "sdpa_in_float32": sdpa_in_float32,
    "by_head": by_head,
    "explicit": explicit,
}


OF_SDPA = ("sdpa", "sdpa_in_float32")
"""Those in which a row that is masked whole gives zeros."""


def bias_dtype(form: Form, dtype: torch.dtype) -> torch.dtype:
    """Of the bias that a form wants for queries of `dtype`."""
    return dtype if form is sdpa else torch.promote_types(dtype, torch.float32)


# Scores of so many images at a time as fit beside each other in a core's cache (measured from 0.5 to 8 MiB).
_CHUNK_BYTES = 2**20


def _chunks(q: Tensor, k: Tensor) -> list[slice]:
    """The images, by so many at a time."""
    step = max(1, _CHUNK_BYTES // max(1, 4 * q.shape[1] * q.shape[2] * k.shape[2]))
    return [slice(first, first + step) for first in range(0, q.shape[0], step)]


def _computed(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: list[Tensor] | None = None) -> Tensor:
    """The output, [rows, heads, tokens, head_dim] with heads side by side in each token; the attention weights of each
    chunk are put into `kept`, [images * heads, queries, keys]."""
    wide, scale, heads = torch.promote_types(q.dtype, torch.float32), LOG2_E * q.shape[-1] ** -0.5, q.shape[1]
    out = like(q)
    with torch.autocast(q.device.type, enabled=False):
        for some in _chunks(q, k):
            images = q[some].shape[0]
            queries, keys, values = (_matrices(one[some], wide) for one in (q, k, v))
            scores = torch.bmm(queries * scale, keys.transpose(1, 2))
            if bias is not None:
                scores.unflatten(0, (images, heads)).add_(bias[some] if len(bias) > 1 else bias, alpha=LOG2_E)
            attention = softmax2(scores)
            if kept is not None:
                kept.append(attention)
            # Of weights that are rounded to bfloat16 the output's error is 1.23 times SDPA's.
            out[some] = torch.bmm(attention, values).unflatten(0, (images, heads))
    return out


class _Explicit(torch.autograd.Function):
    """`explicit`, each head of each image one matrix of a batch."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        # Chunk by chunk: one tensor of more than 32 MB would be taken from the system, and given back, in every step.
        kept: list[Tensor] = []
        out = _computed(q, k, v, bias, kept)
        ctx.save_for_backward(q, k, v, *kept)
        ctx.of_bias = None if bias is None else (bias.shape, bias.dtype)
        return out

    @staticmethod
    @differentiated_once
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, *kept = ctx.saved_tensors
        scale, heads, found = q.shape[-1] ** -0.5, q.shape[1], [like(one) for one in (q, k, v)]
        wide = torch.promote_types(q.dtype, torch.float32)
        of_bias = q.new_zeros(ctx.of_bias[0], dtype=wide) if ctx.needs_input_grad[3] else None
        with torch.autocast(q.device.type, enabled=False):
            for some, attention in zip(_chunks(q, k), kept, strict=True):
                images = q[some].shape[0]
                queries, keys, values, grad = (_matrices(one[some], v.dtype) for one in (q, k, v, grad_out))
                # Of the softmax: P * (dP - sum of P * dP).
                grad_attention = torch.bmm(grad, values.transpose(1, 2)).to(wide)
                exact = torch.ops.aten._softmax_backward_data(grad_attention, attention, -1, wide)
                scores = exact.to(v.dtype)
                products = (
                    torch.bmm(scores, keys).mul_(scale),
                    torch.bmm(scores.transpose(1, 2), queries).mul_(scale),
                    torch.bmm(attention.to(v.dtype).transpose(1, 2), grad),
                )
                for total, part in zip(found, products, strict=True):
                    total[some] = part.unflatten(0, (images, heads))
                if of_bias is not None:
                    here = exact.unflatten(0, (images, heads))
                    into = of_bias[some] if len(of_bias) > 1 else of_bias
                    into += here.sum_to_size(into.shape)
        return *found, None if of_bias is None else of_bias.to(ctx.of_bias[1])


def _matrices(x: Tensor, dtype: torch.dtype) -> Tensor:
    """[rows, heads, tokens, head_dim] -> [rows * heads, tokens, head_dim]."""
    return dense(x, dtype).flatten(0, 1)
