"""Tokens in blocks of 128 slots, and which pairs of blocks may meet: what block-sparse kernels are told beforehand.

Everything is read from the bounding boxes of the blocks; nothing is ever made for each pair of tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.tokens.layout import TokenLayout

# Slots of a block: the size that FlexAttention's kernels are made for, and that of a tile of 8 x 16 cells.
BLOCK = 128

# Beyond any coordinate and any number of images, and not near the end of int32.
_FAR = 1 << 24


class _Range(NamedTuple):
    """The least and the greatest value of each block: int32 [..., blocks]."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, values: Tensor, chosen: Tensor) -> _Range:
        """Of the chosen slots [slots] of values [..., slots]; where none is, the ends are the wrong way round."""
        low = _blocks(values.masked_fill(~chosen, _FAR), _FAR).amin(-1)
        return cls(low, _blocks(values.masked_fill(~chosen, -_FAR), -_FAR).amax(-1))

    def overlaps(self, keys: _Range) -> Tensor:
        """Whether two blocks' ranges have a value in common: bool [..., blocks, blocks]."""
        return (self.low.unsqueeze(-1) <= keys.high.unsqueeze(-2)) & (keys.low.unsqueeze(-2) <= self.high.unsqueeze(-1))


def block_pairs(layout: TokenLayout, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Which blocks of queries and keys meet, decided from their bounding boxes: never too little.

    Args:
        layout: of queries and keys alike.
        visible: bool [heads, 2 rows - 1, 2 cols - 1] by displacement key - query, as `BiasTerm.relative`, on a grid
            that covers those of all images.

    Returns:
        bool [1 or rows, heads, blocks, blocks] each: some pair of slots may meet and some may not; every pair meets.
    """
    coords, image, prefix = layout.coords.int(), layout.image_ids[0].int(), layout.is_prefix
    # Padding is an image after the others.
    image = torch.where(image < 0, len(layout.segments), image)
    has_patch = _blocks(~prefix, False).any(-1)
    # How many of the displacements before one are visible: the number in a box is a difference of four.
    before = F.pad(visible.cumsum(1).cumsum(2), (1, 0, 1, 0))
    bounds = []
    for axis in (0, 1):
        # The first displacement key - query of two blocks of patches in the table, and the one after the last: int32
        # [1 or rows, query blocks, key blocks] each; without a meaning where a block has none.
        low, high = (end.masked_fill(~has_patch, 0) for end in _Range.of(coords[..., axis], ~prefix))
        centre = visible.shape[axis + 1] // 2
        bounds.append(low.unsqueeze(-2) - high.unsqueeze(-1) + centre)
        bounds.append(high.unsqueeze(-2) - low.unsqueeze(-1) + centre + 1)
    top, bottom, left, right = bounds
    count = before[:, bottom, right] - before[:, top, right] - before[:, bottom, left] + before[:, top, left]
    count = count.transpose(0, 1)
    seen, seen_whole = count > 0, count == ((bottom - top) * (right - left)).unsqueeze(1)

    of_patches = _Range.of(image, ~prefix)
    patches = of_patches.overlaps(of_patches) & seen
    every = torch.ones_like(prefix)
    images, of_prefix = _Range.of(image, every), _Range.of(image, prefix)
    free = of_prefix.overlaps(images) | images.overlaps(of_prefix)
    # A block with padding is never whole: kernels mask the slots past the end.
    single = _blocks(every, False).all(-1) & (images.low == images.high)
    meet = patches | free | torch.eye(len(single), dtype=torch.bool, device=single.device)
    same = (images.low.unsqueeze(-1) == images.low) & single.unsqueeze(-1) & single
    no_patches = ~(has_patch.unsqueeze(-1) & has_patch)
    fully = meet & same & (seen_whole | no_patches)
    return meet & ~fully, fully


def _blocks(values: Tensor, fill: float) -> Tensor:
    """[..., slots] -> [..., blocks, BLOCK], with `fill` past the end."""
    return F.pad(values, (0, -values.shape[-1] % BLOCK), value=fill).unflatten(-1, (-1, BLOCK))
