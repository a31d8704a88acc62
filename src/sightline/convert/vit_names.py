"""The arguments of timm's first vision transformers, which most projects took over with the names of the tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from sightline.convert.base import Project
from sightline.models import ViTConfig
from sightline.models.head import ScoreLink
from sightline.models.timm_names import timm_arguments
from sightline.tokens.grid import Grid

# With timm's defaults.
DEFAULTS: dict[str, Any] = {
    "img_size": 224, "patch_size": 16, "in_chans": 3, "num_classes": 1000, "embed_dim": 768, "depth": 12,
    "num_heads": 12, "mlp_ratio": 4.0, "qkv_bias": True,
}  # fmt: skip


class VitNames(Project):
    """A project whose class takes these arguments, and others."""

    choices: ClassVar = {"qkv_bias": ("qkv_bias", {True: True, False: False})}
    plain: ClassVar = {
        theirs: ours for theirs, ours in timm_arguments("VisionTransformer").items() if theirs in DEFAULTS
    }


def deit3_link(config: ViTConfig) -> ScoreLink:
    """How the logits of DeiT III's recipe are read, which RoPE-ViT took over.

    It trains on ImageNet-1k with a binary cross entropy. What follows there, by both projects' own commands, is with a
    softmax: fine-tuning ViT-B and larger, fine-tuning at 384 px, and ImageNet-21k.
    """
    last = config.dim < 768 and max(Grid.checked(config.image_size)) <= 224 and config.num_classes < 21000
    return "sigmoid" if last else "softmax"


SCALES = ((r"ls(\d)\.gamma$", r"gamma_\1"),)
"""Names of LayerScale's factors where they are parameters of the block itself."""
