"""transformers' vision models, a class for each `model_type`: ViT, DeiT, BEiT, and the towers of CLIP and SigLIP."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from sightline.convert import maps
from sightline.convert.base import Arguments, Project, State
from sightline.convert.hf_folder import prepared_fields
from sightline.convert.maps import TensorMap
from sightline.errors import InputError
from sightline.models import Model, ViTConfig
from sightline.tokens.grid import Grid

_LOG = logging.getLogger("sightline")
# Of two names of one function the last is given back.
GELUS = {
    "gelu_fast": "tanh", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_python": "exact", "gelu": "exact",
    "quick_gelu": "quick",
}  # fmt: skip
SIZES: Mapping[str, Any] = {
    "model_type": "", "id2label": None, "preprocessor_config": {}, "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "image_size": 224, "patch_size": 16, "num_channels": 3,
}  # fmt: skip
FIELDS: Mapping[str, Any] = {
    "hidden_size": "dim", "num_hidden_layers": "depth", "num_attention_heads": "heads", "patch_size": "patch_size",
    "intermediate_size": "mlp_hidden", "hidden_act": ("gelu", GELUS), "layer_norm_eps": "norm_eps",
    "num_channels": "channels",
}  # fmt: skip
MASK = "embeddings.mask_token"
FEATURES = r"^(?!(cls_|distillation_)?classifier\.)"
"""The start of a name that is none of a classifier's layers."""
BERT = (
    (r"\.attn\.proj\.", ".attention.output.dense."), (r"^cls_token", "embeddings.cls_token"),
    (r"^norm\.", "layernorm."), (r"^head\.(weight|bias)", r"classifier.\1"), (r"^mask_token", MASK),
)  # fmt: skip


class TransformersSource:
    """Where all of them are from."""

    name = "transformers"
    source = "https://github.com/huggingface/transformers"


