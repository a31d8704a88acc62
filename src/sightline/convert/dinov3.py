"""DINOv3's published backbones (facebookresearch/dinov3)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.convert.base import Arguments, Project, State
from sightline.convert.maps import TensorMap, derived, fused, kernel, map_remaining
from sightline.errors import require_known
from sightline.models import Model, ViTConfig

_ALIGNED = {"swiglu": 8, "swiglu32": 32, "swiglu64": 64, "swiglu128": 128}
_PERIODS = "rope_embed.periods"
# Of training alone.
_AUGMENTATION = ("pos_embed_rope_shift_coords", "pos_embed_rope_jitter_coords", "pos_embed_rope_rescale_coords")
# What ours can be alone.
_ONLY = {
    "pos_embed_rope_normalize_coords": "separate",
    **dict.fromkeys(("pos_embed_rope_min_period", "pos_embed_rope_max_period")),
    **dict.fromkeys(("ffn_bias", "proj_bias"), True),
    **dict.fromkeys(("untie_cls_and_patch_norms", "untie_global_and_local_cls_norm"), False),
}


class DinoV3(Project):
    """The class `DinoVisionTransformer`: a CLS token, registers that it calls storage tokens, LayerScale, rotary
    coordinates of cells' centres in [-1, 1]; it gives the normed CLS token (no classes).

    The stored periods of the rotation are rounded to bfloat16 in the published weights; the weights tell. The bias of
    keys is masked to 0 and computes nothing: it comes back as 0.
    """

    name = "dinov3"
    source = "https://github.com/facebookresearch/dinov3"
    arguments: ClassVar = {
        "img_size": 224,
        "patch_size": 16,
        "in_chans": 3,
        "pos_embed_rope_base": 100.0,
        **_ONLY,
        **dict.fromkeys(_AUGMENTATION),
        "pos_embed_rope_dtype": "fp32",
        "embed_dim": 768,
        "depth": 12,
        "num_heads": 12,
        "ffn_ratio": 4.0,
        "qkv_bias": True,
        "drop_path_rate": 0.0,
        "layerscale_init": None,
        "norm_layer": "layernorm",
        "ffn_layer": "mlp",
        "n_storage_tokens": 0,
        "mask_k_bias": False,
        "device": None,
    }
    fields: ClassVar = {
        "patch_size": "patch_size", "in_chans": "channels", "embed_dim": "dim", "depth": "depth", "num_heads": "heads",
        "n_storage_tokens": "num_registers", "norm_layer": ("norm_eps", {"layernorm": 1e-6, "layernormbf16": 1e-5}),
    }  # fmt: skip
    encodings = ("rope_dinov3",)
    only: ClassVar = tuple(_ONLY)

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        require_known("dinov3: ffn_layer", given["ffn_layer"], ("mlp", *_ALIGNED))
        scale = given["layerscale_init"]
        hidden, aligned = int(given["embed_dim"] * given["ffn_ratio"]), _ALIGNED.get(given["ffn_layer"])
        if aligned:
            hidden = int(hidden * 2 / 3)
            hidden += -hidden % aligned
        base = float(given["pos_embed_rope_base"])
        head_dim = given["embed_dim"] // given["num_heads"]
        stored = state.get(_PERIODS)
        rounded = stored is not None and torch.equal(stored.float(), _periods(base, head_dim, "bfloat16"))
        return ViTConfig(
            **self.plain_fields(given),
            mlp_ratio=hidden / given["embed_dim"],
            mlp="swiglu" if aligned else "gelu",
            num_classes=0,
            image_size=given["img_size"],
            encoding="rope_dinov3",
            encoding_options={"theta": base, "rounding": "bfloat16" if rounded else "none"},
            qkv_bias="qv" if given["qkv_bias"] and given["mask_k_bias"] else bool(given["qkv_bias"]),
            layer_scale=float(scale) if isinstance(scale, int) else scale,
            mask_token=True,
            mean=(0.485, 0.456, 0.406),
            std=(0.229, 0.224, 0.225),
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config, plain = model.config, model.config.mlp == "gelu"
        if len(set(config.train_grid)) > 1:
            self.require_no([f"image_size = {config.image_size} (expected a square)"])
        return {
            "img_size": config.train_grid.rows * config.patch_size,
            **self.plain_arguments(config),
            "pos_embed_rope_base": float(model.encoding.config.theta),
            "qkv_bias": config.qkv_bias is not False,
            "mask_k_bias": config.qkv_bias == "qv",
            "layerscale_init": config.layer_scale,
            # Cut there where we round; a gated one is two thirds as wide, rounded up.
            "ffn_layer": "mlp" if plain else "swiglu",
            "ffn_ratio": (config.mlp_hidden + 0.5 if plain else config.mlp_hidden * 1.5 + 0.25) / config.dim,
        }

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        rounding = config.encoding_options.get("rounding", "none")
        periods = _periods(float(given["pos_embed_rope_base"]), config.dim // config.heads, rounding)
        entries = [kernel(config), derived((_PERIODS,), periods)]
        renamed = [("^reg_token", "storage_tokens")]
        for block in (f"blocks.{layer}" for layer in range(config.depth)):
            if config.qkv_bias == "qv":
                entries += _masked_bias(config, f"{block}.attn")
            if config.mlp == "swiglu":
                entries += fused([f"{block}.mlp.w1", f"{block}.mlp.w2"], f"{block}.mlp.fc1")
        if config.mlp == "swiglu":
            renamed.append((r"mlp\.fc2\.", "mlp.w3."))
        return map_remaining(config, entries, renamed)


def _periods(base: float, head_dim: int, rounding: str) -> Tensor:
    """The buffer of the rotation: [head_dim / 4]."""
    exponents = 2 * torch.arange(head_dim // 4, dtype=torch.float32) / (head_dim // 2)
    periods = base**exponents
    return periods.bfloat16().float() if rounding == "bfloat16" else periods


def _masked_bias(config: ViTConfig, name: str) -> list[TensorMap]:
    """The biases of q, k and v, of which a mask makes that of k nothing."""
    dim = config.dim
    bias = TensorMap(
        (f"{name}.qkv.bias",),
        (f"{name}.q_bias", f"{name}.v_bias"),
        lambda one: [one[0][:dim], one[0][2 * dim :]],
        lambda parts: [torch.cat((parts[0], torch.zeros_like(parts[0]), parts[1]))],
    )
    return [bias, derived((f"{name}.qkv.bias_mask",), torch.cat((torch.ones(dim), torch.zeros(dim), torch.ones(dim))))]
