"""How fast what an encoding learns is learnt, where rates fall from layer to layer: by ours and by timm's groups."""

from __future__ import annotations

import pytest

from sightline.distributed.machine import import_timm
from sightline.encodings import list_encodings
from sightline.training.config import OptimizerConfig
from sightline.training.optim import parameter_groups
from tests.contract.contract import build

DEPTH, DECAY = 3, 0.5
EMBEDDING = DECAY ** (DEPTH + 1)
# Of every other encoding with parameters all learn as fast as the head.
ADDED = [
    "factorized",
    "factorized_fractional",
    "fourier",
    "fourier_fractional",
    "learned_1d",
    "learned_2d",
    "learned_xy",
]
EVERY = ["learned_1d_every", "learned_xy_every"]


def ours(model):
    return parameter_groups(model, OptimizerConfig(layer_decay=DECAY, weight_decay=0.1))


def timms(model):
    import_timm()
    from timm.optim._param_groups import param_groups_layer_decay

    return param_groups_layer_decay(
        model, weight_decay=0.1, layer_decay=DECAY, no_weight_decay_list=model.no_weight_decay()
    )


def rates(model, groups):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(one)]: (group["lr_scale"], group["weight_decay"]) for group in groups(model) for one in group["params"]
    }


def expected_of(encoding, name):
    if encoding in EVERY:
        layer = int(name.split(".")[1]) + 1 if name.startswith("later.") else -1
        return DECAY ** (DEPTH - layer)
    return EMBEDDING if encoding in ADDED else 1.0


@pytest.mark.parametrize("groups", [ours, timms])
@pytest.mark.parametrize("encoding", list_encodings())
def test_what_an_encoding_learns_has_the_rate_of_what_it_is_of(encoding, groups):
    model = build(encoding, depth=DEPTH, dim=48)
    found = rates(model, groups)
    for name, _ in model.encoding.named_parameters():
        assert found[f"encoding.{name}"] == (expected_of(encoding, name), 0.0), name
    assert found["patch_embed.proj.weight"] == (EMBEDDING, 0.1)
    assert found["blocks.1.attn.qkv.weight"] == (DECAY ** (DEPTH - 1), 0.1)


@pytest.mark.parametrize("groups", [ours, timms])
def test_joined_encodings_have_the_rates_of_their_parts(groups):
    found = rates(build("rope_mixed+learned_1d_every", depth=DEPTH, dim=48), groups)
    assert found["encoding.parts.0.freqs"][0] == 1.0
    assert found["encoding.parts.1.table"][0] == EMBEDDING
    assert found["encoding.parts.1.later.0.table"][0] == DECAY ** (DEPTH - 1)
    assert found["encoding.parts.1.later.1.prefix"][0] == DECAY ** (DEPTH - 2)


@pytest.mark.parametrize("groups", [ours, timms])
def test_pooling_and_its_norm_learn_as_the_head(groups):
    found = rates(build("none", "attention", depth=DEPTH, dim=48, final_norm="after_pool"), groups)
    pooling = {name: rate for name, (rate, _) in found.items() if name.startswith(("attn_pool", "fc_norm", "head"))}
    assert len(pooling) > 10
    assert set(pooling.values()) == {1.0}
