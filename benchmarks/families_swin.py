"""Swin-T beside timm's, for `families.py`: one set of weights in both, windows of 7 at every size."""

from __future__ import annotations

import torch
from families_case import FORWARD, STEP, Case, passing
from measure import Work

from sightline.convert import import_weights
from sightline.distributed.machine import import_timm

_NAME = "swin_tiny_patch4_window7_224"
# Images of a batch by their side in pixels: as many pixels in each.
_BATCHES = {224: 4, 448: 1}


def works(side: int, work: str, device: str) -> dict[str, Work]:
    """Ours and timm's."""
    torch.manual_seed(0)
    given = {"img_size": side, "window_size": 7}
    theirs = import_timm().create_model(_NAME, **given)
    ours = import_weights("timm", theirs.state_dict(), {"model": _NAME, **given})
    both = {"sightline": ours, "timm": theirs}
    return {name: passing(model, work, _BATCHES[side], side, device) for name, model in both.items()}


def cases() -> list[Case]:
    """A forward and a training step at each size."""
    return [
        Case(
            {"model": _NAME, "resolution": side, "batch": batch, "work": work},
            lambda device, side=side, work=work: works(side, work, device),
            (("sightline", "timm"),),
        )
        for side, batch in _BATCHES.items()
        for work in (FORWARD, STEP)
    ]
