"""OWL-ViT's models as transformers has them: CLIP's ViT, and heads of classes and boxes on every patch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import TensorMap, concat, copy, kernel, linear, map_remaining, transform
from sightline.convert.dense import DenseProject, image_size, pixels, sides, trunk_fields
from sightline.errors import InputError
from sightline.models import Model, ViTConfig

_VISION = "owlvit.vision_model."
_EMBEDDINGS = f"{_VISION}embeddings."
_QUERIES = "query_embeds"
# Names of what is not ours -> why, and what can be had.
_FOREIGN = {
    "owlv2.": "OWLv2 says of each patch whether it is an object, which ours does not; ours is OWL-ViT",
    "backbone/": "these are scenic's flax weights; transformers has them under names that are read here",
    "backbone.": "these are scenic's flax weights; transformers has them under names that are read here",
}


class OwlVit(DenseProject):
    """The class `OwlViTForObjectDetection` without its text tower: CLIP's ViT with a norm before the blocks, quick GELU
    (the heads' is exact), LayerNorm eps 1e-5, and both heads.

    What classes are asked for is a tensor beside the weights: `query_embeds` [classes, width], what the text tower
    makes of their names (`get_text_features`). The arguments are those of `vision_config`; what weights tell is not
    among them.
    """

    name = "owlvit"
    source = "https://github.com/huggingface/transformers"
    arguments: ClassVar = {
        "image_size": None, "num_attention_heads": None, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
    }  # fmt: skip
    choices: ClassVar = {"hidden_act": ("gelu", {"quick_gelu": "quick", "gelu": "exact", "gelu_new": "tanh"})}
    only: ClassVar = ("layer_norm_eps",)
    example = ""
    inside = "vision_config"
    # The text tower, and what CLIP compares whole images with texts by.
    aside: ClassVar = (
        r"owlvit\.text_model\.", r"owlvit\.(text|visual)_projection\.", r"owlvit\.logit_scale$", r".*\.position_ids$",
    )  # fmt: skip

    def import_config(self, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> ViTConfig:
        self.refuse_names(state, _FOREIGN)
        trunk = trunk_fields(
            self.name, state, f"{_EMBEDDINGS}patch_embedding.weight", f"{_VISION}encoder.layers",
            ("num_attention_heads", given["num_attention_heads"]),
        )  # fmt: skip
        places = sides(self.name, state, f"{_EMBEDDINGS}position_embedding.weight", 2)[0]
        width = sides(self.name, state, "class_head.dense0.weight", 2)[0]
        if _QUERIES not in state:
            raise InputError(
                f"owlvit weights: missing {_QUERIES} [classes, {width}]: texts are not read here; put what the "
                "text tower makes of the classes' names (get_text_features) beside the weights"
            )
        return ViTConfig(
            **trunk,
            **self.plain_fields(given),
            image_size=image_size(
                self.name, "image_size", given["image_size"], trunk["patch_size"], places - 1, 0
            ),
            num_classes=sides(self.name, state, _QUERIES, 2)[0],
            encoding="learned_1d",
            encoding_options={"interpolation": "bicubic"},
            patch_bias=False,
            norm_pre=True,
            norm_eps=1e-5,
            mean=(0.48145466, 0.4578275, 0.40821073),
            std=(0.26862954, 0.26130258, 0.27577711),
            task="detection",
            head="owlvit",
            head_options={"query_dim": width},
        )  # fmt: skip

    def export_arguments(self, model: Model) -> dict[str, Any]:
        given = {
            **self.plain_arguments(model.config),
            "image_size": pixels(model),
            "num_attention_heads": model.config.heads,
        }
        return self.exported(model, ("owlvit",), given)

    def tensor_maps(self, config: ViTConfig, given: Mapping[str, Any]) -> list[TensorMap]:
        table = TensorMap(
            (f"{_EMBEDDINGS}position_embedding.weight",),
            ("encoding.prefix", "encoding.table"),
            lambda one: [one[0][:1], one[0][1:]],
            lambda parts: [torch.cat(list(parts))],
        )
        special = [
            kernel(config, f"{_EMBEDDINGS}patch_embedding.weight"),
            transform(f"{_EMBEDDINGS}class_embedding", "cls_token", lambda x: x[None, None], lambda x: x[0, 0]),
            table,
            *linear(f"{_VISION}pre_layernorm", "blocks.0.norm_pre"),
            *linear(f"{_VISION}post_layernorm", "norm"),
            copy(_QUERIES, "head.queries"),
        ]
        layer = rf"{_VISION}encoder.layers.\1"
        for number in range(config.depth):
            heads = f"{_VISION}encoder.layers.{number}.self_attn"
            for part in ("weight", "bias"):
                names = [f"{heads}.{one}_proj.{part}" for one in "qkv"]
                special.append(concat(names, f"blocks.{number}.attn.qkv.{part}"))
        renamed = [
            (r"^blocks\.(\d+)\.norm(\d)", rf"{layer}.layer_norm\2"),
            (r"^blocks\.(\d+)\.attn\.proj", f"{layer}.self_attn.out_proj"),
            (r"^blocks\.(\d+)", layer),
            (r"^head\.", ""),
        ]
        return map_remaining(config, special, renamed)
