"""LookHere's published models (GreenCUBIC/lookhere): timm's names, an MLP head, no position parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from sightline.convert.base import Entry, Project
from sightline.convert.vit_names import (
    DEFAULTS,
    arguments,
    block_entries,
    fields,
    head_entries,
    patch_entries,
    trunk_entries,
)
from sightline.encodings.pattern.lookhere import LookHere as Encoding
from sightline.errors import InputError, choose
from sightline.models import VisionTransformer, ViTConfig

# The public code's keys -> ours.
_RULES = {"global_slope": "global_slope", "layer_slopes": "layer_slopes", "head_directions": "directions"}
_OPTIONAL = {"distance": "distance", "fill_with": "fill"}


class LookHere(Project):
    """The class `lookhere.LookHere`: ViT with LayerScale, exact GELU, LayerNorm eps 1e-5 and a tanh MLP head.

    Its bias is rounded once to bfloat16 (`rounding: official`). `set_pos_embed(grid, global_slope)` is `set_knob`.
    """

    name = "lookhere"
    source = "https://github.com/GreenCUBIC/lookhere"
    arguments: ClassVar = {
        **DEFAULTS,
        "device": None,
        "lh_config": None,
    }

    def vit_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        rules = given["lh_config"]
        if not isinstance(rules, Mapping):
            raise InputError(f"lookhere: lh_config {rules!r}: expected global_slope, layer_slopes and head_directions")
        for key in rules:
            if key not in _RULES | _OPTIONAL:
                raise choose("lookhere: lh_config key", key, _RULES | _OPTIONAL)
        for key in _RULES:
            if key not in rules:
                raise InputError(f"lookhere: lh_config has no {key}")
        if "head.fc1.weight" not in state:
            raise InputError("lookhere weights: missing head.fc1.weight")
        options = {ours: rules[theirs] for theirs, ours in (_RULES | _OPTIONAL).items() if theirs in rules}
        return ViTConfig(
            **fields(given),
            layer_scale=1e-4,
            norm_eps=1e-5,
            head="mlp",
            head_hidden=state["head.fc1.weight"].shape[0],
            encoding="lookhere",
            encoding_options={**options, "rounding": "official"},
        )

    def given(self, model: VisionTransformer) -> dict[str, Any]:
        self.refuse(model, head="mlp", norm_eps=1e-5, gelu="exact", pool="cls", num_registers=0, qk_norm=False)
        encoding, config = model.encoding, model.config
        if not isinstance(encoding, Encoding) or encoding.config.views or encoding.config.head_slopes:
            raise InputError(
                f"lookhere: cannot hold encoding {encoding.name!r} with its options (expected named directions)"
            )
        rules = encoding.config
        if config.layer_scale is None or rules.rounding != "official":
            raise InputError("lookhere: cannot hold a model without LayerScale or with an unrounded bias")
        directions, default = rules.directions, type(rules)()
        optional = {"distance": rules.distance, "fill_with": rules.fill}
        return {
            **arguments(config),
            "lh_config": {
                "global_slope": encoding.global_slope,
                "layer_slopes": list(rules.layer_slopes),
                "head_directions": list(directions) if isinstance(directions, tuple) else directions,
                **{theirs: value for theirs, value in optional.items() if value != getattr(default, _OPTIONAL[theirs])},
            },
        }

    def entries(self, config: ViTConfig, given: Mapping[str, Any]) -> list[Entry]:
        return [
            *patch_entries(config),
            *trunk_entries(config),
            *block_entries(config, scale="ls{}.gamma"),
            *head_entries(config),
        ]
