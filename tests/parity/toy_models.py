"""The committed toy models as ours: which configuration each foreign one is, with its weights in it."""

from __future__ import annotations

from typing import Any

from sightline.models import VisionTransformer, ViTConfig
from tests.parity.foreign_weights import from_flax, from_torch
from tests.parity.golden_files import weights

_TOY: dict[str, Any] = {"patch_size": 4, "dim": 48, "depth": 2, "heads": 3, "image_size": 16, "num_classes": 7}
_ANTIALIAS = {"interpolation": "bicubic_antialias"}
_NO_PREFIX = {**_ANTIALIAS, "prefix": False}

_ROPE_VIT = {"mlp_ratio": 2.0, "layer_scale": 1.0}
_APE = {"encoding_options": {"interpolation": "bicubic", "prefix": False}}
_LOOKHERE = {
    "depth": 3, "heads": 12, "mlp_ratio": 2.0, "layer_scale": 1.0, "norm_eps": 1e-5, "head": "mlp", "head_hidden": 96,
    "encoding": "lookhere",
}  # fmt: skip
_BEIT = {"layer_scale": 1.0, "pool": "mean", "class_token": True, "final_norm": "after_pool"}
_BIG_VISION = {"mlp_ratio": 2.0, "gelu": "tanh"}
_NAFLEX = {"layer_scale": 1.0, "pool": "mean", "num_registers": 4, "final_norm": "after_pool"}

CONFIGS: dict[str, dict[str, Any]] = {
    "lookhere_model_LH180": {**_LOOKHERE, "encoding_options": {"directions": "halves-diagonals-none"}},
    "lookhere_model_LH90": {**_LOOKHERE, "encoding_options": {"directions": "corners-triangles-none"}},
    "lookhere_model_LH45": {**_LOOKHERE, "encoding_options": {"directions": "eighths1-eighths2-none"}},
    "ropevit_axial": {**_ROPE_VIT, "encoding": "rope_axial"},
    "ropevit_mixed": {**_ROPE_VIT, "encoding": "rope_mixed"},
    "ropevit_axial_ape": {**_ROPE_VIT, "encoding": "rope_axial+learned_1d", **_APE},
    "ropevit_mixed_ape": {**_ROPE_VIT, "encoding": "rope_mixed+learned_1d", **_APE},
    "timm_vit_learned": {"encoding": "learned_1d", "encoding_options": _ANTIALIAS},
    "timm_vit_learned_pad": {"encoding": "learned_1d", "encoding_options": _ANTIALIAS, "fit": "pad"},
    "timm_vit_gap_reg": {
        "encoding": "learned_1d", "encoding_options": _NO_PREFIX, "pool": "mean", "num_registers": 2,
        "qk_norm": True, "layer_scale": 1.0, "final_norm": "after_pool",
    },
    "timm_vit_rope_axial_xy": {**_ROPE_VIT, "encoding": "rope_axial"},
    "timm_vit_rope_mixed_xy": {**_ROPE_VIT, "encoding": "rope_mixed"},
    "timm_vit_rope_axial_ape_xy": {**_ROPE_VIT, "encoding": "rope_axial+learned_1d", "encoding_options": _NO_PREFIX},
    "timm_vit_rope_sbb": {
        # Its coordinates are squeezed to 16 x 16 whatever it was trained on: a training image of 64 pixels.
        **_ROPE_VIT, "encoding": "rope_axial", "image_size": 64, "pool": "mean", "num_registers": 1, "qkv_bias": False,
        "encoding_options": {"theta": 10000.0, "axis_order": "yx", "coordinates": "squeezed"},
        "final_norm": "after_pool",
    },
    "bigvision_vit_gap_learn": {**_BIG_VISION, "encoding": "learned_1d", "pool": "mean"},
    "bigvision_vit_gap_sincos": {**_BIG_VISION, "encoding": "sincos_2d", "pool": "mean"},
    "bigvision_vit_map_sincos": {**_BIG_VISION, "encoding": "sincos_2d", "pool": "attention"},
    "bigvision_vit_tok_learn": {**_BIG_VISION, "encoding": "learned_1d", "encoding_options": {"prefix": False}},
    "timm_beit_rpb": {**_BEIT, "encoding": "rpe_learned"},
    "timm_beit_shared_rpb": {**_BEIT, "encoding": "rpe_learned_shared"},
    "timm_naflex_learned": {**_NAFLEX, "encoding": "learned_1d", "encoding_options": _NO_PREFIX},
    "timm_naflex_learned_ar": {
        **_NAFLEX, "encoding": "learned_2d", "encoding_options": {"lookup": "aspect", **_ANTIALIAS},
    },
    "timm_naflex_factorized": {**_NAFLEX, "encoding": "factorized", "encoding_options": {"new_grid": "resize"}},
    "timm_naflex_factorized_ar": {**_NAFLEX, "encoding": "factorized", "encoding_options": {"new_grid": "aspect"}},
    "timm_naflex_map": {
        **_NAFLEX, "encoding": "learned_1d", "encoding_options": _NO_PREFIX, "pool": "attention", "num_registers": 1,
        "final_norm": "before_pool",
    },
    "timm_naflex_rope_axial": {**_NAFLEX, "encoding": "rope_axial"},
    "timm_naflex_rope_mixed": {**_NAFLEX, "encoding": "rope_mixed"},
}  # fmt: skip
"""File -> fields of `ViTConfig`."""


def toy_model(file: str) -> VisionTransformer:
    """Our model with the weights of a golden file; every name of both sides is used."""
    model = VisionTransformer(ViTConfig(**{**_TOY, **CONFIGS[file]}))
    if file.startswith("bigvision"):
        state = from_flax(weights(file))
    else:
        joined = "+" in CONFIGS[file]["encoding"]
        state = from_torch(
            weights(file),
            prefix_in_table=1 if file.startswith("timm_vit_learned") else 0,
            rotary="parts.0." if joined else "",
            added="parts.1." if joined else "",
        )
    model.load_state_dict(state)
    return model.eval()
