"""The models of ViT's own repository (google-research/vision_transformer), AugReg's and hybrids among them, as npz."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from sightline.convert.base import Project, TensorMap, copy, prefixed, transform, unbatched
from sightline.convert.flax import head, image_fields, kernel_like, norm, numbered_together, trunk
from sightline.io.config import Count, check_value
from sightline.models import Model, ViTConfig
from sightline.models.embedders.resnet import ResNetOptions, resnet_options, stem_fit

_TABLE = "Transformer/posembed_input/pos_embedding"


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
    plain: ClassVar = {"hidden_size": "dim"}
    choices: ClassVar = {"classifier": ("pool", {"token": "cls", "gap": "mean"})}

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        trunk = given["transformer"]
        for key in ("num_layers", "num_heads", "mlp_dim"):
            check_value(f"vision_transformer: transformer.{key}", trunk.get(key), Count)
        hidden, fields = given["representation_size"], self.plain_fields(given)
        token = fields["pool"] == "cls"
        stem = None if given["resnet"] is None else _stem_options(given)
        stride = 1 if stem is None else ResNetOptions(**stem).stride
        fields |= image_fields(self.name, given, state, given["patches"].get("size"), _TABLE, int(token), stride)
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
            "num_classes": config.num_classes or None,
            "patches": {"size": [config.patch_size // (stem.stride if stem else 1)] * 2},
            **self.plain_arguments(config),
            "transformer": {"num_layers": config.depth, "num_heads": config.heads, "mlp_dim": config.mlp_hidden},
            "representation_size": (config.head_hidden or config.dim) if config.head == "mlp" else None,
            "image_size": config.table_size,
        }
        if stem:
            given["resnet"] = {"num_layers": list(stem.layers), "width_factor": stem.width_factor}
            given["group_norm_groups"] = stem.groups
        # What its weights would tell.
        return self.check_roundtrip(given, model, kernel_like(config))

    def rename_foreign(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # The first files published hold the vectors of group norms as [1, 1, 1, channels].
        return {
            name: tensor.flatten() if tensor.dim() == 4 and re.search("(^|/)gn", name) else tensor
            for name, tensor in numbered_together(state).items()
        }

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        entries = trunk(config, norms=(0, 2), attention=1, block=3)
        if config.embedder == "resnet":
            entries += _stem(resnet_options(config).layers)
        if config.has_class_token:
            entries += [copy("cls", "cls_token"), prefixed(_TABLE, "encoding")]
        else:
            entries.append(unbatched(_TABLE, "encoding.table"))
        return entries + head("head", config)


def _stem_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Our options of the argument `resnet`. The groups of norms are no argument there: the class always has 32."""
    resnet = check_value("vision_transformer: resnet", given["resnet"], dict[str, Any])
    layers = resnet.get("num_layers")
    check_value("vision_transformer: resnet.num_layers", layers, list[int] | tuple[int, ...])
    return {
        "layers": list(layers),
        "width_factor": resnet.get("width_factor", 1),
        "groups": given["group_norm_groups"],
        "norm_eps": 1e-6,
        "standardisation": "official",
    }


def _stem(layers: tuple[int, ...]) -> list[TensorMap]:
    """The root and all units of `models_resnet.py`: kernels HWIO, stages and units from 1."""
    ours = "patch_embed.backbone"
    entries = _layer("", "_root", f"{ours}.stem", "")
    for number, units in enumerate(layers):
        for unit in range(units):
            theirs, here = f"block{number + 1}/unit{unit + 1}/", f"{ours}.stages.{number}.blocks.{unit}"
            for part in "123":
                entries += _layer(theirs, part, here, part)
            if not unit:
                entries += _layer(theirs, "_proj", f"{here}.downsample", "")
    return entries


def _layer(theirs: str, there: str, ours: str, here: str) -> list[TensorMap]:
    kernel = f"{theirs}conv{there}/kernel"
    weight = transform(
        kernel, f"{ours}.conv{here}.weight", lambda x: x.permute(3, 2, 0, 1), lambda x: x.permute(2, 3, 1, 0)
    )
    return [weight, *norm(f"{theirs}gn{there}", f"{ours}.norm{here}")]
