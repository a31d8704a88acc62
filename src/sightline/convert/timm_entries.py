"""Which tensors of a timm module are which of ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sightline.convert.base import Entry, linear, mapped, same
from sightline.convert.timm_reading import embedding, kind_of, present, tokens_at
from sightline.models import ViTConfig


def entries_of(module: Any, config: ViTConfig) -> list[Entry]:
    """Every tensor of the state dict of `module`, which `config` was read from."""
    entries = _patches(module, config)
    holder = "embeds." if kind_of(module) == "NaFlexVit" else ""
    for name in ("cls_token", "reg_token"):
        if getattr(tokens_at(module), name, None) is not None:
            entries.append(same(f"{holder}{name}", name))
    for name, ours in (("norm_pre", "blocks.0.norm_pre"), ("norm", "norm"), ("fc_norm", "fc_norm")):
        entries += _norm(getattr(module, name, None), name, ours)
    for layer, block in enumerate(module.blocks):
        entries += _block(block, f"blocks.{layer}")
    if config.pool == "attention":
        entries += [same("attn_pool.latent"), *_norm(module.attn_pool.norm, "attn_pool.norm", "attn_pool.norm")]
        for name in ("q", "kv", "proj", "mlp.fc1", "mlp.fc2"):
            entries += linear(f"attn_pool.{name}", f"attn_pool.{name}")
    entries += _encoding(module, config)
    return entries + (linear("head", "head") if config.num_classes else [])


def _norm(module: Any, theirs: str, ours: str) -> list[Entry]:
    if not present(module):
        return []
    return linear(theirs, ours, bias=getattr(module, "bias", None) is not None)


def _patches(module: Any, config: ViTConfig) -> list[Entry]:
    naflex = kind_of(module) == "NaFlexVit"
    name = "embeds.proj" if naflex else "patch_embed.proj"
    side, channels = config.patch_size, config.channels
    kernel, channels_last = (config.dim, channels, side, side), (config.dim, side, side, channels)
    if naflex and module.embeds.is_linear:
        # NaFlexViT flattens a patch as (y, x, channel) where it does not say otherwise.
        if module.embeds.channels_last:
            weight = mapped(
                f"{name}.weight",
                "patch_embed.proj.weight",
                lambda x: x.reshape(channels_last).permute(0, 3, 1, 2).flatten(1),
                lambda x: x.reshape(kernel).permute(0, 2, 3, 1).flatten(1),
            )
        else:
            weight = same(f"{name}.weight", "patch_embed.proj.weight")
    else:
        weight = mapped(
            f"{name}.weight", "patch_embed.proj.weight", lambda x: x.flatten(1), lambda x: x.reshape(kernel)
        )
    return [weight] + ([same(f"{name}.bias", "patch_embed.proj.bias")] if config.patch_bias else [])


def _together(theirs: Sequence[str], ours: str) -> Entry:
    """Tensors that are one of ours, one after the other."""
    return Entry(
        tuple(theirs), (ours,), lambda parts: [torch.cat(list(parts))], lambda one: list(one[0].chunk(len(theirs)))
    )


def _block(block: Any, name: str) -> list[Entry]:
    entries = linear(f"{name}.attn.proj", f"{name}.attn.proj")
    for norm in ("norm1", "norm2"):
        entries += _norm(getattr(block, norm), f"{name}.{norm}", f"{name}.{norm}")
    for norm in ("q_norm", "k_norm", "norm"):
        entries += _norm(getattr(block.attn, norm, None), f"{name}.attn.{norm}", f"{name}.attn.{norm}")
    entries += _qkv(block.attn, f"{name}.attn")
    entries += _norm(getattr(block.mlp, "norm", None), f"{name}.mlp.norm", f"{name}.mlp.norm")
    entries += linear(f"{name}.mlp.fc2", f"{name}.mlp.fc2")
    if kind_of(block.mlp) == "SwiGLU":
        for part in ("weight", "bias"):
            gated = [f"{name}.mlp.fc1_{one}.{part}" for one in ("g", "x")]
            entries.append(_together(gated, f"{name}.mlp.fc1.{part}"))
    else:
        entries += linear(f"{name}.mlp.fc1", f"{name}.mlp.fc1")
    for number in (1, 2):
        theirs = f"ls{number}.gamma" if hasattr(block, "ls1") else f"gamma_{number}"
        scale = getattr(block, f"ls{number}" if hasattr(block, "ls1") else f"gamma_{number}")
        if present(scale):
            entries.append(same(f"{name}.{theirs}", f"{name}.ls{number}.gamma"))
    return entries


def _qkv(attn: Any, name: str) -> list[Entry]:
    if getattr(attn, "qkv", None) is not None:
        entries = linear(f"{name}.qkv", f"{name}.qkv", bias=attn.qkv.bias is not None)
        if getattr(attn, "q_bias", None) is not None:
            entries += [same(f"{name}.q_bias"), same(f"{name}.v_bias")]
        return entries
    projections = [f"{name}.{one}_proj" for one in "qkv"]
    entries = [_together([f"{one}.weight" for one in projections], f"{name}.qkv.weight")]
    if attn.q_proj.bias is not None and attn.k_proj.bias is not None:
        entries.append(_together([f"{one}.bias" for one in projections], f"{name}.qkv.bias"))
    elif attn.q_proj.bias is not None:
        entries += [same(f"{name}.{one}_proj.bias", f"{name}.{one}_bias") for one in "qv"]
    return entries


def _encoding(module: Any, config: ViTConfig) -> list[Entry]:
    names = config.encoding.split("+")
    entries: list[Entry] = []
    for number, part in enumerate(names):
        ours = f"encoding.parts.{number}" if len(names) > 1 else "encoding"
        if part == "rope_mixed":
            # Its first frequencies are of the first axis of its grid.
            turn = partial(torch.flip, dims=(0,)) if module.rope.grid_indexing == "ij" else torch.clone
            entries.append(mapped("rope.freqs", f"{ours}.freqs", turn, turn))
        elif part in ("learned_1d", "learned_2d"):
            entries.append(_table(module, config, ours))
        elif part == "factorized":
            for theirs, name in (("y", "rows"), ("x", "cols")):
                entries.append(mapped(f"embeds.pos_embed_{theirs}", f"{ours}.{name}", _first, _batched))
        elif part == "rpe_learned":
            tables = tuple(f"blocks.{layer}.attn.relative_position_bias_table" for layer in range(config.depth))
            entries.append(
                Entry(
                    tables,
                    (f"{ours}.tables",),
                    lambda parts: [torch.stack(list(parts))],
                    lambda one: list(one[0].unbind(0)),
                )
            )
        elif part == "rpe_learned_shared":
            entries.append(mapped("rel_pos_bias.relative_position_bias_table", f"{ours}.tables", _batched, _first))
    return entries


def _first(x: Tensor) -> Tensor:
    return x[0]


def _batched(x: Tensor) -> Tensor:
    return x.unsqueeze(0)


def _table(module: Any, config: ViTConfig, ours: str) -> Entry:
    """A table of patches, with rows of prefix tokens before them or not."""
    if kind_of(module) == "NaFlexVit":
        grid = tuple(embedding(module).pos_embed_grid_size)
        return mapped(
            "embeds.pos_embed",
            f"{ours}.table",
            lambda x: x.flatten(0, 2),
            lambda x: x.reshape(1, *grid, config.dim),
        )
    prefix = config.num_prefix_tokens
    if getattr(module, "no_embed_class", False) or not prefix:
        return mapped("pos_embed", f"{ours}.table", _first, _batched)
    return Entry(
        ("pos_embed",),
        (f"{ours}.prefix", f"{ours}.table"),
        lambda one: [one[0][0, :prefix], one[0][0, prefix:]],
        lambda parts: [torch.cat(list(parts)).unsqueeze(0)],
    )
