"""Rotary position: queries and keys turned by angles before their product (RoPE-ViT section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.errors import InputError
from sightline.tokens.cache import is_cacheable, is_plain_cpu_tensor, is_traced, make_detached

Pairing = Literal["adjacent", "halves"]


@dataclass(frozen=True, eq=False)
class Rotation:
    """Angles by which the channel pairs of q and k are turned.

    Attributes:
        angles: float32, or float64 of a model in it, [1 or rows, 1 or heads, slots, head_dim / 2]; 0 at prefix slots,
            which are not turned.
        pairing: `adjacent` turns channels (2k, 2k + 1), `halves` turns (k, k + head_dim / 2).
    """

    angles: Tensor
    pairing: Pairing = "adjacent"

    def turns(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the angles, for all layers that share them where they have no gradients."""
        free = not self.angles.requires_grad and type(self.angles) is Tensor and is_cacheable(self.angles.device)
        return self._kept_turns if free else (self.angles.cos(), self.angles.sin())

    def as_numbers(self) -> Tensor:
        """The same as complex numbers of length 1, [1 or rows, 1 or heads, slots, head_dim / 2]."""
        free = not self.angles.requires_grad and type(self.angles) is Tensor and is_cacheable(self.angles.device)
        return self._kept_numbers if free else torch.complex(*self.turns())

    @cached_property
    def _kept_numbers(self) -> Tensor:
        return make_detached(lambda: torch.complex(self.angles.cos(), self.angles.sin()))

    @cached_property
    def _kept_turns(self) -> tuple[Tensor, Tensor]:
        return make_detached(lambda: (self.angles.cos(), self.angles.sin()))

    def __add__(self, other: Rotation) -> Rotation:
        """Both rotations, one after the other."""
        if self.pairing != other.pairing:
            raise InputError(f"rotations that pair channels as {self.pairing} and {other.pairing} cannot be joined")
        return Rotation(self.angles + other.angles, self.pairing)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn the channel pairs of `x`, in float32 at least (RoPE-ViT equation 5).

    Args:
        x: [rows, heads, slots, head_dim].

    Returns:
        The same shape and dtype; norms and q . k of equal positions are unchanged.
    """
    if (
        rotation.pairing == "adjacent"
        and is_plain_cpu_tensor(x)
        and not torch.compiler.is_compiling()
        and not is_traced()
    ):
        return _multiplied(x, rotation.as_numbers())
    cos, sin = rotation.turns()
    x, dtype = at_least_float32(x), x.dtype
    adjacent = rotation.pairing == "adjacent"
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if adjacent else x.chunk(2, dim=-1)
    both = a * cos - b * sin, a * sin + b * cos
    return (torch.stack(both, dim=-1).flatten(-2) if adjacent else torch.cat(both, dim=-1)).to(dtype)


def _multiplied(x: Tensor, numbers: Tensor) -> Tensor:
    """`rotate` on a CPU: one pass over the channels in place of eight, and one more for the gradient."""
    pairs = at_least_float32(x).unflatten(-1, (-1, 2))
    # Two channels are one number where they stand so in memory.
    if pairs.stride(-1) != 1 or any(one % 2 for one in (pairs.storage_offset(), *pairs.stride()[:-1])):
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_real(torch.view_as_complex(pairs) * numbers).flatten(-2).to(x.dtype)
