"""The models of ViT's own repository (google-research/vision_transformer), AugReg's among them, as npz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from sightline.convert.base import Project, TensorMap, copy, prefixed, unbatched
from sightline.convert.flax import dense, image_fields, kernel_like, numbered_together, trunk
from sightline.convert.flax_resnet import flat_norms, resnet_arguments, resnet_fields, stem
from sightline.io.config import Count, check_value
from sightline.models import Model, ViTConfig
from sightline.models.embedders.resnet import stem_fit

_TRANSFORMER = ("num_layers", "num_heads", "mlp_dim")


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
        for key in _TRANSFORMER:
            check_value(f"vision_transformer: transformer.{key}", trunk.get(key), Count)
        hidden, fields = given["representation_size"], self.plain_fields(given)
        token = fields["pool"] == "cls"
        hybrid, stride = resnet_fields(self.name, given, state)
        images = image_fields(self.name, given, state, given["patches"].get("size"), _TABLE, int(token), stride)
        if hybrid:
            hybrid["fit"] = stem_fit(images["image_size"], images["patch_size"], stride)
        return ViTConfig(
            **{**images, **fields, **hybrid},
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
        hybrid, stride = resnet_arguments(config)
        given: dict[str, Any] = {
            "num_classes": config.num_classes or None,
            "patches": {"size": [config.patch_size // stride] * 2},
            **self.plain_arguments(config),
            "transformer": {"num_layers": config.depth, "num_heads": config.heads, "mlp_dim": config.mlp_hidden},
            "representation_size": (config.head_hidden or config.dim) if config.head == "mlp" else None,
            "image_size": config.table_size,
            **hybrid,
        }
        # What its weights would tell.
        return self.check_roundtrip(given, model, kernel_like(config))

    def rename_foreign(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return flat_norms(numbered_together(state))

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        entries = trunk(config, norms=(0, 2), attention=1, block=3)
        entries += stem(config)
        if config.has_class_token:
            entries += [copy("cls", "cls_token"), prefixed(_TABLE, "encoding")]
        else:
            entries.append(unbatched(_TABLE, "encoding.table"))
        if config.head == "mlp":
            return [*entries, *dense("pre_logits", "head.fc1"), *dense("head", "head.fc2")]
        return entries + (dense("head", "head") if config.num_classes else [])


_TABLE = "Transformer/posembed_input/pos_embedding"
