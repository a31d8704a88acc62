"""Which tensors of a timm module are which of ours: the same by name, but for the rules below."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from sightline.convert.maps import TensorMap, concat, copy, fused, kernel, map_remaining, prefixed, transform, unbatched
from sightline.convert.vit_projects import SCALES
from sightline.models import ViTConfig


def entries_of(module: Any, config: ViTConfig) -> list[TensorMap]:
    """Every tensor of the state dict of `module`, which `config` was read from."""
    entries = _special(module, config)
    first = module.blocks[0]
    renamed = [(r"^blocks\.0\.norm_pre", "norm_pre")]
    if config.embedder == "resnet" and not hasattr(module.patch_embed.backbone, "stages"):
        # The root alone stands for the whole stem there.
        renamed.append((r"^patch_embed\.backbone\.stem\.", "patch_embed.backbone."))
    if hasattr(module, "embeds"):
        renamed += [(r"^(cls_token|reg_token)", r"embeds.\1"), (r"^patch_embed", "embeds")]
    if not hasattr(first, "ls1"):
        renamed += SCALES
    together = []
    if getattr(first.attn, "qkv", None) is None:
        # Where keys have no bias: else all three are one.
        renamed.append((r"\.([qv])_bias$", r".\1_proj.bias"))
        parts = ("weight", "bias") if config.qkv_bias is True else ("weight",)
        together.append(("attn", ("q_proj", "k_proj", "v_proj"), "qkv", parts))
    if hasattr(first.mlp, "fc1_g"):
        together.append(("mlp", ("fc1_g", "fc1_x"), "fc1", ("weight", "bias")))
    for layer in range(config.depth):
        for place, theirs, ours, parts in together:
            block = f"blocks.{layer}.{place}"
            entries += fused([f"{block}.{one}" for one in theirs], f"{block}.{ours}", parts)
    return map_remaining(config, entries, renamed)


def _special(module: Any, config: ViTConfig) -> list[TensorMap]:
    """The tensors that are laid out in another way."""
    embed = getattr(module, "embeds", None)
    proj = "patch_embed.proj.weight" if embed is None else "embeds.proj.weight"
    if embed is None or not embed.is_linear:
        entries = [kernel(config, proj)]
    elif embed.channels_last:
        # NaFlexViT flattens a patch as (y, x, channel) where it does not say otherwise.
        side, channels = config.patch_size, config.channels
        entries = [
            transform(
                proj,
                "patch_embed.proj.weight",
                lambda x: x.reshape(-1, side, side, channels).permute(0, 3, 1, 2).flatten(1),
                lambda x: x.reshape(-1, channels, side, side).permute(0, 2, 3, 1).flatten(1),
            )
        ]
    else:
        entries = [copy(proj, "patch_embed.proj.weight")]
    parts = config.encoding.split("+")
    for number, part in enumerate(parts):
        ours = f"encoding.parts.{number}" if len(parts) > 1 else "encoding"
        if part == "rope_mixed":
            # Its first frequencies are of the first axis of its grid.
            turn = partial(torch.flip, dims=(0,)) if module.rope.grid_indexing == "ij" else torch.clone
            entries.append(transform("rope.freqs", f"{ours}.freqs", turn, turn))
        elif part in ("learned_1d", "learned_2d"):
            entries.append(_table(module, config, ours))
        elif part == "factorized":
            entries += [
                unbatched(f"embeds.pos_embed_{one}", f"{ours}.{to}") for one, to in (("y", "rows"), ("x", "cols"))
            ]
        elif part in ("rpe_learned", "rpe_learned_shared"):
            # One of all layers, or one in each.
            tables = [name for name in module.state_dict() if name.endswith(".relative_position_bias_table")]
            entries.append(concat(tables, f"{ours}.tables", lambda x: x.unsqueeze(0), lambda x: x[0]))
    return entries


def _table(module: Any, config: ViTConfig, ours: str) -> TensorMap:
    """A table of patches, with rows of prefix tokens before them or not."""
    if hasattr(module, "embeds"):
        shape = (1, *module.embeds.pos_embed_grid_size, config.dim)
        return transform("embeds.pos_embed", f"{ours}.table", lambda x: x.flatten(0, 2), lambda x: x.reshape(shape))
    if getattr(module, "no_embed_class", False) or not config.num_prefix_tokens:
        return unbatched("pos_embed", f"{ours}.table")
    return prefixed("pos_embed", ours, config.num_prefix_tokens)
