"""What weights are before training."""

from __future__ import annotations

from typing import Any

import torch
from scipy import stats

from sightline.models import create_model
from sightline.models.init import truncated_normal_


def test_a_truncated_normal_is_one_and_each_number_is_drawn_once():
    weight = torch.empty(400, 500)
    torch.manual_seed(0)
    truncated_normal_(weight, 0.05)
    after = torch.rand(1)
    assert stats.kstest(weight.flatten().numpy(), stats.truncnorm(-2, 2, scale=0.05).cdf).pvalue > 0.01
    assert weight.abs().max() <= 0.1
    torch.manual_seed(0)
    torch.empty(400, 500).uniform_()
    assert torch.equal(torch.rand(1), after)


def test_linear_weights_have_the_scale_of_their_inputs():
    torch.manual_seed(0)
    model = create_model("vit_micro_patch4", depth=1, num_classes=5)
    block: Any = model.blocks[0]
    for name, fan_in in (("attn.qkv", 192), ("mlp.fc2", 768)):
        weight = block.get_submodule(name).weight
        # Cut at two, a normal distribution's deviation is .88 of what it was.
        assert abs(weight.std().item() / (0.8796 * fan_in**-0.5) - 1) < 0.02
        assert weight.abs().max() <= 2 * fan_in**-0.5
