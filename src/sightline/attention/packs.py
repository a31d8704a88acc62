"""The images of a pack on a CPU: one step of the graph for all of them, with plain products where images are short.

What costs in a pack of tiny images are the calls: of wrappers, of autograd's nodes, of a kernel that is made for long
rows. Here the gradients are written out, and a bias without parameters is made again for them and never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.costs import chosen_form
from sightline.attention.kernel import custom_kernels_allowed, differentiated_once, fused_kernel
from sightline.attention.softmax import LN_2, LOG2_E, softmax2
from sightline.errors import InputError

# Most patches of an image, in widths of a head, whose attention weights are kept: as much memory as the hidden layer of
# an MLP. So far, products and a softmax are also faster in training than the fused kernel (docs/LOG.md).
_KEPT_WIDTHS = 4
# The fused kernel takes images that are alike together, of which none may know: it counts on some (docs/LOG.md).
_ALIKE = 4


class PackImages(NamedTuple):
    """Some images of a pack, one after the other, of as many slots and with the same bias.

    Attributes:
        images: how many.
        queries, keys: slots of all of them.
        dtype: in which they are computed.
        short: whether by products whose weights are kept, and not by the fused kernel.
    """

    images: int
    queries: int
    keys: int
    dtype: torch.dtype
    short: bool


class Pack(NamedTuple):
    """What is known of a pack before its queries, keys and values.

    Attributes:
        parts: its images.
        biases: called for a pass, and again for its gradients: [1, heads, slots, slots] of one image of each part, to
            be written to, or None; without gradients of their own.
    """

    parts: Sequence[PackImages]
    biases: Callable[[], Iterable[Tensor | None]]


def is_short(patches: int, prefix: int, head_dim: int, dtype: torch.dtype) -> bool:
    """Whether an image of so many patches and prefix tokens is computed by plain products: by nothing but itself, since
    its neighbours may not change it."""
    if dtype not in (torch.float32, torch.float64) or patches > _KEPT_WIDTHS * head_dim:
        return False
    if torch.is_grad_enabled():
        return True
    forms, asked = ("explicit", "sdpa"), {"tokens": prefix + patches, "head_dim": head_dim}
    return chosen_form(forms, torch.float32, **asked, images=_ALIKE) == "explicit"


def takes(q: Tensor, k: Tensor, v: Tensor, pack: Pack) -> bool:
    """Whether such tensors are computed here: plain ones of one row on a CPU, each image with a slot at least."""
    if q.shape[0] != 1 or not custom_kernels_allowed(q, k, v) or any(one.stride(-1) != 1 for one in (q, k, v)):
        return False
    there = all(part.queries and part.keys for part in pack.parts)
    return there and (fused_kernel() is not None or all(part.short for part in pack.parts))


def attended(q: Tensor, k: Tensor, v: Tensor, pack: Pack) -> Tensor:
    """Attention of each image of a pack over its own keys: [1, heads, slots, head_dim] each and the result, in the
    dtype of q.

    Raises:
        InputError: a bias is of another number of heads.
    """
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return _Attended.apply(q, k, v, pack)  # type: ignore[return-value]
    return _forward(q, k, v, pack)[0][None].to(q.dtype)


def same_heads(bias: Tensor, q: Tensor) -> None:
    """Refuse a bias of another number of heads than the queries have, or without values: torch's kernel reads one of
    the meta device as it is."""
    if bias.is_meta and not q.is_meta:
        raise InputError("attention: a pattern of weights on the meta device, which have no values")
    if bias.shape[1] != q.shape[1]:
        raise InputError(f"attention: a pattern of {bias.shape[1]} heads for queries of {q.shape[1]}")


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, pack: Pack) -> Tensor:
        out, kept = _forward(q, k, v, pack)
        # Only the fused kernel's backward asks for the output.
        again = None if all(part.short for part in pack.parts) else out
        ctx.save_for_backward(q, k, v, again, *kept)
        ctx.pack = pack
        return out[None].to(q.dtype)

    @staticmethod
    @differentiated_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        pack: Pack = ctx.pack
        q, k, v, out, *kept = ctx.saved_tensors
        # What is added before the softmax plays no part in the gradients of products.
        biases = [None] * len(pack.parts) if out is None else pack.biases()
        outs = [None] * len(pack.parts) if out is None else _cut(pack, "queries", out[None])
        found: tuple[list[Tensor], ...] = [], [], []
        with torch.autocast("cpu", enabled=False):
            given = pack.parts, _cut(pack, "queries", grad), *_inputs(pack, q, k, v), outs, kept, biases
            for part, gi, qi, ki, vi, oi, known, bias in zip(*given, strict=True):
                if oi is None or part.short:
                    grads = _products_backward(part, gi, qi, ki, vi, known)
                else:
                    grads = _fused_backward(part, gi, qi, ki, vi, oi, known, bias)
                for each, one in zip(found, grads, strict=True):
                    each.append(one)
            return *(_joined(each)[None].to(q.dtype) for each in found), None


def _forward(q: Tensor, k: Tensor, v: Tensor, pack: Pack) -> tuple[Tensor, list[Tensor]]:
    """The output [heads, slots, head_dim], and what each part keeps: weights, or logs of sums of exponentials."""
    outs, kept = [], []
    with torch.autocast("cpu", enabled=False):
        for part, bias, *qkv in zip(pack.parts, pack.biases(), *_inputs(pack, q, k, v), strict=True):
            if bias is not None:
                same_heads(bias, q)
            q_, k_, v_ = qkv
            out, known = (_products if part.short else _fused)(part, q_, k_, v_, bias)
            outs.append(out)
            kept.append(known)
    return _joined(outs), kept


def _inputs(pack: Pack, q: Tensor, k: Tensor, v: Tensor) -> tuple[Sequence[Tensor], ...]:
    """What each part has of these, as `_cut`, the queries of short images already multiplied by the scale, for scores
    to base 2."""
    scale = LOG2_E * q.shape[-1] ** -0.5
    if all(part.short for part in pack.parts) and len({part.dtype for part in pack.parts}) == 1:
        queries = _cut(pack, "queries", q.to(pack.parts[0].dtype) * scale)
    else:
        both = zip(pack.parts, _cut(pack, "queries", q), strict=True)
        queries = [one * scale if part.short else one for part, one in both]
    return queries, _cut(pack, "keys", k), _cut(pack, "keys", v)


def _cut(pack: Pack, side: str, x: Tensor) -> Sequence[Tensor]:
    """[1, heads, slots, head_dim] -> of each part [heads, slots of its images, head_dim], in its dtype."""
    lengths = [getattr(part, side) for part in pack.parts]
    if len({part.dtype for part in pack.parts}) == 1:
        # As a whole, and not image by image.
        return x[0].to(pack.parts[0].dtype).split(lengths, 1)
    return [one.to(part.dtype) for one, part in zip(x[0].split(lengths, 1), pack.parts, strict=True)]


def _joined(parts: list[Tensor]) -> Tensor:
    """[heads, slots, head_dim] of all, in the widest of their dtypes; the heads of a token stand side by side in
    memory, as they are wanted next."""
    rows = [part.transpose(0, 1) for part in parts]
    return (rows[0].contiguous() if len(rows) == 1 else torch.cat(rows)).transpose(0, 1)


def _apart(part: PackImages, x: Tensor) -> Tensor:
    """[heads, slots of all, head_dim] -> [heads * images, slots of one, head_dim]."""
    return x if part.images == 1 else x.unflatten(1, (part.images, -1)).flatten(0, 1)


def _products(part: PackImages, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The output [heads, slots, head_dim] of scaled queries, and the weights of each head and image; writes to the
    bias."""
    shape = q.shape
    q, k, v = _apart(part, q), _apart(part, k).transpose(1, 2), _apart(part, v)
    if bias is None:
        scores = torch.bmm(q, k)
    else:
        bias = bias[0].to(part.dtype)
        if part.images > 1:
            bias = bias.unsqueeze(1).expand(-1, part.images, -1, -1).flatten(0, 1)
        scores = bias.baddbmm_(q, k, beta=LOG2_E)
    weights = softmax2(scores)
    return torch.bmm(weights, v).view(shape), weights


