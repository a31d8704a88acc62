"""What code written for timm's models calls."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from torch import Tensor

from sightline.encodings import list_encodings
from sightline.errors import InputError
from sightline.models import VisionTransformer, create_model

SMALL = {"num_classes": 5, "dim": 48, "depth": 3, "image_size": 16}


@pytest.fixture
def model(randomise) -> VisionTransformer:
    made = create_model("vit_micro_patch4", encoding="rope_axial+learned_1d", num_registers=2, **SMALL)
    return randomise(made).eval()


@pytest.fixture
def listed() -> list[Tensor]:
    return [torch.randn(3, 8, 12), torch.randn(3, 20, 4)]


def test_attributes(model: VisionTransformer) -> None:
    assert model.num_classes == 5
    assert model.num_features == model.head_hidden_size == model.embed_dim == 48
    assert model.num_prefix_tokens == 3
    assert model.num_reg_tokens == 2
    assert model.has_class_token
    assert model.patch_embed.grid_size == (4, 4)
    assert model.patch_embed.patch_size == (4, 4)
    assert model.patch_embed.num_patches == 16
    assert model.feature_info == [{"module": f"blocks.{i}", "num_chs": 48, "reduction": 4} for i in range(3)]
    assert len(model.blocks) == 3
    for info in model.feature_info:
        model.get_submodule(info["module"])


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
def test_mean_pooling_leaves_prefix_tokens_out(randomise) -> None:
    model = randomise(create_model("vit_micro_patch4", encoding="learned_2d", pool="mean", num_registers=2, **SMALL))
    features = model.forward_features(torch.randn(2, 3, 8, 12))
    assert torch.allclose(model.forward_head(features, pre_logits=True), features[:, 2:].mean(1), atol=1e-6)


@pytest.mark.parametrize("norm", [False, True])
@torch.no_grad()
def test_intermediates_of_a_tensor(model: VisionTransformer, norm: bool) -> None:
    images = torch.randn(2, 3, 8, 12)
    final, maps = model.forward_intermediates(images, norm=norm)
    assert torch.equal(final, model.forward_features(images))
    assert [one.shape for one in maps] == [(2, 48, 2, 3)] * 3
    tokens = model.forward_intermediates(images, norm=norm, output_fmt="NLC", intermediates_only=True)
    for one, other in zip(maps, tokens, strict=True):
        # Row-major, y before x.
        assert torch.equal(one.flatten(2).transpose(1, 2), other)
    # The last one normed is the features without the prefix tokens.
    assert torch.equal(tokens[-1], final[:, 3:]) is norm
    pairs = model.forward_intermediates(images, norm=norm, return_prefix_tokens=True, intermediates_only=True)
    assert [(one.shape, prefix.shape) for one, prefix in pairs] == [((2, 48, 2, 3), (2, 3, 48))] * 3
    assert torch.equal(pairs[-1][1], final[:, :3]) is norm


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
def test_which_intermediates(model: VisionTransformer) -> None:
    """In the layers' order, each once, as timm gives them."""
    images = torch.randn(2, 3, 8, 12)
    every = model.forward_intermediates(images, intermediates_only=True)
    for indices, expected in [(2, [1, 2]), ([0], [0]), ([-1, 0], [0, 2]), ((1, 1), [1]), (range(3), [0, 1, 2])]:
        for stop_early in (False, True):
            found = model.forward_intermediates(images, indices, intermediates_only=True, stop_early=stop_early)
            assert len(found) == len(expected)
            assert all(torch.equal(one, every[layer]) for one, layer in zip(found, expected, strict=True))
    for wrong in (4, [3], [-4], -1, 0, []):
        for call in (model.forward_intermediates, model.get_intermediate_layers):
            with pytest.raises(InputError, match="indices"):
                call(images, wrong)
        with pytest.raises(InputError, match="indices"):
            model.prune_intermediate_layers(wrong)
    assert len(model.blocks) == 3
    with pytest.raises(InputError, match="NCHW or NLC"):
        model.forward_intermediates(images, output_fmt="NHWC")


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


def test_masks_have_no_place(model: VisionTransformer) -> None:
    images = torch.randn(1, 3, 8, 12)
    mask = torch.ones(9, 9, dtype=torch.bool)
    for call in (model.forward_intermediates, model.get_intermediate_layers):
        with pytest.raises(InputError, match="attn_mask: the layout says which tokens meet"):
            call(images, attn_mask=mask)
    with pytest.raises(InputError, match="is_causal: the layout says which tokens meet"):
        model.forward_intermediates(images, is_causal=True)


@torch.no_grad()
def test_pruned(model: VisionTransformer, listed: list[Tensor]) -> None:
    """Only what the chosen intermediates need is left, and they are as before."""
    images = torch.randn(2, 3, 8, 12)
    expected = model.forward_intermediates(images, [0, 1], intermediates_only=True)
    normed = model.forward_intermediates(images, [0, 1], norm=True, intermediates_only=True)
    whole = copy.deepcopy(model)
    assert model.prune_intermediate_layers([-2, 0], prune_head=False) == [0, 1]
    assert len(model.blocks) == 2
    assert model.get_classifier().out_features == 5
    for one, other in zip(model.forward_intermediates(images, intermediates_only=True), expected, strict=True):
        assert torch.equal(one, other)
    for one, other in zip(model.forward_intermediates(images, norm=True)[1], normed, strict=True):
        assert torch.equal(one, other)
    assert whole.prune_intermediate_layers(2, prune_norm=True) == [1, 2]
    names = {name.split(".")[0] for name, _ in whole.named_parameters()}
    assert names == {"cls_token", "reg_token", "patch_embed", "encoding", "blocks"}
    assert whole.num_classes == 0
    assert whole(images).shape == (2, 9, 48)
    assert [one.shape for one in whole(listed)] == [(9, 48), (8, 48)]


