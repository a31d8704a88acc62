"""Axial rotary position encoding: half of the channel pairs turn with x, half with y."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.attention.rotation import Pairing
from sightline.checks import require_declared, require_number
from sightline.encodings.base import RotaryEncoding, TrunkShape, Tunable
from sightline.errors import InputError
from sightline.grid import Grid


@dataclass(frozen=True)
class RopeAxialConfig:
    """Configuration of `RopeAxial`.

    Attributes:
        theta: the base frequency, more than 1; the knob.
        axis_order: `xy` gives x the first half of the channels (RoPE-ViT), `yx` gives y the first half (EVA).
        coordinates: `extended` counts cells from 0 on any grid; `squeezed` scales each axis to the reference grid
            (EVA); `centred` takes each cell's centre in [-1, 1] of the image, times 2 pi (DINOv3).
        offset: added to the count of cells (Perception Encoder: 1).
        reference: (rows, cols) that `squeezed` scales to; None takes the training grid.
        pairing: channels turned together: `adjacent` (2k, 2k + 1), or `halves` (k, k + head_dim / 2).
        rounding: of the periods theta^(4j/d), `bfloat16` as DINOv3's published weights hold them.
    """

    theta: float = 100.0
    axis_order: Literal["xy", "yx"] = "xy"
    coordinates: Literal["extended", "squeezed", "centred"] = "extended"
    offset: float = 0.0
    reference: tuple[int, int] | None = None
    pairing: Pairing = "adjacent"
    rounding: Literal["none", "bfloat16"] = "none"

    def __post_init__(self) -> None:
        require_declared("rope_axial", self)
        require_number("rope_axial theta", self.theta, low=1.0, above=True)
        require_number("rope_axial offset", self.offset, low=-math.inf)
        if self.reference is not None:
            object.__setattr__(self, "reference", Grid.checked(self.reference, "rope_axial reference"))


class RopeAxial(RotaryEncoding):
    """angles = [x f_0, x f_1, ..., y f_0, y f_1, ...] with f_j = theta^(-4j/d) (RoPE-ViT equations 12 and 13).

    The public code concatenates the axes where the paper's equation 12 interleaves them; this is the code's order.
    """

    names: ClassVar = {
        "rope_axial": {},
        "rope_dinov3": {"axis_order": "yx", "coordinates": "centred", "pairing": "halves"},
    }
    Config: ClassVar = RopeAxialConfig
    source: ClassVar = "RoPE-ViT (2024), equations 12 and 13; DINOv3 (2025), section 3.2"
    new_grid: ClassVar = "angles at the new coordinates (extended), or the image's own span (squeezed, centred)"
    tunable: ClassVar = Tunable(
        "theta", 1.0 + 1e-6, 1e9, (50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0, 800.0, 1250.0)
    )
    theta: float

    def __init__(self, config: RopeAxialConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        if shape.head_dim % 4:
            raise InputError(f"rope_axial: head_dim {shape.head_dim} (dim / heads) must be a multiple of 4")
        self.pairing = config.pairing
        self.reads_grid = config.coordinates != "extended"

    def shares(self, layer: int) -> Hashable:
        return self.config, self.theta, self.shape.head_dim, self.shape.train_grid

    def angles(self, coords: Tensor, grid: Grid, layer: int) -> Tensor:
        where = self._places(coords, grid)
        y, x = where.unsqueeze(-1).unbind(-2)
        exponents = torch.arange(0, self.shape.head_dim, 4, device=coords.device).float() / self.shape.head_dim
        periods = self.theta**exponents
        if self.config.rounding == "bfloat16":
            periods = periods.bfloat16().float()
        frequencies = 1.0 / periods
        first, second = (x, y) if self.config.axis_order == "xy" else (y, x)
        return torch.cat((first * frequencies, second * frequencies), dim=-1).unsqueeze(1)

    def _places(self, coords: Tensor, grid: Grid) -> Tensor:
        """Cells as (y, x) in the frame that the angles are multiples of, float32."""
        config = self.config
        where = coords.float() + config.offset
        if config.coordinates == "extended":
            return where
        # As tensors, so that symbolic sizes stay symbolic.
        sides = torch.stack([torch.full((), side, device=coords.device, dtype=torch.float32) for side in grid])
        if config.coordinates == "centred":
            return 2 * math.pi * (2 * ((where + 0.5) / sides) - 1)
        return where / sides * where.new_tensor(config.reference or self.shape.train_grid)
