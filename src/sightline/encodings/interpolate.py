"""Tables made for another grid than they were trained on: the rule is part of a model's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.wide import at_least_float32, wide_dtype
from sightline.tokens.cache import ByteLRUCache
from sightline.tokens.grid import Grid

_AXES = ByteLRUCache("axes of BEiT's interpolation", 1 << 20)

Interpolation = Literal["bilinear", "bilinear_antialias", "bicubic", "bicubic_antialias", "corner_aligned"]


def resize_table(table: Tensor, old: Grid, new: Grid, interpolation: Interpolation) -> Tensor:
    """Resize a table of vectors over a grid, in float32 at least; over (frames, rows, cols) first in each frame, then
    in time, so that `bilinear` is linear along all three.

    Args:
        table: [old.cells, dim], row-major.
        interpolation: `bilinear` (LookHere's baselines; a single column makes it linear along one axis, as for
            factorised tables), `bilinear_antialias` (SigLIP 2's NaFlex models), `bicubic` (RoPE-ViT's APE) and
            `bicubic_antialias` (timm), all with half-pixel centres; `corner_aligned` linear from corner to corner
            (big_vision's zoom of order 1).

    Returns:
        [new.cells, dim], float32 or float64; the table itself where the grids are equal.
    """
    # An exported program serves every size, so it takes no short cut that holds for one; the result is the same.
    if not torch.compiler.is_exporting() and old == new:
        return table
    if len(old) == 2:
        return _resize_plane(at_least_float32(table), old, new, interpolation)
    # In float64 where there is one, as scipy, by which scenic does it.
    exact = table.float() if table.device.type == "mps" else table.double()
    stills = [_resize_plane(one, old[1:], new[1:], interpolation) for one in exact.unflatten(0, (old[0], -1)).unbind(0)]
    in_time = _resize_plane(torch.stack(stills).flatten(1), (old[0], 1), (new[0], 1), interpolation)
    return in_time.reshape(new.cells, table.shape[-1]).to(wide_dtype(table.dtype))


def _resize_plane(table: Tensor, old: Sequence[int], new: Sequence[int], interpolation: Interpolation) -> Tensor:
    resized = F.interpolate(
        table.reshape(1, *old, -1).permute(0, 3, 1, 2),
        size=tuple(new),
        mode="bicubic" if interpolation.startswith("bicubic") else "bilinear",
        align_corners=interpolation == "corner_aligned",
        antialias=interpolation.endswith("_antialias"),
    )
    return resized.permute(0, 2, 3, 1).reshape(new[0] * new[1], -1)


def longer_side(one: int, other: int) -> int:
    """The longer of two sides that may be symbolic: Python's `max` would bind an exported program to one of them."""
    return torch.sym_max(one, other)  # type: ignore[return-value]


def beit_resize_matrix(old: int, new: int, device: torch.device) -> Tensor:
    """BEiT's interpolation of relative positions along one axis, as a matrix.

    The old displacements are spread over the new range by a geometric progression, dense at the centre, and read
    linearly between. Built by tensor operations, so `new` may be symbolic.

    Args:
        old, new: lengths of the axis, odd: 2 * side - 1.

    Returns:
        float32 [new, old]; each row sums to 1.
    """
    key = (old, new, device)
    return _AXES.get_tensor(key, device, lambda: _beit_axis(*key))


def _beit_axis(old: int, new: int, device: torch.device) -> Tensor:
    half = old // 2
    if half == 0:
        return torch.ones(1, 1, dtype=torch.float32, device=device).expand(new, 1)
    offsets = torch.arange(new, device=device, dtype=torch.float64)
    offsets = offsets - offsets[-1] / 2
    reach = offsets[-1]
    # The public code halves [1.01, 1.5] 19 times and takes the last middle. Two searches in tables find the same one;
    # a chain of 19 choices would be inlined by a compiler 3**19 times.
    step = 0.49 / 2**19
    coarse = 1.01 + step * 512 * torch.arange(1, 1024, device=device, dtype=torch.float64)
    # In float64 throughout: an integer times a number would be float32.
    first = _within_reach(coarse, half, reach).double() * 512
    fine = 1.01 + step * (first + torch.arange(1, 512, device=device, dtype=torch.float64))
    last = first + _within_reach(fine, half, reach)
    ratio = 1.01 + step * (last - last % 2 + 1)
    positive = (ratio ** torch.arange(half, device=device, dtype=torch.float64)).cumsum(0)
    positions = torch.cat((-positive.flip(0), positive.new_zeros(1), positive))
    # Clamped: beyond the last known displacement its value holds.
    inside = torch.minimum(torch.maximum(offsets, positions[0]), positions[-1])
    right = torch.searchsorted(positions, inside).clamp(1, old - 1)
    left = right - 1
    weight = (inside - positions[left]) / (positions[right] - positions[left])
    matrix = F.one_hot(left, old) * (1 - weight).unsqueeze(1) + F.one_hot(right, old) * weight.unsqueeze(1)
    return matrix.float()


def _within_reach(ratios: Tensor, count: int, reach: Tensor) -> Tensor:
    """How many of these rising ratios have a geometric series of `count` terms that does not pass `reach`."""
    return ((1 - ratios**count) / (1 - ratios) <= reach).sum()
