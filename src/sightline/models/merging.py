"""Four patches become one of twice the width, between the stages of a trunk (Swin section 3.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.models.config import ViTConfig
from sightline.models.norm import make_norm
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment


def merged_grid(grid: Grid, times: int = 1) -> Grid:
    """The grid after so many mergings; an odd side is rounded up."""
    return Grid(*(-(-side // 2**times) for side in grid))


def merged(layout: TokenLayout) -> TokenLayout:
    """Where merged patches of whole images stand; one object for all who ask. No slots are left for padding."""

    def make() -> TokenLayout:
        segments = [Segment.from_grid(merged_grid(one.grid), layout.device) for one in layout.segments]
        return TokenLayout(segments, rows=layout.rows, num_prefix_tokens=0, seeds=layout.seeds)

    return layout.cached("merged", make)


class PatchMerging(nn.Module):
    """The patches (0, 0), (1, 0), (0, 1), (1, 1) of each two rows and columns side by side, a norm, and a linear layer
    without a bias; an odd row or column is met by zeros before the norm (timm)."""

    def __init__(self, config: ViTConfig, width: int) -> None:
        """`config` is that of the stage before, `width` that of the tokens afterwards."""
        super().__init__()
        self.norm = make_norm(config, 4 * config.dim)
        self.reduction = nn.Linear(4 * config.dim, width, bias=False)

    def forward(self, x: Tensor, layout: TokenLayout) -> Tensor:
        """Tokens [rows, slots, dim] of whole images in row-major order -> merged ones, which stand as `merged` says."""
        parts = [_side_by_side(*one) for one in zip(layout.split(x), layout.segments, strict=True)]
        found = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return self.reduction(self.norm(found))


def _side_by_side(tokens: Tensor, segment: Segment) -> Tensor:
    """[rows, cells, dim] -> [rows, merged cells, 4 dim]."""
    x = tokens.unflatten(1, tuple(segment.grid))
    odd = [side % 2 for side in segment.grid]
    if any(odd):
        x = F.pad(x, (0, 0, 0, odd[1], 0, odd[0]))
    return x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)
