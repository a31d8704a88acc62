"""DeiT's published models (facebookresearch/deit): DeiT III with LayerScale, and the first DeiT without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import TensorMap, kernel, map_remaining, prefixed, unbatched
from sightline.convert.vit_names import DEFAULTS, SCALES, VitNames, deit3_link
from sightline.errors import InputError
from sightline.models import Model, ViTConfig
from sightline.models.head import ScoreLink


class Deit(VitNames):
    """The class `models_v2.vit_models` (DeiT III: LayerScale where its weights have it, an embedding of patches alone),
    or the first DeiT's `VisionTransformer`, whose embedding covers the CLS token too; the weights tell which.

    Tables are resized by bicubic interpolation without antialiasing, as its fine-tuning does.
    """

    name = "deit"
    source = "https://github.com/facebookresearch/deit"
    arguments: ClassVar = {**DEFAULTS, "qkv_bias": False, "init_scale": 1e-4, "block_layers": None}

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        if "dist_token" in state:
            raise InputError("deit: a distilled model has two heads, which ours have not (dist_token)")
        config = ViTConfig(
            **self.plain_fields(given),
            layer_scale=given["init_scale"] if "blocks.0.gamma_1" in state else None,
            encoding="learned_1d",
        )
        table = state.get("pos_embed")
        whole = table is not None and table.dim() == 3 and table.shape[1] == config.train_grid.cells + 1
        return config.replace(encoding_options={"interpolation": "bicubic", "prefix": whole})

    def score_link(self, config: ViTConfig, given: Mapping[str, Any]) -> ScoreLink:
        return deit3_link(config) if config.layer_scale is not None else "softmax"

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        given = self.plain_arguments(config)
        # What its weights would tell.
        state = {"pos_embed": torch.empty(1, config.train_grid.cells + getattr(model.encoding.config, "prefix", 0), 1)}
        if config.layer_scale is not None:
            given["init_scale"] = config.layer_scale
            state["blocks.0.gamma_1"] = torch.empty(1)
        return self.check_roundtrip(given, model, state)

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        whole = config.encoding_options.get("prefix", True)
        table = prefixed("pos_embed", "encoding") if whole else unbatched("pos_embed", "encoding.table")
        return map_remaining(config, [kernel(config), table], SCALES)
