"""Boxes (y0, x0, y1, x1): overlaps, and the best of those that say the same thing."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.attention.wide import at_least_float32

# Boxes that are judged together: few enough for their overlaps with all others to stay in the processor's cache.
_AT_ONCE = 128


def areas(boxes: Tensor) -> Tensor:
    """Of boxes [..., 4] in their own units, squared: [...]; 0 of those that are turned inside out."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp_min(0).prod(dim=-1)


def _shared(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """What two boxes share and what they cover together, of shapes that broadcast: [...] each."""
    # Two strips of one axis each rather than a product over the last dimension, which is slow where that is short.
    rows = (torch.minimum(one[..., 2], other[..., 2]) - torch.maximum(one[..., 0], other[..., 0])).clamp_min_(0)
    cols = (torch.minimum(one[..., 3], other[..., 3]) - torch.maximum(one[..., 1], other[..., 1])).clamp_min_(0)
    both = rows * cols
    return both, areas(one) + areas(other) - both


def iou(one: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of boxes [..., 4] that broadcast: [...], 0 where neither has an area.

    Of each with each: `iou(one[:, None], other)`.
    """
    both, either = _shared(one, other)
    return torch.where(either > 0, both / either.clamp_min(torch.finfo(either.dtype).tiny), 0)


def giou(one: Tensor, other: Tensor) -> Tensor:
    """Generalised IoU (Rezatofighi et al. 2019, algorithm 1), shapes as `iou`: from -1 to 1, with a gradient where
    boxes do not meet; 0 where the smallest box around both has no area."""
    both, either = _shared(one, other)
    low = torch.minimum(one[..., :2], other[..., :2])
    high = torch.maximum(one[..., 2:], other[..., 2:])
    around = (high - low).clamp_min(0).prod(dim=-1)
    tiny = torch.finfo(either.dtype).tiny
    overlap = torch.where(either > 0, both / either.clamp_min(tiny), 0)
    return overlap - torch.where(around > 0, (around - either) / around.clamp_min(tiny), 0)


def nms(boxes: Tensor, scores: Tensor, classes: Tensor, beyond: float, most: int) -> Tensor:
    """Which boxes stay where one of a class hides those of less score that overlap it (greedy non-maximum suppression).

    In torch alone, on any device. The best are judged some at a time: among themselves by one matrix of overlaps, again
    until nothing changes, which is the greedy answer (Zheng et al. 2021, Cluster-NMS, proposition 1); those that stay
    hide what comes after them.

    Args:
        boxes: float [n, 4]; scores: [n]; classes: int64 [n], boxes of two classes never hide each other.
        beyond: hidden is what overlaps a better box that stays by more than this IoU.
        most: how many are looked at, the best first; of equal scores the first.

    Returns:
        int64 [kept], the best first.
    """
    left = scores.argsort(descending=True, stable=True)[:most]
    kept = [left[:0]]
    while len(left):
        one, others = left[:_AT_ONCE], at_least_float32(boxes[left])
        both, either = _shared(others[: len(one), None], others)
        # As IoU > beyond, without a division.
        hides = both.gt(either.mul_(beyond)).logical_and_(classes[one, None] == classes[left])
        among = hides[:, : len(one)].triu(1).to(others.dtype)
        stays = torch.ones_like(among[0])
        while not torch.equal(now := (stays @ among == 0).to(stays.dtype), stays):
            stays = now
        kept.append(one[stays > 0])
        left = left[len(one) :][~hides[stays > 0, len(one) :].any(dim=0)]
    return torch.cat(kept)
