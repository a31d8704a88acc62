"""Overlaps of boxes, and which of them hide others."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.models.boxes import giou, iou, nms


def some_boxes(count: int, seed: int, side: float = 20) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    low = torch.rand(count, 2, generator=draws) * side
    return torch.cat((low, low + 1 + torch.rand(count, 2, generator=draws) * side / 2), dim=1)


def by_definition(one: list[float], other: list[float]) -> tuple[float, float]:
    both = max(min(one[2], other[2]) - max(one[0], other[0]), 0) * max(min(one[3], other[3]) - max(one[1], other[1]), 0)
    sizes = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    either = sum(sizes) - both
    around = (max(one[2], other[2]) - min(one[0], other[0])) * (max(one[3], other[3]) - min(one[1], other[1]))
    return both / either, both / either - (around - either) / around


def test_overlaps_are_those_of_the_definition() -> None:
    one, other = some_boxes(12, 0).double(), some_boxes(7, 1).double()
    expected = torch.tensor([[by_definition(a, b) for b in other.tolist()] for a in one.tolist()], dtype=torch.double)
    assert (iou(one[:, None], other) - expected[..., 0]).abs().max() < 1e-12
    assert (giou(one[:, None], other) - expected[..., 1]).abs().max() < 1e-12
    # y before x: a tall box is not a wide one.
    assert iou(torch.tensor([0.0, 0, 4, 1]), torch.tensor([0.0, 0, 1, 4])) == 1 / 7


def test_a_chain_of_boxes_that_hide_each_other() -> None:
    """Every second one stays: each step hides the one that would have hidden the next."""
    starts = torch.arange(40.0)
    boxes = torch.stack((starts, starts * 0, starts + 3, starts * 0 + 5), dim=1)
    kept = nms(boxes, -starts, torch.zeros(40, dtype=torch.int64), 0.45, 100)
    assert kept.tolist() == list(range(0, 40, 2))