def _products_backward(
    part: PackImages, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, weights: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of queries before they were scaled, of keys and of values."""
    of_q, of_k = q.shape, k.shape
    grad, q, k, v = (_apart(part, one) for one in (grad, q, k, v))
    scores = torch.ops.aten._softmax_backward_data(torch.bmm(grad, v.transpose(1, 2)), weights, -1, part.dtype)
    return (
        torch.bmm(scores, k).mul_(k.shape[-1] ** -0.5).view(of_q),
        torch.bmm(scores.transpose(1, 2), q).mul_(LN_2).view(of_k),
        torch.bmm(weights.transpose(1, 2), grad).view(of_k),
    )


def _as_batch(part: PackImages, x: Tensor) -> Tensor:
    """[heads, slots of all, head_dim] -> [images, heads, slots of one, head_dim]."""
    return x.unflatten(1, (part.images, -1)).transpose(0, 1)


def _in_row(x: Tensor) -> Tensor:
    """The inverse of `_as_batch`: a view of what the kernel gives, whose heads stand side by side."""
    return x.transpose(1, 2).flatten(0, 1).transpose(0, 1)


def _fused(part: PackImages, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The output [heads, slots, head_dim], and the log of each row's sum of exponentials."""
    mask = None if bias is None else bias.to(part.dtype)
    kernel = fused_kernel()
    assert kernel is not None
    out, sums = kernel.forward(*(_as_batch(part, one) for one in (q, k, v)), 0.0, False, attn_mask=mask)
    return _in_row(out), sums


def _fused_backward(
    part: PackImages, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """The gradients of queries, keys and values."""
    mask = None if bias is None else bias.to(part.dtype)
    kernel = fused_kernel()
    assert kernel is not None
    given = (_as_batch(part, one) for one in (grad, q, k, v, out))
    return tuple(map(_in_row, kernel.backward(*given, sums, 0.0, False, attn_mask=mask)))
