"""torch.fx: a model is one step of a graph, and says what else to do where it is the whole of it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import nn

import sightline
from sightline.distributed.machine import import_timm
from sightline.errors import InputError

# It brings torchvision, where that can be imported beside this torch.
import_timm()
create_feature_extractor = importlib.import_module("torchvision.models.feature_extraction").create_feature_extractor
SMALL: dict[str, Any] = {"depth": 1, "dim": 48, "heads": 4, "num_classes": 5, "image_size": 16}


def test_a_model_is_one_step_of_a_traced_module() -> None:
    ours = sightline.create_model("vit_micro_patch4", encoding="lookhere_90", **SMALL).eval()
    whole = nn.Sequential(nn.Identity(), ours, nn.Linear(5, 2)).eval()
    traced = torch.fx.symbolic_trace(whole)
    for size in ((16, 16), (8, 20)):
        images = torch.randn(2, 3, *size)
        assert torch.equal(traced(images), whole(images))
        assert torch.equal(create_feature_extractor(whole, ["1"])(images)["1"], ours(images))


def test_a_model_alone_says_what_to_do_instead() -> None:
    ours = sightline.create_model("vit_micro_patch4", **SMALL).eval()
    for trace in (torch.fx.symbolic_trace, lambda model: create_feature_extractor(model, ["norm"])):
        with pytest.raises(InputError, match="forward_intermediates") as raised:
            trace(ours)
        assert "\n" not in str(raised.value)


@torch.no_grad()
def test_a_size_that_does_not_fit_is_refused_with_the_ways_on() -> None:
    """`exact` is the default: padding and resizing change what a model sees, so they are asked for."""
    ours = sightline.create_model("vit_micro_patch4", **SMALL).eval()
    images = torch.randn(1, 3, 18, 30)
    with pytest.raises(
        InputError, match=r"nearest: 16x28, .*fit='pad' or fit='resize' to create_model, with init_from"
    ):
        ours(images)
    for fit, tokens in (("pad", 5 * 8), ("resize", 4 * 8)):
        other = sightline.create_model(init_from=ours, fit=fit).eval()
        assert other.forward_features(images).shape == (1, 1 + tokens, 48)
        assert torch.equal(other(images[..., :16, :28]), ours(images[..., :16, :28]))
