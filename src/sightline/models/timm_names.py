"""What timm calls the things that our models have."""

from __future__ import annotations

from typing import Any

from sightline.models.config import Pool, ViTConfig
from sightline.tokens.grid import Grid

TIMM_POOLS: dict[str, Pool] = {"token": "cls", "avg": "mean", "map": "attention"}
"""timm's names of our poolings; timm's "" is no pooling."""

CLASSES = ("VisionTransformer", "Eva", "Beit", "NaFlexVit")
"""timm's classes of plain vision transformers."""
_CLASSIFIERS = {"mlp": "head.fc2", "distilled": ("head.cls", "head.distillation")}

# What we call something -> its argument in each of these classes, in their order; "" where it has none.
Names = dict[str, str | tuple[str, str, str, str]]
_FIELDS: Names = {
    "image_size": ("img_size", "img_size", "img_size", ""),
    "patch_size": "patch_size",
    "channels": "in_chans",
    "num_classes": "num_classes",
    "dim": "embed_dim",
    "depth": "depth",
    "heads": "num_heads",
    "mlp_ratio": "mlp_ratio",
    "qkv_bias": "qkv_bias",
    "layer_scale": "init_values",
    "pool": "global_pool",
    "qk_norm": ("qk_norm", "qk_norm", "", "qk_norm"),
    "attn_norm": ("scale_attn_norm", "scale_attn_inner", "", "scale_attn_inner_norm"),
    "mlp_norm": ("scale_mlp_norm", "scale_mlp", "scale_mlp", "scale_mlp_norm"),
    "class_token": ("class_token", "class_token", "", "class_token"),
    "num_registers": ("reg_tokens", "num_reg_tokens", "", "reg_tokens"),
    "norm_pre": ("pre_norm", "use_pre_transformer_norm", "", "pre_norm"),
    "pool_prefix": ("pool_include_prefix", "", "", "pool_include_prefix"),
    "fit": ("dynamic_img_pad", "dynamic_img_pad", "", "dynamic_img_pad"),
}


def timm_arguments(kind: str) -> dict[str, str]:
    """The arguments of one of timm's `CLASSES`, each with our field."""
    place = CLASSES.index(kind)
    names = {(one if isinstance(one, str) else one[place]): ours for ours, one in _FIELDS.items()}
    return {theirs: ours for theirs, ours in names.items() if theirs}


def timm_cfg(config: ViTConfig) -> dict[str, Any]:
    """How images are prepared, and where the first layer and the head are, with the keys of timm's `pretrained_cfg`."""
    height, width = Grid.checked(config.image_size)
    return {
        "input_size": (config.channels, height, width),
        "fixed_input_size": False,
        "pool_size": None,
        "num_classes": config.num_classes,
        "mean": config.mean,
        "std": config.std,
        "interpolation": config.interpolation,
        "crop_pct": config.crop,
        "crop_mode": config.crop_mode,
        "first_conv": "patch_embed.proj",
        "classifier": _CLASSIFIERS.get(config.head, "head"),
    }
