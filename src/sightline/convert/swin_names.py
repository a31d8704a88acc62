"""What the tensors of a Swin are called, there and here: the stages of both, and where patches are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from sightline.convert.base import TensorMap, concat, copy, kernel, unbatched
from sightline.models import ViTConfig
from sightline.models.architectures.swin import SwinOptions

_BLOCK = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")


def stacked(theirs: Sequence[str], ours: str) -> TensorMap:
    """Frequencies [2, heads, head_dim / 2] of each layer that are one tensor here, [2, layers, heads, head_dim / 2]."""
    return TensorMap(
        tuple(theirs),
        (ours,),
        lambda all_: [torch.stack(list(all_), dim=1)],
        lambda one: list(one[0].unbind(1)),
    )


def layers_of(options: SwinOptions) -> list[list[str]]:
    """The names of the blocks of each stage there."""
    return [[f"layers.{stage}.blocks.{one}" for one in range(depth)] for stage, depth in enumerate(options.depths)]


def swin_entries(config: ViTConfig, *, merging: Callable[[int], str], head: str) -> list[TensorMap]:
    """Every tensor that is a weight.

    Args:
        merging: the name of what merges patches before a stage.
        head: of the classifier.
    """
    options = SwinOptions.of(config)
    entries = [kernel(config), copy("patch_embed.proj.bias", "patch_embed.proj.bias")]
    pairs = [("patch_embed.norm", "patch_embed.norm"), ("norm", "norm")]
    if config.num_classes:
        pairs.append((head, "head"))
    parts = [one for one in config.encoding.split("+") if one != "learned_1d"]
    for stage, (first, theirs) in enumerate(zip(options.firsts, layers_of(options), strict=True)):
        if stage:
            name = merging(stage)
            pairs.append((f"{name}.norm", f"blocks.{first}.merge.norm"))
            entries.append(copy(f"{name}.reduction.weight", f"blocks.{first}.merge.reduction.weight"))
        for layer, there in enumerate(theirs, first):
            pairs += [(f"{there}.{part}", f"blocks.{layer}.{part}") for part in _BLOCK]
        for number, part in enumerate(parts):
            ours = f"encoding.stages.{stage}" + (f".parts.{number}" if len(parts) > 1 else "")
            if part == "rpe_learned":
                names = [f"{one}.attn.relative_position_bias_table" for one in theirs]
                entries.append(concat(names, f"{ours}.tables", lambda x: x.unsqueeze(0), lambda x: x[0]))
            elif part == "rope_mixed":
                entries.append(stacked([f"{one}.attn.rope_freqs" for one in theirs], f"{ours}.freqs"))
    if "learned_1d" in config.encoding:
        entries.append(unbatched("absolute_pos_embed", "encoding.embedding.table"))
    for there, here in pairs:
        biased = config.qkv_bias is True or not there.endswith("qkv")
        entries += [copy(f"{there}.{one}", f"{here}.{one}") for one in ("weight", *(["bias"] if biased else []))]
    return entries


def swin_fields(depths: Sequence[int], heads: Sequence[int], dim: int) -> dict[str, object]:
    """The fields of ours that every Swin has alike, and those of its stages but their windows."""
    return {
        "architecture": "swin",
        "dim": dim,
        "depth": sum(depths),
        "heads": heads[0],
        "pool": "mean",
        "patch_norm": "after",
        "norm_eps": 1e-5,
    }
