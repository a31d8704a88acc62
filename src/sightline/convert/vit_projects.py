"""Projects with timm's first vision transformers: DeiT, RoPE-ViT, LookHere, and Cream's DeiT with iRPE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from sightline.convert.base import Arguments, Project, State
from sightline.convert.maps import TensorMap, concat, derived, kernel, map_remaining, prefixed, transform, unbatched
from sightline.encodings.create import components
from sightline.encodings.pattern.irpe import Irpe
from sightline.encodings.pattern.lookhere import PRESETS
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig
from sightline.models.head import ScoreLink
from sightline.models.timm_names import timm_arguments
from sightline.tokens.grid import Grid

SCALES = ((r"ls(\d)\.gamma$", r"gamma_\1"),)
"""Names of LayerScale's factors where they are parameters of the block itself."""


def deit3_link(config: ViTConfig) -> ScoreLink:
    """How the logits of DeiT III's recipe are read, which RoPE-ViT took over.

    It trains on ImageNet-1k with a binary cross entropy. What follows there, by both projects' own commands, is with a
    softmax: fine-tuning ViT-B and larger, fine-tuning at 384 px, and ImageNet-21k.
    """
    last = config.dim < 768 and max(Grid.checked(config.image_size)) <= 224 and config.num_classes < 21000
    return "sigmoid" if last else "softmax"


_DEFAULTS = {
    "img_size": 224, "patch_size": 16, "in_chans": 3, "num_classes": 1000, "embed_dim": 768, "depth": 12,
    "num_heads": 12, "mlp_ratio": 4.0, "qkv_bias": True,
}  # fmt: skip


class VitNames(Project):
    """A project whose class takes the arguments of timm's first vision transformers, with timm's defaults."""

    arguments: ClassVar = _DEFAULTS
    fields: ClassVar = {
        **{theirs: ours for theirs, ours in timm_arguments("VisionTransformer").items() if theirs in _DEFAULTS},
        "qkv_bias": ("qkv_bias", {True: True, False: False}),
    }


class Deit(VitNames):
    """The class `models_v2.vit_models` (DeiT III: LayerScale where its weights have it, an embedding of patches alone),
    or the first DeiT's `VisionTransformer`, whose embedding covers the CLS token too; the weights tell which.

    Tables are resized by bicubic interpolation without antialiasing, as its fine-tuning does.
    """

    name = "deit"
    source = "https://github.com/facebookresearch/deit"
    arguments: ClassVar = {**_DEFAULTS, "qkv_bias": False, "init_scale": 1e-4, "block_layers": None}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        if "dist_token" in state:
            raise InputError("deit: a distilled model has two heads, which ours have not (dist_token)")
        scale = given["init_scale"] if "blocks.0.gamma_1" in state else None
        config = ViTConfig(**self.plain_fields(given), layer_scale=scale, encoding="learned_1d")
        table = state.get("pos_embed")
        whole = table is not None and table.dim() == 3 and table.shape[1] == config.train_grid.cells + 1
        return config.replace(encoding_options={"interpolation": "bicubic", "prefix": whole})

    def score_link(self, config: ViTConfig, given: Arguments) -> ScoreLink:
        return deit3_link(config) if config.layer_scale is not None else "softmax"

    def export_arguments(self, model: Model) -> dict[str, Any]:
        scale = model.config.layer_scale
        return {**self.plain_arguments(model.config), **({} if scale is None else {"init_scale": scale})}

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        whole = config.encoding_options.get("prefix", True)
        table = prefixed("pos_embed", "encoding") if whole else unbatched("pos_embed", "encoding.table")
        return map_remaining(config, [kernel(config), table], SCALES)


