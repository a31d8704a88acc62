"""One object from each token, at its own place."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from sightline.io.config import config_dataclass
from sightline.models.box_head import BoxHead, BoxOutputs, DensePredictor, centres
from sightline.models.config import LIMITS, ViTConfig
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout

HiddenOrNone = Annotated[int, Field(ge=0, le=LIMITS["dim"])]
"""Width of a layer before the outputs, 0 for none."""


@config_dataclass
class FcosOptions:
    """`hidden`: width of a layer before the outputs, 0 for none."""

    hidden: HiddenOrNone = 192


class FcosHead(BoxHead):
    """As FCOS (Tian et al. 2019) on one level, the tokens themselves; patches that were dropped say nothing."""

    name: ClassVar[str] = "fcos"
    matching: ClassVar = "places"
    Options: ClassVar[type] = FcosOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.at_places = DensePredictor(config.dim, config.num_classes, self.options.hidden)

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[BoxOutputs]:
        if not layout.segments:
            return []
        patches = patch_tokens(tokens, layout)
        where = torch.cat([centres(segment) for segment in layout.segments], dim=1)
        # All images of a row at once, as each place answers for itself.
        found = self.at_places(torch.cat(patches, dim=1), torch.cat((where, torch.ones_like(where[..., :1])), dim=-1))
        lengths = [one.shape[1] for one in patches]
        parts = zip(*(one.split(lengths, dim=1) for one in found.values()), strict=True)
        return [dict(zip(found, part, strict=True)) for part in parts]
