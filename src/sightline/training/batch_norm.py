"""Batch norms whose statistics are those of the images of all ranks, on any device.

torch's `SyncBatchNorm` computes on GPUs alone.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sightline.distributed.ranks import Ranks
from sightline.models.batch_norm import normalize_with_running_stats


class JointBatchNorms:
    """The batch norms of a model, each of which takes its statistics in training from all ranks, until `close`.

    Every rank calls them equally often, one without an image inside `uncounted`.
    """

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        """For several ranks, each of which calls this."""
        self._norms = [part for part in model.modules() if isinstance(part, _BatchNorm)]
        self._counts = True
        if self._norms:
            import torch.distributed as dist

            # Not the gradients' group: what is said of them and of these need not come in one order.
            self._group: Any = dist.new_group()
        for norm in self._norms:
            norm.forward = functools.partial(self._normed, norm)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._norms)

    def close(self) -> None:
        """Give the norms back as they were."""
        for norm in self._norms:
            del norm.forward

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Inside, what is normed counts nothing in the statistics."""
        self._counts = False
        try:
            yield
        finally:
            self._counts = True

    def _normed(self, norm: _BatchNorm, input: Tensor) -> Tensor:
        """[any, channels, ...] -> the same shape (Ioffe and Szegedy 2015, algorithm 1, over all ranks)."""
        if not norm.training:
            return type(norm).forward(norm, input)
        axes, spread = [0, *range(2, input.dim())], [1, -1, *[1] * (input.dim() - 2)]
        wide = input if input.dtype == torch.float64 else input.float()
        own = float(self._counts)
        places = wide.new_full((1,), own * (input.numel() // input.shape[1]))
        told = _Summed.apply(torch.cat((own * wide.sum(axes), places)), self._group)
        sums, count = told[:-1], float(told[-1].detach())
        if count <= 1:
            return normalize_with_running_stats(norm, input)
        mean = sums / count
        centred = wide - mean.view(spread)
        variance = _Summed.apply(own * centred.square().sum(axes), self._group) / count
        normed = centred * (variance + norm.eps).rsqrt().view(spread)
        self._keep(norm, mean.detach(), variance.detach() * (count / (count - 1)))
        if norm.affine:
            normed = normed * norm.weight.view(spread) + norm.bias.view(spread)
        return normed.to(input.dtype)

    @staticmethod
    @torch.no_grad()
    def _keep(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
        """What evaluation takes, as torch's own layers keep it."""
        if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
            return
        norm.num_batches_tracked += 1
        share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share)
        norm.running_var.lerp_(variance.to(norm.running_var.dtype), share)


class _Summed(torch.autograd.Function):
    """The sum of all ranks' values; of all ranks' gradients in the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _sum(values, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _sum(gradients[0], ctx.group), None


def _sum(values: Tensor, group: Any) -> Tensor:
    import torch.distributed as dist

    total = values.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total
