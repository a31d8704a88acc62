"""One object from each token, at its own place."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sightline.io.checks import require_whole
from sightline.models.box_head import BoxHead, BoxOutputs, DensePredictor, centres
from sightline.models.config import LIMITS, ViTConfig
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout


class FcosHead(BoxHead):
    """As FCOS (Tian et al. 2019) on one level, the tokens themselves; patches that were dropped say nothing."""

    name: ClassVar[str] = "fcos"
    matching: ClassVar = "places"

    def __init__(self, config: ViTConfig, *, hidden: int = 192) -> None:
        """Args: hidden: width of a layer before the outputs, 0 for none."""
        super().__init__(config)
        require_whole("head_options.hidden", hidden, 0, LIMITS["dim"])
        self.at_places = DensePredictor(config.dim, config.num_classes, hidden)

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[BoxOutputs]:
        if not layout.segments:
            return []
        # Where patches of whole images are row-major again, the coordinates are too.
        places = [
            centres(segment if not segment.complete else segment.from_grid(segment.grid, layout.device))
            for segment in layout.segments
        ]
        patches = patch_tokens(tokens, layout)
        where = torch.cat(places, dim=1)
        # All images of a row at once, as each place answers for itself.
        found = self.at_places(torch.cat(patches, dim=1), torch.cat((where, torch.ones_like(where[..., :1])), dim=-1))
        lengths = [one.shape[1] for one in patches]
        parts = zip(*(one.split(lengths, dim=1) for one in found.values()), strict=True)
        return [dict(zip(found, part, strict=True)) for part in parts]
