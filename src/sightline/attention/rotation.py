"""Rotary position: queries and keys turned by angles before their product (RoPE-ViT section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sightline.errors import InputError

Pairing = Literal["adjacent", "halves"]


@dataclass(frozen=True, eq=False)
class Rotation:
    """Angles by which the channel pairs of q and k are turned.

    Attributes:
        angles: float32 [1 or rows, 1 or heads, slots, head_dim / 2]; 0 at prefix slots, which are not turned.
        pairing: `adjacent` turns channels (2k, 2k + 1), `halves` turns (k, k + head_dim / 2).
    """

    angles: Tensor
    pairing: Pairing = "adjacent"

    def __add__(self, other: Rotation) -> Rotation:
        """Both rotations, one after the other."""
        if self.pairing != other.pairing:
            raise InputError(f"rotations that pair channels as {self.pairing} and {other.pairing} cannot be joined")
        return Rotation(self.angles + other.angles, self.pairing)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn the channel pairs of `x`, in float32 whatever its dtype (RoPE-ViT equation 5).

    Args:
        x: [rows, heads, slots, head_dim].

    Returns:
        The same shape and dtype; norms and q . k of equal positions are unchanged.
    """
    cos, sin = rotation.angles.cos(), rotation.angles.sin()
    wide = x.float()
    if rotation.pairing == "adjacent":
        a, b = wide.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    else:
        a, b = wide.chunk(2, dim=-1)
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return turned.to(x.dtype)
