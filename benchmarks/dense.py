"""What dense tasks need beside the trunk, each part timed beside the plain way.

    python benchmarks/dense.py [--parts nms ...] [--rounds 15] [--quick] [--out OUT] [--threads 1]

`nms`: the boxes that stay of 1,000 of 80 classes, by one matrix of overlaps (`sightline.models.boxes.nms`), against one
box after the other. One round is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measure import Parser, Work, interleave, print_table, row
from torch import Tensor

from sightline.models.boxes import iou, nms

_BEYOND = 0.6


def boxes_of(objects: int, count: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes as a detector gives them, many around each object: [count, 4] in pixels, scores and classes."""
    draws = torch.Generator().manual_seed(0)
    which = torch.randint(0, objects, (count,), generator=draws)
    middle, half = torch.rand(objects, 2, generator=draws) * 640, 10 + 60 * torch.rand(objects, 2, generator=draws)
    near = middle[which] + torch.randn(count, 2, generator=draws) * 6
    sides = half[which] * (1 + 0.15 * torch.randn(count, 2, generator=draws)).clamp_min(0.2)
    scores, kinds = torch.rand(count, generator=draws), torch.randint(0, classes, (objects,), generator=draws)
    return torch.cat((near - sides, near + sides), dim=1), scores, kinds[which]


def one_by_one(boxes: Tensor, scores: Tensor, classes: Tensor) -> Tensor:
    """The definition, whose overlaps are measured when they are asked for."""
    order, stays = scores.argsort(descending=True, stable=True), []
    while len(order):
        best, order = order[0], order[1:]
        stays.append(best)
        hidden = (iou(boxes[best], boxes[order]) > _BEYOND) & (classes[order] == classes[best])
        order = order[~hidden]
    return torch.stack(stays)


def suppression(rounds: int, quick: bool) -> list[dict[str, Any]]:
    """Of 1,000 boxes."""
    count = 200 if quick else 1000
    rows = []
    for objects in (30, 300):
        given = boxes_of(objects, count, 80)
        kept = nms(*given, _BEYOND, count)
        assert torch.equal(kept, one_by_one(*given))
        works: dict[str, Work] = {
            "matrix": partial(nms, *given, _BEYOND, count),
            "one by one": partial(one_by_one, *given),
        }
        times = interleave(works, rounds)
        rows.append(row("dense", "matrix", "one by one", times, {}, part="nms", boxes=count, kept=len(kept)))
    return rows


PARTS: dict[str, Callable[[int, bool], list[dict[str, Any]]]] = {"nms": suppression}


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("dense", "200 boxes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.begin()
    rows = [one for part in chosen.parts for one in PARTS[part](chosen.rounds, chosen.quick)]
    print_table(("part", "boxes", "kept", "ratio", "spread", "subject_ms", "baseline_ms"), rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