@torch.no_grad()
def test_stop_early_runs_no_more_blocks(model: VisionTransformer) -> None:
    ran = []
    for layer, block in enumerate(model.blocks):
        block.register_forward_hook(lambda *_, layer=layer: ran.append(layer))
    model.forward_intermediates(torch.randn(1, 3, 8, 8), [1], stop_early=True, intermediates_only=True)
    assert ran == [0, 1]


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


def test_reset_classifier(model: VisionTransformer) -> None:
    images = torch.randn(2, 3, 8, 12)
    model.reset_classifier(11)
    assert model(images).shape == (2, 11)
    assert model.get_classifier().out_features == model.num_classes == model.config.num_classes == 11
    assert model.pretrained_cfg["num_classes"] == 11
    model.reset_classifier(0)
    with torch.no_grad():
        features = model.forward_features(images)
        torch.testing.assert_close(model(images), model.forward_head(features, pre_logits=True))
    assert model([]).shape == (0, 48)
    with pytest.raises(InputError, match="num_classes"):
        model.reset_classifier(-1)
    with pytest.raises(InputError, match="pool"):
        model.reset_classifier(3, "avgmax")


@pytest.mark.parametrize("pool", ["mean", "attention", "cls"])
def test_reset_classifier_with_another_pooling(model: VisionTransformer, pool: str) -> None:
    model = model.to(torch.float64)
    before = copy.deepcopy(model)
    model.reset_classifier(4, pool)
    assert model.config.pool == pool
    assert model.num_prefix_tokens == 3
    assert all(parameter.dtype == torch.float64 for parameter in model.parameters())
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    logits = model(images)
    assert logits.shape == (2, 4)
    assert logits.isfinite().all()
    with torch.no_grad():
        assert torch.equal(model.forward_features(images), before.forward_features(images))
    if pool == "attention":
        # New weights start as those of a new model, not as whatever was in memory.
        fresh = create_model("vit_micro_patch4", pool="attention", **SMALL).attn_pool
        for name, parameter in fresh.named_parameters():
            found = model.attn_pool.get_parameter(name).float()
            if parameter.dim() > 1:
                assert float(found.std()) == pytest.approx(float(parameter.std()), rel=0.4), name
            else:
                assert torch.equal(found, parameter), name
    assert not any(part.training for part in model.eval().modules())
    model.reset_classifier(4, "avg")
    assert not any(part.training for part in model.modules())
    model.reset_classifier(4, pool)
    # It is a model of that configuration: another one takes its weights.
    VisionTransformer(model.config).load_state_dict(model.state_dict())


@pytest.mark.parametrize(("theirs", "ours"), [("token", "cls"), ("avg", "mean"), ("map", "attention")])
def test_timm_s_names_of_poolings(model: VisionTransformer, theirs: str, ours: str) -> None:
    other = copy.deepcopy(model)
    for one, name in ((model, theirs), (other, ours)):
        torch.manual_seed(1)
        one.reset_classifier(4, name)
        assert one.config.pool == ours
        assert one.global_pool == theirs
    images = torch.randn(2, 3, 8, 12)
    with torch.no_grad():
        assert torch.equal(model(images), other(images))
        probe = model.attn_pool
        # The same pooling again keeps its weights; another head does not.
        model.reset_classifier(4, theirs)
        assert model.attn_pool is probe
        assert not torch.equal(model(images), other(images))


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


def test_reset_classifier_to_cls_without_a_token() -> None:
    model = create_model("vit_micro_patch4", pool="mean", **SMALL)
    with pytest.raises(InputError, match="CLS token"):
        model.reset_classifier(3, "cls")
    assert model(torch.randn(1, 3, 8, 8)).shape == (1, 5)


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
@pytest.mark.parametrize("pool", ["cls", "mean", "attention"])
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


def test_pretrained_cfg(model: VisionTransformer) -> None:
    config = model.pretrained_cfg
    assert config == model.default_cfg
    assert config["input_size"] == (3, 16, 16)
    assert config["fixed_input_size"] is False
    assert config["mean"] == (0.5, 0.5, 0.5)
    assert config["std"] == (0.5, 0.5, 0.5)
    assert config["interpolation"] == "bicubic"
    assert config["crop_pct"] == 1.0
    assert re.fullmatch(r"\w+", config["architecture"])
    for name in ("first_conv", "classifier"):
        assert hasattr(model.get_submodule(config[name]), "weight")
    mlp = create_model("vit_micro_patch4", head="mlp", mean=[0.485, 0.456, 0.406], crop=0.9, **SMALL)
    assert mlp.get_submodule(mlp.pretrained_cfg["classifier"]).out_features == 5
    assert mlp.pretrained_cfg["mean"] == (0.485, 0.456, 0.406)
    assert mlp.pretrained_cfg["crop_pct"] == 0.9


def test_set_input_size_is_nothing_to_do(model: VisionTransformer) -> None:
    images = torch.randn(1, 3, 24, 8)
    with torch.no_grad():
        before = model(images)
        assert model.set_input_size(img_size=(24, 8)) is None
        assert model.set_input_size((24, 8), patch_size=4) is None
        assert torch.equal(model(images), before)


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
