"""What is left to chance inside a model, as a function of an image's seed and the place of the draw.

Drop path and dropout draw so, and not from a generator that passes from one draw to the next: an image is treated alike
in whatever batch, pack or process it is, computed once or again.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BITS, _ALL = 64, 2**64 - 1
# Finalisers of SplitMix64 (Steele et al. 2014), and of MurmurHash3's 32 bits (Appleby 2011).
_STEPS_64 = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_STEPS_32 = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))
_GOLDEN = 0x9E3779B97F4A7C15
_LOW = 2**32 - 1


def image_seed(seed: int, epoch: int, index: int, repeat: int = 0) -> int:
    """The seed of an image of a run: a whole number of 64 bits with a sign, as int64 holds it.

    Args:
        seed: of the run; epoch: the pass over the data; index: of the image in its split; repeat: which showing of it
            in that pass.
    """
    mixed = 0
    for part in (seed, epoch, index, repeat):
        mixed = ((mixed ^ (part & _ALL)) + _GOLDEN) & _ALL
        for shift, factor in _STEPS_64:
            mixed = ((mixed ^ (mixed >> shift)) * factor) & _ALL
        mixed ^= mixed >> 31
    return _signed(mixed)


def _signed(number: int) -> int:
    return number - (1 << _BITS) if number >= 1 << (_BITS - 1) else number


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """int64 shifted as if it had no sign."""
    return (numbers >> bits) & ((1 << (_BITS - bits)) - 1)


def _mixed(seeds: Tensor, places: Tensor | int) -> Tensor:
    """int64 of seeds and places, which broadcast; products wrap around."""
    mixed = (seeds ^ places) + _signed(_GOLDEN)
    for shift, factor in _STEPS_64:
        mixed = (mixed ^ _shifted(mixed, shift)) * _signed(factor)
    return mixed ^ _shifted(mixed, 31)


def uniform(seeds: Tensor, *places: Tensor | int) -> Tensor:
    """float32 numbers from 0 to below 1, one for each of `seeds` with each of `places`, which all broadcast.

    Args:
        seeds: int64; places: int64 or whole numbers, one after the other, as the layer and the branch.
    """
    for place in places:
        seeds = _mixed(seeds, place)
    return _shifted(seeds, _BITS - 24).float() * 2.0**-24


def uniform_per_channel(seeds: Tensor, channels: int, *places: Tensor | int) -> Tensor:
    """As `uniform`, and one for each channel: float32 [..., channels]; the last step is of 32 bits, which cost less."""
    for place in places:
        seeds = _mixed(seeds, place)
    numbers = torch.arange(1, channels + 1, device=seeds.device) * (_GOLDEN & _LOW)
    mixed = (seeds.unsqueeze(-1) ^ numbers) & _LOW
    for shift, factor in _STEPS_32:
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _LOW
    return ((mixed ^ (mixed >> 16)) >> 8).float() * 2.0**-24
