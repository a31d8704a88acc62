"""A label for each pixel from each token alone: a linear layer whose outputs are shuffled into the token's pixels."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from sightline.models.config import ViTConfig
from sightline.models.dense_head import BiasOptions, DenseHead, linear, scatter_to_grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import unpatchify


class PixHead(DenseHead):
    """Linear, then pixel shuffle (Shi et al. 2016): logits of every pixel, none of them interpolated."""

    name: ClassVar[str] = "pix"
    supports_token_dropping: ClassVar[bool] = True
    Options: ClassVar[type] = BiasOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.patch_size = config.patch_size
        self.fc = linear(config, self.options.background_bias, each=config.patch_size**2)
        self.values = self.fc.out_features

    def maps(self, patches: list[Tensor], layout: TokenLayout) -> list[Tensor]:
        return [
            unpatchify(scatter_to_grid(self.fc(one), segment), segment.grid, self.patch_size)
            for one, segment in zip(patches, layout.segments, strict=True)
        ]
