"""Normalisation over the channels of a token."""

from __future__ import annotations

from typing import Literal

from torch import nn

Norm = Literal["layer", "rms"]
NORMS: tuple[Norm, ...] = ("layer", "rms")


def make_norm(kind: Norm, width: int, eps: float) -> nn.Module:
    """LayerNorm, or RMSNorm, which takes away no mean and has no bias."""
    return nn.LayerNorm(width, eps=eps) if kind == "layer" else nn.RMSNorm(width, eps=eps)
