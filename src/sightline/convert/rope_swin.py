"""RoPE-ViT's Swin (naver-ai/rope-vit, SwinTransformer): the official one with its table, and rotary ones."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import Arguments, Project, State
from sightline.convert.maps import TensorMap, concat, copy, derived, kernel, unbatched
from sightline.encodings.create import components
from sightline.io.config import Positive, check_value
from sightline.models import Model, ViTConfig
from sightline.models.architectures.swin import SwinOptions
from sightline.models.create import swin_fields
from sightline.models.merging import merged_grid
from sightline.tokens.grid import Grid

_BLOCK = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
_THETA = {True: 10.0, False: 50.0}


class RopeSwin(Project):
    """The classes `swin_transformer.SwinTransformer` (no `rope_theta`) and `swin_transformer_rope.RoPESwinTransformer`.

    Tables are resized by bicubic interpolation without antialiasing. Frequencies are counted in cells of any window.
    Masks (`attn_mask`) follow from the sizes and are passed over. There every size must be filled by whole windows;
    `window_size` of a size is the project's rule, image size / 32, for which `window_grows` stands.
    """

    name = "rope_swin"
    source = "https://github.com/naver-ai/rope-vit"
    example = "embed_dim=96"
    arguments: ClassVar = {
        "img_size": 224, "patch_size": 4, "in_chans": 3, "num_classes": 1000, "embed_dim": 96,
        "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": 7, "mlp_ratio": 4.0, "qkv_bias": True,
        "drop_path_rate": 0.1, "ape": False, "patch_norm": True, "rope_theta": None, "rope_mixed": False,
        "use_rpb": False,
    }  # fmt: skip
    fields: ClassVar = {
        **{name: name for name in ("patch_size", "num_classes", "mlp_ratio", "qkv_bias")},
        **{"img_size": "image_size", "in_chans": "channels", "embed_dim": "dim"},
    }
    only = ("patch_norm",)
    encodings = (
        "rpe_learned", "rpe_learned+learned_1d", "rope_axial", "rope_mixed", "rope_axial+rpe_learned",
        "rope_mixed+rpe_learned",
    )  # fmt: skip

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        first = "layers.0.blocks.0.attn."
        turned = given["rope_theta"] is not None or f"{first}rope_freqs" in state
        parts, options = [], {}
        if turned:
            rotation = "rope_mixed" if given["rope_mixed"] else "rope_axial"
            theta = _THETA[bool(given["rope_mixed"])] if given["rope_theta"] is None else given["rope_theta"]
            parts.append(rotation)
            check_value("rope_swin: rope_theta", theta, Positive)
            options[f"{rotation}.theta"] = float(theta)
        if not turned or given["use_rpb"] or f"{first}relative_position_bias_table" in state:
            parts.append("rpe_learned")
            options["rpe_learned.interpolation"] = "bicubic"
        if given["ape"] and not turned:
            parts.append("learned_1d")
            options |= {"learned_1d.interpolation": "bicubic", "learned_1d.prefix": False}
        fields = self.plain_fields(given) | swin_fields(given["depths"], given["num_heads"], given["window_size"])
        fields |= {"encoding": "+".join(parts), "encoding_options": options}
        return ViTConfig(**fields, drop_path=(0.0, float(given["drop_path_rate"])))

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config, options = model.config, SwinOptions.of(model.config)
        parts: dict[str, Any] = {part.name: part for part in components(model.encoding)}
        turned = next((part for name, part in parts.items() if name.startswith("rope")), None)
        window: Any = options.made_for
        theta = turned and float(turned.config.theta if turned.name == "rope_mixed" else turned.theta)
        return {
            **self.plain_arguments(config),
            "depths": list(options.depths),
            "num_heads": list(options.heads),
            "window_size": window if isinstance(window, int) or len(set(window)) > 1 else window[0],
            "rope_theta": theta,
            "rope_mixed": "rope_mixed" in parts,
            "use_rpb": turned is not None and "rpe_learned" in parts,
            "ape": "learned_1d" in parts,
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        options = SwinOptions.of(config)
        entries = swin_entries(config, merging=1, head="head")
        for stage, (layers, heads) in enumerate(zip(layers_of(options), options.heads, strict=True)):
            window = options.fitted(options.window, merged_grid(config.train_grid, stage))[0]
            y, x = torch.meshgrid(*(torch.arange(side) for side in window), indexing="ij")
            for layer in layers:
                if "rpe_learned" in config.encoding:
                    entries.append(derived((f"{layer}.attn.relative_position_index",), _index(window)))
                if "rope" in config.encoding:
                    names = (f"{layer}.attn.rope_t_x", f"{layer}.attn.rope_t_y")
                    entries.append(derived(names, x.flatten().float(), y.flatten().float()))
                if "rope_axial" in config.encoding:
                    theta = given["rope_theta"]
                    freqs = _axial(config.dim * 2**stage // heads, heads, _THETA[False] if theta is None else theta)
                    entries.append(derived((f"{layer}.attn.rope_freqs",), freqs))
        return entries


def _index(window: Grid) -> Tensor:
    """The entry of the table of each pair, query - key row-major: int64 [cells, cells]."""
    coords = torch.stack(torch.meshgrid(*(torch.arange(side) for side in window), indexing="ij")).flatten(1)
    apart = coords.unsqueeze(2) - coords.unsqueeze(1)
    return (apart[0] + window.rows - 1) * (2 * window.cols - 1) + apart[1] + window.cols - 1


def _axial(width: int, heads: int, theta: float) -> Tensor:
    """The frequencies of both axes as the project makes them, float32 [2, heads, width / 2]: mixed ones of the angle 0,
    of which half are 0 but for the rounding of a right angle."""
    magnitude = 1 / (theta ** (torch.arange(0, width, 4).float() / width))
    angle = torch.zeros(1)
    quarter = torch.pi / 2 + angle
    x = torch.cat((magnitude * angle.cos(), magnitude * quarter.cos()))
    y = torch.cat((magnitude * angle.sin(), magnitude * quarter.sin()))
    return torch.stack((x, y)).unsqueeze(1).repeat(1, heads, 1)


def layers_of(options: SwinOptions) -> list[list[str]]:
    """The names of the blocks of each stage there."""
    return [[f"layers.{stage}.blocks.{one}" for one in range(depth)] for stage, depth in enumerate(options.depths)]


def swin_entries(config: ViTConfig, *, merging: int, head: str) -> list[TensorMap]:
    """Every tensor that is a weight.

    Args:
        merging: of which stage before a stage what merges patches is a part there: the one before (1), or itself (0).
        head: name of the classifier.
    """
    options = SwinOptions.of(config)
    entries = [kernel(config), copy("patch_embed.proj.bias", "patch_embed.proj.bias")]
    pairs = [("patch_embed.norm", "patch_embed.norm"), ("norm", "norm")]
    if config.num_classes:
        pairs.append((head, "head"))
    parts = [one for one in config.encoding.split("+") if one != "learned_1d"]
    for stage, (first, theirs) in enumerate(zip(options.firsts, layers_of(options), strict=True)):
        if stage:
            name = f"layers.{stage - merging}.downsample"
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
                # [2, heads, head_dim / 2] of each layer -> [2, layers, heads, head_dim / 2].
                entries.append(
                    TensorMap(
                        tuple(f"{one}.attn.rope_freqs" for one in theirs),
                        (f"{ours}.freqs",),
                        lambda all_: [torch.stack(list(all_), dim=1)],
                        lambda one: list(one[0].unbind(1)),
                    )
                )
    if "learned_1d" in config.encoding:
        entries.append(unbatched("absolute_pos_embed", "encoding.embedding.table"))
    for there, here in pairs:
        biased = config.qkv_bias is True or not there.endswith("qkv")
        entries += [copy(f"{there}.{one}", f"{here}.{one}") for one in ("weight", *(["bias"] if biased else []))]
    return entries
