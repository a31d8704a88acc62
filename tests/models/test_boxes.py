"""Overlaps of boxes, and which of them hide others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.models.boxes import areas, giou, iou, nms


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


def test_boxes_without_area_have_finite_overlaps_and_gradients() -> None:
    boxes = torch.tensor([[1.0, 1, 1, 1], [2, 2, 1, 1], [0, 0, 0, 0]], requires_grad=True)
    for overlap in (iou, giou):
        made = overlap(boxes[:, None], boxes)
        assert made.isfinite().all()
        (gradient,) = torch.autograd.grad(made.sum(), boxes)
        assert gradient.isfinite().all()
    assert (areas(boxes) == 0).all()


def greedy(boxes: Tensor, scores: Tensor, classes: Tensor, beyond: float, most: int) -> list[int]:
    """One box after the other."""
    stays: list[int] = []
    for one in scores.argsort(descending=True, stable=True)[:most].tolist():
        same = [other for other in stays if classes[other] == classes[one]]
        if all(iou(boxes[one], boxes[other]) <= beyond for other in same):
            stays.append(one)
    return stays


@pytest.mark.slow
def test_suppression_is_the_greedy_one() -> None:
    for seed in range(20):
        draws = torch.Generator().manual_seed(seed)
        boxes, classes = some_boxes(60, seed, 8), torch.randint(0, 3, (60,), generator=draws)
        # Many equal scores.
        scores = torch.randint(0, 15, (60,), generator=draws) / 15
        for beyond, most in ((0.3, 1000), (0.6, 25), (0.0, 60)):
            kept = nms(boxes, scores, classes, beyond, most).tolist()
            assert kept == greedy(boxes, scores, classes, beyond, most)
            assert 1 < len(kept) < 60
    nothing = nms(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, dtype=torch.int64), 0.5, 100)
    assert nothing.tolist() == []


def test_a_chain_of_boxes_that_hide_each_other() -> None:
    """Every second one stays: each step hides the one that would have hidden the next."""
    starts = torch.arange(40.0)
    boxes = torch.stack((starts, starts * 0, starts + 3, starts * 0 + 5), dim=1)
    kept = nms(boxes, -starts, torch.zeros(40, dtype=torch.int64), 0.45, 100)
    assert kept.tolist() == list(range(0, 40, 2))
