"""One learned vector for each patch of the training grid, in raster order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from sightline.encodings.base import AddedConfig, AddedEncoding, TrunkShape
from sightline.encodings.interpolate import Interpolation, resize_table
from sightline.errors import InputError
from sightline.io.config import config_dataclass
from sightline.tokens.grid import Grid


@config_dataclass
class Learned1dConfig(AddedConfig):
    """Configuration of `Learned1d`.

    Attributes:
        interpolation: how the table is resized; the default is that of LookHere's baseline.
        prefix: prefix tokens have learned vectors too (ViT), or none (RoPE-ViT's APE).
    """

    interpolation: Interpolation = "bilinear"
    prefix: bool = True


class Learned1d(AddedEncoding):
    """z_0 = [x_cls; x_p E] + E_pos (ViT equation 1).

    `table` is [cells, dim] of the training grid, of clips (frames, rows, cols) in raster order, one for all tokens of
    space and time (ViViT section 3.3's model 1); `prefix` is [num_prefix_tokens, dim].
    """

    names: ClassVar = {"learned_1d": {}, "learned_1d_every": {"at": "every"}, "learned_1d_shared": {"at": "shared"}}
    Config: ClassVar = Learned1dConfig
    source: ClassVar = "ViT (2021), equation 1 and appendix D.4"
    extrapolation: ClassVar = "the table is resized in two dimensions, of clips in three; texts are no longer than it"
    resized_by: ClassVar = "interpolation"
    axes: ClassVar = (1, 2, 3)

    def __init__(self, config: Learned1dConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        self.table = nn.Parameter(nn.init.trunc_normal_(torch.empty(shape.train_grid.cells, shape.dim), std=0.02))
        self.prefix: nn.Parameter | None = None
        if config.prefix and shape.num_prefix_tokens:
            self.prefix = nn.Parameter(nn.init.trunc_normal_(torch.empty(shape.num_prefix_tokens, shape.dim), std=0.02))

    def embedding(self, grid: Sequence[int]) -> Tensor:
        if len(grid) == 1:
            # A text begins at the first place, however long it is.
            if grid[0] > len(self.table):
                raise InputError(f"encoding learned_1d: {grid[0]} tokens (expected at most {len(self.table)})")
            return self.table[: grid[0]]
        return resize_table(self.table, self.shape.train_grid, Grid(*grid), self.config.interpolation)

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The table of an image for each frame (ViViT section 3.4)."""
        return {"table": state["table"].repeat(self.shape.train_grid[0], 1)}

    def prefix_embedding(self) -> Tensor | None:
        return self.prefix
