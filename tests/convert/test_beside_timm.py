"""Projects that have no golden file, and more of those that have: their names, through timm's own readers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.convert import export_weights, import_weights
from sightline.models import VisionTransformer, create_model
from tests.contract.randomise import randomise_parameters
from tests.convert.originals import close, original, randomise_original

SHAPES = [
    {"embed_dim": 48, "depth": 1, "num_heads": 3, "img_size": 16, "patch_size": 4},
    {"embed_dim": 96, "depth": 3, "num_heads": 4, "img_size": (24, 40), "patch_size": 8},
    {"embed_dim": 64, "depth": 2, "num_heads": 2, "img_size": (12, 8), "patch_size": 2, "in_chans": 1},
    {"embed_dim": 32, "depth": 2, "num_heads": 1, "img_size": 20, "patch_size": 4, "in_chans": 5, "num_classes": 0},
]


def sizes(given: dict[str, Any]) -> list[tuple[int, ...]]:
    """Of training, and another."""
    height, width = (given["img_size"],) * 2 if isinstance(given["img_size"], int) else given["img_size"]
    patch = given["patch_size"]
    return [(2, given.get("in_chans", 3), height, width), (1, given.get("in_chans", 3), 3 * patch, 7 * patch)]


def same_both_ways(project: str, ours: VisionTransformer, state: dict[str, Tensor], given: dict[str, Any]) -> None:
    back, arguments = export_weights(ours, project)
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor), name
    again = import_weights(project, back, arguments)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), ours.parameters(), strict=True))
    assert given.items() <= {key: arguments[key] for key in given}.items()


@pytest.mark.parametrize("given", SHAPES)
@pytest.mark.parametrize("scaled", [True, False])
@torch.no_grad()
def test_deit(given: dict[str, Any], scaled: bool) -> None:
    """DeiT III has LayerScale and no embedding of the CLS token, the first DeiT neither LayerScale nor that."""
    given = {"num_classes": 5, "mlp_ratio": 3.0, **given}
    name = "deit3_small_patch16_224" if scaled else "deit_small_patch16_224"
    theirs = original(name, **given)
    state = {
        key.replace("ls1.gamma", "gamma_1").replace("ls2.gamma", "gamma_2"): value
        for key, value in theirs.state_dict().items()
    }
    assert any("gamma" in key for key in state) == scaled
    given = {**given, "qkv_bias": True}
    ours = import_weights("deit", state, given)
    assert ours.config.encoding_options == {"interpolation": "bicubic", "prefix": not scaled}
    # timm smooths where it shrinks a table, DeiT's own fine-tuning does not: equal where nothing is resized.
    images = torch.randn(sizes(given)[0])
    close(ours(images), theirs(images))
    same_both_ways("deit", ours, state, given)


@pytest.mark.parametrize("given", SHAPES)
@pytest.mark.parametrize("mixed", [True, False])
@torch.no_grad()
def test_rope_vit(given: dict[str, Any], mixed: bool) -> None:
    """timm computes the same as the public code at every size, on the same weights."""
    given = {"num_classes": 5, "mlp_ratio": 2.0, **given}
    theirs = original(f"vit_small_patch16_rope_{'mixed_' if mixed else ''}224", **given, rope_temperature=30.0)
    state = theirs.state_dict()
    ours_given = {**given, "qkv_bias": True, "rope_mixed": mixed, "rope_theta": 30.0}
    if mixed:
        height, width = (side // given["patch_size"] for side in sizes(given)[0][2:])
        state["freqs"] = state.pop("rope.freqs").flatten(2)
        state["freqs_t_x"] = torch.arange(width).float().repeat(height)
        state["freqs_t_y"] = torch.arange(height).float().repeat_interleave(width)
    ours = import_weights("rope_vit", state, ours_given)
    for size in sizes(given):
        images = torch.randn(size)
        close(ours(images), theirs(images))
    same_both_ways("rope_vit", ours, state, ours_given)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(("rows", "cols"), [(6, 10), (14, 14)])
@torch.no_grad()
def test_dinov3_through_the_reader_of_timm(gated: bool, biases: bool, rows: int, cols: int) -> None:
    """timm turns the published names into its own; what it then computes is what ours does."""
    more: dict[str, Any] = {"mlp": "swiglu", "mlp_ratio": 4.0} if gated else {}
    ours = create_model(
        "vit_small_patch16", encoding="rope_dinov3", encoding_options={"rounding": "none"}, num_classes=0, depth=2,
        num_registers=4, mask_token=True, qkv_bias="qv" if biases else False, layer_scale=1.0, norm_eps=1e-5, **more,
    )  # fmt: skip
    randomise_parameters(ours).eval()
    state, given = export_weights(ours, "dinov3")
    eva: Any = importlib.import_module("timm.models.eva")
    name = f"vit_small_{'plus_' if gated else ''}patch16_dinov3{'_qkvb' if biases else ''}"
    theirs = original(name, depth=2, num_classes=0, global_pool="token")
    theirs.load_state_dict(eva.checkpoint_filter_fn(dict(state), theirs))
    images = torch.randn(1, 3, rows * 16, cols * 16)
    close(ours(images), theirs(images))
    same_both_ways("dinov3", import_weights("dinov3", state, given), state, given)


def _npz(path: Any, state: dict[str, Tensor], prefix: str = "") -> str:
    np.savez(path, **{prefix + name: tensor.numpy() for name, tensor in state.items()})
    return str(path)


@pytest.mark.parametrize("hidden", [None, 40])
@pytest.mark.parametrize("given", SHAPES[:3])
@torch.no_grad()
def test_vision_transformer_through_the_reader_of_timm(given: dict[str, Any], hidden: int | None, tmp_path) -> None:
    ours = create_model(
        "vit_micro_patch4", encoding="learned_1d", encoding_options={"interpolation": "corner_aligned"}, gelu="tanh",
        dim=given["embed_dim"], depth=given["depth"], heads=given["num_heads"], image_size=given["img_size"],
        patch_size=given["patch_size"], channels=given.get("in_chans", 3), num_classes=5,
        head="mlp" if hidden else "linear", head_hidden=hidden,
    )  # fmt: skip
    randomise_parameters(ours).eval()
    state, arguments = export_weights(ours, "vision_transformer")
    same_both_ways("vision_transformer", import_weights("vision_transformer", state, arguments), state, arguments)
    classes = {"num_classes": 0 if hidden else 5}
    theirs = original("vit_tiny_patch16_224", **given, **classes, act_layer="gelu_tanh")
    theirs.load_pretrained(_npz(tmp_path / "w.npz", state))
    images = torch.randn(sizes(given)[0])
    expected = theirs(images)
    if hidden:
        # timm has no layer before the head.
        expected = torch.tanh(expected @ state["pre_logits/kernel"] + state["pre_logits/bias"])
        expected = expected @ state["head/kernel"] + state["head/bias"]
    close(ours(images), expected)


@pytest.mark.parametrize("given", SHAPES[:3])
@pytest.mark.parametrize("pool", ["attention", "mean", "cls"])
@torch.no_grad()
def test_big_vision_through_the_reader_of_timm(given: dict[str, Any], pool: str, tmp_path) -> None:
    ours = create_model(
        "vit_micro_patch4", encoding="learned_1d", gelu="tanh", pool=pool, num_classes=5, dim=given["embed_dim"],
        encoding_options={"interpolation": "corner_aligned", "prefix": False}, depth=given["depth"],
        heads=given["num_heads"], image_size=given["img_size"], patch_size=given["patch_size"],
        channels=given.get("in_chans", 3),
    )  # fmt: skip
    randomise_parameters(ours).eval()
    state, arguments = export_weights(ours, "big_vision")
    same_both_ways("big_vision", import_weights("big_vision", state, arguments), state, arguments)
    theirs = original(
        "vit_tiny_patch16_224", **given, num_classes=5, act_layer="gelu_tanh", class_token=pool == "cls",
        no_embed_class=True, fc_norm=False, global_pool={"attention": "map", "mean": "avg", "cls": "token"}[pool],
    )  # fmt: skip
    randomise_original(theirs, seed=9)
    theirs.load_pretrained(_npz(tmp_path / "w.npz", state, "params/"))
    theirs.head.weight.copy_(state["head/kernel"].T)
    theirs.head.bias.copy_(state["head/bias"])
    images = torch.randn(sizes(given)[0])
    close(ours(images), theirs(images))
