"""Rates of drop path: one for all layers, or rising with depth."""

from __future__ import annotations

import pytest

import sightline.timm
from sightline.errors import InputError

timm = sightline.timm.timm
SMALL = "sightline_vit_small_patch16"


def test_drop_path_rate_rises_with_depth_as_timm_s() -> None:
    """And our own `drop_path` is one rate for all layers, as LookHere has it."""
    given = {"embed_dim": 48, "depth": 5, "num_heads": 3, "img_size": 32, "drop_path_rate": 0.3}
    ours = timm.create_model(SMALL, **given)
    theirs = timm.create_model("vit_small_patch16_224", **given)
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in theirs.blocks]
    assert [block.drop_path.rate for block in ours.blocks] == rates
    assert rates[0] == 0
    del given["drop_path_rate"]
    constant = timm.create_model(SMALL, **given, drop_path=0.3)
    assert [block.drop_path.rate for block in constant.blocks] == [0.3] * 5
    with pytest.raises(InputError, match=r"drop_path\[1\] = 1\.5"):
        timm.create_model(SMALL, **{**given, "drop_path_rate": 1.5})