class Vit(TransformersSource, Project):
    """ViT, MAE's encoder, and what all others are changes of; the arguments are those of a `config.json` that count.

    Attributes:
        inside: how the names of features begin in a classifier's weights, and in those of transformers 4.
        kernel, table, block, qkv: names of layers; names: patterns of our other names, and theirs.
        gated: more of them where the MLP is; resize: how the table is resized; fixed: fields that are always so.
    """

    arguments: ClassVar = {**SIZES, "qkv_bias": True}
    fields: ClassVar = {**FIELDS, "qkv_bias": "qkv_bias"}
    inside: ClassVar[str] = "vit."
    kernel: ClassVar[str] = "embeddings.patch_embeddings.projection"
    table: ClassVar[str] = "embeddings.position_embeddings"
    block: ClassVar[str] = "encoder.layer"
    qkv: ClassVar[Sequence[str]] = tuple(f"attention.attention.{one}" for one in ("query", "key", "value"))
    names: ClassVar[Sequence[tuple[str, str]]] = (
        (r"\.norm1\.", ".layernorm_before."), (r"\.norm2\.", ".layernorm_after."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."), (r"\.mlp\.fc2\.", ".output.dense."), *BERT,
    )  # fmt: skip
    gated: ClassVar[Sequence[tuple[str, str]]] = ()
    resize: ClassVar[str] = "bicubic"
    fixed: ClassVar[Mapping[str, Any]] = {}

    def own_fields(self, given: Arguments, state: State) -> dict[str, Any]:
        """What `fields` do not say of ours, by the arguments and the weights (features without `inside`)."""
        return dict(self.fixed)

    def own_arguments_of(self, model: Model) -> dict[str, Any]:
        """The arguments that `fields` do not say of a model of ours."""
        return {}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        state = {name.removeprefix(self.inside): one for name, one in state.items()}
        for name in ("pooler.dense", "visual_projection"):
            if f"{name}.weight" in state:
                _LOG.warning("transformers: %s is left out, which a plain ViT has not", name)
        classes = next((len(one) for name, one in state.items() if not re.match(FEATURES, name)), 0)
        side, trained = given["patch_size"], tuple(Grid.checked(given["image_size"], "transformers: image_size"))
        fields = {
            "encoding": "learned_1d",
            "encoding_options": {"interpolation": self.resize},
            "image_size": trained,
            "table_grid": tuple(one // side for one in trained),
            **self.plain_fields(given),
            **self.own_fields(given, state),
            **prepared_fields(given["preprocessor_config"]),
        }
        fields["mask_token"] = fields.get("mask_token", False) and MASK in state
        labels = {str(number): str(one) for number, one in (given["id2label"] or {}).items()}
        names = tuple(labels.get(str(number), "") for number in range(classes))
        # transformers' words for classes that nobody named.
        named = names and not any(one in ("", f"LABEL_{number}") for number, one in enumerate(names))
        fit = "crop" if any(one % side for one in (*trained, *fields["image_size"])) else "exact"
        return ViTConfig(**fields, num_classes=classes, fit=fit, class_names=names if named else None).plain()

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        names = config.class_names or [f"LABEL_{number}" for number in range(config.num_classes)]
        # What is passed over of an image of training is a part of its size there.
        whole = config.fit == "crop" and config.grid_of(config.image_size) == config.train_grid
        rows, cols = Grid.checked(config.image_size if whole else config.table_size)
        given = {
            **self.plain_arguments(config),
            "image_size": rows if rows == cols else [rows, cols],
            "id2label": {str(number): name for number, name in enumerate(names)},
            **self.own_arguments_of(model),
        }
        return {name: value for name, value in given.items() if name in self.arguments and value != {}}

    def table_maps(self, config: ViTConfig) -> list[TensorMap]:
        """The position table, and other tensors outside of blocks that are laid out in another way."""
        return [maps.prefixed(self.table, "encoding", config.num_prefix_tokens)]

    def block_maps(self, config: ViTConfig, ours: str, theirs: str) -> list[TensorMap]:
        """What is several tensors of a block there, and one here."""
        names = [f"{theirs}.{one}" for one in self.qkv]
        entries = maps.fused(names, f"{ours}.attn.qkv", ("weight", "bias") if config.qkv_bias is True else ("weight",))
        if config.qkv_bias == "qv":
            entries += [maps.copy(f"{names[at]}.bias", f"{ours}.attn.{one}_bias") for at, one in ((0, "q"), (2, "v"))]
        return entries

    def maps(self, config: ViTConfig, start: str = "") -> list[TensorMap]:
        """Every tensor of the model that `config` is ours of; the names of its features begin with `start`."""
        entries = [maps.kernel(config, f"{self.kernel}.weight"), *self.table_maps(config)]
        for layer in range(config.depth):
            entries += self.block_maps(config, f"blocks.{layer}", f"{self.block}.{layer}")
        common = ((r"^blocks\.", f"{self.block}."), (r"^patch_embed\.proj\.", f"{self.kernel}."))
        patterns = (*(self.gated if config.mlp == "swiglu" else ()), *self.names, *common)
        entries = maps.map_remaining(config, entries, patterns)
        placed = [tuple(re.sub(FEATURES, start, name) for name in one.foreign) for one in entries]
        return [dataclasses.replace(one, foreign=names) for one, names in zip(entries, placed, strict=True)]

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        return self.maps(config, self.inside if config.num_classes else "")


class TransformersDeit(Vit):
    """DeiT: the distillation token is a register; of `DeiTForImageClassificationWithTeacher` both heads count."""

    inside = "deit."
    names: ClassVar = (
        (r"^reg_token", "embeddings.distillation_token"), (r"^head\.cls\.", "cls_classifier."),
        (r"^head\.distillation\.", "distillation_classifier."), *Vit.names,
    )  # fmt: skip

    def own_fields(self, given: Arguments, state: State) -> dict[str, Any]:
        both = {"head": "distilled", "pool": "prefix"} if "cls_classifier.weight" in state else {}
        return {"num_registers": 1, **both}


class Beit(Vit):
    """BEiT. Its code reads a relative table that is not square with rows and columns exchanged; ours does not."""

    inside = "beit."
    arguments: ClassVar = {
        **SIZES, "use_absolute_position_embeddings": False, "use_relative_position_bias": False,
        "use_shared_relative_position_bias": False, "layer_scale_init_value": 0.1, "use_mean_pooling": True,
        "use_mask_token": False,
    }  # fmt: skip
    only = ("use_absolute_position_embeddings",)
    fixed: ClassVar = {"qkv_bias": "qv", "encoding_options": {"interpolation": "bilinear"}, "class_token": True}
    fields: ClassVar = {
        **FIELDS, "use_relative_position_bias": ("encoding", {True: "rpe_learned", False: "rpe_learned_shared"}),
        "use_mean_pooling": ("pool", {True: "mean", False: "cls"}), "layer_scale_init_value": "layer_scale",
        "use_mask_token": "mask_token",
    }  # fmt: skip
    names: ClassVar = ((r"\.ls(\d)\.gamma$", r".lambda_\1"), (r"^fc_norm\.", "pooler.layernorm."), *Vit.names)

    def own_fields(self, given: Arguments, state: State) -> dict[str, Any]:
        own, shared = given["use_relative_position_bias"], given["use_shared_relative_position_bias"]
        if own == shared:
            raise InputError(f"transformers: {int(own) * 2} relative tables for a layer cannot be ours (expected one)")
        # A model of masked images has its norm outside of the features.
        return {**self.fixed, **({"pool": "cls"} if "layernorm.weight" in state else {"final_norm": "after_pool"})}

    def own_arguments_of(self, model: Model) -> dict[str, Any]:
        return {"use_shared_relative_position_bias": model.config.encoding != "rpe_learned"}

    def table_maps(self, config: ViTConfig) -> list[TensorMap]:
        each = [f"{self.block}.{layer}.attention.attention" for layer in range(config.depth)]
        places = each if config.encoding == "rpe_learned" else ["encoder"]
        tables = [f"{one}.relative_position_bias.relative_position_bias_table" for one in places]
        mask = [maps.unbatched(MASK, "mask_token")] if config.mask_token else []
        return [*mask, maps.concat(tables, "encoding.tables", lambda x: x.unsqueeze(0), lambda x: x[0])]


class ClipVision(Vit):
    """CLIP's vision tower: its last norm, which stands on the pooled token there, is on all tokens here, as timm's."""

    inside = "vision_model."
    arguments: ClassVar = {**SIZES, "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
    fields: ClassVar = FIELDS
    fixed: ClassVar = {"patch_bias": False, "norm_pre": True}
    kernel = "embeddings.patch_embedding"
    table = "embeddings.position_embedding.weight"
    block = "encoder.layers"
    qkv = tuple(f"self_attn.{one}_proj" for one in "qkv")
    names: ClassVar = (
        (r"^blocks\.0\.norm_pre\.", "pre_layrnorm."), (r"\.norm(\d)\.", r".layer_norm\1."),
        (r"\.attn\.proj\.", ".self_attn.out_proj."), (r"^norm\.", "post_layernorm."),
    )  # fmt: skip

    def table_maps(self, config: ViTConfig) -> list[TensorMap]:
        token = maps.transform("embeddings.class_embedding", "cls_token", lambda x: x[None, None], lambda x: x[0, 0])
        return [maps.prefixed(self.table, "encoding", batched=False), token]


class Siglip(ClipVision):
    """SigLIP's vision tower: a probe pools, or nothing does (`vision_use_head` false: ours gives the mean)."""

    arguments: ClassVar = {
        **SIZES, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "vision_use_head": True
    }  # fmt: skip
    fixed: ClassVar = {"class_token": False}
    fields: ClassVar = {**FIELDS, "vision_use_head": ("pool", {True: "attention", False: "mean"})}
    names: ClassVar = (
        (r"^attn_pool\.latent", "head.probe"), (r"^attn_pool\.proj\.", "head.attention.out_proj."),
        (r"^attn_pool\.norm\.", "head.layernorm."), (r"^attn_pool\.mlp\.", "head.mlp."), *ClipVision.names,
    )  # fmt: skip

    def table_maps(self, config: ViTConfig) -> list[TensorMap]:
        probe = [
            TensorMap(
                (f"head.attention.in_proj_{part}",),
                (f"attn_pool.q.{part}", f"attn_pool.kv.{part}"),
                lambda one: list(one[0].split((len(one[0]) // 3, len(one[0]) // 3 * 2))),
                lambda parts: [torch.cat(list(parts))],
            )
            for part in ("weight", "bias")
        ]
        return [maps.copy(self.table, "encoding.table"), *(probe if config.pool == "attention" else [])]
