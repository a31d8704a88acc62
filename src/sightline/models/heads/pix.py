"""A label for each pixel from each token alone: a linear layer whose outputs are shuffled into the token's pixels."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from sightline.layout import TokenLayout
from sightline.models.config import ViTConfig
from sightline.models.map_head import MapHead, linear
from sightline.patchify import unpatchify


class PixHead(MapHead):
    """Linear, then pixel shuffle (Shi et al. 2016): logits of every pixel, none of them interpolated."""

    name: ClassVar[str] = "pix"

    def __init__(self, config: ViTConfig, *, background_bias: float = 0.0) -> None:
        super().__init__(config)
        self.patch_size = config.patch_size
        biases = [background_bias] + [0.0] * (config.num_classes - 1)
        self.fc = linear(config.dim, biases, each=config.patch_size**2)

    def maps(self, patches: list[Tensor], layout: TokenLayout) -> list[Tensor]:
        grids = (segment.grid for segment in layout.segments)
        return [unpatchify(self.fc(one), grid, self.patch_size) for one, grid in zip(patches, grids, strict=True)]
