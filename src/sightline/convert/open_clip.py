"""CLIP models of open_clip (mlfoundations/open_clip), whose vision tower is its own vision transformer."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from sightline.convert.base import Arguments, Project, State
from sightline.convert.maps import TensorMap, kernel, map_remaining, prefixed, transform
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig

OPEN_CLIP = "open_clip_config.json"
"""In a folder as open_clip publishes it."""
OPEN_CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", "model.safetensors")
_VISION = {
    "layers": 12, "width": 768, "head_width": 64, "mlp_ratio": 4.0, "patch_size": 16, "image_size": 224,
    "ls_init_value": None,
}  # fmt: skip
_TEXT = {
    "context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12, "mlp_ratio": 4.0,
    "ls_init_value": None, "pad_id": 0, "no_causal_mask": False,
}  # fmt: skip
# What ours can be alone, and what says nothing of a computed number.
_PLAIN = {
    "final_ln_after_pool": False, "block_type": None, "qk_norm": False, "scaled_cosine_attn": False,
    "scale_heads": False, "scale_attn_inner": False, "scale_attn": False, "scale_fc": False, "norm_kwargs": None,
    "act_kwargs": None,
}  # fmt: skip
_ONLY = {
    "vision_cfg": {
        **_PLAIN, "pool_type": "tok", "attentional_pool": False, "no_ln_pre": False, "pos_embed_type": "learnable",
    },
    "text_cfg": {**_PLAIN, "pool_type": "argmax", "embed_cls": False, "proj_bias": False, "proj_type": "linear"},
}  # fmt: skip
_IGNORED = ("patch_dropout", "hf_tokenizer_name", "tokenizer_kwargs", "output_tokens", "eos_id")
_OPENAI = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}
_NAMES = (
    (r"^head\.text\.blocks\.", "transformer.resblocks."),
    (r"^blocks\.0\.norm_pre\.", "visual.ln_pre."),
    (r"^blocks\.", "visual.transformer.resblocks."),
    (r"\.norm([12])\.", r".ln_\1."),
    (r"\.attn\.qkv\.", ".attn.in_proj_"),
    (r"\.attn\.proj\.", ".attn.out_proj."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
    (r"\.ls([12])\.gamma$", r".ls_\1.gamma"),
    (r"^norm\.", "visual.ln_post."),
    (r"^head\.text\.norm\.", "ln_final."),
    (r"^head\.text\.token_embed\.", "token_embedding."),
    (r"^head\.text\.encoding\.table$", "positional_embedding"),
    (r"^head\.logit_", "logit_"),
)


class OpenClip(Project):
    """The class `CLIP`: both towers, their projections, and the scale of the scores.

    Texts end at the largest id of the vocabulary, at which they are pooled. `CustomTextCLIP` has the same tensors with
    `text.` before those of the text tower; with a vision tower of timm's (`visual.trunk.`) it is refused.
    """

    name = "open_clip"
    source = "https://github.com/mlfoundations/open_clip"
    arguments: ClassVar = {
        "embed_dim": 512, "vision_cfg": {}, "text_cfg": {}, "quick_gelu": False, "preprocess_cfg": {}, "tokenizer": "",
    }  # fmt: skip
    inside = "model_cfg"
    ignored: ClassVar = ("custom_text", "init_logit_bias", "init_logit_scale", "multimodal_cfg")
    aside: ClassVar = (r"(text\.)?attn_mask$",)
    example = "embed_dim=512"

    def own_arguments(self, given: Arguments) -> Arguments:
        found = super().own_arguments(given)
        return {name: value for name, value in found.items() if name not in self.ignored}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        vision, text = (self._tower(given, name, own) for name, own in (("vision_cfg", _VISION), ("text_cfg", _TEXT)))
        if "visual.class_embedding" not in state:
            found = next((name for name in state if name.startswith("visual.")), "no vision tower")
            raise InputError(f"open_clip weights: {found}: expected open_clip's own vision transformer")
        prepared = {**_OPENAI, **given["preprocess_cfg"]}
        gelu = "quick" if given["quick_gelu"] else "exact"
        return ViTConfig(
            patch_size=vision["patch_size"],
            dim=vision["width"],
            depth=vision["layers"],
            heads=vision["width"] // vision["head_width"],
            mlp_ratio=vision["mlp_ratio"],
            image_size=_size(vision["image_size"]),
            layer_scale=vision["ls_init_value"],
            encoding_options={"interpolation": "bicubic_antialias"},
            num_classes=0,
            patch_bias=False,
            norm_pre=True,
            norm_eps=1e-5,
            gelu=gelu,
            head="contrastive",
            task="contrastive",
            head_options={
                "embed_dim": given["embed_dim"],
                "loss": "sigmoid" if "logit_bias" in state else "softmax",
                "text": {
                    "vocab_size": text["vocab_size"],
                    "length": text["context_length"],
                    "dim": text["width"],
                    "depth": text["layers"],
                    "heads": text["heads"],
                    "mlp_ratio": text["mlp_ratio"],
                    "causal": not text["no_causal_mask"],
                    "pad_id": text["pad_id"],
                    "end_id": text["vocab_size"] - 1,
                    "lower_case": True,
                    "tokenizer": given["tokenizer"],
                    "gelu": gelu,
                    "norm_eps": 1e-5,
                },
            },
            mean=tuple(prepared["mean"]),
            std=tuple(prepared["std"]),
            interpolation=prepared.get("interpolation", "bicubic"),
            crop_mode="squash" if prepared.get("resize_mode") == "squash" else "center",
        )

    def _tower(self, given: Arguments, name: str, own: dict[str, Any]) -> dict[str, Any]:
        for key, value in given[name].items():
            if key in _IGNORED:
                continue
            require_known(f"open_clip: {name}", key, (*own, *_ONLY[name]))
            if key in _ONLY[name] and value != _ONLY[name][key]:
                raise InputError(f"open_clip: {name}.{key} {value!r}: cannot be ours (expected {_ONLY[name][key]!r})")
        tower = {**own, **{key: value for key, value in given[name].items() if key in own}}
        if name == "text_cfg" and tower["ls_init_value"] is not None:
            raise InputError("open_clip: text_cfg.ls_init_value: cannot be ours (expected none)")
        return tower

    def rename_foreign(self, state: State) -> State:
        return {name.removeprefix("text."): one for name, one in state.items()}

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        self.require("head", config.head, "contrastive")
        self.require("encoding", config.encoding, "learned_1d")
        options: Any = model.head.options
        text = vars(options.text)
        vision = {
            "layers": config.depth, "width": config.dim, "head_width": config.dim // config.heads,
            "mlp_ratio": config.mlp_ratio, "patch_size": config.patch_size, "image_size": config.table_size,
            "ls_init_value": config.layer_scale,
        }  # fmt: skip
        of_text = {
            "context_length": text["length"], "vocab_size": text["vocab_size"], "width": text["dim"],
            "heads": text["heads"], "layers": text["depth"], "mlp_ratio": text["mlp_ratio"], "pad_id": text["pad_id"],
            "no_causal_mask": not text["causal"],
        }  # fmt: skip
        prepared = {"mean": list(config.mean), "std": list(config.std), "interpolation": config.interpolation}
        prepared["resize_mode"] = "squash" if config.crop_mode == "squash" else "shortest"
        return {
            "embed_dim": options.embed_dim,
            "vision_cfg": vision,
            "text_cfg": of_text,
            "quick_gelu": config.gelu == "quick",
            "preprocess_cfg": prepared,
            "tokenizer": text["tokenizer"],
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        return map_remaining(config, [kernel(config, "visual.conv1.weight"), *clip_tensors()], _NAMES)


def clip_tensors() -> list[TensorMap]:
    """The CLS token, the table and the projections of open_clip's layout."""
    return [
        transform("visual.class_embedding", "cls_token", lambda x: x[None, None], lambda x: x[0, 0]),
        prefixed("visual.positional_embedding", "encoding", batched=False),
        transform("visual.proj", "head.image_proj.weight", Tensor.t, Tensor.t),
        transform("text_projection", "head.text_proj.weight", Tensor.t, Tensor.t),
    ]


def _size(size: Any) -> Any:
    return tuple(size) if isinstance(size, list) else size
