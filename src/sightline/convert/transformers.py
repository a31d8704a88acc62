"""transformers' vision models, one project for all: the `model_type` of a configuration says which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from sightline.convert import maps
from sightline.convert.base import Arguments, Project, State
from sightline.convert.hf_pair import PAIRS, ClipPair
from sightline.convert.hf_vit import (
    BERT,
    FEATURES,
    FIELDS,
    MASK,
    SIZES,
    Beit,
    ClipVision,
    Siglip,
    TransformersDeit,
    TransformersSource,
    Vit,
)
from sightline.convert.maps import TensorMap
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig

_REGISTERS = "embeddings.register_tokens"
_NAMES = ((r"\.ls(\d)\.gamma$", r".layer_scale\1.lambda1"), (r"^reg_token", _REGISTERS), *BERT)
_GATED = ("mlp", {True: "swiglu", False: "gelu"})


class Dinov2(Vit):
    """DINOv2; a classifier reads the class token beside the mean of the patches."""

    inside = "dinov2."
    arguments: ClassVar = {
        **{name: value for name, value in SIZES.items() if name != "intermediate_size"}, "patch_size": 14,
        "layer_norm_eps": 1e-6, "mlp_ratio": 4.0, "qkv_bias": True, "layerscale_value": 1.0, "use_swiglu_ffn": False,
        "use_mask_token": True,
    }  # fmt: skip
    fields: ClassVar = {
        **Vit.fields, "layerscale_value": "layer_scale", "use_swiglu_ffn": _GATED, "use_mask_token": "mask_token"
    }  # fmt: skip
    names = _NAMES
    gated = ((r"\.mlp\.fc1\.", ".mlp.weights_in."), (r"\.mlp\.fc2\.", ".mlp.weights_out."))

    def plain_fields(self, given: Arguments) -> dict[str, Any]:
        hidden = _hidden(given["hidden_size"], given["mlp_ratio"], given["use_swiglu_ffn"])
        return super().plain_fields({**given, "intermediate_size": hidden})

    def own_fields(self, given: Arguments, state: State) -> dict[str, Any]:
        return {"pool": "cls_mean" if "classifier.weight" in state else "cls"}

    def own_arguments_of(self, model: Model) -> dict[str, Any]:
        dim, hidden, gated = model.config.dim, model.config.mlp_hidden, model.config.mlp == "swiglu"
        # A whole number where one gives that width: transformers 5 takes nothing else.
        ratios = (one for one in range(1, 17) if _hidden(dim, one, gated) == hidden)
        return {"mlp_ratio": next(ratios, hidden * (1.5 if gated else 1) / dim)}


def _hidden(dim: int, ratio: float, gated: bool) -> int:
    """Width of DINOv2's MLP: a gated one is two thirds as wide, rounded up to a multiple of 8."""
    hidden = int(dim * ratio)
    return (int(hidden * 2 / 3) + 7) // 8 * 8 if gated else hidden


class Dinov2WithRegisters(Dinov2):
    """DINOv2 with registers, which have no position: theirs is 0 in our table, and moves into them on the way back."""

    inside = "dinov2_with_registers."
    arguments: ClassVar = {**Dinov2.arguments, "patch_size": 16, "num_register_tokens": 4}
    fields: ClassVar = {**Dinov2.fields, "num_register_tokens": "num_registers"}
    resize = "bicubic_antialias"

    def table_maps(self, config: ViTConfig) -> list[TensorMap]:
        return [
            TensorMap(
                (self.table, _REGISTERS),
                ("encoding.prefix", "encoding.table", "reg_token"),
                lambda one: [torch.cat((one[0][0, :1], torch.zeros_like(one[1][0]))), one[0][0, 1:], one[1]],
                lambda parts: [torch.cat((parts[0][:1], parts[1])).unsqueeze(0), parts[2] + parts[0][1:]],
            )
        ]


