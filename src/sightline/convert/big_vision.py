"""big_vision's flax models (google-research): kernels (in, out), attention kernels split by head, HWIO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from sightline.convert.base import Project, TensorMap, copy, unbatched
from sightline.convert.flax import dense, image_fields, kernel_like, mlp, norm, out, projections, trunk
from sightline.io.config import NonNegative, check_value
from sightline.models import Model, ViTConfig


class BigVision(Project):
    """The class `models.vit._Model`: tanh GELU, LayerNorm eps 1e-6, the mean over patches after the norm (`gap`), a
    learned probe (`map`) or a CLS token without embedding (`tok`). Names are flax paths joined by "/"; its images are
    NHWC, ours NCHW."""

    name = "big_vision"
    source = "https://github.com/google-research/big_vision"
    arguments: ClassVar = {
        "num_classes": None,
        "patch_size": (16, 16),
        "width": 768,
        "depth": 12,
        "mlp_dim": None,
        "num_heads": 12,
        "posemb": "learn",
        "pool_type": "gap",
        "image_size": None,
    }
    plain: ClassVar = {"width": "dim", "depth": "depth", "num_heads": "heads"}
    choices: ClassVar = {
        "posemb": ("encoding", {"learn": "learned_1d", "sincos2d": "sincos_2d"}),
        "pool_type": ("pool", {"map": "attention", "gap": "mean", "tok": "cls"}),
    }

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        hidden = given["mlp_dim"] or 4 * given["width"]
        check_value("big_vision: mlp_dim", hidden, NonNegative)
        table = {"interpolation": "corner_aligned", "prefix": False}
        return ViTConfig(
            **image_fields(self.name, given, state, given["patch_size"], "pos_embedding", 0),
            **self.plain_fields(given),
            mlp_ratio=hidden / given["width"],
            encoding_options=table if given["posemb"] == "learn" else {},
            gelu="tanh",
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        given = {
            "num_classes": config.num_classes or None,
            "patch_size": (config.patch_size, config.patch_size),
            **self.plain_arguments(config),
            "mlp_dim": config.mlp_hidden,
            "image_size": config.table_size,
        }
        # What its weights would tell.
        return self.check_roundtrip(given, model, kernel_like(config))

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        entries = trunk(config, norms=(0, 1), attention=0, block=0)
        if config.has_class_token:
            entries.append(copy("cls", "cls_token"))
        if config.encoding == "learned_1d":
            entries.append(unbatched("pos_embedding", "encoding.table"))
        if config.pool == "attention":
            attention = "MAPHead_0/MultiHeadDotProductAttention_0"
            entries += [copy("MAPHead_0/probe", "attn_pool.latent"), *norm("MAPHead_0/LayerNorm_0", "attn_pool.norm")]
            entries += projections(attention, ("query",), "attn_pool.q", config)
            entries += projections(attention, ("key", "value"), "attn_pool.kv", config)
            entries += [*out(attention, "attn_pool.proj", config), *mlp("MAPHead_0/MlpBlock_0", "attn_pool.mlp")]
        if config.num_classes:
            entries += dense("head", "head")
        return entries
