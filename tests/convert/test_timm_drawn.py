"""Toy models of timm with arguments drawn at random: other sizes, heads, grids and options than any file has."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sightline.convert import export_weights
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from tests.convert.originals import compare, imported, original

pytestmark = pytest.mark.slow

_SHARED: dict[str, list[Any]] = {
    "img_size": [16, (12, 20), (20, 8), 24, 30], "patch_size": [2, 4], "in_chans": [1, 3, 4, 5], "num_classes": [0, 5],
    "depth": [1, 3], "num_heads": [2, 3, 4, 6], "mlp_ratio": [2, 2.7, 4.0, 1.3], "qkv_bias": [True, False],
    "global_pool": ["token", "avg", "map"], "init_values": [None, 0.1], "norm_layer": ["rmsnorm", "layernorm"],
    "drop_path_rate": [0.2], "dynamic_img_pad": [True],
}  # fmt: skip
_VIT = {
    **_SHARED, "qk_norm": [True], "scale_attn_norm": [True], "scale_mlp_norm": [True], "class_token": [True, False],
    "pos_embed": ["learn", "none"], "no_embed_class": [True, False], "reg_tokens": [1, 4], "pre_norm": [True, False],
    "final_norm": [True, False], "fc_norm": [True, False], "pool_include_prefix": [True],
    "act_layer": ["gelu", "gelu_tanh", "quick_gelu"],
}  # fmt: skip
_EVA = {
    **_SHARED, "qkv_fused": [True, False], "qk_norm": [True], "swiglu_mlp": [True, False], "swiglu_align_to": [8, 32],
    "scale_mlp": [True, False], "scale_attn_inner": [True, False], "attn_type": ["eva", "rope"],
    "class_token": [True, False], "num_reg_tokens": [0, 2], "use_abs_pos_emb": [True, False],
    "no_embed_class": [True, False], "use_rot_pos_emb": [True, False], "rope_type": ["cat", "mixed", "dinov3"],
    "rope_temperature": [100.0, 10.0, 77.0], "rope_grid_indexing": ["ij", "xy"], "rope_grid_offset": [0.0, 0.5],
    "rope_rotate_half": [True, False], "ref_feat_shape": [(4, 4), (3, 5)], "use_fc_norm": [True, False],
    "use_pre_transformer_norm": [True, False], "use_post_transformer_norm": [True, False],
    "attn_pool_num_heads": [2, 3], "attn_pool_mlp_ratio": [1.0, 2.0],
}  # fmt: skip
_BEIT = {
    **_SHARED, "img_size": [16, (12, 20), 24], "swiglu_mlp": [True], "scale_mlp": [True], "use_abs_pos_emb": [True],
    "use_rel_pos_bias": [True, False], "use_shared_rel_pos_bias": [True, False],
}  # fmt: skip
_NAFLEX = {
    **{key: values for key, values in _SHARED.items() if key != "img_size"},
    "pos_embed_grid_size": [(4, 4), (3, 5), (6, 6)], "qk_norm": [True], "scale_attn_inner_norm": [True],
    "scale_mlp_norm": [True], "class_token": [True, False], "reg_tokens": [0, 1, 3],
    "pos_embed": ["factorized", "learned", "none"], "pos_embed_ar_preserving": [True, False],
    "pos_embed_antialias": [True, False], "pre_norm": [True], "fc_norm": [True, False],
    "pool_include_prefix": [True, False], "embed_proj_type": ["conv", "linear"],
    "rope_type": ["axial", "mixed", "dinov3"], "attn_type": ["rope", "standard", "eva"],
    "rope_temperature": [10.0, 100.0], "rope_grid_indexing": ["ij", "xy"], "rope_grid_offset": [0.0, 0.5],
    "rope_rotate_half": [True, False], "rope_ref_feat_shape": [(4, 4)], "swiglu_mlp": [True],
    "act_layer": ["gelu_tanh"], "attn_pool_num_heads": [2], "attn_pool_mlp_ratio": [1.5],
}  # fmt: skip
NAMES = {
    "vit_tiny_patch16_224": _VIT, "vit_base_patch16_clip_224": _VIT, "vit_base_patch16_siglip_224": _VIT,
    "vit_small_patch16_rope_224": _EVA, "eva02_tiny_patch14_224": _EVA, "vit_small_patch16_dinov3": _EVA,
    "vit_pe_core_tiny_patch16_384": _EVA, "vit_mediumd_patch16_rope_reg1_gap_256": _EVA,
    "eva02_base_patch16_clip_224": _EVA, "beit_base_patch16_224": _BEIT, "naflexvit_base_patch16_gap": _NAFLEX,
    "naflexvit_base_patch16_map": _NAFLEX, "naflexvit_base_patch16_parfac_gap": _NAFLEX,
}  # fmt: skip
# What a draw may ask for that ours have not, or that timm itself refuses.
REASONS = ("norm before and one after", "tables for each layer and one for all", "keeps the aspect ratio and is not")


def draw(name: str, seed: int) -> dict[str, Any]:
    """Arguments of a toy model."""
    choice = random.Random(f"{name} {seed}")
    given: dict[str, Any] = {"patch_size": 4, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 5}
    if not name.startswith("naflex"):
        given["img_size"] = 16
    options = NAMES[name]
    for key in choice.sample(sorted(options), choice.randint(1, 7)):
        given[key] = choice.choice(options[key])
    return given


def check(name: str, seed: int) -> bool:
    """Whether timm builds this draw and ours can be it: then both are the same, and so is what ours exports."""
    given = draw(name, seed)
    try:
        theirs = original(name, seed=seed, **given)
    except (TypeError, ValueError, AssertionError, RuntimeError):
        return False
    try:
        ours = imported(theirs, {"model": name, **given})
    except InputError as error:
        if any(reason in str(error) for reason in REASONS):
            return False
        raise
    compare(ours, theirs)
    # As one of ours, which does not know where it came from.
    ours.config = ours.config.replace(origin=None)
    try:
        state, found = export_weights(ours, "timm")
    except InputError as error:
        if str(error).startswith("timm: cannot hold "):
            return True
        raise
    again = import_timm().create_model(found.pop("model"), **found).eval()
    again.load_state_dict(state)
    compare(ours, again)
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_few(name: str) -> None:
    assert sum(check(name, seed) for seed in range(5)) >= 2
