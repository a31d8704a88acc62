"""A learned vector for each (y, x) up to a longest side, looked up by coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.encodings.base import AddedConfig, AddedEncoding, TrunkShape
from sightline.encodings.interpolate import Interpolation, longer_side, resize_table
from sightline.io.config import Count, config_dataclass
from sightline.tokens.grid import Grid
from sightline.tokens.segment import grid_coords


@config_dataclass
class Learned2dConfig(AddedConfig):
    """Configuration of `Learned2d`.

    Attributes:
        max_side: longest side of the table in cells; None takes the longer side of the training grid.
        lookup: `absolute` reads the table by coordinate and stretches it only for longer sides; `aspect` always
            stretches it to the square of the longer side (timm's NaFlexViT).
        interpolation: how the table is stretched.
    """

    max_side: Count | None = None
    lookup: Literal["absolute", "aspect"] = "absolute"
    interpolation: Interpolation = "bilinear"


class Learned2d(AddedEncoding):
    """E_pos[y, x] from a table of max_side x max_side (Pix2Struct section 2.2; NaViT section 2.1).

    `table` is [max_side**2, dim]. Where a side is longer than the table, the table is resized to the square of the
    longer side and cropped, so that the aspect ratio stays.
    """

    names: ClassVar = {"learned_2d": {}}
    Config: ClassVar = Learned2dConfig
    source: ClassVar = "Pix2Struct (2023), section 2; NaViT (2023), section 2.1"
    extrapolation: ClassVar = "looked up by coordinate; stretched to the longer side where the table is too small"
    resized_by: ClassVar = "interpolation"

    def __init__(self, config: Learned2dConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        self.side = config.max_side or max(shape.train_grid)
        self.table = nn.Parameter(nn.init.trunc_normal_(torch.empty(self.side**2, shape.dim), std=0.02))

    def embedding(self, grid: Sequence[int]) -> Tensor:
        grid = Grid(*grid)
        side = longer_side(grid.rows, grid.cols)
        if self.config.lookup == "absolute":
            side = longer_side(side, self.side)
        table = resize_table(self.table, Grid(self.side, self.side), Grid(side, side), self.config.interpolation)
        y, x = grid_coords(grid, self.table.device).unbind(-1)
        return table[y * side + x]
