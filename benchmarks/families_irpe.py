"""iRPE (contextual product, on keys, shared by heads, and its other names) for `families.py`.

Baselines are `rpe_learned`, a bias for each displacement that all images share, and `none`. 224 px (197 tokens), four
blocks of a ViT-S/16, whose widths are the real ones. `gather_by_bucket` beside `looked_up_by_axis`
(`attention/content_bias.py`) is one layer's look-ups beside the form without them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from families_case import FORWARD, STEP, Case, passing
from measure import Work
from torch import Tensor

from sightline.attention.content_bias import (
    ContentBias,
    TokenPairs,
    gather_by_bucket,
    looked_up_by_axis,
)
from sightline.encodings.pattern.irpe import IrpeBuckets
from sightline.models import create_model
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment

_SUBJECTS = ("irpe", "irpe_qk", "irpe_qkv", "irpe_bias")
_BASELINES = ("rpe_learned", "none")
_SIDE, _BATCH, _DEPTH, _MODEL = 224, 8, 4, "vit_small_patch16"


def works(work: str, device: str) -> dict[str, Work]:
    """A model with each encoding."""
    made = {}
    for encoding in (*_SUBJECTS, *_BASELINES):
        torch.manual_seed(0)
        model = create_model(_MODEL, encoding=encoding, depth=_DEPTH, num_classes=10)
        for parameter in model.encoding.parameters():
            torch.nn.init.normal_(parameter, std=0.02)
        made[encoding] = passing(model, work, _BATCH, _SIDE, device)
    return made


def reading(form: Callable[..., Tensor], work: str, device: str) -> Work:
    """One layer's products at all pairs, of the same size; with their way back in a training step."""
    buckets, grid = IrpeBuckets("product", 1.9), Grid(14, 14)
    segment = Segment.from_grid(grid, torch.device(device))
    pairs = TokenPairs(segment, segment, 1, 1)
    weights = torch.randn(1, 64, buckets.count + 1, device=device)
    term = ContentBias(weights, buckets, prefix_bucket=True, heads=6)
    q = torch.randn(_BATCH, 6, grid.cells + 1, 64, device=device, requires_grad=work == STEP)
    gradient = torch.randn(_BATCH, 6, grid.cells + 1, grid.cells + 1, device=device)

    def read() -> None:
        out = form(q @ weights, term, pairs)
        if work == STEP:
            out.backward(gradient)

    return read


def cases() -> list[Case]:
    """Whole models and one layer's look-ups, each by a forward and by a training step."""
    pairs = tuple((name, other) for name in _SUBJECTS for other in _BASELINES)
    forms = {"looked_up": gather_by_bucket, "looked_up_by_axis": looked_up_by_axis}
    found = []
    for work in (FORWARD, STEP):
        about = {"model": _MODEL, "depth": _DEPTH, "tokens": 197, "batch": _BATCH, "work": work}
        found.append(Case(about, lambda device, work=work: works(work, device), pairs))
        found.append(
            Case(
                {**about, "model": "one layer's look-ups", "depth": 1},
                lambda device, work=work: {name: reading(form, work, device) for name, form in forms.items()},
                (("looked_up", "looked_up_by_axis"),),
            )
        )
    return found
