"""Foreign state dicts in our names: what a converter has to know, for the committed toy models."""

from __future__ import annotations

import re

import torch
from torch import Tensor

State = dict[str, Tensor]

# Beginning or part of a foreign name -> ours. Applied in turn.
_RENAMED = [
    (r"^embeds\.(proj|reg_token|cls_token)", r"\1"),
    (r"^proj\.", "patch_embed.proj."),
    (r"gamma_([12])$", r"ls\1.gamma"),
    (r"^rope\.freqs$", "freqs"),
]
_DROPPED = ("freqs_t_x", "freqs_t_y")


def from_torch(foreign: State, *, prefix_in_table: int = 0, rotary: str = "", added: str = "") -> State:
    """timm, RoPE-ViT, LookHere, BEiT and NaFlexViT.

    Args:
        prefix_in_table: rows of `pos_embed` that belong to prefix tokens.
        rotary, added: where the encoding keeps rotary and added parameters: "parts.0." in a joined one.
    """
    ours: State = {}
    for name, value in foreign.items():
        for pattern, replacement in _RENAMED:
            name = re.sub(pattern, replacement, name)
        if name in _DROPPED:
            continue
        if name == "patch_embed.proj.weight":
            # NaFlexViT flattens a patch as (y, x, channel).
            flat = value.dim() == 2
            value = value.reshape(-1, 4, 4, 3).permute(0, 3, 1, 2).flatten(1) if flat else value.flatten(1)
        elif name == "freqs":
            name, value = f"encoding.{rotary}freqs", value.reshape(2, 2, 3, 8)
        elif name in ("pos_embed", "embeds.pos_embed"):
            table = value.flatten(0, -2)
            if prefix_in_table:
                ours[f"encoding.{added}prefix"] = table[:prefix_in_table]
            name, value = f"encoding.{added}table", table[prefix_in_table:]
        elif name in ("embeds.pos_embed_y", "embeds.pos_embed_x"):
            name, value = f"encoding.{'rows' if name.endswith('y') else 'cols'}", value[0]
        ours[name] = value
    return _beit(ours)


def _beit(state: State) -> State:
    """Tables of the layers together, and a bias of q and v alone beside one of zero for k."""
    tables = [state.pop(name) for name in sorted(state) if name.endswith("relative_position_bias_table")]
    if tables:
        state["encoding.tables"] = torch.stack(tables)
    for name in [name for name in state if name.endswith("q_bias")]:
        q, v = state.pop(name), state.pop(name.replace("q_bias", "v_bias"))
        state[name.replace("q_bias", "qkv.bias")] = torch.cat((q, torch.zeros_like(q), v))
    return state


def from_flax(foreign: State) -> State:
    """big_vision: kernels are (in, out), attention kernels split by head, convolutions HWIO, images NHWC."""
    dim = foreign["head/kernel"].shape[0]
    ours: State = {
        "patch_embed.proj.weight": foreign["embedding/kernel"].permute(3, 2, 0, 1).flatten(1),
        "patch_embed.proj.bias": foreign["embedding/bias"],
        "norm.weight": foreign["Transformer/encoder_norm/scale"],
        "norm.bias": foreign["Transformer/encoder_norm/bias"],
        "head.weight": foreign["head/kernel"].T,
        "head.bias": foreign["head/bias"],
    }
    for layer in range(sum(name.endswith("LayerNorm_0/scale") for name in foreign if "encoderblock" in name)):
        theirs, block = f"Transformer/encoderblock_{layer}", f"blocks.{layer}"
        for number in (0, 1):
            ours[f"{block}.norm{number + 1}.weight"] = foreign[f"{theirs}/LayerNorm_{number}/scale"]
            ours[f"{block}.norm{number + 1}.bias"] = foreign[f"{theirs}/LayerNorm_{number}/bias"]
        weight, bias = _flax_qkv(foreign, theirs, ("query", "key", "value"))
        ours[f"{block}.attn.qkv.weight"], ours[f"{block}.attn.qkv.bias"] = weight, bias
        ours |= _flax_out(foreign, theirs, f"{block}.attn.proj", dim)
        ours |= _flax_mlp(foreign, theirs, f"{block}.mlp")
    if "cls" in foreign:
        ours["cls_token"] = foreign["cls"]
    if "pos_embedding" in foreign:
        ours["encoding.table"] = foreign["pos_embedding"][0]
    if "MAPHead_0/probe" in foreign:
        ours["attn_pool.latent"] = foreign["MAPHead_0/probe"]
        ours["attn_pool.q.weight"], ours["attn_pool.q.bias"] = _flax_qkv(foreign, "MAPHead_0", ("query",))
        ours["attn_pool.kv.weight"], ours["attn_pool.kv.bias"] = _flax_qkv(foreign, "MAPHead_0", ("key", "value"))
        ours["attn_pool.norm.weight"] = foreign["MAPHead_0/LayerNorm_0/scale"]
        ours["attn_pool.norm.bias"] = foreign["MAPHead_0/LayerNorm_0/bias"]
        ours |= _flax_out(foreign, "MAPHead_0", "attn_pool.proj", dim)
        ours |= _flax_mlp(foreign, "MAPHead_0", "attn_pool.mlp")
    return ours


def _flax_qkv(foreign: State, theirs: str, which: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    attention = f"{theirs}/MultiHeadDotProductAttention_0"
    weights = [foreign[f"{attention}/{one}/kernel"].flatten(1).T for one in which]
    return torch.cat(weights), torch.cat([foreign[f"{attention}/{one}/bias"].flatten() for one in which])


def _flax_out(foreign: State, theirs: str, ours: str, dim: int) -> State:
    out = f"{theirs}/MultiHeadDotProductAttention_0/out"
    return {f"{ours}.weight": foreign[f"{out}/kernel"].reshape(-1, dim).T, f"{ours}.bias": foreign[f"{out}/bias"]}


def _flax_mlp(foreign: State, theirs: str, ours: str) -> State:
    state: State = {}
    for number in (0, 1):
        dense = f"{theirs}/MlpBlock_0/Dense_{number}"
        state[f"{ours}.fc{number + 1}.weight"] = foreign[f"{dense}/kernel"].T
        state[f"{ours}.fc{number + 1}.bias"] = foreign[f"{dense}/bias"]
    return state
