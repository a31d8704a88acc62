"""LookHere's published models (GreenCUBIC/lookhere): timm's names, an MLP head, no position parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import TensorMap, kernel, map_remaining
from sightline.convert.vit_names import DEFAULTS, VitNames
from sightline.encodings.pattern.lookhere import PRESETS
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig
from sightline.models.head import ScoreLink

# The public code's keys -> ours.
_RULES = {"global_slope": "global_slope", "layer_slopes": "layer_slopes", "head_directions": "directions"}
_OPTIONAL = {"distance": "distance", "fill_with": "fill"}


class LookHereProject(VitNames):
    """The class `lookhere.LookHere`: ViT with LayerScale, exact GELU, LayerNorm eps 1e-5 and a tanh MLP head.

    Its bias is rounded once to bfloat16 (`rounding: official`). `set_pos_embed(grid, global_slope)` is `set_knob`.
    """

    name = "lookhere"
    source = "https://github.com/GreenCUBIC/lookhere"
    arguments: ClassVar = {**DEFAULTS, "device": None, "lh_config": None}

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        rules = given["lh_config"]
        if not isinstance(rules, Mapping):
            raise InputError(f"lookhere: lh_config {rules!r}: expected global_slope, layer_slopes and head_directions")
        names = _RULES | _OPTIONAL
        for key in rules:
            require_known("lookhere: lh_config key", key, names)
        for key in _RULES:
            if key not in rules:
                raise InputError(f"lookhere: lh_config has no {key}")
        if "head.fc1.weight" not in state:
            raise InputError("lookhere weights: missing head.fc1.weight")
        options = {ours: rules[theirs] for theirs, ours in names.items() if theirs in rules}
        return ViTConfig(
            **self.plain_fields(given),
            layer_scale=1e-4,
            norm_eps=1e-5,
            head="mlp",
            head_hidden=state["head.fc1.weight"].shape[0],
            encoding="lookhere",
            encoding_options={**options, "rounding": "official"},
        )

    def score_link(self, config: ViTConfig, given: Mapping[str, Any]) -> ScoreLink:
        return "sigmoid"

    def export_arguments(self, model: Model) -> dict[str, Any]:
        self.check_encoding(model, "lookhere", *PRESETS)
        encoding: Any = model.encoding
        config, rules = model.config, encoding.config
        for key in ("views", "head_slopes"):
            if getattr(rules, key) is not None:
                raise InputError(f"lookhere: cannot hold {config.encoding} {key} (expected directions by name)")
        if config.num_classes == 0:
            raise InputError("lookhere: cannot hold num_classes = 0")
        default = type(rules)()
        directions = list(rules.directions) if isinstance(rules.directions, tuple) else rules.directions
        held = {
            "global_slope": encoding.global_slope,
            "layer_slopes": list(rules.layer_slopes),
            "head_directions": directions,
            **{
                theirs: getattr(rules, ours)
                for theirs, ours in _OPTIONAL.items()
                if getattr(rules, ours) != getattr(default, ours)
            },
        }
        hidden = {"head.fc1.weight": torch.empty(config.head_hidden or config.dim, 1)}
        given = self.check_roundtrip({**self.plain_arguments(config), "lh_config": held}, model, hidden)
        return {**given, "lh_config": {**held, "head_directions": _spelt(directions, config.heads)}}

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        return map_remaining(config, [kernel(config)])


def _spelt(directions: str | list[str], heads: int) -> str | list[str]:
    """Directions in the public code's language, which has no name for a preset.

    Raises:
        InputError: it has no words for one with so many heads.
    """
    if isinstance(directions, list):
        return [str(_spelt(one, heads)) for one in directions]
    if directions not in PRESETS:
        return directions
    if heads not in (12, 16):
        raise InputError(f"lookhere: cannot hold {directions} with {heads} heads (expected 12 or 16)")
    return PRESETS[directions].language
