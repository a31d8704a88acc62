"""What masked patch prediction asks of a patch: colours of few bits, as classes, and how these look."""

from __future__ import annotations

import torch
from torch import Tensor


def colour_classes(pixels: Tensor, bits: int = 3, most: float = 255.0) -> Tensor:
    """The class of the mean colour of some pixels, each channel in 2**bits equal bins from 0 to `most` (ViT appendix
    B.1.2; the order of classes and the bins are those of vit-pytorch's `MPPLoss`).

    The class is the sum of bin x 2**(bits * channel): the first channel, red, is the least significant. A mean on the
    edge of two bins is of the lower one; values above `most` count as that. Means of whole numbers are exact.

    Args:
        pixels: [..., channels, pixels], uint8, or floating point values of any image.

    Returns:
        int64 [...].
    """
    count, bins = pixels.shape[-1], 2**bits
    if pixels.dtype == torch.uint8:
        whole = int(most) * count
        # The edges below the mean: k of them where k / bins < mean / most <= (k + 1) / bins.
        found = ((pixels.sum(dim=-1, dtype=torch.int64) * bins + whole - 1) // whole - 1).clamp(0, bins - 1)
    else:
        edges = torch.arange(most / bins, most, most / bins, device=pixels.device, dtype=pixels.dtype)
        found = torch.bucketize(pixels.clamp(max=most).mean(dim=-1), edges)
    return (found << (bits * torch.arange(pixels.shape[-2], device=pixels.device))).sum(dim=-1)


def class_colours(classes: Tensor, bits: int = 3, channels: int = 3, most: float = 255.0) -> Tensor:
    """The colour in the middle of each class of `colour_classes`: float32 [..., channels], from 0 to `most`."""
    bins = (classes.unsqueeze(-1) >> (bits * torch.arange(channels, device=classes.device))) & (2**bits - 1)
    return (bins + 0.5) * (most / 2**bits)


def in_cells(rows: Tensor, channels: int, cells: int) -> Tensor:
    """Flat patches cut into `cells` x `cells` equal parts, which are row-major.

    Args:
        rows: [..., channels * side**2], as `patchify` gives them.

    Returns:
        [..., cells**2, channels, pixels].
    """
    side = round((rows.shape[-1] // channels) ** 0.5)
    each = side // cells
    parts = rows.reshape(*rows.shape[:-1], channels, cells, each, cells, each)
    return parts.movedim((-4, -2), (-5, -4)).flatten(-2).flatten(-4, -3)


def from_cells(values: Tensor, cells: int, side: int) -> Tensor:
    """Flat patches [..., channels * side**2], each part of which has one colour, of [..., cells**2, channels]."""
    each = side // cells
    maps = values.transpose(-2, -1).unflatten(-1, (cells, cells))
    return maps.repeat_interleave(each, -1).repeat_interleave(each, -2).flatten(-3)
