"""Axial rotary position encoding: half of the channel pairs turn with x, half with y; of clips, some with time."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.attention.rotation import Pairing
from sightline.attention.wide import wide_dtype
from sightline.encodings.base import RotaryEncoding, TrunkShape
from sightline.encodings.knob import KnobSpec
from sightline.errors import InputError
from sightline.io.config import AboveOne, Index, Number, Pair, Positive, config_dataclass
from sightline.tokens.grid import Grid


@config_dataclass
class RopeAxialConfig:
    """Configuration of `RopeAxial`.

    Attributes:
        theta: the base frequency, more than 1; the knob.
        axis_order: `xy` gives x the first half of the channels (RoPE-ViT), `yx` gives y the first half (EVA). Of clips,
            time has the first share, and x and y follow in this order.
        coordinates: `extended` counts cells from 0 on any grid; `squeezed` scales each axis to the reference grid
            (EVA); `centred` takes each cell's centre in [-1, 1] of the image, times 2 pi (DINOv3).
        offset: added to the count of cells (Perception Encoder: 1).
        reference: (rows, cols) that `squeezed` scales to; None takes the training grid, as clips always do.
        pairing: channels turned together: `adjacent` (2k, 2k + 1), or `halves` (k, k + head_dim / 2).
        rounding: of the periods theta^(4j/d), `bfloat16` as DINOv3's published weights hold them.
        pairs: of clips, how many channel pairs of a head turn with (t, y, x); None gives y and x a third of them each,
            rounded down, and t the rest.
        time_step: of clips, what a step of one tubelet in time counts, where one of a patch counts 1.
    """

    theta: AboveOne = 100.0
    axis_order: Literal["xy", "yx"] = "xy"
    coordinates: Literal["extended", "squeezed", "centred"] = "extended"
    offset: Number = 0.0
    reference: Pair | None = None
    pairing: Pairing = "adjacent"
    rounding: Literal["none", "bfloat16"] = "none"
    pairs: tuple[Index, Index, Index] | None = None
    time_step: Positive = 1.0


class RopeAxial(RotaryEncoding):
    """angles = [x f_0, x f_1, ..., y f_0, y f_1, ...] with f_j = theta^(-4j/d) (RoPE-ViT equations 12 and 13); of clips
    [t f_0, ..., x f_0, ..., y f_0, ...] with f_j = theta^(-j/n) for the n pairs of an axis: d/4 in a plane, d/2 in a
    text (Su et al. 2021).

    The public code concatenates the axes where the paper's equation 12 interleaves them; this is the code's order.
    """

    names: ClassVar = {
        "rope_axial": {},
        "rope_dinov3": {"axis_order": "yx", "coordinates": "centred", "pairing": "halves"},
    }
    Config: ClassVar = RopeAxialConfig
    source: ClassVar = "RoPE-ViT (2024), equations 12 and 13; DINOv3 (2025), section 3.2"
    extrapolation: ClassVar = "angles at the new coordinates (extended), or the image's own span (squeezed, centred)"
    tunable: ClassVar = KnobSpec(
        "theta", 1.0 + 1e-6, 1e9, (50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0, 800.0, 1250.0)
    )
    theta: float
    axes: ClassVar = (1, 2, 3)

    def __init__(self, config: RopeAxialConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        self.axis_steps(config.time_step)
        clips, shares = len(shape.train_grid) == 3, self.axis_pairs()
        if config.pairs is not None and not clips:
            raise InputError(f"rope_axial pairs {config.pairs}: are of clips (expected none for images)")
        if config.reference is not None and clips:
            raise InputError(f"rope_axial reference {tuple(config.reference)}: is of images (expected none for clips)")
        self.pairs = config.pairs or shares
        if sum(self.pairs) != sum(shares):
            raise InputError(f"rope_axial pairs {self.pairs}: expected {sum(shares)} together, half of head_dim")
        self.pairing = config.pairing
        self.reads_grid = config.coordinates != "extended"
        # Of the model's precision; not saved.
        self.precision = nn.Buffer(torch.zeros(()), persistent=False)

    def angle_cache_key(self, layer: int) -> Hashable:
        return self.config, self.theta, self.shape.head_dim, self.shape.train_grid, wide_dtype(self.precision.dtype)

    def angles(self, coords: Tensor, grid: Grid, layer: int) -> Tensor:
        where, turned = self._places(coords, grid), []
        for place, count in zip(where.unbind(-1), self.pairs, strict=True):
            exponents = torch.arange(count, device=where.device).to(where) / max(count, 1)
            turned.append(place.unsqueeze(-1) * self._frequencies(exponents))
        *time, y, x = turned if len(turned) > 1 else (where[..., :0], *turned)
        planar = (x, y) if self.config.axis_order == "xy" else (y, x)
        return torch.cat((*(t * self.config.time_step for t in time), *planar), dim=-1).unsqueeze(1)

    def _frequencies(self, exponents: Tensor) -> Tensor:
        periods = self.theta**exponents
        return 1.0 / (periods.bfloat16().to(periods) if self.config.rounding == "bfloat16" else periods)

    def _places(self, coords: Tensor, grid: Grid) -> Tensor:
        """Cells as (y, x), or (t, y, x), in the frame that the angles are multiples of, float32 at least."""
        config = self.config
        where = coords.to(wide_dtype(self.precision.dtype)) + config.offset
        if config.coordinates == "extended":
            return where
        # As tensors, so that symbolic sizes stay symbolic.
        sides = torch.stack([torch.full((), side, device=coords.device, dtype=where.dtype) for side in grid])
        if config.coordinates == "centred":
            return 2 * math.pi * (2 * ((where + 0.5) / sides) - 1)
        return where / sides * where.new_tensor(config.reference or self.shape.train_grid)
