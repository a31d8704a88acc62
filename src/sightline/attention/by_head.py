"""Attention one head of one image at a time in float32, by the faster of torch's two libraries for matrix products:
SDPA knows the other alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sightline.attention.costs import product_of
from sightline.attention.kernel import differentiated_once
from sightline.attention.softmax import LN_2, LOG2_E, stable_exp2
from sightline.attention.threads import run_parallel

# Scores of so many queries at a time as stay in a core's caches (docs/LOG.md).
_SCORES_BYTES = 3 << 20

Bias = Tensor | Callable[[], Tensor] | None


def by_head(q: Tensor, k: Tensor, v: Tensor, bias: Bias) -> Tensor:
    """As `forms.sdpa`, with everything between inputs and output in float32, the bias too.

    Scores of some queries of one head are there at a time, and are computed again for the backward pass.

    Args:
        bias: or what makes it for each pass, so that it is not kept between them; nothing is learned of that.
    """
    learns = any(isinstance(one, Tensor) and one.requires_grad for one in (q, k, v, bias))
    if torch.is_grad_enabled() and learns:
        return _ByHead.apply(q, k, v, bias)  # pyright: ignore[reportReturnType]
    return _computed(q, k, v, bias)[0]


def _computed(q: Tensor, k: Tensor, v: Tensor, bias: Bias) -> tuple[Tensor, Tensor]:
    """[rows, heads, tokens, head_dim], with heads side by side in each token; and the logarithms to base 2 of the sums
    of each softmax, [rows, heads, tokens, 1]."""
    of, out = _Heads(q, k, v, bias), like(q)
    sums = q.new_empty(*q.shape[:3], 1, dtype=of.wide)
    outs, logs = _each(out), _each(sums)

    def attend(head: int) -> None:
        queries, keys, values = of.inputs(head)
        for some in of.blocks:
            powers, divisors, logs[head][some] = stable_exp2(lambda some=some: of.scores(head, some, queries, keys))
            # Sums divide the output, which is smaller than the scores.
            outs[head][some] = of.times(powers, values.t()).div_(divisors)

    run_parallel(attend, range(len(outs)))
    return out, sums


class _Heads:
    """Each head of each image, and its products, for some queries at a time.

    Attributes:
        blocks: of queries.
        times: a @ b^T.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, bias: Bias) -> None:
        bias = bias() if callable(bias) else bias
        self.wide, self.scale = torch.promote_types(q.dtype, torch.float32), q.shape[-1] ** -0.5
        self._q, self._k, self._v = map(_each, (q, k, v))
        self.bias = None if bias is None else _each(bias.to(self.wide).expand(*q.shape[:2], *bias.shape[2:]))
        queries, keys, width = q.shape[2], k.shape[2], q.shape[3]
        parts = max(1, -(-queries * keys * self.wide.itemsize // _SCORES_BYTES))
        step = max(1, -(-queries // parts))
        self.blocks = [slice(first, min(first + step, queries)) for first in range(0, queries, step)]
        counts = {some.stop - some.start for some in self.blocks}
        shapes = {shape for count in counts for shape in ((count, keys, width), (count, width, keys))}
        self.times: Callable[[Tensor, Tensor], Tensor] = product_of(shapes)

    def inputs(self, head: int) -> tuple[Tensor, Tensor, Tensor]:
        """q, scaled for scores to base 2, k and v of one head, dense, [tokens, head_dim]: made where they are used, in
        a core's cache."""
        queries, keys, values = (dense(one[head], self.wide) for one in (self._q, self._k, self._v))
        return queries * (LOG2_E * self.scale), keys, values

    def scores(self, head: int, some: slice, queries: Tensor, keys: Tensor) -> Tensor:
        """To base 2, [some queries, keys]."""
        scores = self.times(queries[some], keys)
        return scores if self.bias is None else scores.add_(self.bias[head][some], alpha=LOG2_E)


class _ByHead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Bias) -> Tensor:
        out, sums = _computed(q, k, v, bias)
        ctx.save_for_backward(q, k, v, sums, bias if isinstance(bias, Tensor) else None)
        ctx.bias = None if isinstance(bias, Tensor) else bias
        return out

    @staticmethod
    @differentiated_once
    def backward(ctx: Any, grad_out: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, sums, bias = ctx.saved_tensors
        of, found = _Heads(q, k, v, ctx.bias if bias is None else bias), [like(one) for one in (q, k, v)]
        grads, logs, (of_queries, of_keys, of_values) = _each(grad_out), _each(sums), map(_each, found)
        of_scores = q.new_empty(*q.shape[:3], k.shape[2], dtype=of.wide) if ctx.needs_input_grad[3] else None
        of_each = None if of_scores is None else _each(of_scores)

        def differentiate(head: int) -> None:
            queries, keys, values = of.inputs(head)
            grad = dense(grads[head], of.wide)
            grad_keys, grad_values = (keys.new_zeros(keys.shape[::-1]) for _ in "kv")
            for some in of.blocks:
                attention = of.scores(head, some, queries, keys).sub_(logs[head][some]).exp2_()
                # Of the softmax: P * (dP - sum of P * dP).
                scores = of.times(grad[some], values)
                torch.ops.aten._softmax_backward_data.out(scores, attention, -1, of.wide, grad_input=scores)
                of_queries[head][some] = of.times(scores, keys.t()).mul_(of.scale)
                grad_keys += of.times(queries[some].t(), scores.t())
                grad_values += of.times(grad[some].t(), attention.t())
                if of_each is not None:
                    of_each[head][some] = scores
            of_keys[head].copy_(grad_keys.mul_(LN_2).t())
            of_values[head].copy_(grad_values.t())

        run_parallel(differentiate, range(len(grads)))
        of_bias = None if of_scores is None or bias is None else of_scores.sum_to_size(bias.shape).to(bias.dtype)
        return *found, of_bias


def like(x: Tensor) -> Tensor:
    """An empty tensor of that shape with heads side by side in each token, as projections have and want them."""
    rows, heads, tokens, head_dim = x.shape
    return x.new_empty(rows, tokens, heads, head_dim).transpose(1, 2)


def _each(x: Tensor) -> list[Tensor]:
    """[rows, heads, ...] -> a view for each head of each row."""
    return [head for row in x.unbind(0) for head in row.unbind(0)]


def dense(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same values in that precision, side by side in memory, by at most one copy."""
    # `to` leaves what has the precision as it is, gaps too.
    return x.to(dtype, memory_format=torch.contiguous_format).contiguous()
