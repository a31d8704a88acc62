"""A learned bias for each displacement: BEiT's relative position table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.attention.pattern import Pattern, TableBias
from sightline.attention.wide import at_least_float32, without_autocast
from sightline.encodings.base import PatternEncoding, TrunkShape
from sightline.encodings.interpolate import Interpolation, beit_resize_matrix, resize_table
from sightline.io.config import config_dataclass
from sightline.tokens.grid import Grid


@config_dataclass
class RpeLearnedConfig:
    """Configuration of `RpeLearned`.

    Attributes:
        shared: one table for all layers, else one a layer.
        interpolation: `beit` (a geometric progression, dense at the centre), or a rule of `interpolate`.
    """

    shared: bool = False
    interpolation: Literal["beit", Interpolation] = "beit"


class RpeLearned(PatternEncoding):
    """bias_ij = table[query - key] with three extra entries for prefix tokens (BEiT, as in Swin equation 4).

    `tables` is [1 or depth, (2 rows - 1)(2 cols - 1) + 3, heads] in BEiT's order: displacement query - key
    row-major, then prefix -> patch, patch -> prefix, prefix -> prefix; without the three where the trunk has no
    prefix token.
    """

    names: ClassVar = {"rpe_learned": {}, "rpe_learned_shared": {"shared": True}}
    Config: ClassVar = RpeLearnedConfig
    source: ClassVar = "BEiT (2022); Swin (2021), equation 4"
    extrapolation: ClassVar = "the table is resized by BEiT's geometric progression; the prefix entries are copied"
    resized_by: ClassVar = "interpolation"

    def __init__(self, config: RpeLearnedConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        cells = (2 * shape.train_grid.rows - 1) * (2 * shape.train_grid.cols - 1)
        extra = 3 if shape.num_prefix_tokens else 0
        self.tables = nn.Parameter(torch.empty(1 if config.shared else shape.depth, cells + extra, shape.heads))
        nn.init.trunc_normal_(self.tables, std=0.02)

    def layer_pattern(self, layer: int) -> Pattern:
        table = self.tables[0 if self.config.shared else layer]
        cells = table.shape[0] - (3 if self.shape.num_prefix_tokens else 0)

        def values(grid: Grid) -> Tensor:
            resized = self.resized(table[:cells], grid)
            # The table is by query - key, the pattern by key - query.
            return resized.reshape(2 * grid.rows - 1, 2 * grid.cols - 1, -1).permute(2, 0, 1).flip(1, 2)

        return Pattern((TableBias(values, table[cells:] if self.shape.num_prefix_tokens else None),))

    def resized(self, table: Tensor, grid: Sequence[int]) -> Tensor:
        """A table of displacements for another grid: [(2 rows - 1)(2 cols - 1), heads], float32, row-major."""
        grid = Grid(*grid)
        trained = self.shape.train_grid
        # A program for every size has symbols for its sides, and takes no short cut that holds for one.
        exporting = torch.compiler.is_exporting() and type(grid.cells) is not int
        if not exporting and grid == trained:
            return table
        old = Grid(2 * trained.rows - 1, 2 * trained.cols - 1)
        new = Grid(2 * grid.rows - 1, 2 * grid.cols - 1)
        if self.config.interpolation != "beit":
            return resize_table(table, old, new, self.config.interpolation)
        # In float32 whatever the autocast: it is a rule of the weights, not an activation.
        with without_autocast(table.device):
            rows = beit_resize_matrix(old.rows, new.rows, table.device)
            cols = beit_resize_matrix(old.cols, new.cols, table.device)
            if exporting:
                # One program for every size: on the training grid the table as it is, which the rule does not give.
                sides = [torch.full((), side, device=table.device) for side in grid]
                same = (sides[0] == trained.rows) & (sides[1] == trained.cols)
                rows = torch.where(same, _identity(old.rows, new.rows, table.device), rows)
                cols = torch.where(same, _identity(old.cols, new.cols, table.device), cols)
            values = at_least_float32(table).reshape(*old, -1)
            return torch.einsum("rp,pqh,cq->rch", rows.to(values), values, cols.to(values)).flatten(0, 1)


def _identity(old: int, new: int, device: torch.device) -> Tensor:
    """Ones where row and column are equal: float32 [new, old], whose sizes may be symbolic."""
    return (torch.arange(new, device=device).unsqueeze(1) == torch.arange(old, device=device)).float()
