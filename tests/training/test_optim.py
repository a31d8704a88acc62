"""Decay is for matrices alone, layers learn at their own rate; every optimizer's state and the running mean survive
being written."""

from __future__ import annotations

import pytest
import torch

from sightline.io.checkpoint import write_checkpoint
from sightline.models import create_model
from sightline.training.config import OptimizerConfig
from sightline.training.optim import Ema, make_optimizer
from sightline.training.state import load_optimizer, optimizer_tensors


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


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "lamb"])
def test_the_state_goes_on_where_it_was(model, name, tmp_path):
    config = OptimizerConfig(name=name, layer_decay=0.8, head_decay=0.5)
    first = make_optimizer(model, config)
    step(model, first)
    write_checkpoint(tmp_path / "c", {}, {}, optimizer_tensors(first, model))
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    step(model, first)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    assert not torch.equal(after["head.weight"], weights["head.weight"])

    model.load_state_dict(weights)
    second = make_optimizer(model, config)
    load_optimizer(second, model, tmp_path / "c" / "training")
    step(model, second)
    assert all(torch.equal(after[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("name", "coupled"), [("adamw", False), ("adam", True)])
def test_decay_is_decoupled_where_it_is_said(name, coupled):
    """With a gradient of 0 decoupled decay shrinks a weight by lr x decay; coupled decay alone is Adam's full step."""
    model = create_model("vit_micro_patch4", num_classes=3, image_size=16, depth=1, dim=16, heads=2)
    before = model.head.weight.detach().clone().fill_(0.5)
    model.head.weight.data.copy_(before)
    optimizer = make_optimizer(model, OptimizerConfig(name=name, lr=0.01, weight_decay=0.2))
    model.head.weight.grad = torch.zeros_like(before)
    optimizer.step()
    moved = 0.01 if coupled else 0.01 * 0.2 * 0.5
    torch.testing.assert_close(before - model.head.weight.detach(), torch.full_like(before, moved))


def test_the_running_mean(model):
    start = model.head.weight.detach().clone()
    ema = Ema(model, 0.75, warmup=False)
    with torch.no_grad():
        model.head.weight.add_(1.0)
    ema.update(model, 0)
    torch.testing.assert_close(ema.mean["head.weight"], start + 0.25)
    ema.swap(model)
    torch.testing.assert_close(model.head.weight.detach(), start + 0.25)
    torch.testing.assert_close(ema.mean["head.weight"], start + 1)
    ema.swap(model)
    torch.testing.assert_close(model.head.weight.detach(), start + 1)


def test_the_decay_of_a_mean_warms_up(model):
    """By hand: 1/10, 2/11, 3/12, then the decay itself."""
    ema, weight = Ema(model, 0.25), model.head.weight
    mean = weight.detach().clone()
    for step, decay in enumerate((1 / 10, 2 / 11, 3 / 12, 0.25, 0.25)):
        with torch.no_grad():
            weight.add_(step + 1.0)
        ema.update(model, step)
        mean = decay * mean + (1 - decay) * weight.detach()
        torch.testing.assert_close(ema.mean["head.weight"], mean)
