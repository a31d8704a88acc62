"""What timm has and ours have not: each refused by name, and nothing by mistake."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from huggingface_hub import constants

from sightline.convert import import_weights, timm_build
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from tests.convert.originals import compare, imported, original

REFUSED = {
    "vit_base_mci_224": "its stem is a ConvStem",
    "deit_tiny_distilled_patch16_224": "it is a VisionTransformerDistilled",
    "vit_relpos_small_patch16_224": "it is a VisionTransformerRelPos",
    "vit_small_patch16_18x2_224": "its blocks are ParallelThingsBlock",
    "vit_pwee_patch16_reg1_gap_256": "its blocks are ParallelScalingBlock",
    "vit_base_patch16_rpn_224": "its blocks are ResPostBlock",
    "vit_dwee_patch16_reg1_gap_256": "its attention is DiffAttention",
    "vit_dpwee_patch16_reg1_gap_256": "its blocks are DiffParallelScalingBlock",
    "eva02_enormous_patch14_clip_224": "its blocks are EvaBlockPostNorm",
    "vit_base_patch16_sapiens2": "only one of its branches has a LayerScale",
    "aimv2_large_patch14_224": "the projection of its heads has no bias",
    "vitamin_small_224": "its MLP is a GeGluMlp",
    "samvit_base_patch16": "it is a VisionTransformerSAM",
    "xcit_nano_12_p16_224": "it is a Xcit",
    "swinv2_tiny_window8_256": "it is a SwinTransformerV2",
    "cait_xxs24_224": "it is a Cait",
    "resnet18": "it is a ResNet",
}
OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("vit_tiny_patch16_224", {"global_pool": ""}, "its pooling is ''"),
    ("vit_tiny_patch16_224", {"proj_bias": False}, "the projection of its heads has no bias"),
    ("vit_tiny_patch16_224", {"act_layer": "relu"}, "its activation is ReLU"),
    ("vit_tiny_patch16_224", {"patch_size": [16, 8]}, "patches of 16x8 pixels are not square"),
    ("vit_tiny_patch16_224", {"global_pool": "avg", "final_norm": True, "fc_norm": True, "pos_embed": "x"}, "built"),
    ("vit_small_patch16_rope_224", {"rope_type": "sinusoidal"}, "cannot be built"),
    ("beit_base_patch16_224", {"use_shared_rel_pos_bias": True, "depth": 1}, "for each layer and one for all"),
    ("naflexvit_base_patch16_par_gap", {"pos_embed_grid_size": [4, 6]}, "keeps the aspect ratio and is not square"),
    ("naflexvit_base_patch16_gap", {"pos_embed_use_grid_sample": True}, "interpolated in another way"),
    ("naflexvit_base_patch16_gap", {"pos_embed_align_corners": True}, "(bicubic, antialias, aligned corners)"),
    ("vit_tiny_patch16_224", {"dept": 2}, "vit_tiny_patch16_224 cannot be built: .*'dept'"),
]


def refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        import_weights("timm", {}, config)
    assert str(caught.value).startswith("timm: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_names(name: str) -> None:
    refused({"model": name}, REFUSED[name])


@pytest.mark.parametrize(("name", "options", "words"), OPTIONS)
def test_options(name: str, options: dict[str, Any], words: str) -> None:
    refused({"model": name, **options}, words)


def test_weights_of_another_model() -> None:
    given = {"depth": 2, "img_size": 32, "embed_dim": 48, "num_heads": 3}
    config = {"model": "vit_tiny_patch16_224", **given}
    state = original("vit_tiny_patch16_224", **given).state_dict()
    scaled = original("vit_tiny_patch16_224", **given, init_values=0.1).state_dict()
    with pytest.raises(InputError, match=r"timm: .* missing: blocks.2.norm1.weight.* in all"):
        import_weights("timm", state, {**config, "depth": 3})
    with pytest.raises(InputError, match=r"pos_embed is \[1, 5, 48\], expected \[1, 17, 48\]"):
        import_weights("timm", state, {**config, "img_size": 64})
    with pytest.raises(InputError, match=r"not expected: blocks.0.ls1.gamma"):
        import_weights("timm", scaled, config)
    state["blocks.1.mlp.fc2.bias"] = torch.full_like(state["blocks.1.mlp.fc2.bias"], torch.nan)
    with pytest.raises(InputError, match=r"blocks.1.mlp.fc2.bias holds a number that is not finite"):
        import_weights("timm", state, config)


def test_weights_of_a_pretrained_tag_are_of_its_architecture() -> None:
    """ "name.tag" is the same module; how its images are prepared is the tag's."""
    theirs = original("vit_tiny_patch16_224", depth=1)
    config = {"model": "vit_tiny_patch16_224.augreg_in21k_ft_in1k", "depth": 1}
    ours = imported(theirs, config)
    compare(ours, theirs)
    assert ours.config.mean == (0.5, 0.5, 0.5)
    clip = import_weights(
        "timm", original("vit_xsmall_patch16_clip_224", depth=1).state_dict(),
        {"model": "vit_xsmall_patch16_clip_224", "depth": 1},
    )  # fmt: skip
    assert clip.config.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    assert clip.config.std == pytest.approx((0.26862954, 0.26130258, 0.27577711))
    assert clip.config.norm_eps == 1e-5


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    asked, offline = [], []

    def connect(place, timeout):
        asked.append(place[0])
        raise OSError("no such name")

    def create(name, **arguments):
        offline.append(constants.HF_HUB_OFFLINE)
        raise FileNotFoundError(name)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(timm_build, "getproxies", dict)
    monkeypatch.setattr(timm_build.socket, "create_connection", connect)
    monkeypatch.setattr(import_timm(), "create_model", create)
    for pretrained in (True, False):
        with pytest.raises(InputError):
            timm_build.build({"model": "vit_tiny_patch16_224"}, pretrained=pretrained)
    assert (len(asked), offline, constants.HF_HUB_OFFLINE) == (1, [True, False], False)
