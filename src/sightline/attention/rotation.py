"""Rotary position: queries and keys turned by angles before their product (RoPE-ViT section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.errors import InputError
from sightline.tokens.cache import is_cacheable, is_plain_cpu_tensor, is_traced, make_detached

Pairing = Literal["adjacent", "halves"]


class RotationTensors(NamedTuple):
    """Cosines and sines of a rotation's angles, of their shape.

    Attributes:
        turns: the same as complex numbers, where a CPU multiplies pairs of channels by them; else None.
    """

    cos: Tensor
    sin: Tensor
    turns: Tensor | None
    pairing: Pairing


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

    def tensors(self) -> RotationTensors:
        """What `rotate` multiplies by, for all layers that share the angles where they have no gradients."""
        free = not self.angles.requires_grad and type(self.angles) is Tensor and is_cacheable(self.angles.device)
        return self._cached_tensors if free else self._tensors()

    @cached_property
    def _cached_tensors(self) -> RotationTensors:
        return make_detached(self._tensors)

    def _tensors(self) -> RotationTensors:
        cos, sin = self.angles.cos(), self.angles.sin()
        if self.pairing == "halves" or not _may_be_complex(cos):
            return RotationTensors(cos, sin, None, self.pairing)
        turns = torch.complex(cos, sin)
        return RotationTensors(turns.real, turns.imag, turns, self.pairing)

    def __add__(self, other: Rotation) -> Rotation:
        """Both rotations, one after the other."""
        if self.pairing != other.pairing:
            raise InputError(f"rotations that pair channels as {self.pairing} and {other.pairing} cannot be joined")
        return Rotation(self.angles + other.angles, self.pairing)


def _may_be_complex(x: Tensor) -> bool:
    return is_plain_cpu_tensor(x) and not torch.compiler.is_compiling() and not is_traced()


def rotate(x: Tensor, rotation: Rotation | RotationTensors) -> Tensor:
    """Turn the channel pairs of `x`, in float32 at least (RoPE-ViT equation 5).

    Args:
        x: [rows, heads, slots, head_dim].
        rotation: the angles, or `Rotation.tensors` of them.

    Returns:
        The same shape and dtype; norms and q . k of equal positions are unchanged.
    """
    cos, sin, turns, pairing = rotation.tensors() if isinstance(rotation, Rotation) else rotation
    wide = at_least_float32(x)
    if turns is not None and _may_be_complex(x):
        # One pass over the channels in place of eight, and one more for the gradient.
        pairs = wide.unflatten(-1, (-1, 2))
        # Two channels are one number where they stand so in memory.
        if pairs.stride(-1) != 1 or any(one % 2 for one in (pairs.storage_offset(), *pairs.stride()[:-1])):
            pairs = pairs.clone(memory_format=torch.contiguous_format)
        return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2).to(x.dtype)
    a, b = wide.unflatten(-1, (-1, 2)).unbind(-1) if pairing == "adjacent" else wide.chunk(2, dim=-1)
    both = a * cos - b * sin, a * sin + b * cos
    return (torch.stack(both, dim=-1).flatten(-2) if pairing == "adjacent" else torch.cat(both, dim=-1)).to(x.dtype)