class RopeVit(VitNames):
    """The class `models.vit_rope.rope_vit_models` with LayerScale blocks: x before y, theta 100 (axial) or 10 (mixed).

    The added embedding covers patches alone and is resized by bicubic interpolation without antialiasing. The public
    code gives an image with as many patches as the training ones, in another shape, a square's angles; ours does not.
    """

    name = "rope_vit"
    source = "https://github.com/naver-ai/rope-vit"
    encodings = ("rope_axial", "rope_axial+learned_1d", "rope_mixed", "rope_mixed+learned_1d")
    arguments: ClassVar = {
        **_DEFAULTS, "qkv_bias": False, "rope_theta": 100.0, "rope_mixed": False, "use_ape": False
    }  # fmt: skip

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        rotation, theta = "rope_mixed" if given["rope_mixed"] else "rope_axial", float(given["rope_theta"])
        encoding, options = rotation, {"theta": theta}
        if given["use_ape"]:
            encoding = f"{rotation}+learned_1d"
            options = {f"{rotation}.theta": theta, "learned_1d.interpolation": "bicubic", "learned_1d.prefix": False}
        return ViTConfig(**self.plain_fields(given), layer_scale=1e-4, encoding=encoding, encoding_options=options)

    def score_link(self, config: ViTConfig, given: Arguments) -> ScoreLink:
        return deit3_link(config)

    def export_arguments(self, model: Model) -> dict[str, Any]:
        rotation: Any = components(model.encoding)[0]
        mixed = rotation.name == "rope_mixed"
        return {
            **self.plain_arguments(model.config),
            # Mixed frequencies are learned: a turned base would be read as one that they were made with.
            "rope_theta": float(rotation.config.theta if mixed else rotation.theta),
            "rope_mixed": mixed,
            "use_ape": "+" in model.config.encoding,
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        joined = "+" in config.encoding
        entries = [kernel(config)]
        if config.encoding.startswith("rope_mixed"):
            shape = (2, config.depth, config.heads, config.dim // config.heads // 2)
            ours = "encoding.parts.0.freqs" if joined else "encoding.freqs"
            entries.append(transform("freqs", ours, lambda x: x.reshape(shape), lambda x: x.flatten(2)))
            # Buffers: where each training patch stands, counted row by row.
            y, x = torch.meshgrid(*(torch.arange(side).float() for side in config.train_grid), indexing="ij")
            entries.append(derived(("freqs_t_x", "freqs_t_y"), x.flatten(), y.flatten()))
        if joined:
            entries.append(unbatched("pos_embed", "encoding.parts.1.table"))
        return map_remaining(config, entries, SCALES)


# LookHere's keys -> ours.
_RULES = {"global_slope": "global_slope", "layer_slopes": "layer_slopes", "head_directions": "directions"}
_OPTIONAL = {"distance": "distance", "fill_with": "fill"}


class LookHereProject(VitNames):
    """The class `lookhere.LookHere`: ViT with LayerScale, exact GELU, LayerNorm eps 1e-5 and a tanh MLP head.

    Its bias is rounded once to bfloat16 (`rounding: official`). `set_pos_embed(grid, global_slope)` is `set_knob`.
    """

    name = "lookhere"
    source = "https://github.com/GreenCUBIC/lookhere"
    encodings = ("lookhere", *PRESETS)
    arguments: ClassVar = {**_DEFAULTS, "device": None, "lh_config": None}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        rules, names = given["lh_config"], _RULES | _OPTIONAL
        if not isinstance(rules, Mapping):
            raise InputError(f"lookhere: lh_config {rules!r}: expected global_slope, layer_slopes and head_directions")
        for key in rules:
            require_known("lookhere: lh_config key", key, names)
        if missing := [key for key in _RULES if key not in rules]:
            raise InputError(f"lookhere: lh_config has no {missing[0]}")
        if "head.fc1.weight" not in state:
            raise InputError("lookhere weights: missing head.fc1.weight")
        return ViTConfig(
            **self.plain_fields(given),
            layer_scale=1e-4,
            norm_eps=1e-5,
            head="mlp",
            head_hidden=state["head.fc1.weight"].shape[0],
            encoding="lookhere",
            encoding_options={**{names[key]: value for key, value in rules.items()}, "rounding": "official"},
        )

    def score_link(self, config: ViTConfig, given: Arguments) -> ScoreLink:
        return "sigmoid"

    def export_arguments(self, model: Model) -> dict[str, Any]:
        encoding: Any = model.encoding
        config, rules = model.config, encoding.config
        for key in ("views", "head_slopes"):
            if getattr(rules, key) is not None:
                self.require_no([f"{config.encoding} {key} (expected directions by name)"])
        if config.num_classes == 0:
            self.require_no(["num_classes = 0"])
        self.require("head", config.head, "mlp")
        held = {
            "global_slope": encoding.global_slope,
            "layer_slopes": list(rules.layer_slopes),
            "head_directions": list(rules.directions) if isinstance(rules.directions, tuple) else rules.directions,
        }
        for theirs, ours in _OPTIONAL.items():
            if getattr(rules, ours) != getattr(type(rules), ours):
                held[theirs] = getattr(rules, ours)
        return {**self.plain_arguments(config), "lh_config": held}

    def checked_arguments(self, model: Model) -> dict[str, Any]:
        """As of any project, with directions in the public code's words."""
        given = super().checked_arguments(model)
        held = given["lh_config"]
        return {**given, "lh_config": {**held, "head_directions": self._public(held["head_directions"], model)}}

    def _public(self, directions: Any, model: Model) -> Any:
        """The public code has no name for a preset, and none for other numbers of heads."""
        if isinstance(directions, list):
            return [self._public(one, model) for one in directions]
        if directions not in PRESETS:
            return directions
        if model.config.heads not in (12, 16):
            self.require_no([f"{directions} with {model.config.heads} heads (expected 12 or 16)"])
        return PRESETS[directions].language

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        return map_remaining(config, [kernel(config)])


IRPE_METHODS = {"product": "product", "cross": "cross", "euc": "euclidean", "quant": "quantised"}
"""The names of methods in Cream's iRPE, and ours."""
# Of two names of one mode the last is given back.
_MODES = {"contextual": "contextual", "ctx": "contextual", "bias": "bias"}


class CreamIrpe(VitNames):
    """The class `rpe_vision_transformer.VisionTransformer` with `rpe_config = get_rpe_config(...)`, whose arguments are
    among these by their own names; `skip` is 1, the CLS token's.

    The public code takes the square root of the number of tokens for the sides of every grid; ours knows the grid, and
    gives another answer where that is not square.
    """

    name = "irpe"
    source = "https://github.com/microsoft/Cream"
    arguments: ClassVar = {
        **_DEFAULTS, "ratio": 1.9, "method": "product", "mode": "ctx", "shared_head": True, "rpe_on": "k", "skip": 1
    }  # fmt: skip
    only: ClassVar = ("skip",)
    encodings = tuple(f"learned_1d+{name}" for name in Irpe.names)
    example: ClassVar = "rpe_on=qkv"

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        require_known("irpe: method", given["method"], IRPE_METHODS)
        require_known("irpe: mode", given["mode"], _MODES)
        # Its order of the letters is anybody's.
        on = "".join(letter for letter in "qkv" if letter in given["rpe_on"])
        if not on or len(on) != len(given["rpe_on"]):
            raise InputError(f"irpe: rpe_on {given['rpe_on']!r}: expected some of the letters q, k and v")
        options = {
            "irpe.method": IRPE_METHODS[given["method"]],
            "irpe.mode": _MODES[given["mode"]],
            "irpe.on": on,
            "irpe.shared_heads": bool(given["shared_head"]),
            "irpe.ratio": float(given["ratio"]),
            "learned_1d.interpolation": "bicubic",
            "learned_1d.prefix": True,
        }
        return ViTConfig(**self.plain_fields(given), encoding="learned_1d+irpe", encoding_options=options)

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config: Any = components(model.encoding)[1].config
        return {
            **self.plain_arguments(model.config),
            "ratio": float(config.ratio),
            "method": {ours: theirs for theirs, ours in IRPE_METHODS.items()}[config.method],
            "mode": {ours: theirs for theirs, ours in _MODES.items()}[config.mode],
            "shared_head": config.shared_heads,
            "rpe_on": config.on,
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        kind = "bias" if given["mode"] == "bias" else "weight"
        parts = {"rows": "rp_rows.", "cols": "rp_cols."} if given["method"] == "cross" else {"table": ""}
        tables = [
            concat(
                [f"blocks.{layer}.attn.rpe_{where}.{inner}lookup_table_{kind}" for layer in range(config.depth)],
                f"encoding.parts.1.{where}_{part}",
                lambda x: x.unsqueeze(0),
                lambda x: x.squeeze(0),
            )
            for where in given["rpe_on"]
            for part, inner in parts.items()
        ]
        return map_remaining(config, [kernel(config), prefixed("pos_embed", "encoding.parts.0"), *tables])
