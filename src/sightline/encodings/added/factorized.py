"""One table for rows and one for columns: NaViT's factorised embeddings."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.attention.wide import at_least_float32
from sightline.encodings.base import AddedConfig, AddedEncoding, TrunkShape
from sightline.encodings.interpolate import Interpolation, longer_side, resize_table
from sightline.encodings.knob import ResizeRule
from sightline.errors import InputError
from sightline.io.config import AboveOne, Count, Positive, config_dataclass
from sightline.tokens.grid import Grid


@config_dataclass
class FactorizedConfig(AddedConfig):
    """Configuration of `Factorized`.

    Attributes:
        coordinates: `absolute` counts cells; `fractional` divides by the side of the image itself.
        combine: how the row's and the column's vector meet, and of clips the frame's: `sum`, `stack` (an equal share of
            the channels each), `product`.
        axis_order: of `stack`: `yx` has the row's share first, `xy` the column's (ViT appendix D.4, scenic); the
            frame's stands before both.
        table: `learned`; `sinusoidal` without parameters; or `fourier`, the sines and cosines of learned frequencies.
        max_side: length of the tables of rows and columns in cells, which Fourier features count as 1; None takes the
            training grid's sides, as the table of frames does.
        new_grid: for absolute learned tables: `index` reads by coordinate and stretches only for longer sides;
            `resize` resizes each table to the image's side; `aspect` resizes rows and columns to its longer side.
        interpolation: how a table is stretched along its axis (`bilinear` is linear there).
        temperature: of the sinusoids.
        scale: standard deviation of Fourier frequencies at the start, in radians over `max_side`.
    """

    coordinates: Literal["absolute", "fractional"] = "absolute"
    combine: Literal["sum", "stack", "product"] = "sum"
    axis_order: Literal["yx", "xy"] = "yx"
    table: Literal["learned", "sinusoidal", "fourier"] = "learned"
    max_side: Count | None = None
    new_grid: Literal["index", "resize", "aspect"] = "index"
    interpolation: Interpolation = "bilinear"
    temperature: AboveOne = 10000.0
    scale: Positive = 6.0


# The two-dimensional embedding of ViT's appendix D.4: of D / 2 channels each, X first.
_XY: dict[str, Any] = {"combine": "stack", "axis_order": "xy"}


class Factorized(AddedEncoding):
    """phi_y(row) combined with phi_x(col) (NaViT section 2.1 and appendix C); with `combine=stack` and `axis_order=xy`
    the two-dimensional embedding of ViT's appendix D.4.

    `rows` and `cols` are the learned tables, [max_side, dim] (or dim / 2 for `stack`), or Fourier frequencies, one for
    two channels. Fractional coordinates r = index / side read a table, learned or sinusoidal, linearly at r * max_side,
    which is the entry itself on the training grid; Fourier features are of r itself. Clips have `frames` besides.
    """

    names: ClassVar = {
        "factorized": {},
        "factorized_fractional": {"coordinates": "fractional"},
        "learned_xy": _XY,
        "learned_xy_every": {**_XY, "at": "every"},
        "learned_xy_shared": {**_XY, "at": "shared"},
    }
    Config: ClassVar = FactorizedConfig
    source: ClassVar = "NaViT (2023), section 2.1 and appendix C; ViT (2021), appendix D.4"
    extrapolation: ClassVar = (
        "absolute: by index, stretched where the table is too short; fractional: by relative place"
    )
    resized_by: ClassVar = "interpolation"
    axes: ClassVar = (2, 3)

    def __init__(self, config: FactorizedConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        axes = len(shape.train_grid)
        parts = axes if config.combine == "stack" else 1
        needed = parts * (1 if config.table == "learned" else 2)
        if shape.dim % needed:
            raise InputError(f"factorized: dim {shape.dim} must be a multiple of {needed}")
        self.width = shape.dim // parts
        self.tables = ("frames", "rows", "cols")[-axes:]
        self.sides = (*shape.train_grid[:-2], *(config.max_side or side for side in shape.train_grid[-2:]))
        # A product of small numbers would start almost without positions.
        std = 0.02 ** (1 / axes) if config.combine == "product" else 0.02
        for name, side in zip(self.tables, self.sides, strict=True):
            if config.table == "learned":
                setattr(self, name, nn.Parameter(nn.init.trunc_normal_(torch.empty(side, self.width), std=std)))
            elif config.table == "fourier":
                setattr(self, name, nn.Parameter(config.scale * torch.randn(self.width // 2)))

    @property
    def resize_rule(self) -> ResizeRule | None:
        """Of learned tables that are read by index; all others are evaluated where it is asked."""
        stretched = (self.config.table, self.config.coordinates) == ("learned", "absolute")
        return super().resize_rule if stretched else None

    def embedding_on(self, grid: Sequence[int], device: torch.device) -> Tensor:
        grid = Grid(*grid)
        last = len(grid) - 1
        by_axis = [self.along(axis, grid, device) for axis in range(last + 1)]
        spread = [
            one.view(*(1,) * axis, -1, *(1,) * (last - axis), self.width).expand(*grid, -1)
            for axis, one in enumerate(by_axis)
        ]
        if self.config.combine == "stack":
            *frames, by_row, by_col = spread
            planar = (by_row, by_col) if self.config.axis_order == "yx" else (by_col, by_row)
            joined = torch.cat((*frames, *planar), dim=-1)
        else:
            joined = functools.reduce(torch.add if self.config.combine == "sum" else torch.mul, spread)
        return joined.reshape(grid.cells, self.shape.dim)

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tables of an image, and frames that change nothing yet where the three are summed or multiplied."""
        if self.config.table == "sinusoidal" or self.config.combine == "stack":
            return {}
        if self.config.table == "fourier":
            raise InputError("factorized: Fourier features of images have none of frames (expected another table)")
        neutral = 0.0 if self.config.combine == "sum" else 1.0
        return {"frames": torch.full((self.sides[0], self.width), neutral)}

    def along(self, axis: int, grid: Grid, device: torch.device) -> Tensor:
        """The vectors along one axis of the image: float32 [side, width]."""
        length, side = self.sides[axis], grid[axis]
        fractional = self.config.coordinates == "fractional"
        place = torch.arange(side, device=device).float()
        if fractional:
            # In cells of the table, so that the training grid reads its own entries.
            place = place / side * length
        if self.config.table == "fourier":
            return _waves(place / length, at_least_float32(getattr(self, self.tables[axis])))
        if self.config.table == "sinusoidal":
            half = self.width // 2
            omega = self.config.temperature ** -(torch.arange(half, device=device).float() / half)
            table = _waves(torch.arange(length, device=device) if fractional else place, omega)
            return _read_linearly(table, place) if fractional else table
        table = getattr(self, self.tables[axis])
        if fractional:
            return _read_linearly(table, place)
        target = side
        if self.config.new_grid == "index":
            target = longer_side(length, side)
        elif self.config.new_grid == "aspect" and self.tables[axis] != "frames":
            target = longer_side(grid.rows, grid.cols)
        return resize_table(table, Grid(length, 1), Grid(target, 1), self.config.interpolation)[:side]


def _waves(place: Tensor, frequencies: Tensor) -> Tensor:
    """[sin, cos] of each place times each frequency: float32 [places, 2 * frequencies]."""
    phase = place.unsqueeze(-1) * frequencies
    return torch.cat((phase.sin(), phase.cos()), dim=-1)


def _read_linearly(table: Tensor, place: Tensor) -> Tensor:
    """Rows of `table` at fractional places, linear between entries and constant beyond the last."""
    last = table.shape[0] - 1
    below = place.floor().long().clamp(0, last)
    above = (below + 1).clamp(max=last)
    weight = (place - below).clamp(0, 1).unsqueeze(-1)
    return table[below] * (1 - weight) + table[above] * weight
