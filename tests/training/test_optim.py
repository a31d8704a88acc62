"""AdamW's decay is for matrices alone; its state and the running mean survive being written."""

from __future__ import annotations

import pytest
import torch

from sightline.models import create_model
from sightline.training.config import OptimizerConfig
from sightline.training.optim import Ema, load_optimizer_tensors, make_optimizer, optimizer_tensors


@pytest.fixture
def model():
    return create_model(
        "vit_micro_patch4", encoding="rope_mixed+learned_1d", num_classes=5, image_size=16, depth=2, dim=48, heads=4,
        num_registers=1, layer_scale=0.1, qk_norm=True,
    )  # fmt: skip


def test_decay_is_for_matrices_alone(model):
    decayed, free = make_optimizer(model, OptimizerConfig(weight_decay=0.3)).param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.3, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    with_decay = {names[id(parameter)] for parameter in decayed["params"]}
    without = {names[id(parameter)] for parameter in free["params"]}
    assert with_decay | without == set(names.values())
    assert not with_decay & without
    assert all(name.endswith(".weight") and "norm" not in name for name in with_decay)
    matrices = ["patch_embed.proj", "head", "blocks.0.attn.qkv", "blocks.1.mlp.fc2"]
    assert {f"{name}.weight" for name in matrices} <= with_decay
    # A table of positions and rotary frequencies are matrices in shape alone.
    assert {"cls_token", "reg_token"} <= without
    assert {name for name in names.values() if name.startswith("encoding.")} <= without


def step(model, optimizer):
    torch.manual_seed(7)
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_the_state_goes_on_where_it_was(model):
    first = make_optimizer(model, OptimizerConfig())
    step(model, first)
    kept = {key: value.clone() for key, value in optimizer_tensors(first, model).items()}
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    step(model, first)
    after = {name: value.clone() for name, value in model.state_dict().items()}

    model.load_state_dict(weights)
    second = make_optimizer(model, OptimizerConfig())
    load_optimizer_tensors(second, model, kept)
    step(model, second)
    assert all(torch.equal(after[name], value) for name, value in model.state_dict().items())


def test_the_running_mean(model):
    start = model.head.weight.detach().clone()
    ema = Ema(model, 0.75)
    with torch.no_grad():
        model.head.weight.add_(1.0)
    ema.update(model)
    torch.testing.assert_close(ema.mean["head.weight"], start + 0.25)
    ema.exchange(model)
    torch.testing.assert_close(model.head.weight.detach(), start + 0.25)
    torch.testing.assert_close(ema.mean["head.weight"], start + 1)
    ema.exchange(model)
    torch.testing.assert_close(model.head.weight.detach(), start + 1)
