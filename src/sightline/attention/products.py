"""Attention on a CPU as matmul, softmax, matmul, by chunks that stay in a core's caches: the form of bfloat16 training
and of AMD processors (`cpu.cpu_form`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.attention.cpu import (
    LOG2_E,
    empty_like_heads,
    run_parallel,
    softmax_backward,
    stable_exp2,
    strictly_once_differentiable,
)
from sightline.attention.onednn import matmul_t
from sightline.attention.wide import wide_dtype

# Scores of so many matrices, or queries of a head, fit in the caches (docs/explanation/decisions/cpu-forms.md).
_CHUNK_BYTES = 1 << 20
_QUERY_BYTES = 3 << 20
# Most keys, in widths of a head, whose attention weights are kept for the backward pass: as much memory as the hidden
# layer of an MLP.
_KEPT_WIDTHS = 4

Bias = Tensor | Callable[[], Tensor] | None


def attend_products(q: Tensor, k: Tensor, v: Tensor, bias: Bias) -> Tensor:
    """Attention with everything between inputs and output in float32, and products of gradients in the inputs' dtype.

    Args:
        q, k, v: [rows, heads, tokens, head_dim], on a CPU.
        bias: [1 or rows, heads, queries, keys]; each row has a finite score. Or what makes it for each pass, so that it
            is not kept between them; nothing is learned of that.

    Returns:
        [rows, heads, queries, head_dim], with the heads of a token side by side in memory.
    """
    if torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in (q, k, v, bias)):
        return _Products.apply(q, k, v, bias)  # pyright: ignore[reportReturnType]
    return _forward(q, k, v, bias, None, None)


class _Chunk(NamedTuple):
    """Heads of one image that are computed together, and their queries a block at a time."""

    row: int
    heads: slice
    blocks: list[slice]

    def of(self, x: Tensor, dtype: torch.dtype, some: slice = slice(None)) -> Tensor:
        """[rows, heads, tokens, n] -> [some heads, some tokens, n], dense."""
        # `to` leaves what has the precision as it is, gaps too.
        return x[self.row, self.heads, some].to(dtype, memory_format=torch.contiguous_format).contiguous()

    def put(self, into: Tensor, some: slice, part: Tensor) -> None:
        """The inverse of `of`."""
        into[self.row, self.heads, some] = part

    def scores(self, queries: Tensor, keys: Tensor, bias: Tensor | None, some: slice) -> Tensor:
        """To base 2, of some queries, that are scaled already: [some heads, queries, keys]."""
        scores = _times(queries, keys)
        if bias is not None:
            of_image = bias[self.row if len(bias) > 1 else 0]
            scores.add_(of_image[self.heads if len(of_image) > 1 else slice(None), some], alpha=LOG2_E)
        return scores


def _chunks(q: Tensor, k: Tensor) -> list[_Chunk]:
    rows, heads, queries, _ = q.shape
    matrix = 4 * queries * max(1, k.shape[2])
    # Never of two images: products of more matrices have other last bits, and no image may change another.
    some_heads = min(heads, max(1, _CHUNK_BYTES // max(1, matrix)))
    step = max(1, -(-queries // max(1, -(-matrix // _QUERY_BYTES))))
    blocks = [slice(first, min(first + step, queries)) for first in range(0, queries, step)]
    return [
        _Chunk(row, slice(head, head + some_heads), blocks)
        for row in range(rows)
        for head in range(0, heads, some_heads)
    ]


def _times(a: Tensor, b: Tensor) -> Tensor:
    """a @ b^T of [heads, m, k] and [heads, n, k]."""
    return matmul_t(a[0], b[0]).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b.transpose(1, 2))


def _forward(
    q: Tensor, k: Tensor, v: Tensor, bias: Bias, weights: list[Tensor | None] | None, logs: Tensor | None
) -> Tensor:
    """The output; the attention weights of each chunk go into `weights`, or the logarithms to base 2 of the sums into
    `logs`, where they are given."""
    wide, scale = wide_dtype(q.dtype), LOG2_E * q.shape[-1] ** -0.5
    made = bias() if callable(bias) else bias
    out, chunks = empty_like_heads(q), _chunks(q, k)

    def attend(number: int) -> None:
        chunk = chunks[number]
        keys, values = chunk.of(k, wide), chunk.of(v, wide).transpose(1, 2)
        for some in chunk.blocks:
            queries = chunk.of(q, wide, some).mul(scale)
            powers, sums, log = stable_exp2(functools.partial(chunk.scores, queries, keys, made, some))
            if weights is None:
                # Sums divide the output, which is smaller than the scores.
                chunk.put(out, some, _times(powers, values).div_(sums))
            else:
                weights[number] = powers.div_(sums)
                chunk.put(out, some, _times(powers, values))
            if logs is not None:
                chunk.put(logs, some, log)

    run_parallel(attend, range(len(chunks)))
    return out


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Bias) -> Tensor:
        chunks = _chunks(q, k)
        keeps = k.shape[2] <= _KEPT_WIDTHS * q.shape[-1] and all(len(one.blocks) == 1 for one in chunks)
        weights: list[Tensor | None] = [None] * len(chunks)
        logs = None if keeps else q.new_empty(*q.shape[:3], 1, dtype=wide_dtype(q.dtype))
        out = _forward(q, k, v, bias, weights if keeps else None, logs)
        learned = bias if isinstance(bias, Tensor) else None
        # Where the weights are kept, the bias is in them.
        ctx.save_for_backward(q, k, v, None if keeps else learned, logs, *(weights if keeps else ()))
        ctx.make = bias if callable(bias) else None
        ctx.of_bias = None if learned is None else (learned.shape, learned.dtype)
        return out

    @staticmethod
    @strictly_once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, bias, logs, *kept = ctx.saved_tensors
        bias = ctx.make() if ctx.make is not None and not kept else bias
        low, wide, scale = v.dtype, wide_dtype(q.dtype), q.shape[-1] ** -0.5
        grads, chunks = [empty_like_heads(one) for one in (q, k, v)], _chunks(q, k)
        of_scores = q.new_empty(*q.shape[:3], k.shape[2], dtype=wide) if ctx.needs_input_grad[3] else None

        def differentiate(number: int) -> None:
            chunk = chunks[number]
            keys, values = chunk.of(k, low), chunk.of(v, low)
            grad_keys, grad_values = (torch.zeros_like(one, dtype=wide) for one in (keys, values))
            for some in chunk.blocks:
                queries, grad = chunk.of(q, low, some), chunk.of(grad_out, low, some)
                if kept:
                    weights = kept[number]
                else:
                    scaled = chunk.of(q, wide, some).mul(LOG2_E * scale)
                    weights = chunk.scores(scaled, chunk.of(k, wide), bias, some)
                    weights.sub_(chunk.of(logs, wide, some)).exp2_()
                exact = softmax_backward(_times(grad, values).to(wide), weights)
                scores = exact.to(low)
                chunk.put(grads[0], some, _times(scores, keys.transpose(1, 2)).mul_(scale))
                grad_keys += _times(scores.transpose(1, 2), queries.transpose(1, 2))
                grad_values += _times(weights.to(low).transpose(1, 2), grad.transpose(1, 2))
                if of_scores is not None:
                    chunk.put(of_scores, some, exact)
            everything = slice(None)
            chunk.put(grads[1], everything, grad_keys.mul_(scale))
            chunk.put(grads[2], everything, grad_values)

        run_parallel(differentiate, range(len(chunks)))
        if of_scores is None:
            return *grads, None
        shape, dtype = ctx.of_bias
        return *grads, of_scores.sum_to_size(shape).to(dtype)
