"""One object from each token, at its own place."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sightline.checks import require_whole
from sightline.layout import TokenLayout
from sightline.models.box_head import AtPlaces, BoxHead, Found, centres
from sightline.models.config import MOST, ViTConfig
from sightline.models.head import patches_of


class FcosHead(BoxHead):
    """As FCOS (Tian et al. 2019) on one level, the tokens themselves; patches that were dropped say nothing."""

    name: ClassVar[str] = "fcos"
    matching: ClassVar = "places"

    def __init__(self, config: ViTConfig, *, hidden: int = 192) -> None:
        """Args: hidden: width of a layer before the outputs, 0 for none."""
        super().__init__(config)
        require_whole("head_options.hidden", hidden, 0, MOST["dim"])
        self.at_places = AtPlaces(config.dim, config.num_classes, hidden)

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[Found]:
        found = []
        for patches, segment in zip(patches_of(tokens, layout), layout.segments, strict=True):
            # Where patches of whole images are row-major again, the coordinates are too.
            centre = centres(segment if not segment.complete else segment.whole(segment.grid, layout.device))
            found.append(self.at_places(patches, torch.cat((centre, torch.ones_like(centre[..., :1])), dim=-1)))
        return found
