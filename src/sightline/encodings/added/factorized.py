"""One table for rows and one for columns: NaViT's factorised embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.checks import require_declared, require_number, require_whole
from sightline.encodings.base import AddedConfig, AddedEncoding, Rule, TrunkShape
from sightline.encodings.interpolate import Interpolation, longer_side, resize_table
from sightline.errors import InputError
from sightline.grid import Grid


@dataclass(frozen=True)
class FactorizedConfig(AddedConfig):
    """Configuration of `Factorized`.

    Attributes:
        coordinates: `absolute` counts cells; `fractional` divides by the side of the image itself.
        combine: how the row's and the column's vector meet: `sum`, `stack` (half of the channels each), `product`.
        axis_order: of `stack`: `yx` has the row's half first, `xy` the column's (ViT appendix D.4, scenic).
        table: `learned`; `sinusoidal` without parameters; or `fourier`, the sines and cosines of learned frequencies.
        max_side: length of the tables in cells, which Fourier features count as 1; None takes the training grid's
            sides.
        new_grid: for absolute learned tables: `index` reads by coordinate and stretches only for longer sides;
            `resize` resizes each table to the image's side; `aspect` resizes both to its longer side.
        interpolation: how a table is stretched along its axis (`bilinear` is linear there).
        temperature: of the sinusoids.
        scale: standard deviation of Fourier frequencies at the start, in radians over `max_side`.
    """

    coordinates: Literal["absolute", "fractional"] = "absolute"
    combine: Literal["sum", "stack", "product"] = "sum"
    axis_order: Literal["yx", "xy"] = "yx"
    table: Literal["learned", "sinusoidal", "fourier"] = "learned"
    max_side: int | None = None
    new_grid: Literal["index", "resize", "aspect"] = "index"
    interpolation: Interpolation = "bilinear"
    temperature: float = 10000.0
    scale: float = 6.0

    def __post_init__(self) -> None:
        require_declared("factorized", self)
        require_number("factorized temperature", self.temperature, low=1.0, above=True)
        require_number("factorized scale", self.scale, above=True)
        if self.max_side is not None:
            require_whole("factorized max_side", self.max_side, 1)


# The two-dimensional embedding of ViT's appendix D.4: of D / 2 channels each, X first.
_XY: dict[str, Any] = {"combine": "stack", "axis_order": "xy"}


class Factorized(AddedEncoding):
    """phi_y(row) combined with phi_x(col) (NaViT section 2.1 and appendix C); with `combine=stack` and `axis_order=xy`
    the two-dimensional embedding of ViT's appendix D.4.

    `rows` and `cols` are the learned tables, [max_side, dim] (or dim / 2 for `stack`), or Fourier frequencies, one for
    two channels. Fractional coordinates r = index / side read a table, learned or sinusoidal, linearly at r * max_side,
    which is the entry itself on the training grid; Fourier features are of r itself.
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
    new_grid: ClassVar = "absolute: by index, stretched where the table is too short; fractional: by relative place"
    resized_by: ClassVar = "interpolation"

    def __init__(self, config: FactorizedConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        parts = 2 if config.combine == "stack" else 1
        needed = parts * (1 if config.table == "learned" else 2)
        if shape.dim % needed:
            raise InputError(f"factorized: dim {shape.dim} must be a multiple of {needed}")
        self.width = shape.dim // parts
        self.sides = tuple(config.max_side or side for side in shape.train_grid)
        # Knows the device of the model; not saved.
        self.anchor = nn.Buffer(torch.zeros(()), persistent=False)
        if config.table == "learned":
            # A product of two small numbers would start almost without positions.
            std = 0.02**0.5 if config.combine == "product" else 0.02
            tables = (nn.init.trunc_normal_(torch.empty(side, self.width), std=std) for side in self.sides)
            self.rows, self.cols = map(nn.Parameter, tables)
        elif config.table == "fourier":
            self.rows, self.cols = (nn.Parameter(config.scale * torch.randn(self.width // 2)) for _ in range(2))

    @property
    def rule(self) -> Rule | None:
        """Of learned tables that are read by index; all others are evaluated where it is asked."""
        stretched = (self.config.table, self.config.coordinates) == ("learned", "absolute")
        return super().rule if stretched else None

    def embedding(self, grid: Sequence[int]) -> Tensor:
        grid = Grid(*grid)
        by_row, by_col = (self._axis(axis, side, longer_side(grid.rows, grid.cols)) for axis, side in enumerate(grid))
        by_row, by_col = by_row.unsqueeze(1).expand(*grid, -1), by_col.unsqueeze(0).expand(*grid, -1)
        if self.config.combine == "sum":
            joined = by_row + by_col
        elif self.config.combine == "product":
            joined = by_row * by_col
        else:
            joined = torch.cat((by_row, by_col) if self.config.axis_order == "yx" else (by_col, by_row), dim=-1)
        return joined.reshape(grid.rows * grid.cols, self.shape.dim)

    def _axis(self, axis: int, side: int, longer: int) -> Tensor:
        """The vectors along one axis of the image: float32 [side, width]."""
        length = self.sides[axis]
        fractional, sinusoidal = self.config.coordinates == "fractional", self.config.table == "sinusoidal"
        place = torch.arange(side, device=self.anchor.device).float()
        if fractional:
            # In cells of the table, so that the training grid reads its own entries.
            place = place / side * length
        if sinusoidal and not fractional:
            return self._sinusoids(place)
        table = (
            self._sinusoids(torch.arange(length, device=place.device)) if sinusoidal else (self.rows, self.cols)[axis]
        )
        if self.config.table == "fourier":
            return _waves(place / length, table.float())
        if fractional:
            return _read_linearly(table, place)
        target = {"index": longer_side(length, side), "resize": side, "aspect": longer}[self.config.new_grid]
        return resize_table(table, Grid(length, 1), Grid(target, 1), self.config.interpolation)[:side]

    def _sinusoids(self, place: Tensor) -> Tensor:
        half = self.width // 2
        omega = self.config.temperature ** -(torch.arange(half, device=place.device).float() / half)
        return _waves(place, omega)


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
