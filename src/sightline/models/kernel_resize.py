"""FlexiViT's pseudo-inverse resize of a patch embedding: kernels of one patch size become kernels of another.

A patch x that is resized to B x should give the token that x gave: w_new . (B x) = w . x for every x where B only
enlarges, and in the mean over white noise where it shrinks. So w_new = pinv(B^T) w (Beyer et al. 2023, section 3.4).
B of an image is the Kronecker product of those of its axes, and so is its pseudo-inverse: each axis is inverted alone,
where it has full rank. The inverse of the whole has not, where one axis grows and the other shrinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.errors import InputError, require_known
from sightline.tokens.cache import ByteLRUCache

KernelRule = Literal["bicubic_antialias", "bicubic", "bilinear_antialias", "bilinear"]
KERNEL_RULES: tuple[KernelRule, ...] = ("bicubic_antialias", "bicubic", "bilinear_antialias", "bilinear")
# Singular values below this share of the largest count as 0.
_CUT_OFF = 1e-6
_INVERSES = ByteLRUCache("inverses of patch resizes", 1 << 20)


def axis_matrix(old: int, new: int, rule: KernelRule) -> Tensor:
    """The resize of a row of `old` pixels to `new` ones, half-pixel centres, as a matrix.

    Args:
        rule: `bicubic_antialias` (timm), `bilinear` (big_vision, tf.image.resize), or one of the other two.

    Returns:
        float64 [new, old] on the CPU; each row sums to 1.

    Raises:
        InputError: the rule is not known.
    """
    require_known("kernel rule", rule, KERNEL_RULES)
    rows = torch.eye(old, dtype=torch.float64, device="cpu").reshape(1, 1, old, old)
    mode, antialias = rule.removesuffix("_antialias"), rule.endswith("_antialias")
    # Along the width: torch's antialiased resize along the height is another one where the width is 1.
    return F.interpolate(rows, size=(old, new), mode=mode, align_corners=False, antialias=antialias)[0, 0].T


def axis_inverse(old: int, new: int, rule: KernelRule) -> Tensor:
    """The pseudo-inverse of `axis_matrix`, by singular values of at least 1e-6 of the largest: float64 [old, new]."""

    def make() -> Tensor:
        return torch.linalg.pinv(axis_matrix(old, new, rule), rtol=_CUT_OFF)

    return _INVERSES.get_tensor((old, new, rule), torch.device("cpu"), make)


def _flat_inverses(old: Sequence[int], new: Sequence[int], rule: KernelRule) -> Tensor:
    """`axis_inverse` of all axes, one after the other: a compiler takes one constant of a function."""
    return torch.cat([axis_inverse(*sides, rule).flatten() for sides in zip(old, new, strict=True)])


# What torch.compiler.assume_constant_result says, which loads the compiler: most of a second of every command's start.
_flat_inverses._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def resize_kernel(kernel: Tensor, size: Sequence[int], rule: KernelRule = "bicubic_antialias") -> Tensor:
    """Kernels for patches of another size, pinv(B^T) w; gradients go through it.

    Args:
        kernel: [..., height, width] in pixels.
        size: (height, width) of the new ones.
        rule: how an image would be resized, as `axis_matrix`.

    Returns:
        [..., *size], computed in float32 or wider, in the kernel's own type.

    Raises:
        InputError: the rule is not known, or a side is below 1.
    """
    old, new = tuple(kernel.shape[-2:]), tuple(size)
    require_known("kernel rule", rule, KERNEL_RULES)
    if len(new) != 2 or min(new) < 1:
        raise InputError(f"patch size {'x'.join(map(str, new))}: expected a height and a width of 1 pixel or more")
    if old == new:
        return kernel
    flat = _flat_inverses(old, new, rule).split([old[0] * new[0], old[1] * new[1]])
    rows, cols = (one.unflatten(0, sides) for one, *sides in zip(flat, old, new, strict=True))
    kind = torch.promote_types(kernel.dtype, torch.float32)
    # Autocast would round both to 8 bits of a number.
    with torch.autocast(kernel.device.type, enabled=False):
        rows, cols = (one.to(kernel.device, kind) for one in (rows, cols))
        return (rows.T @ kernel.to(kind) @ cols).to(kernel.dtype)
