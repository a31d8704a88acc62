"""What dense tasks need beside the trunk, each part timed beside the plain way.

    python benchmarks/dense.py [--parts windows scales packed nms] [--rounds N] [--quick] [--out OUT] [--threads 1]

`windows`: the class of each pixel of a 512 x 1024 image by one pass of it, against windows of 512 px every 341 by the
same weights; `scales`: against such windows of the image at six sizes, each mirrored too (`dense_passes.py`).
`packed`: a training step of images of every size in a pack, against the same images padded (`dense_packed.py`).
`nms`: the boxes that stay of 1,000 of 80 classes, by one matrix of overlaps (`sightline.models.boxes.nms`), against one
box after the other. One round is one call.

Works run in turn in every round. With one thread their seconds are those of the processor, so that other work on the
machine counts less; `interval` holds the ratio with 95 % by the signs of the rounds, and of fewer than six rounds is
their range: `scales`, whose round takes a minute, has one unless `--rounds` says more. About six minutes on one core
that has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from dense_packed import packed
from dense_passes import scales, windows
from measure import Parser, Work, clock, counted, interleave, print_table, row, threads
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
        times = interleave(works, rounds, by=clock())
        case = {"part": "nms", "clock": clock().__name__, "boxes": count, "kept": len(kept)}
        rows.append(row("dense", "matrix", "one by one", times, {}, **case))
    return rows


# With how many rounds, and the minutes of a core that one takes.
PARTS: dict[str, tuple[Callable[[int, bool], list[dict[str, Any]]], int, float]] = {
    "windows": (windows, 6, 0.55),
    "scales": (scales, 1, 1.1),
    "packed": (packed, 6, 0.15),
    "nms": (suppression, 15, 0.002),
}
COLUMNS = ("part", "encoding", "dtype", "baseline", "ratio", "interval", "wanted", "subject_ms", "baseline_ms")


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("dense", "small images, small models, and one round")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=threads, help="timed ones; 6 of windows, 1 of scales, 6 of packed, 15 of nms")
    chosen = parser.begin()
    if chosen.device != "cpu":
        parser.error(f"--device {chosen.device}: only cpu was ever measured (expected cpu)")
    rows: list[dict[str, Any]] = []
    rounds = {name: chosen.rounds or (1 if chosen.quick else PARTS[name][1]) for name in chosen.parts}
    if not chosen.quick:
        minutes = sum(PARTS[name][2] * (count + 0.5) for name, count in rounds.items())
        print(f"about {minutes:.0f} min of one core", flush=True)
    for name, said in counted(chosen.parts):
        print(f"{said} {name}", flush=True)
        fresh = PARTS[name][0](rounds[name], chosen.quick)
        print_table(COLUMNS, fresh)
        rows += fresh
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