class Dinov3(Vit):
    """DINOv3: the periods of the rotation are not rounded, other than in the project's own weights."""

    arguments: ClassVar = {
        **SIZES, "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6, "layer_norm_eps": 1e-5,
        "rope_theta": 100.0, "query_bias": True, "key_bias": False, "value_bias": True, "proj_bias": True,
        "mlp_bias": True, "layerscale_value": 1.0, "use_gated_mlp": False, "num_register_tokens": 0,
    }  # fmt: skip
    only = ("query_bias", "value_bias", "proj_bias", "mlp_bias")
    fields: ClassVar = {
        **FIELDS, "layerscale_value": "layer_scale", "num_register_tokens": "num_registers", "use_gated_mlp": _GATED,
        "key_bias": ("qkv_bias", {True: True, False: "qv"}),
    }  # fmt: skip
    inside = ""
    kernel = "embeddings.patch_embeddings"
    block = "layer"
    qkv = tuple(f"attention.{one}_proj" for one in "qkv")
    names: ClassVar = (
        (r"\.attn\.proj\.", ".attention.o_proj."), (r"\.mlp\.fc1\.", ".mlp.up_proj."),
        (r"\.mlp\.fc2\.", ".mlp.down_proj."), *(one for one in _NAMES if "layernorm" not in one[1]),
    )  # fmt: skip

    def plain_fields(self, given: Arguments) -> dict[str, Any]:
        if given["use_gated_mlp"]:
            if (act := given["hidden_act"]) != "silu":
                raise InputError(f"transformers: hidden_act {act!r} of a gated MLP cannot be ours (expected 'silu')")
            given = {**given, "hidden_act": "gelu"}
        return super().plain_fields(given)

    def own_fields(self, given: Arguments, state: State) -> dict[str, Any]:
        options = {"theta": float(given["rope_theta"])}
        return {"encoding": "rope_dinov3", "encoding_options": options, "mask_token": True}

    def own_arguments_of(self, model: Model) -> dict[str, Any]:
        encoding: Any = model.encoding
        act = {"hidden_act": "silu"} if model.config.mlp == "swiglu" else {}
        return {**act, "rope_theta": float(encoding.config.theta)}

    def table_maps(self, config: ViTConfig) -> list[TensorMap]:
        entries = [] if config.num_registers else [maps.derived((_REGISTERS,), torch.zeros(1, 0, config.dim))]
        return [*entries, maps.unbatched(MASK, "mask_token")] if config.mask_token else entries

    def block_maps(self, config: ViTConfig, ours: str, theirs: str) -> list[TensorMap]:
        gate = [f"{theirs}.mlp.{one}_proj" for one in ("gate", "up")]
        gated = maps.fused(gate, f"{ours}.mlp.fc1") if config.mlp == "swiglu" else []
        return [*super().block_maps(config, ours, theirs), *gated]


FAMILIES: Mapping[str, Vit | ClipPair] = {
    "vit": Vit(), "deit": TransformersDeit(), "vit_mae": Vit(), "beit": Beit(), "dinov2": Dinov2(),
    "dinov2_with_registers": Dinov2WithRegisters(), "dinov3_vit": Dinov3(), "siglip_vision_model": Siglip(),
    "clip_vision_model": ClipVision(), **PAIRS,
}  # fmt: skip
"""By `model_type`."""
_INSIDE = "|".join(sorted({re.escape(one.inside) for one in FAMILIES.values() if one.inside}))


class Transformers(TransformersSource, Project):
    """The classes of `FAMILIES`, by the names that `save_pretrained` writes.

    The arguments are a `config.json`, where what computes nothing is passed over, and a `preprocessor_config` in it.
    """

    name = TransformersSource.name
    arguments: ClassVar = {}
    aside = (
        rf"({_INSIDE})?(pooler\.dense\.|visual_projection\.|decoder\.|embeddings\.(mask_token|position_ids)$)",
        r"(text|vision)_model\.embeddings\.position_ids$",
    )
    example = "model_type=vit"

    def family(self, given: Arguments) -> Vit | ClipPair:
        """What a configuration is of; raises InputError where ours have none."""
        require_known("transformers: model_type", given.get("model_type"), FAMILIES)
        return FAMILIES[given["model_type"]]

    def own_arguments(self, given: Arguments) -> Arguments:
        return {name: value for name, value in given.items() if name in self.family(given).arguments}

    def filled(self, given: Arguments) -> dict[str, Any]:
        return self.family(given).filled(given)

    def rename_foreign(self, state: State) -> State:
        if any(name.startswith("text_model.") or not re.match(FEATURES, name) for name in state):
            return state
        return {re.sub(f"^({_INSIDE})", "", name): one for name, one in state.items()}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        return self.family(given).import_config(given, state)

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config, origin = model.config, model.config.origin or {}
        scaled, registers = config.layer_scale is not None, config.num_registers
        pair = config.head == "contrastive"
        naflex = config.encoding_options.get("interpolation") == "bilinear_antialias"
        # The first of these that is there, where it did not come from one of them.
        features = {
            "siglip2": pair and naflex, "clip": pair and config.has_class_token, "siglip": pair,
            "dinov3_vit": config.encoding == "rope_dinov3", "beit": config.encoding.startswith("rpe_learned"),
            "siglip_vision_model": config.pool == "attention", "clip_vision_model": config.norm_pre,
            "dinov2_with_registers": scaled and registers, "dinov2": scaled, "deit": registers == 1, "vit": True,
        }  # fmt: skip
        came = origin.get("project") == self.name
        kind = origin["config"]["model_type"] if came else next(filter(features.get, features))
        return {"model_type": kind, **FAMILIES[kind].export_arguments(model)}

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        return self.family(given).tensor_maps(config, given)
