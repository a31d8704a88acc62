"""Losses of all pairs of a step, computed in chunks: no rank ever holds the scores of all pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.cpu import strictly_once_differentiable
from sightline.attention.wide import at_least_float32
from sightline.distributed.ranks import SINGLE_RANK, Ranks

PairLoss = Literal["softmax", "sigmoid"]


def pair_loss(
    kind: PairLoss,
    images: Tensor,
    texts: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    meanings: Tensor | None = None,
    *,
    ranks: Ranks = SINGLE_RANK,
    chunk: int = 1024,
) -> Tensor:
    """The sum over this rank's pairs of the loss of all pairs on all ranks (NaViT section 2.3).

    `softmax` is the mean of the cross entropies of each image over all texts and of each text over all images (CLIP);
    where several pairs mean the same, the target is shared by them alike. `sigmoid` is a binary cross entropy of every
    image with every text (SigLIP, equation 1). Each rank gives the others its vectors, a chunk at a time, and computes
    the whole gradient of its own.

    Args:
        images, texts: unit vectors of this rank's pairs, [pairs, dim] each; other ranks may have other numbers.
        scale: [], what cosines are multiplied by; bias: [] or None.
        meanings: int64 [pairs], equal and >= 0 for pairs that mean the same; -1, or None for all, for one that means
            what no other does.
        chunk: pairs of the other side whose scores are computed at once.
    """
    images, texts = at_least_float32(images), at_least_float32(texts)
    counts = [
        int(one) for one in ranks.all_reduce_sum([len(images) * (one == ranks.rank) for one in range(ranks.size)])
    ]
    first = sum(counts[: ranks.rank])
    own = -1 - torch.arange(first, first + len(images), device=images.device)
    names = own if meanings is None else torch.where(meanings < 0, own, meanings.to(own))
    bias = scale.new_zeros(()) if bias is None else at_least_float32(bias)
    return _PairLoss.apply(images, texts, at_least_float32(scale), bias, names, kind, counts, ranks, chunk)


class _PairLoss(torch.autograd.Function):
    """The loss with its gradients, which are computed beside it."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, texts: Tensor, scale: Tensor, bias: Tensor, names: Tensor, kind: PairLoss,
        counts: list[int], ranks: Ranks, chunk: int,
    ) -> Tensor:  # fmt: skip
        with torch.autocast(images.device.type, enabled=False):
            compute = _softmax if kind == "softmax" else _sigmoid
            loss, *grads = compute(images, texts, scale, bias, names, _Exchange(counts, ranks, chunk))
        ctx.save_for_backward(*grads)
        return loss

    @staticmethod
    @strictly_once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (*(grad * one for one in ctx.saved_tensors), None, None, None, None, None)


class _Exchange:
    """Chunks of what all ranks have, in the order of the ranks, each beside every chunk of this rank's own."""

    def __init__(self, counts: Sequence[int], ranks: Ranks, chunk: int) -> None:
        self.counts, self.ranks, self.chunk = counts, ranks, chunk

    def __call__(self, *own: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
        """Which of this rank's pairs, and a chunk of some rank's `own`."""
        for rank, count in enumerate(self.counts):
            for first in range(0, count, self.chunk):
                length = min(self.chunk, count - first)
                if rank == self.ranks.rank:
                    parts = [one[first : first + length].contiguous() for one in own]
                else:
                    parts = [one.new_empty(length, *one.shape[1:]) for one in own]
                if self.ranks.size > 1:
                    import torch.distributed as dist

                    for part in parts:
                        dist.broadcast(part, src=rank)
                for start in range(0, len(own[0]), self.chunk):
                    yield slice(start, start + self.chunk), parts


def _softmax(
    images: Tensor, texts: Tensor, scale: Tensor, bias: Tensor, names: Tensor, exchange: _Exchange
) -> tuple[Tensor, ...]:
    n, sides = len(images), (images, texts)
    logs = [images.new_full((n,), -torch.inf) for _ in sides]
    positives, same_count = [images.new_zeros(n) for _ in sides], images.new_zeros(n)
    for rows, (*others, their_names) in exchange(texts, images, names):
        same = names[rows, None] == their_names
        same_count[rows] += same.sum(1)
        for side, (own, other) in enumerate(zip(sides, others, strict=True)):
            scores = scale * own[rows] @ other.mT
            logs[side][rows] = torch.logaddexp(logs[side][rows], scores.logsumexp(1))
            positives[side][rows] += scores.mul_(same).sum(1)
    loss = sum((log - positive / same_count).sum() / 2 for log, positive in zip(logs, positives, strict=True))
    grads, of_scale = [torch.zeros_like(one) for one in sides], images.new_zeros(())
    for rows, (*others, text_logs, image_logs, their_names) in exchange(texts, images, logs[1], logs[0], names):
        target = (names[rows, None] == their_names) / same_count[rows, None]
        for side, (other, their_logs) in enumerate(zip(others, (text_logs, image_logs), strict=True)):
            cosines = sides[side][rows] @ other.mT
            own = (scale * cosines - logs[side][rows, None]).exp_().sub_(target)
            of_scale += (own * cosines).sum() / 2
            # Each pair counts in its row, and in the row of the other.
            both = own.add_((scale * cosines - their_logs).exp_().sub_(target)).mul_(0.5)
            grads[side][rows].addmm_(both, other)
    return loss + images.new_zeros(()), *(scale * one for one in grads), of_scale, torch.zeros_like(bias)


def _sigmoid(
    images: Tensor, texts: Tensor, scale: Tensor, bias: Tensor, names: Tensor, exchange: _Exchange
) -> tuple[Tensor, ...]:
    sides = images, texts
    loss, of_scale, of_bias = (images.new_zeros(()) for _ in range(3))
    grads = [torch.zeros_like(one) for one in sides]
    for rows, (*others, their_names) in exchange(texts, images, names):
        signs = torch.where(names[rows, None] == their_names, 1.0, -1.0).to(images)
        for side, (own, other) in enumerate(zip(sides, others, strict=True)):
            cosines = own[rows] @ other.mT
            logits = signs * (scale * cosines + bias)
            slope = -signs * (-logits).sigmoid()
            grads[side][rows].addmm_(slope, other)
            if side == 0:
                loss -= F.logsigmoid(logits).sum()
                of_scale += (slope * cosines).sum()
                of_bias += slope.sum()
    return loss, *(scale * one for one in grads), of_scale, of_bias
