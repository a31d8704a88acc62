"""A ViT with iRPE (contextual product, on keys, shared by heads) against the same with BEiT's table, and with nothing.

    python benchmarks/families_irpe.py [--quick] [--out OUT] [--threads 1] [--device cpu|cuda]

The subject is our model with `irpe`, or another of its names; baselines are `rpe_learned`, a bias for each displacement
that all images share, and `none`. Float32, 224 px (197 tokens), 8 images, four blocks of a ViT-S/16, whose widths are
the real ones; forward, and forward with backward. Times are taken in turn in each round. `ratio` is the baseline's time
over the subject's: `irpe` within 1.5 times the time of `rpe_learned` is 0.667 or more.

`looked_up` beside `looked_up_by_axis` (`attention/contextual.py`) is one layer's look-ups beside the form without them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from measure import Parser, Work, clock, interleave, print_table, row
from torch import Tensor

from sightline.attention.contextual import (
    Contextual,
    Pairs,
    looked_up,
    looked_up_by_axis,
)
from sightline.encodings.pattern.irpe import IrpeBuckets
from sightline.grid import Grid
from sightline.models import create_model
from sightline.segment import Segment

_SUBJECTS = ("irpe", "irpe_qk", "irpe_qkv", "irpe_bias")
_BASELINES = ("rpe_learned", "none")
_SIZE, _BATCH, _DEPTH, _MODEL = 224, 8, 4, "vit_small_patch16"


def passing(encoding: str, device: str, backward: bool) -> Work:
    """One forward without gradients, or one with its backward pass."""
    torch.manual_seed(0)
    model = create_model(_MODEL, encoding=encoding, depth=_DEPTH, num_classes=10).to(device)
    for parameter in model.encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    images = torch.randn(_BATCH, 3, _SIZE, _SIZE, device=device)
    model.train(backward)

    def forward() -> None:
        with torch.no_grad():
            model(images)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(images).square().sum().backward()

    return step if backward else forward


def reading(form: Callable[..., Tensor], device: str, backward: bool) -> Work:
    """One layer's products at all pairs, of the same size."""
    buckets, grid = IrpeBuckets("product", 1.9), Grid(14, 14)
    segment = Segment.whole(grid, torch.device(device))
    pairs = Pairs(segment, segment, 1, 1)
    weights = torch.randn(1, 64, buckets.count + 1, device=device)
    term = Contextual(weights, buckets, prefix_bucket=True, heads=6)
    q = torch.randn(_BATCH, 6, grid.cells + 1, 64, device=device, requires_grad=backward)
    gradient = torch.randn(_BATCH, 6, grid.cells + 1, grid.cells + 1, device=device)

    def read() -> None:
        out = form(q @ weights, term, pairs)
        if backward:
            out.backward(gradient)

    return read


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("families_irpe", "3 rounds")
    chosen = parser.begin()
    rounds = 3 if chosen.quick else 15
    rows = []
    for backward in (False, True):
        case = {"pass": "forward+backward" if backward else "forward", "tokens": (_SIZE // 16) ** 2 + 1}
        case |= {"dtype": "float32", "model": _MODEL, "depth": _DEPTH, "batch": _BATCH}
        works = {name: passing(name, chosen.device, backward) for name in (*_SUBJECTS, *_BASELINES)}
        times = interleave(works, rounds, chosen.device, by=clock())
        rows += [
            row("families_irpe", name, other, times, {}, chosen.device, **case)
            for name in _SUBJECTS
            for other in _BASELINES
        ]
        forms = {"looked_up": looked_up, "looked_up_by_axis": looked_up_by_axis}
        works = {name: reading(form, chosen.device, backward) for name, form in forms.items()}
        times = interleave(works, rounds, chosen.device, by=clock())
        rows.append(row("families_irpe", "looked_up", "looked_up_by_axis", times, {}, chosen.device, **case))
    print_table(("subject", "baseline", "pass", "ratio", "interval", "subject_ms", "baseline_ms"), rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
