"""transformers' models of images and texts: CLIP, SigLIP and SigLIP 2, a class for each `model_type`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from sightline.convert import maps
from sightline.convert.base import Arguments, Project, State
from sightline.convert.hf_vit import GELUS, ClipVision, Siglip, TransformersSource, Vit
from sightline.convert.maps import TensorMap
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig
from sightline.models.text import TextConfig
from sightline.tokens.grid import Grid

_TEXT = "text_model."
_TEXT_FIELDS = {
    "vocab_size": "vocab_size", "hidden_size": "dim", "num_hidden_layers": "depth", "num_attention_heads": "heads",
    "max_position_embeddings": "length", "layer_norm_eps": "norm_eps", "pad_token_id": "pad_id",
}  # fmt: skip


class ClipPair(TransformersSource, Project):
    """CLIP: texts are causal and pooled at their first end token; both towers are projected without a bias.

    Attributes:
        vision: whose maps and arguments the vision tower has.
        text: the arguments of `text_config` that count, with transformers' defaults; fixed: fields of `TextConfig`.
    """

    arguments: ClassVar = {
        "model_type": "", "text_config": {}, "vision_config": {}, "projection_dim": 512, "preprocessor_config": {},
        "tokenizer": "",
    }  # fmt: skip
    inside: ClassVar[str] = ""
    vision: ClassVar[Vit] = ClipVision()
    text: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
        "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
        "pad_token_id": 1, "eos_token_id": 49407,
    }  # fmt: skip
    fixed: ClassVar[Mapping[str, Any]] = {"causal": True, "pool": "end", "lower_case": True}

    def vision_arguments(self, given: Arguments) -> dict[str, Any]:
        """The arguments of the vision tower alone."""
        known = {name: one for name, one in given["vision_config"].items() if name in self.vision.arguments}
        return self.vision.filled({**known, "preprocessor_config": given["preprocessor_config"]})

    def text_fields(self, given: Arguments) -> dict[str, Any]:
        """The fields of `TextConfig`."""
        text = {**self.text, **{name: one for name, one in given["text_config"].items() if name in self.text}}
        require_known("transformers: text_config.hidden_act", text["hidden_act"], GELUS)
        end, last = text["eos_token_id"], text["vocab_size"] - 1
        return {
            **{ours: text[theirs] for theirs, ours in _TEXT_FIELDS.items()},
            "pad_id": min(text["pad_token_id"], last),
            "mlp_ratio": text["intermediate_size"] / text["hidden_size"],
            "gelu": GELUS[text["hidden_act"]],
            # 2 stood for the largest id in the first files; beyond the vocabulary it is that too.
            "end_id": end if end != 2 and end <= last else last,
            "tokenizer": given["tokenizer"],
            **self.fixed,
        }

    def head_options(self, given: Arguments) -> dict[str, Any]:
        return {"embed_dim": given["projection_dim"], "text": self.text_fields(given)}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        inside = "vision_model."
        seen = {name.removeprefix(inside): one for name, one in state.items() if name.startswith(inside)}
        if not seen or not any(name.startswith(_TEXT) for name in state):
            raise InputError(
                f"transformers: {given['model_type']} weights: expected names of vision_model. and {_TEXT}"
            )
        tower = self.vision.import_config(self.vision_arguments(given), seen)
        options = self.head_options(given)
        return tower.replace(head="contrastive", task="contrastive", head_options=options, score_link="softmax")

    def export_arguments(self, model: Model) -> dict[str, Any]:
        self.require("head", model.config.head, "contrastive")
        vision = {name: one for name, one in self.vision.export_arguments(model).items() if name != "id2label"}
        options: Any = model.head.options
        return {"vision_config": vision, "projection_dim": options.embed_dim, **self.text_arguments(options.text)}

    def text_arguments(self, config: TextConfig) -> dict[str, Any]:
        """The inverse of `text_fields`."""
        text = vars(config)
        theirs = {value: name for name, value in GELUS.items()}
        found = {name: text[ours] for name, ours in _TEXT_FIELDS.items()}
        found |= {
            "intermediate_size": round(text["dim"] * text["mlp_ratio"]), "hidden_act": theirs[text["gelu"]],
            "eos_token_id": text["end_id"] or text["vocab_size"] - 1,
        }  # fmt: skip
        return {"text_config": found, "tokenizer": text["tokenizer"]}

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        tower = config.replace(head="linear", head_options={}, task="classification")
        depth = config.head_options["text"]["depth"]
        return [*self.vision.maps(tower, "vision_model."), *self.head_maps(), *text_maps(depth)]

    def head_maps(self) -> list[TensorMap]:
        """Of the projections, and of the scale and bias of the scores."""
        return [
            maps.copy("visual_projection.weight", "head.image_proj.weight"),
            maps.copy("text_projection.weight", "head.text_proj.weight"),
            maps.copy("logit_scale", "head.logit_scale"),
        ]


class SiglipPair(ClipPair):
    """SigLIP: texts are filled up with the pad id, see each other and are pooled at their last place; images have no
    projection, texts one with a bias."""

    arguments: ClassVar = {name: one for name, one in ClipPair.arguments.items() if name != "projection_dim"}
    vision: ClassVar[Vit] = Siglip()
    text: ClassVar = {
        **ClipPair.text, "vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
        "projection_size": None,
    }  # fmt: skip
    fixed: ClassVar = {"pool": "last", "pad_to_length": True, "lower_case": True, "end_id": None}

    def head_options(self, given: Arguments) -> dict[str, Any]:
        text = self.text_fields(given)
        width = given["text_config"].get("projection_size") or text["dim"]
        proj = {"image_proj": False, "text_proj_bias": True}
        return {"embed_dim": width, "loss": "sigmoid", **proj, "text": text}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        return super().import_config(given, state).replace(score_link="sigmoid")

    def export_arguments(self, model: Model) -> dict[str, Any]:
        given = super().export_arguments(model)
        given["text_config"] |= {"projection_size": given.pop("projection_dim")}
        return given

    def head_maps(self) -> list[TensorMap]:
        numbers = [
            TensorMap((name,), (f"head.{name}",), lambda one: [one[0][0]], lambda one: [one[0].reshape(1)])
            for name in ("logit_scale", "logit_bias")
        ]
        return [*maps.fused([f"{_TEXT}head"], "head.text_proj"), *numbers]


class _Siglip2Vision(Siglip):
    """NaFlex: patches are flat (row, column, channel), and the table has a square of places."""

    arguments: ClassVar = {**Siglip.arguments, "num_patches": 256}
    resize = "bilinear_antialias"

    def filled(self, given: Arguments) -> dict[str, Any]:
        whole = super().filled(given)
        # Its size in pixels is not said.
        return {**whole, "image_size": math.isqrt(whole["num_patches"]) * whole["patch_size"]}

    def export_arguments(self, model: Model) -> dict[str, Any]:
        given = super().export_arguments(model)
        rows, cols = Grid.checked(given.pop("image_size"))
        return {**given, "num_patches": rows * cols // given["patch_size"] ** 2}

    def maps(self, config: ViTConfig, start: str = "") -> list[TensorMap]:
        name, side = f"{start}{self.kernel}.weight", config.patch_size
        entries = [one for one in super().maps(config, start) if name not in one.foreign]
        flat = maps.transform(
            name,
            "patch_embed.proj.weight",
            lambda x: x.unflatten(1, (side, side, -1)).permute(0, 3, 1, 2).flatten(1),
            lambda x: x.unflatten(1, (-1, side, side)).permute(0, 2, 3, 1).flatten(1),
        )
        return [*entries, flat]


class Siglip2Pair(SiglipPair):
    """SigLIP 2 with images of any shape (NaFlex)."""

    vision: ClassVar[Vit] = _Siglip2Vision()


def text_maps(depth: int, start: str = "") -> list[TensorMap]:
    """Every tensor of a text tower of CLIP's kind; its names begin with `start`."""
    inside, entries = f"{start}{_TEXT}", []
    for layer in range(depth):
        ours, theirs = f"head.text.blocks.{layer}", f"{inside}encoder.layers.{layer}"
        entries += maps.fused([f"{theirs}.self_attn.{one}_proj" for one in "qkv"], f"{ours}.attn.qkv")
        for there, here in (
            ("layer_norm1", "norm1"), ("layer_norm2", "norm2"), ("self_attn.out_proj", "attn.proj"),
            ("mlp.fc1", "mlp.fc1"), ("mlp.fc2", "mlp.fc2"),
        ):  # fmt: skip
            entries += maps.fused([f"{theirs}.{there}"], f"{ours}.{here}")
    embeddings = f"{inside}embeddings"
    return [
        *entries,
        *maps.fused([f"{inside}final_layer_norm"], "head.text.norm"),
        maps.copy(f"{embeddings}.token_embedding.weight", "head.text.token_embed.weight"),
        maps.copy(f"{embeddings}.position_embedding.weight", "head.text.encoding.table"),
    ]


PAIRS: Mapping[str, ClipPair] = {"clip": ClipPair(), "siglip": SiglipPair(), "siglip2": Siglip2Pair()}
"""By `model_type`."""
