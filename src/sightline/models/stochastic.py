"""Drop path and dropout: what is drawn in training, for each image by its seed."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.tokens.layout import TokenLayout
from sightline.tokens.rng import uniform, uniform_per_channel

# Streams of chance, and how many places of a layer there are in each.
_DROP_PATH, _DROPOUT = 1, 2
_BRANCHES, _DENSE = 2, 4


class LayerNoise(NamedTuple):
    """What is drawn for a layer in training, by the seeds of the images where the layout has them
    (`TokenLayout.with_seeds`), else by torch's generator. Packed or not, an image is drawn apart from its neighbours.

    Attributes:
        drop_path: factors of the two branches, [2, rows, slots, 1]; None where none is skipped.
        seeds: of the image of each slot, int64 [rows, slots], for dropout; None for torch's generator.
        positions: of each slot in its image, int64 [1 or rows, slots].
        place: int64 [], the number of the layer's first dropout.
    """

    drop_path: Tensor | None
    seeds: Tensor | None = None
    positions: Tensor | None = None
    place: Tensor | None = None


class Chance(nn.Module):
    """What happens at a rate, in training alone."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def draws(self) -> bool:
        """Whether anything is drawn."""
        return self.training and self.rate > 0

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class DropPath(Chance):
    """Skips a residual branch for some images in training; each image is drawn apart."""

    def draw(self, layer: int, layout: TokenLayout, dtype: torch.dtype) -> Tensor | None:
        """The factors of a layer's branches, as `LayerNoise.drop_path`."""
        if not self.draws:
            return None
        if layout.seeds is None:
            draws = torch.rand(_BRANCHES, layout.images, device=layout.device)
        else:
            places = torch.arange(_BRANCHES, device=layout.device) + _BRANCHES * layer
            draws = uniform(layout.seeds, _DROP_PATH, places.unsqueeze(-1))
        factors = (draws >= self.rate).to(dtype) / (1 - self.rate)
        return factors[:, layout.image_ids].unsqueeze(-1)

    def forward(self, x: Tensor, noise: LayerNoise | None, branch: int) -> Tensor:
        """[rows, slots, dim] -> the same shape; branch 0 is attention's, branch 1 the MLP's."""
        return x if noise is None or noise.drop_path is None else x * noise.drop_path[branch].to(x.dtype)


class Dropout(Chance):
    """Sets channels of tokens to zero in training (Srivastava et al. 2014)."""

    def forward(self, x: Tensor, noise: LayerNoise | None, place: int) -> Tensor:
        """[rows, slots, channels] -> the same shape; `place` numbers it among the four of a layer."""
        if noise is None or not self.draws:
            return x
        if noise.seeds is None or noise.place is None or noise.positions is None:
            return F.dropout(x, self.rate)
        kept = uniform_per_channel(noise.seeds, x.shape[-1], _DROPOUT, noise.place + place, noise.positions)
        return x * (kept >= self.rate).to(x.dtype) / (1 - self.rate)


def draw_noise(
    drop_path: DropPath, dropout: Dropout, layer: int, layout: TokenLayout, dtype: torch.dtype
) -> LayerNoise | None:
    """What is drawn for a layer; None where nothing is."""
    factors = drop_path.draw(layer, layout, dtype)
    if not dropout.draws or layout.seeds is None:
        return LayerNoise(factors) if factors is not None or dropout.draws else None
    place = torch.tensor(_DENSE * layer, device=layout.device)
    return LayerNoise(factors, layout.seeds[layout.image_ids], layout.slot_positions, place)
