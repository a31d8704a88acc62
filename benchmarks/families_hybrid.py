"""Hybrids beside timm's own, for `families.py`: ours is what `import_weights` makes of timm's."""

from __future__ import annotations

import torch
from families_case import FORWARD, STEP, Case, passing
from measure import Work
from timm_vit import timm_vit

from sightline.convert import import_weights

_SIDE = 224
_MODELS = ("vit_tiny_r_s16_p8_224", "vit_small_r26_s32_224")
# Images of a batch.
_PASSES = {FORWARD: 8, STEP: 4}


def works(name: str, work: str, device: str) -> dict[str, Work]:
    """Ours and timm's.

    Raises:
        SystemExit: timm does not import.
    """
    torch.manual_seed(0)
    theirs = timm_vit(name, _SIDE)
    if theirs is None:
        raise SystemExit("families_hybrid: needs timm (pip install '.[timm]')")
    both = {"sightline": import_weights("timm", theirs.state_dict(), {"model": name}), "timm": theirs}
    return {which: passing(model, work, _PASSES[work], _SIDE, device) for which, model in both.items()}


def cases() -> list[Case]:
    """A forward and a training step of each."""
    return [
        Case(
            {"model": name, "resolution": _SIDE, "batch": batch, "work": work},
            lambda device, name=name, work=work: works(name, work, device),
            (("sightline", "timm"),),
        )
        for name in _MODELS
        for work, batch in _PASSES.items()
    ]
