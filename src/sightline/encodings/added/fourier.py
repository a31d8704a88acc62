"""Learnable Fourier features of the coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from sightline.attention.wide import at_least_float32, wide_dtype, without_autocast
from sightline.encodings.base import AddedConfig, AddedEncoding, TrunkShape
from sightline.errors import InputError
from sightline.io.config import Positive, config_dataclass
from sightline.tokens.grid import Grid
from sightline.tokens.segment import grid_coords


@config_dataclass
class FourierConfig(AddedConfig):
    """Configuration of `Fourier`.

    Attributes:
        coordinates: `absolute` counts cells, divided by the training grid's sides; `fractional` divides by the
            sides of the image itself. Both are [0, 1) on the training grid.
        mlp: an MLP after the features (LookHere's baseline), or the features themselves (NaViT).
        features: sines and cosines together; None takes the model's dim.
        scale: standard deviation of the frequencies at the start, in radians over the training grid.
    """

    coordinates: Literal["absolute", "fractional"] = "absolute"
    mlp: bool = True
    features: Annotated[int, Field(ge=2)] | None = None
    scale: Positive = 6.0


class Frequencies(nn.Linear):
    """Phases in bfloat16 would be wrong by whole turns, also where the parameters are held in it."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, at_least_float32(self.weight))


class Fourier(AddedEncoding):
    """[sin(W r), cos(W r)] of r = (y, x), or (t, y, x), with a learned W, then an MLP (Li et al. 2021, equations 2 and
    3; NaViT appendix C without the MLP; LookHere's baseline with it)."""

    names: ClassVar = {"fourier": {}, "fourier_fractional": {"coordinates": "fractional"}}
    Config: ClassVar = FourierConfig
    source: ClassVar = "Li et al. (2021), equations 2 and 3; NaViT (2023), appendix C; LookHere (2024), baseline"
    extrapolation: ClassVar = (
        "evaluated at the new coordinates, in training grids (absolute) or of the image (fractional)"
    )
    axes: ClassVar = (2, 3)

    def __init__(self, config: FourierConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        features = config.features or shape.dim
        if features % 2 or (not config.mlp and features != shape.dim):
            raise InputError(f"fourier features {features}: expected an even number, and dim {shape.dim} without mlp")
        self.frequencies = Frequencies(len(shape.train_grid), features // 2, bias=False)
        nn.init.normal_(self.frequencies.weight, std=config.scale)
        self.mlp = nn.Identity()
        if config.mlp:
            last = nn.Linear(shape.dim, shape.dim)
            nn.init.trunc_normal_(last.weight, std=0.02)
            nn.init.zeros_(last.bias)
            self.mlp = nn.Sequential(nn.Linear(features, shape.dim), nn.GELU(), last)

    def embedding_on(self, grid: Sequence[int], device: torch.device) -> Tensor:
        grid = Grid(*grid)
        sides = self.shape.train_grid if self.config.coordinates == "absolute" else grid
        dtype = self.frequencies.weight.dtype
        sides = torch.stack([torch.full((), side, device=device, dtype=wide_dtype(dtype)) for side in sides])
        with without_autocast(device):
            phase = self.frequencies(grid_coords(grid, device) / sides)
            return at_least_float32(self.mlp(torch.cat((phase.sin(), phase.cos()), dim=-1).to(dtype)))

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Features that do not change with time yet."""
        return {"frequencies.weight": F.pad(state["frequencies.weight"], (1, 0))}
