"""Normalisation over the channels of a token, and of each head's queries and keys."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.wide import at_least_float32
from sightline.models.config import ViTConfig


def make_norm(config: ViTConfig, width: int, *, there: bool = True) -> nn.Module:
    """LayerNorm, with a bias or without; or RMSNorm, which takes away no mean and has no bias; else the identity."""
    if not there:
        return nn.Identity()
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=config.norm_eps)
    return nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm == "layer")


class HeadNorm(nn.Module):
    """Each head's vector to the length `scale`, then a factor for each channel of each head (vit-pytorch's NaViT).

    `gamma` is [heads * head_dim]: a vector, as the factors of other norms are.
    """

    def __init__(self, heads: int, head_dim: int, scale: float) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = scale
        self.gamma = nn.Parameter(torch.ones(heads * head_dim))

    def forward(self, x: Tensor) -> Tensor:
        """[rows, heads, slots, head_dim] -> the same shape in float32 at least."""
        factors = self.scale * at_least_float32(self.gamma).unflatten(0, (self.num_heads, 1, -1))
        return F.normalize(at_least_float32(x), dim=-1) * factors

    def extra_repr(self) -> str:
        return f"heads={self.num_heads}, scale={self.scale:g}"


def make_qk_norms(config: ViTConfig, heads: int, head_dim: int) -> tuple[nn.Module, nn.Module]:
    """The norms of queries and of keys; identities for no norm."""
    if config.qk_norm == "heads":
        # Attention divides by sqrt(head_dim); these scores are not divided.
        return HeadNorm(heads, head_dim, head_dim), HeadNorm(heads, head_dim, head_dim**0.5)
    return make_norm(config, head_dim, there=config.qk_norm), make_norm(config, head_dim, there=config.qk_norm)
