"""FlexiViT beside timm's ViT of the same patch size, for `families.py`: the same widths, a kernel of its own in timm's.

Ours resizes its kernel of 32 px to the patches: once without gradients, at each step with them.
"""

from __future__ import annotations

import torch
from families_case import FORWARD, STEP, Case, passing
from measure import Work
from timm_vit import timm_vit

from sightline.models import create_model

_SIDE, _BATCH = 240, 8
_PATCHES = (48, 30, 16)


def works(patch: int, work: str, device: str) -> dict[str, Work]:
    """Ours and timm's.

    Raises:
        SystemExit: timm does not import.
    """
    torch.manual_seed(0)
    theirs = timm_vit("vit_small_patch16_224", _SIDE, patch_size=patch)
    if theirs is None:
        raise SystemExit("families_flexi: needs timm (pip install '.[timm]')")
    options = {"image_size": _SIDE, "patch_size": patch, "encoding": "learned_1d"}
    ours = create_model("vit_small_patch16", **options, embedder="flexible", embedder_options={"base": 32})
    both = {"sightline": ours, "timm": theirs}
    return {which: passing(model, work, _BATCH, _SIDE, device) for which, model in both.items()}


def cases() -> list[Case]:
    """A forward and a training step at each patch size."""
    return [
        Case(
            {"model": "flexivit_small", "patch_size": patch, "resolution": _SIDE, "batch": _BATCH, "work": work},
            lambda device, patch=patch, work=work: works(patch, work, device),
            (("sightline", "timm"),),
        )
        for patch in _PATCHES
        for work in (FORWARD, STEP)
    ]
