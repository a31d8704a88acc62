"""Normalisation over the channels of a token, and of each head's queries and keys."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["layer", "layer_no_bias", "rms"]
NORMS: tuple[Norm, ...] = ("layer", "layer_no_bias", "rms")
QkNorm = bool | Literal["heads"]


def make_norm(kind: Norm, width: int, eps: float) -> nn.Module:
    """LayerNorm, with a bias or without; or RMSNorm, which takes away no mean and has no bias."""
    return nn.RMSNorm(width, eps=eps) if kind == "rms" else nn.LayerNorm(width, eps=eps, bias=kind == "layer")


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
        """[rows, heads, slots, head_dim] -> the same shape in float32."""
        factors = self.scale * self.gamma.float().unflatten(0, (self.num_heads, 1, -1))
        return F.normalize(x.float(), dim=-1) * factors

    def extra_repr(self) -> str:
        return f"heads={self.num_heads}, scale={self.scale:g}"


def make_qk_norms(qk_norm: QkNorm, kind: Norm, heads: int, head_dim: int, eps: float) -> tuple[nn.Module, nn.Module]:
    """The norms of queries and of keys; identities for no norm."""
    if qk_norm == "heads":
        # Attention divides by sqrt(head_dim); these scores are not divided.
        return HeadNorm(heads, head_dim, head_dim), HeadNorm(heads, head_dim, head_dim**0.5)
    if not qk_norm:
        return nn.Identity(), nn.Identity()
    return make_norm(kind, head_dim, eps), make_norm(kind, head_dim, eps)
