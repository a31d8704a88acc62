"""RoPE-ViT's published models (naver-ai/rope-vit): axial and mixed, each with or without an added embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import TensorMap, derived, kernel, map_remaining, transform, unbatched
from sightline.convert.vit_names import DEFAULTS, SCALES, VitNames, deit3_link
from sightline.encodings.create import components
from sightline.encodings.rotation.rope_axial import RopeAxial
from sightline.models import Model, ViTConfig
from sightline.models.head import ScoreLink


class RopeVit(VitNames):
    """The class `models.vit_rope.rope_vit_models` with LayerScale blocks: x before y, theta 100 (axial) or 10 (mixed).

    The added embedding covers patches alone and is resized by bicubic interpolation without antialiasing. The public
    code gives an image with as many patches as the training ones, in another shape, a square's angles; ours does not.
    """

    name = "rope_vit"
    source = "https://github.com/naver-ai/rope-vit"
    arguments: ClassVar = {
        **DEFAULTS,
        "qkv_bias": False,
        "rope_theta": 100.0,
        "rope_mixed": False,
        "use_ape": False,
    }

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        rotation = "rope_mixed" if given["rope_mixed"] else "rope_axial"
        prefix = f"{rotation}." if given["use_ape"] else ""
        options: dict[str, Any] = {f"{prefix}theta": float(given["rope_theta"])}
        if given["use_ape"]:
            options |= {"learned_1d.interpolation": "bicubic", "learned_1d.prefix": False}
        return ViTConfig(
            **self.plain_fields(given),
            layer_scale=1e-4,
            encoding=f"{rotation}+learned_1d" if given["use_ape"] else rotation,
            encoding_options=options,
        )

    def score_link(self, config: ViTConfig, given: Mapping[str, Any]) -> ScoreLink:
        return deit3_link(config)

    def export_arguments(self, model: Model) -> dict[str, Any]:
        self.check_encoding(model, "rope_axial", "rope_axial+learned_1d", "rope_mixed", "rope_mixed+learned_1d")
        config = model.config
        parts: Any = components(model.encoding)
        axial = isinstance(parts[0], RopeAxial)
        given = {
            **self.plain_arguments(config),
            # Mixed frequencies are learned: a turned base would be read as one that they were made with.
            "rope_theta": float(parts[0].theta if axial else parts[0].config.theta),
            "rope_mixed": not axial,
            "use_ape": len(parts) > 1,
        }
        return self.check_roundtrip(given, model)

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        joined = "+" in config.encoding
        entries = [kernel(config)]
        if config.encoding.startswith("rope_mixed"):
            shape = (2, config.depth, config.heads, config.dim // config.heads // 2)
            ours = "encoding.parts.0.freqs" if joined else "encoding.freqs"
            entries.append(transform("freqs", ours, lambda x: x.reshape(shape), lambda x: x.flatten(2)))
            # Buffers: where each training patch stands, counted row by row.
            rows, cols = config.train_grid
            y, x = torch.meshgrid(torch.arange(rows).float(), torch.arange(cols).float(), indexing="ij")
            entries.append(derived(("freqs_t_x", "freqs_t_y"), x.flatten(), y.flatten()))
        if joined:
            entries.append(unbatched("pos_embed", "encoding.parts.1.table"))
        return map_remaining(config, entries, SCALES)
