"""The arguments of timm's first vision transformers, which most projects took over with the names of the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sightline.grid import Grid
from sightline.models import ViTConfig
from sightline.models.head import ScoreLink
from sightline.models.timm_names import arguments_of

# With timm's defaults.
DEFAULTS: dict[str, Any] = {
    "img_size": 224, "patch_size": 16, "in_chans": 3, "num_classes": 1000, "embed_dim": 768, "depth": 12,
    "num_heads": 12, "mlp_ratio": 4.0, "qkv_bias": True,
}  # fmt: skip
_FIELDS = {theirs: ours for theirs, ours in arguments_of("VisionTransformer").items() if theirs in DEFAULTS}


def fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """What timm's arguments say, as fields of `ViTConfig`."""
    return {**{ours: given[theirs] for theirs, ours in _FIELDS.items()}, "qkv_bias": bool(given["qkv_bias"])}


def arguments(config: ViTConfig) -> dict[str, Any]:
    """The inverse of `fields`."""
    given = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    return {**given, "img_size": config.table_size, "qkv_bias": config.qkv_bias is not False}


def deit3_link(config: ViTConfig) -> ScoreLink:
    """How the logits of DeiT III's recipe are read, which RoPE-ViT took over.

    It trains on ImageNet-1k with a binary cross entropy. What follows there, by both projects' own commands, is with a
    softmax: fine-tuning ViT-B and larger, fine-tuning at 384 px, and ImageNet-21k.
    """
    last = config.dim < 768 and max(Grid.checked(config.image_size)) <= 224 and config.num_classes < 21000
    return "sigmoid" if last else "softmax"


SCALES = ((r"ls(\d)\.gamma$", r"gamma_\1"),)
"""Names of LayerScale's factors where they are parameters of the block itself."""
