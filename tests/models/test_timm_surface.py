"""What code written for timm's models calls."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from torch import Tensor

from sightline.encodings import list_encodings
from sightline.models import VisionTransformer, create_model

SMALL = {"num_classes": 5, "dim": 48, "depth": 3, "image_size": 16}


@pytest.fixture
def model(randomise) -> VisionTransformer:
    made = create_model("vit_micro_patch4", encoding="rope_axial+learned_1d", num_registers=2, **SMALL)
    return randomise(made).eval()


@pytest.fixture
def listed() -> list[Tensor]:
    return [torch.randn(3, 8, 12), torch.randn(3, 20, 4)]


@torch.no_grad()
def test_features_and_head(model: VisionTransformer, listed: list[Tensor]) -> None:
    images = torch.randn(2, 3, 8, 12)
    features = model.forward_features(images)
    assert features.shape == (2, 3 + 6, 48)
    torch.testing.assert_close(model.forward_head(features), model(images))
    pooled = model.forward_head(features, pre_logits=True)
    assert pooled.shape == (2, 48)
    assert torch.equal(model.head(pooled), model.forward_head(features))
    several = model.forward_features(listed)
    assert [feature.shape for feature in several] == [(3 + 6, 48), (3 + 5, 48)]
    assert torch.allclose(model.forward_head(several), model(listed), atol=1e-6)
    # A batch whose every image is one patch, and one image alone.
    assert model.forward_features(torch.randn(3, 3, 4, 4)).shape == (3, 4, 48)
    # Patches with a layout give what is laid out.
    patches, layout = model.prepare(listed)
    packed = model.forward_features(patches, layout=layout)
    assert packed.shape == (1, layout.slots, 48)
    assert torch.equal(packed[0], torch.cat(several))
    assert torch.allclose(model.forward_head(packed, layout=layout), model(listed), atol=1e-6)


@torch.no_grad()
def test_intermediates_of_a_list(model: VisionTransformer, listed: list[Tensor]) -> None:
    final, maps = model.forward_intermediates(listed, indices=[0, -1], norm=True)
    assert [one.shape for one in final] == [(9, 48), (8, 48)]
    assert [[one.shape for one in layer] for layer in maps] == [[(48, 2, 3), (48, 5, 1)]] * 2
    for number, image in enumerate(listed):
        alone, alone_maps = model.forward_intermediates(image[None], indices=[0, -1], norm=True)
        assert torch.allclose(alone[0], final[number], atol=1e-5)
        for layer in range(2):
            assert torch.allclose(alone_maps[layer][0], maps[layer][number], atol=1e-5)
    pairs = model.forward_intermediates(listed, 1, return_prefix_tokens=True, output_fmt="NLC", intermediates_only=True)
    assert [(tokens.shape, prefix.shape) for tokens, prefix in pairs[0]] == [((6, 48), (3, 48)), ((5, 48), (3, 48))]


@torch.no_grad()
def test_intermediates_as_a_dictionary(model: VisionTransformer, listed: list[Tensor]) -> None:
    for images in (torch.randn(2, 3, 8, 12), listed):
        final, pairs = model.forward_intermediates(images, [0, 2], return_prefix_tokens=True)
        found = model.forward_intermediates(images, [0, 2], return_prefix_tokens=True, output_dict=True)
        assert found.keys() == {"image_features", "image_intermediates", "image_intermediates_prefix"}
        features, maps = found["image_features"], found["image_intermediates"]
        if isinstance(images, Tensor):
            features, final = [features], [final]
            pairs = [[pair] for pair in pairs]
            maps, found["image_intermediates_prefix"] = (
                [[one] for one in found[key]] for key in ("image_intermediates", "image_intermediates_prefix")
            )
        assert all(torch.equal(one, other) for one, other in zip(features, final, strict=True))
        for layer in range(2):
            for (patches, prefix), one, other in zip(
                pairs[layer], maps[layer], found["image_intermediates_prefix"][layer], strict=True
            ):
                assert torch.equal(patches, one)
                assert torch.equal(prefix, other)
        assert model.forward_intermediates(images, 1, output_dict=True).keys() == {
            "image_features",
            "image_intermediates",
        }
        only = model.forward_intermediates(images, 1, output_dict=True, intermediates_only=True)
        assert only.keys() == {"image_intermediates"}


@torch.no_grad()
def test_get_intermediate_layers(model: VisionTransformer, listed: list[Tensor]) -> None:
    """As DINOv2 and timm call it; whether the final norm is applied is said, and is off unless asked for."""
    images = torch.randn(2, 3, 8, 12)
    tokens = model.get_intermediate_layers(images, n=2)
    assert [one.shape for one in tokens] == [(2, 6, 48)] * 2
    maps = model.get_intermediate_layers(images, n=[0, 2], reshape=True, return_prefix_tokens=True, norm=True)
    assert [(one.shape, prefix.shape) for one, prefix in maps] == [((2, 48, 2, 3), (2, 3, 48))] * 2
    plain, normed = (model.get_intermediate_layers(images, norm=norm)[0] for norm in (False, True))
    assert torch.equal(model.norm(plain), normed)
    assert not torch.equal(plain, normed)
    assert torch.equal(normed, model.forward_features(images)[:, 3:])
    assert [one.shape for one in model.get_intermediate_layers(listed, reshape=True)[0]] == [(48, 2, 3), (48, 5, 1)]


@torch.no_grad()
@pytest.mark.parametrize("pool", ["cls", "attention"])
def test_no_pooling(pool: str, listed: list[Tensor], randomise) -> None:
    model = randomise(create_model("vit_micro_patch4", pool=pool, final_norm="after_pool", **SMALL)).eval()
    images = torch.randn(2, 3, 8, 12)
    features, head = model.forward_features(images), model.head
    model.reset_classifier(5, "")
    assert model.global_pool == ""
    model.head = head
    assert torch.equal(model(images), head(model.fc_norm(features)))
    assert torch.equal(model.forward_head(features, pre_logits=True), model.fc_norm(features))
    assert [one.shape for one in model(listed)] == [(model.num_prefix_tokens + count, 5) for count in (6, 5)]
    patches, layout = model.prepare(images)
    assert torch.equal(layout.to_row_major(model(patches, layout=layout)), model(images))
    # It stays so for another number of classes, and can be built again from its configuration.
    model.reset_classifier(3)
    assert model(images).shape[2] == 3
    VisionTransformer(model.config).load_state_dict(model.state_dict())
    model.reset_classifier(3, "avg")
    assert model(images).shape == (2, 3)


@pytest.mark.parametrize("encoding", ["rope_mixed", "rope_axial+rope_mixed", "learned_1d", "rpe_learned", "fourier"])
def test_no_weight_decay(encoding: str) -> None:
    model = create_model("vit_micro_patch4", encoding=encoding, pool="attention", num_registers=1, **SMALL)
    names = {name for name, _ in model.named_parameters()}
    spared = model.no_weight_decay()
    assert spared <= names
    assert {"reg_token", "attn_pool.latent"} <= spared
    assert {name for name in names if name.startswith("encoding.")} <= spared
    rotary = {name for name in names if name.endswith("freqs")}
    assert bool(rotary) is ("mixed" in encoding)
    assert rotary <= spared
    assert "blocks.0.attn.qkv.weight" not in spared


@pytest.mark.parametrize("encoding", [*list_encodings(), "rope_mixed+learned_1d"])
@pytest.mark.parametrize("pool", ["cls", "attention"])
def test_group_matcher_places_every_parameter_once(pool: str, encoding: str) -> None:
    model = create_model(
        "vit_micro_patch4", encoding=encoding, pool=pool, num_registers=1, layer_scale=0.1, qk_norm=True,
        final_norm="before_pool" if pool == "cls" else "after_pool", **SMALL,
    )  # fmt: skip
    matcher = model.group_matcher()
    patterns = [("stem", matcher["stem"])]
    patterns += [("blocks", pattern) for pattern, _ in matcher["blocks"]]
    groups: dict[str, set] = {}
    for name, _ in model.named_parameters():
        found = [(kind, match) for kind, pattern in patterns if (match := re.match(pattern, name))]
        of_all = name.startswith("encoding.") and model.encoding.layer_of(name.partition(".")[2]) is None
        if name.startswith(("head.", "attn_pool.", "fc_norm.")) or of_all:
            assert not found, name  # timm puts it behind everything else.
            continue
        assert len(found) == 1, name
        kind, match = found[0]
        groups.setdefault(kind + "".join(match.groups() or ()), set()).add(name)
    assert {"stem", "blocks0", "blocks1", "blocks2"} <= groups.keys()


@pytest.mark.parametrize("encoding", ["lookhere_90", "rope_mixed", "rpe_learned"])
@pytest.mark.parametrize("as_list", [False, True])
def test_activation_checkpointing_gives_equal_gradients(encoding: str, as_list: bool, randomise) -> None:
    model = randomise(create_model("vit_micro_patch4", encoding=encoding, drop_path=0.4, **SMALL)).train()
    images = torch.randn(3, 3, 8, 12)
    found = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        torch.manual_seed(3)
        logits = model(list(images) if as_list else images)
        logits.square().sum().backward()
        found.append([logits.detach(), *(parameter.grad for parameter in model.parameters())])
        model.zero_grad(set_to_none=True)
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= 1e-6 * other.norm() + 1e-9


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_apart(model: VisionTransformer, clone) -> None:
    images = torch.randn(2, 3, 8, 12)
    model.set_knob(37.0)
    with torch.no_grad():
        expected = model(images)
        other = clone(model)
        assert torch.equal(other(images), expected)
        assert other.knob == model.knob
        other.set_knob(200.0)
        other.cls_token.add_(1)
        assert torch.equal(model(images), expected)
        assert not torch.equal(other(images), expected)
