"""timm's hybrids as the golden files have them: built by its own functions, narrower and with fewer groups."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sightline.convert import timm_build
from sightline.distributed.machine import import_timm


def toy_stems(patch: pytest.MonkeyPatch, args: dict[str, Any]) -> None:
    """Until the patch is undone, timm's stems are as wide as `args` of a golden file say, and so grouped.

    Of the four that are changed, none is an argument of `create_model`.
    """
    timm = import_timm()
    resnetv2, hybrid = timm.models.resnetv2, timm.models.vision_transformer_hybrid
    GroupNormAct = timm.layers.GroupNormAct
    norm = partial(GroupNormAct, num_groups=args["group_norm_groups"])
    stem, whole = resnetv2.create_resnetv2_stem, resnetv2.ResNetV2
    patch.setattr(resnetv2, "make_divisible", int)
    patch.setattr(
        hybrid, "ResNetV2", partial(whole, stem_chs=args["stem_chs"], channels=tuple(args["channels"]), norm_layer=norm)
    )
    patch.setattr(hybrid, "create_resnetv2_stem", partial(stem, out_chs=args["stem_chs"], norm_layer=norm))
    # What was built before of the same arguments is another network.
    timm_build._built.cache_clear()
