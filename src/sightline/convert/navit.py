"""The NaViT of vit-pytorch (lucidrains), the public one: Google's own code was not released."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from sightline.convert.base import Arguments, Project, State
from sightline.convert.maps import TensorMap, concat, copy, derived, fused, transform
from sightline.errors import InputError
from sightline.models import Model, ViTConfig

# Its arguments that have no default.
_REQUIRED = ("image_size", "patch_size", "num_classes", "dim", "depth", "heads", "mlp_dim")
# How it is trained, and in `forward` how images are grouped: not what it computes of an image.
_TRAINING = {"dropout": 0.0, "emb_dropout": 0.0, "token_dropout_prob": None}


class NaVit(Project):
    """The class `vit_pytorch.na_vit.NaViT`: norms before and after the patch projection, absolute factorised tables
    that are summed, LayerNorm without biases (eps 1e-5), attention without biases and with an RMS norm of q and k for
    each head whose scores are not divided by sqrt(dim_head), exact GELU, a query that attends to each image with a
    residual and no MLP, and a head without a bias.

    Where it raises IndexError, for an image longer than its tables, ours stretches them.
    """

    name = "navit"
    source = "https://github.com/lucidrains/vit-pytorch"
    arguments: ClassVar = {**dict.fromkeys(_REQUIRED), "channels": 3, "dim_head": 64, **_TRAINING}
    fields: ClassVar = {key: key for key in (*_REQUIRED, "channels")} | {"mlp_dim": "mlp_hidden"}

    def import_config(self, given: Arguments, state: State) -> ViTConfig:
        for key in _REQUIRED:
            if given[key] is None:
                raise InputError(f"navit: the configuration has no {key}")
        return ViTConfig(
            **self.plain_fields(given),
            head_dim=None if given["heads"] * given["dim_head"] == given["dim"] else given["dim_head"],
            encoding="factorized",
            pool="query",
            patch_norm=True,
            qkv_bias=False,
            block_bias="mlp",
            qk_norm="heads",
            norm="layer_no_bias",
            norm_eps=1e-5,
            final_norm="both",
            head_bias=False,
        )

    def export_arguments(self, model: Model) -> dict[str, Any]:
        config = model.config
        return {**self.plain_arguments(config), "dim_head": config.attention_width // config.heads}

    def tensor_maps(self, config: ViTConfig, given: Arguments) -> list[TensorMap]:
        patch = config.channels * config.patch_size**2
        entries = [
            *_norm("to_patch_embedding.0", "patch_embed.norm_input", patch),
            *fused(["to_patch_embedding.1"], "patch_embed.proj"),
            *_norm("to_patch_embedding.2", "patch_embed.norm", config.dim),
            copy("pos_embed_height", "encoding.rows"),
            copy("pos_embed_width", "encoding.cols"),
        ]
        for layer in range(config.depth):
            theirs, ours = f"transformer.layers.{layer}", f"blocks.{layer}"
            entries += [
                *_norm(f"{theirs}.0.norm", f"{ours}.norm1", config.dim),
                concat(
                    [f"{theirs}.0.to_{one}.weight" for one in ("q", "kv")], f"{ours}.attn.qkv.weight", shares=(1, 2)
                ),
                *_attention(f"{theirs}.0", f"{ours}.attn", config),
                *_norm(f"{theirs}.1.0", f"{ours}.norm2", config.dim),
                *fused([f"{theirs}.1.1"], f"{ours}.mlp.fc1"),
                *fused([f"{theirs}.1.4"], f"{ours}.mlp.fc2"),
            ]
        probe = (1, 1, config.dim)
        entries += [
            *_norm("transformer.norm", "norm", config.dim),
            transform("attn_pool_queries", "attn_pool.latent", lambda x: x.reshape(probe), lambda x: x.flatten()),
            *_norm("attn_pool.norm", "attn_pool.norm", config.dim),
            copy("attn_pool.to_q.weight", "attn_pool.q.weight"),
            copy("attn_pool.to_kv.weight", "attn_pool.kv.weight"),
            *_attention("attn_pool", "attn_pool", config),
            *_norm("mlp_head.0", "fc_norm", config.dim),
        ]
        if config.num_classes:
            return [*entries, copy("mlp_head.1.weight", "head.weight")]
        # There a head for no classes is a layer all the same.
        return [*entries, derived(("mlp_head.1.weight",), torch.zeros(0, config.dim))]


def _norm(theirs: str, ours: str, width: int) -> list[TensorMap]:
    """A norm's weight, and the buffer that it has for a bias."""
    return [copy(f"{theirs}.gamma", f"{ours}.weight"), derived((f"{theirs}.beta",), torch.zeros(width))]


def _attention(theirs: str, ours: str, config: ViTConfig) -> list[TensorMap]:
    """The norms of q and k, and the projection of the heads."""
    factors = (config.heads, 1, config.attention_width // config.heads)
    norms = [
        transform(f"{theirs}.{one}.gamma", f"{ours}.{one}.gamma", lambda x: x.flatten(), lambda x: x.reshape(factors))
        for one in ("q_norm", "k_norm")
    ]
    return [*norms, copy(f"{theirs}.to_out.0.weight", f"{ours}.proj.weight")]
