"""Which tensors of a timm module are which of ours: the same by name, but for the rules below."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import torch

from sightline.convert.base import Entry, joined, kernel, mapped, prefixed, same, unbatched
from sightline.models import ViTConfig

# timm's name -> ours, where a tensor is called otherwise and nothing else.
_RENAMED = (
    (r"embeds\.(cls_token|reg_token)", r"\1"),
    (r"embeds\.proj\.bias", r"patch_embed.proj.bias"),
    (r"norm_pre\.(\w+)", r"blocks.0.norm_pre.\1"),
    (r"(blocks\.\d+)\.gamma_(\d)", r"\1.ls\2.gamma"),
    # Where keys have no bias: else all three are one.
    (r"(blocks\.\d+\.attn)\.([qv])_proj\.bias", r"\1.\2_bias"),
)
# Tensors that are one of ours, one after the other: a pattern of the first, the others, and our name.
_JOINED = (
    (r"(blocks\.\d+\.attn)\.q_proj\.(weight|bias)", (r"\1.k_proj.\2", r"\1.v_proj.\2"), r"\1.qkv.\2"),
    (r"(blocks\.\d+\.mlp)\.fc1_g\.(weight|bias)", (r"\1.fc1_x.\2",), r"\1.fc1.\2"),
)


def entries_of(module: Any, config: ViTConfig) -> list[Entry]:
    """Every tensor of the state dict of `module`, which `config` was read from."""
    entries = _special(module, config)
    known = {name for entry in entries for name in entry.theirs}
    names = [name for name in module.state_dict() if name not in known]
    for pattern, others, ours in _JOINED:
        for first in list(names):
            found = re.fullmatch(pattern, first)
            together = [first, *(found.expand(one) for one in others)] if found else []
            if found and set(together) <= set(names):
                names = [name for name in names if name not in together]
                entries.append(joined(together, found.expand(ours)))
    for name in names:
        ours = next((found.expand(to) for one, to in _RENAMED if (found := re.fullmatch(one, name))), name)
        entries.append(same(name, ours))
    return entries


def _special(module: Any, config: ViTConfig) -> list[Entry]:
    """The tensors that are laid out in another way."""
    embed = getattr(module, "embeds", None)
    proj = "patch_embed.proj.weight" if embed is None else "embeds.proj.weight"
    if embed is None or not embed.is_linear:
        entries = [kernel(config, proj)]
    elif embed.channels_last:
        # NaFlexViT flattens a patch as (y, x, channel) where it does not say otherwise.
        side, channels = config.patch_size, config.channels
        entries = [
            mapped(
                proj,
                "patch_embed.proj.weight",
                lambda x: x.reshape(-1, side, side, channels).permute(0, 3, 1, 2).flatten(1),
                lambda x: x.reshape(-1, channels, side, side).permute(0, 2, 3, 1).flatten(1),
            )
        ]
    else:
        entries = [same(proj, "patch_embed.proj.weight")]
    parts = config.encoding.split("+")
    for number, part in enumerate(parts):
        ours = f"encoding.parts.{number}" if len(parts) > 1 else "encoding"
        if part == "rope_mixed":
            # Its first frequencies are of the first axis of its grid.
            turn = partial(torch.flip, dims=(0,)) if module.rope.grid_indexing == "ij" else torch.clone
            entries.append(mapped("rope.freqs", f"{ours}.freqs", turn, turn))
        elif part in ("learned_1d", "learned_2d"):
            entries.append(_table(module, config, ours))
        elif part == "factorized":
            entries += [
                unbatched(f"embeds.pos_embed_{one}", f"{ours}.{to}") for one, to in (("y", "rows"), ("x", "cols"))
            ]
        elif part in ("rpe_learned", "rpe_learned_shared"):
            owners = (
                [f"blocks.{layer}.attn" for layer in range(config.depth)] if part == "rpe_learned" else ["rel_pos_bias"]
            )
            tables = [f"{owner}.relative_position_bias_table" for owner in owners]
            entries.append(joined(tables, f"{ours}.tables", lambda x: x.unsqueeze(0), lambda x: x[0]))
    return entries


def _table(module: Any, config: ViTConfig, ours: str) -> Entry:
    """A table of patches, with rows of prefix tokens before them or not."""
    if hasattr(module, "embeds"):
        shape = (1, *module.embeds.pos_embed_grid_size, config.dim)
        return mapped("embeds.pos_embed", f"{ours}.table", lambda x: x.flatten(0, 2), lambda x: x.reshape(shape))
    if getattr(module, "no_embed_class", False) or not config.num_prefix_tokens:
        return unbatched("pos_embed", f"{ours}.table")
    return prefixed("pos_embed", ours, config.num_prefix_tokens)
