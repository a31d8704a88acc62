"""DeiT's published models (facebookresearch/deit): DeiT III with LayerScale, and the first DeiT without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import Entry, Project, mapped
from sightline.convert.vit_names import (
    DEFAULTS,
    arguments,
    block_entries,
    deit3_link,
    fields,
    head_entries,
    patch_entries,
    trunk_entries,
)
from sightline.errors import InputError
from sightline.models import Model, ViTConfig
from sightline.models.head import ScoreLink


class Deit(Project):
    """The class `models_v2.vit_models` (DeiT III: LayerScale where its weights have it, an embedding of patches alone),
    or the first DeiT's `VisionTransformer`, whose embedding covers the CLS token too; the weights tell which.

    Tables are resized by bicubic interpolation without antialiasing, as its fine-tuning does.
    """

    name = "deit"
    source = "https://github.com/facebookresearch/deit"
    arguments: ClassVar = {**DEFAULTS, "qkv_bias": False, "init_scale": 1e-4, "block_layers": None}

    def vit_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        if "dist_token" in state:
            raise InputError("deit: a distilled model has two heads, which ours have not (dist_token)")
        scaled = "blocks.0.gamma_1" in state
        own = fields(given)
        config = ViTConfig(
            **own,
            layer_scale=given["init_scale"] if scaled else None,
            encoding="learned_1d",
            encoding_options={"interpolation": "bicubic", "prefix": False},
        )
        table = state.get("pos_embed")
        if table is not None and table.dim() == 3 and table.shape[1] == config.train_grid.cells + 1:
            return config.replace(encoding_options={"interpolation": "bicubic", "prefix": True})
        return config

    def score_link(self, config: ViTConfig, given: Mapping[str, Any]) -> ScoreLink:
        return deit3_link(config) if config.layer_scale is not None else "softmax"

    def given(self, model: Model) -> dict[str, Any]:
        config = model.config
        given = arguments(config)
        if config.layer_scale is not None:
            given["init_scale"] = config.layer_scale
        # What its weights would tell.
        state = {"pos_embed": torch.empty(1, config.train_grid.cells + getattr(model.encoding.config, "prefix", 0), 1)}
        if config.layer_scale is not None:
            state["blocks.0.gamma_1"] = torch.empty(1)
        self.compare(given, model, state)
        return given

    def entries(self, config: ViTConfig, given: Mapping[str, Any]) -> list[Entry]:
        entries = [
            *patch_entries(config),
            *trunk_entries(config),
            *block_entries(config, scale="gamma_{}"),
            *head_entries(config),
        ]
        if not config.encoding_options.get("prefix", True):
            table = mapped("pos_embed", "encoding.table", lambda x: x[0], lambda x: x.unsqueeze(0))
            return [*entries, table]
        both = Entry(
            ("pos_embed",),
            ("encoding.prefix", "encoding.table"),
            lambda one: [one[0][0, :1], one[0][0, 1:]],
            lambda parts: [torch.cat(list(parts)).unsqueeze(0)],
        )
        return [*entries, both]
