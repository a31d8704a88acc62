"""The names that timm's vision transformers have, which most projects took over: what is the same in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sightline.convert.base import Entry, linear, mapped, same
from sightline.grid import Grid
from sightline.models import ViTConfig
from sightline.models.head import ScoreLink

# timm's arguments -> ours, with timm's defaults.
_ARGUMENTS = {
    "img_size": ("image_size", 224),
    "patch_size": ("patch_size", 16),
    "in_chans": ("channels", 3),
    "num_classes": ("num_classes", 1000),
    "embed_dim": ("dim", 768),
    "depth": ("depth", 12),
    "num_heads": ("heads", 12),
    "mlp_ratio": ("mlp_ratio", 4.0),
    "qkv_bias": ("qkv_bias", True),
}
DEFAULTS: dict[str, Any] = {theirs: default for theirs, (_, default) in _ARGUMENTS.items()}


def fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """What timm's arguments say, as fields of `ViTConfig`."""
    return {**{ours: given[theirs] for theirs, (ours, _) in _ARGUMENTS.items()}, "qkv_bias": bool(given["qkv_bias"])}


def arguments(config: ViTConfig) -> dict[str, Any]:
    """The inverse of `fields`."""
    given = {theirs: getattr(config, ours) for theirs, (ours, _) in _ARGUMENTS.items()}
    return {**given, "img_size": config.table_size, "qkv_bias": config.qkv_bias is not False}


def deit3_link(config: ViTConfig) -> ScoreLink:
    """How the logits of DeiT III's recipe are read, which RoPE-ViT took over.

    It trains on ImageNet-1k with a binary cross entropy. What follows there, by both projects' own commands, is with a
    softmax: fine-tuning ViT-B and larger, fine-tuning at 384 px, and ImageNet-21k.
    """
    last = config.dim < 768 and max(Grid.checked(config.image_size)) <= 224 and config.num_classes < 21000
    return "sigmoid" if last else "softmax"


def patch_entries(config: ViTConfig, theirs: str = "patch_embed.proj") -> list[Entry]:
    """A convolution's kernel [dim, channels, patch, patch], which is our linear layer's weight."""
    kernel = (config.dim, config.channels, config.patch_size, config.patch_size)
    weight = mapped(f"{theirs}.weight", "patch_embed.proj.weight", lambda x: x.flatten(1), lambda x: x.reshape(kernel))
    return [weight, same(f"{theirs}.bias", "patch_embed.proj.bias")]


def trunk_entries(config: ViTConfig) -> list[Entry]:
    """Prefix tokens and the norms after the last block."""
    entries = [same("cls_token")] if config.has_class_token else []
    entries += [same("reg_token")] if config.num_registers else []
    return entries + linear(*(("norm",) * 2 if config.final_norm == "before_pool" else ("fc_norm",) * 2))


def block_entries(config: ViTConfig, *, scale: str) -> list[Entry]:
    """All blocks; `scale` names the LayerScale of both branches, with {} for 1 and 2."""
    entries: list[Entry] = []
    for layer in range(config.depth):
        block = f"blocks.{layer}"
        for name in ("norm1", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"):
            entries += linear(f"{block}.{name}", f"{block}.{name}")
        entries += linear(f"{block}.attn.qkv", f"{block}.attn.qkv", bias=config.qkv_bias is True)
        if config.qk_norm:
            entries += linear(f"{block}.attn.q_norm", f"{block}.attn.q_norm")
            entries += linear(f"{block}.attn.k_norm", f"{block}.attn.k_norm")
        if config.layer_scale is not None:
            entries += [same(f"{block}.{scale.format(one)}", f"{block}.ls{one}.gamma") for one in (1, 2)]
    return entries


def head_entries(config: ViTConfig) -> list[Entry]:
    """The classifier: one layer, or two; none where there are no classes."""
    if config.num_classes == 0:
        return []
    names = ("head.fc1", "head.fc2") if config.head == "mlp" else ("head",)
    return [entry for name in names for entry in linear(name, name)]
