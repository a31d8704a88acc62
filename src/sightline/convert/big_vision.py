"""big_vision's flax models (google-research): its ViT, and FlexiViT, whose kernel and table every call resizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from sightline.convert.base import Project, TensorMap, copy, unbatched
from sightline.convert.flax import head, image_fields, kernel_like, mlp, norm, out, projections, trunk
from sightline.errors import InputError
from sightline.io.config import Count, NonNegative, Pair, check_value
from sightline.models import Model, ViTConfig
from sightline.models.kernel_resize import KERNEL_RULES
from sightline.models.patch_size import kernel_side
from sightline.tokens.grid import Grid


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
            **image_fields(self.name, given, state, given["patch_size"], "pos_embedding", 0, 1),
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
        return entries + head("head", config)


class BigVisionFlexi(BigVision):
    """The class `models.proj.flexi.vit._Model`. The kernel is resized by bilinear interpolation without antialias,
    pseudo-inverted; the table by jax.image.resize "linear", which antialiases where it shrinks.

    A call of it takes `seqhw`, the side of the grid, and cuts patches of the image's side // seqhw, each axis alone:
    here with `image_size` it says the patch size to begin with (None: that of the kernel); `set_patch_size` says
    others, oblong ones too.
    """

    name = "big_vision_flexi"
    source = "https://github.com/google-research/big_vision/tree/main/big_vision/models/proj/flexi"
    # Its sines would be resized as a table is.
    choices: ClassVar = {**BigVision.choices, "posemb": ("encoding", {"learn": "learned_1d"})}
    arguments: ClassVar = {**BigVision.arguments, "patch_size": (32, 32), "posemb_size": (7, 7), "seqhw": 0}

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        sides, table = (
            check_value(f"{self.name}: {name}", given[name], Pair) for name in ("patch_size", "posemb_size")
        )
        base = sides[0]
        if sides != (base, base):
            raise InputError(f"{self.name}: patch_size {given['patch_size']!r}: expected a square")
        whole = tuple(base * side for side in table)
        image = Grid.checked(whole if given["image_size"] is None else given["image_size"], "image_size")
        plain = super().import_config({**given, "image_size": whole}, state)
        patch = base
        if given["seqhw"]:
            check_value(f"{self.name}: seqhw", given["seqhw"], Count)
            tall, wide = (side // given["seqhw"] for side in image)
            if tall != wide or not tall:
                raise InputError(
                    f"{self.name}: seqhw {given['seqhw']}: patches of {tall}x{wide} pixels (expected a square image)"
                )
            patch = tall
        return plain.replace(
            embedder="flexible",
            embedder_options={"base": base, "rule": "bilinear"},
            patch_size=patch,
            image_size=image[0] if image[0] == image[1] else tuple(image),
            table_grid=table,
            encoding_options={"interpolation": "bilinear_antialias", "prefix": False},
        ).plain()

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        base = kernel_side(config)
        if config.embedder != "flexible" or base is None:
            raise InputError(f"{self.name}: cannot hold embedder = {config.embedder!r} (expected 'flexible')")
        rule = config.embedder_options.get("rule", KERNEL_RULES[0])
        if rule != "bilinear":
            raise InputError(f"{self.name}: cannot hold embedder_options.rule = {rule!r} (expected 'bilinear')")
        rows, cols = config.grid_of(config.image_size)
        given = {
            "num_classes": config.num_classes or None,
            **self.plain_arguments(config),
            "patch_size": (base, base),
            "posemb_size": tuple(config.train_grid),
            "mlp_dim": config.mlp_hidden,
            "image_size": config.image_size,
            "seqhw": rows if rows == cols else 0,
        }
        return self.check_roundtrip(given, model, kernel_like(config))

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        base = kernel_side(config)
        assert base is not None
        # The kernel that is learnt, and not that of the patches in use.
        return super().tensor_maps(config.replace(patch_size=base, fit="pad"), given)
