"""google-research's flax models: big_vision's ViT and FlexiViT, ViT's own repository, and scenic's axial models."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sightline.convert import flax
from sightline.convert.base import Arguments, Project, State
from sightline.convert.maps import TensorMap, copy, prefixed, transform, unbatched
from sightline.errors import InputError
from sightline.io.config import Count, NonNegative, Pair, check_value
from sightline.models import Model, ViTConfig
from sightline.models.embedders.resnet import resnet_options, stem_fit
from sightline.models.head import ScoreLink
from sightline.models.kernel_resize import KERNEL_RULES
from sightline.models.patch_size import kernel_side
from sightline.models.resnet_stem import ResNetOptions
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
    fields: ClassVar = {
        **{"num_classes": "num_classes", "width": "dim", "depth": "depth", "mlp_dim": "mlp_hidden"},
        **{"num_heads": "heads", "image_size": "image_size"},
        "posemb": ("encoding", {"learn": "learned_1d", "sincos2d": "sincos_2d"}),
        "pool_type": ("pool", {"map": "attention", "gap": "mean", "tok": "cls"}),
    }

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        hidden, classes = given["mlp_dim"] or 4 * given["width"], given["num_classes"] or 0
        check_value("big_vision: mlp_dim", hidden, NonNegative)
        fields = self.plain_fields({**given, "mlp_dim": hidden, "num_classes": classes})
        fields |= flax.image_fields(self.name, given, state, given["patch_size"], "pos_embedding")
        table = {"interpolation": "corner_aligned", "prefix": False}
        return ViTConfig(**fields, encoding_options=table if given["posemb"] == "learn" else {}, gelu="tanh")

    def export_arguments(self, model: Model) -> dict[str, Any]:
        return {**self.plain_arguments(model.config), "patch_size": (model.config.patch_size,) * 2}

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        entries = flax.trunk(config, norms=(0, 1), attention=0, block=0)
        if config.has_class_token:
            entries.append(copy("cls", "cls_token"))
        if config.encoding == "learned_1d":
            entries.append(unbatched("pos_embedding", "encoding.table"))
        if config.pool == "attention":
            attention = "MAPHead_0/MultiHeadDotProductAttention_0"
            entries += [
                copy("MAPHead_0/probe", "attn_pool.latent"),
                *flax.norm("MAPHead_0/LayerNorm_0", "attn_pool.norm"),
                *flax.projections(attention, ("query",), "attn_pool.q", config),
                *flax.projections(attention, ("key", "value"), "attn_pool.kv", config),
                *flax.out(attention, "attn_pool.proj", config),
                *flax.mlp("MAPHead_0/MlpBlock_0", "attn_pool.mlp"),
            ]
        return entries + flax.head("head", config)


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
    fields: ClassVar = {**BigVision.fields, "posemb": ("encoding", {"learn": "learned_1d"})}
    arguments: ClassVar = {**BigVision.arguments, "patch_size": (32, 32), "posemb_size": (7, 7), "seqhw": 0}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        table = check_value(f"{self.name}: posemb_size", given["posemb_size"], Pair)
        base = check_value(f"{self.name}: patch_size", given["patch_size"], Pair)[0]
        whole = tuple(base * side for side in table)
        image = Grid.checked(whole if given["image_size"] is None else given["image_size"], "image_size")
        plain = super().import_config({**given, "image_size": whole}, state)
        patch = wide = base
        if count := given["seqhw"]:
            check_value(f"{self.name}: seqhw", count, Count)
            patch, wide = (side // count for side in image)
        if patch != wide or not patch:
            raise InputError(f"{self.name}: seqhw {count}: patches of {patch}x{wide} pixels (expected a square image)")
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
        self.require("embedder", config.embedder, "flexible")
        self.require("embedder_options.rule", config.embedder_options.get("rule", KERNEL_RULES[0]), "bilinear")
        rows, cols = config.grid_of(config.image_size)
        return {
            **super().export_arguments(model),
            "patch_size": (kernel_side(config),) * 2,
            "posemb_size": tuple(config.train_grid),
            "image_size": config.image_size,
            "seqhw": rows if rows == cols else 0,
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        base = kernel_side(config)
        assert base is not None
        # The kernel that is learnt, and not that of the patches in use.
        return super().tensor_maps(config.replace(patch_size=base, fit="pad"), given)


_TABLE = "Transformer/posembed_input/pos_embedding"
# Modules of a block, numbered each by its kind -> numbered among all of the block.
_TOGETHER = {
    "LayerNorm_1": "LayerNorm_2",
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "MlpBlock_0": "MlpBlock_3",
}


class GoogleVit(Project):
    """The class `models_vit.VisionTransformer` with its classifiers `token` and `gap`: tanh GELU, LayerNorm eps 1e-6,
    an embedding of the CLS token and of the patches, zoomed linearly from corner to corner; a tanh layer before the
    head where `representation_size` says so. With `resnet` it is a hybrid; `group_norm_groups` is ours alone."""

    name = "vision_transformer"
    source = "https://github.com/google-research/vision_transformer"
    arguments: ClassVar = {
        "num_classes": 1000,
        "patches": {"size": (16, 16)},
        "hidden_size": 768,
        "transformer": {},
        "representation_size": None,
        "classifier": "token",
        "head_bias_init": 0.0,
        "image_size": None,
        "resnet": None,
        "group_norm_groups": 32,
    }
    fields: ClassVar = {
        **{"num_classes": "num_classes", "hidden_size": "dim", "image_size": "image_size"},
        "classifier": ("pool", {"token": "cls", "gap": "mean"}),
    }

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        trunk = given["transformer"]
        for key in ("num_layers", "num_heads", "mlp_dim"):
            check_value(f"vision_transformer: transformer.{key}", trunk.get(key), Count)
        hidden, fields = given["representation_size"], self.plain_fields(given)
        token = fields["pool"] == "cls"
        stem = None if given["resnet"] is None else _stem_options(given)
        stride = 1 if stem is None else ResNetOptions(**stem).stride
        fields |= flax.image_fields(self.name, given, state, given["patches"].get("size"), _TABLE, int(token), stride)
        if stem is not None:
            fit = stem_fit(fields["image_size"], fields["patch_size"], stride)
            fields |= {"embedder": "resnet", "embedder_options": stem, "fit": fit}
        return ViTConfig(
            **fields,
            depth=trunk["num_layers"],
            heads=trunk["num_heads"],
            mlp_ratio=trunk["mlp_dim"] / given["hidden_size"],
            encoding="learned_1d",
            encoding_options={"interpolation": "corner_aligned"} | ({} if token else {"prefix": False}),
            gelu="tanh",
            head="mlp" if hidden and given["num_classes"] else "linear",
            head_hidden=hidden,
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        stem = resnet_options(config) if config.embedder == "resnet" else None
        given: dict[str, Any] = {
            "patches": {"size": [config.patch_size // (stem.stride if stem else 1)] * 2},
            **self.plain_arguments(config),
            "transformer": {"num_layers": config.depth, "num_heads": config.heads, "mlp_dim": config.mlp_hidden},
            "representation_size": (config.head_hidden or config.dim) if config.head == "mlp" else None,
        }
        if stem:
            given["resnet"] = {"num_layers": list(stem.layers), "width_factor": stem.width_factor}
            given |= {} if stem.groups == 32 else {"group_norm_groups": stem.groups}
        return given

    def rename_foreign(self, state: State) -> State:
        found = {}
        # Published files number modules among all of a block, today's flax each kind by itself.
        pattern = rf"(?<=^Transformer/encoderblock_)(\d+/)({'|'.join(_TOGETHER)})(?=/)"
        apart = any("/MlpBlock_0/" in name for name in state)
        for name, tensor in state.items():
            if apart:
                name = re.sub(pattern, lambda part: part[1] + _TOGETHER[part[2]], name)
            # The first files published hold the vectors of group norms as [1, 1, 1, channels].
            found[name] = tensor.flatten() if tensor.dim() == 4 and re.search("(^|/)gn", name) else tensor
        return found

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        entries = flax.trunk(config, norms=(0, 2), attention=1, block=3)
        if config.embedder == "resnet":
            entries += _stem(resnet_options(config).layers)
        if config.has_class_token:
            entries += [copy("cls", "cls_token"), prefixed(_TABLE, "encoding")]
        else:
            entries.append(unbatched(_TABLE, "encoding.table"))
        return entries + flax.head("head", config)


def _stem_options(given: Arguments) -> dict[str, Any]:
    """Our options of the argument `resnet`. The groups of norms are no argument there: the class always has 32."""
    resnet = check_value("vision_transformer: resnet", given["resnet"], dict[str, Any])
    layers = check_value("vision_transformer: resnet.num_layers", resnet.get("num_layers"), list[int] | tuple[int, ...])
    own = {"layers": list(layers), "width_factor": resnet.get("width_factor", 1)}
    return {**own, "groups": given["group_norm_groups"], "norm_eps": 1e-6, "standardisation": "official"}


def _stem(layers: tuple[int, ...]) -> list[TensorMap]:
    """The root and all units of `models_resnet.py`: kernels HWIO, stages and units from 1."""
    ours = "patch_embed.backbone"
    entries = _layer("", "_root", f"{ours}.stem", "")
    for number, units in enumerate(layers):
        for unit in range(units):
            theirs, here = f"block{number + 1}/unit{unit + 1}/", f"{ours}.stages.{number}.blocks.{unit}"
            entries += [one for part in "123" for one in _layer(theirs, part, here, part)]
            if not unit:
                entries += _layer(theirs, "_proj", f"{here}.downsample", "")
    return entries


def _layer(theirs: str, there: str, ours: str, here: str) -> list[TensorMap]:
    kernel = f"{theirs}conv{there}/kernel"
    weight = transform(
        kernel, f"{ours}.conv{here}.weight", lambda x: x.permute(3, 2, 0, 1), lambda x: x.permute(2, 3, 1, 0)
    )
    return [weight, *flax.norm(f"{theirs}gn{there}", f"{ours}.norm{here}")]


_TABLES = {
    "cols": "Transformer/posembed_input/row_pos_embedding",
    "rows": "Transformer/posembed_input/col_pos_embedding",
}


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
    fields: ClassVar = {
        "hidden_size": "dim",
        "num_outputs": "num_classes",
        "mlp_dim": "mlp_hidden",
        "classifier": ("pool", {"gap": "mean", "token": "first", "0": "first"}),
    }
    only: ClassVar = ("attention_fn",)
    example: ClassVar[str] = "num_layers=12"

    def score_link(self, config: ViTConfig, given: Arguments) -> ScoreLink:
        """Its model of `xvit.py` is one of several labels."""
        return "sigmoid"

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        kind = given["transformer_encoder_configs"].get("type")
        if kind != "axial":
            # `axial_attention` misses an argument of its own call and never ran; the others attend otherwise.
            raise InputError(f"scenic: transformer_encoder_configs.type {kind!r}: expected 'axial'")
        heads, sides = given["attention_configs"].get("num_heads"), tuple(given["patches"].get("size", ()))
        check_value("scenic: attention_configs.num_heads", heads, Count)
        if len(sides) != 2 or sides[0] != sides[1] or "strides" in given["patches"]:
            raise InputError(f"scenic: patches {given['patches']!r}: expected a square size, without strides")
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
            channels=flax.channels_of(state),
            depth=2 * given["num_layers"],
            heads=heads,
            encoding="learned_xy",
            gelu="tanh",
            head="mlp" if hidden else "linear",
            head_hidden=hidden,
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        return {
            **self.plain_arguments(config),
            "num_layers": max(1, config.depth // 2),
            "attention_configs": {"num_heads": config.heads},
            "attention_fn": "standard",
            "patches": {"size": [config.patch_size] * 2},
            "transformer_encoder_configs": {"type": "axial"},
            "representation_size": (config.head_hidden or config.dim) if config.head == "mlp" else None,
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        entries = [*flax.embedding(config), *flax.norm("Transformer/encoder_norm", "norm")]
        entries += [copy(theirs, f"encoding.{ours}") for ours, theirs in _TABLES.items()]
        for layer in range(config.depth):
            theirs = f"Transformer/encoder_block_{'col' if layer % 2 else 'row'}_{layer // 2}"
            entries += flax.one_block(theirs, f"blocks.{layer}", (0, 1), "MultiHeadAttention_0", "MlpBlock_0", config)
        return entries + flax.head("output_projection", config)
