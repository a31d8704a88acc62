"""The axial models of scenic (google-research/scenic, projects/fast_vit/xvit.py), ViT's appendix D.6 by its authors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import Project, TensorMap, copy
from sightline.convert.flax import channels_of, embedding, head, kernel_like, norm, one_block
from sightline.errors import InputError, require_known
from sightline.io.config import Count, check_value
from sightline.models import Model, ViTConfig
from sightline.models.head import ScoreLink

_TABLES = {
    "cols": "Transformer/posembed_input/row_pos_embedding",
    "rows": "Transformer/posembed_input/col_pos_embedding",
}
_POOLS = {"gap": "mean", "0": "first", "token": "first"}


class Scenic(Project):
    """The class `XViT` with `transformer_encoder_configs.type` = `axial`: two pre-norm blocks a layer, tanh GELU,
    LayerNorm eps 1e-6, a table of X and one of Y side by side, and the mean, or token (0, 0), for the head.

    Its `encoder_block_row_i` attends along axis 1 of [batch, height, width, channels], among the tokens of a column,
    and its `row_pos_embedding` is of columns: in ours a row is a row. As published the encoder ends in
    `nn.LayerNorm(x, name=...)`, which makes a module and does not call it; ours has the norm, as it is meant.
    """

    name = "scenic"
    source = "https://github.com/google-research/scenic"
    arguments: ClassVar = {
        "num_outputs": 1000,
        "mlp_dim": 3072,
        "num_layers": 12,
        "attention_configs": {},
        "attention_fn": "standard",
        "patches": {"size": (16, 16)},
        "hidden_size": 768,
        "transformer_encoder_configs": {"type": "axial"},
        "representation_size": None,
        "classifier": "gap",
    }
    plain: ClassVar = {"hidden_size": "dim"}
    only: ClassVar = ("attention_fn",)
    example: ClassVar[str] = "num_layers=12"

    def score_link(self, config: ViTConfig, given: Mapping[str, Any]) -> ScoreLink:
        """Its model of `xvit.py` is one of several labels."""
        return "sigmoid"

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        kind = given["transformer_encoder_configs"].get("type")
        if kind != "axial":
            # `axial_attention` misses an argument of its own call and never ran; the others attend otherwise.
            raise InputError(f"scenic: transformer_encoder_configs.type {kind!r}: expected 'axial'")
        heads, sides = given["attention_configs"].get("num_heads"), tuple(given["patches"].get("size", ()))
        check_value("scenic: attention_configs.num_heads", heads, Count)
        if len(sides) != 2 or sides[0] != sides[1] or "strides" in given["patches"]:
            raise InputError(f"scenic: patches {given['patches']!r}: expected a square size, without strides")
        require_known("scenic: classifier", given["classifier"], _POOLS)
        grid = 14, 14
        if all(name in state for name in _TABLES.values()):
            grid = len(state[_TABLES["rows"]]), len(state[_TABLES["cols"]])
        hidden = given["representation_size"]
        return ViTConfig(
            **self.plain_fields(given),
            architecture="axial",
            architecture_options={"first": "columns"},
            patch_size=sides[0],
            image_size=(grid[0] * sides[0], grid[1] * sides[0]),
            channels=channels_of(state),
            depth=2 * given["num_layers"],
            heads=heads,
            mlp_ratio=given["mlp_dim"] / given["hidden_size"],
            num_classes=given["num_outputs"],
            pool=_POOLS[given["classifier"]],  # type: ignore[arg-type]
            encoding="learned_xy",
            gelu="tanh",
            head="mlp" if hidden else "linear",
            head_hidden=hidden,
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        given: dict[str, Any] = {
            **self.plain_arguments(config),
            "num_outputs": config.num_classes,
            "mlp_dim": config.mlp_hidden,
            "num_layers": max(1, config.depth // 2),
            "attention_configs": {"num_heads": config.heads},
            "attention_fn": "standard",
            "patches": {"size": [config.patch_size] * 2},
            "transformer_encoder_configs": {"type": "axial"},
            "representation_size": (config.head_hidden or config.dim) if config.head == "mlp" else None,
            "classifier": "0" if config.pool == "first" else "gap",
        }
        # What its weights would tell.
        tables = {
            name: torch.empty(side, 1) for name, side in zip(_TABLES.values(), reversed(config.train_grid), strict=True)
        }
        return self.check_roundtrip(given, model, kernel_like(config) | tables)

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        entries = [*embedding(config), *norm("Transformer/encoder_norm", "norm")]
        entries += [copy(theirs, f"encoding.{ours}") for ours, theirs in _TABLES.items()]
        for layer in range(config.depth):
            theirs = f"Transformer/encoder_block_{'col' if layer % 2 else 'row'}_{layer // 2}"
            entries += one_block(theirs, f"blocks.{layer}", (0, 1), "MultiHeadAttention_0", "MlpBlock_0", config)
        return entries + head("output_projection", config)
