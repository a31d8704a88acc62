"""Heads that give a map of logits for each image: what segmentation asks of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import config_dataclass
from sightline.models.config import ViTConfig
from sightline.models.head import TokenHead, patch_tokens
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment

Bias = Annotated[float, Field(ge=-1e6, le=1e6)]


@config_dataclass
class BiasOptions:
    """`background_bias`: the logit of the first class before the first step."""

    background_bias: Bias = 0.0


class DenseHead(TokenHead):
    """Logits of each class on a grid over each image: of its pixels, or coarser.

    `forward` gives for each segment of the layout float [rows, num_classes, height, width]: over the image and over
    what it was padded with. Where patches were dropped it says nothing of use (`patch_mask`).
    """

    supports_token_dropping: ClassVar[bool] = False

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[Tensor]:
        """Raises InputError where patches were dropped that the head needs."""
        if not self.supports_token_dropping:
            require_complete(self.name, layout)
        return self.maps(patch_tokens(tokens, layout), layout)

    @abstractmethod
    def maps(self, patches: list[Tensor], layout: TokenLayout) -> list[Tensor]:
        """Normed patches [rows, patches, dim] of each segment, row-major, to their maps."""


def require_complete(head: str, layout: TokenLayout) -> None:
    """Raise InputError for an image of which patches were dropped."""
    if not all(segment.complete for segment in layout.segments):
        raise InputError(f"head {head}: takes whole images (expected no token dropping: packing.drop null)")


def scatter_to_grid(patches: Tensor, segment: Segment) -> Tensor:
    """Values [rows, patches, values] of the patches that are there as those of all of them, zero for the others."""
    if segment.complete:
        return patches
    whole = patches.new_zeros(patches.shape[0], segment.grid.cells, patches.shape[2])
    return whole.scatter(1, segment.indices.to(patches.device)[..., None].expand_as(patches), patches)


def patch_mask(segment: Segment) -> Tensor:
    """Which patches of an image are there: bool [1 or rows, rows of its grid, columns]."""
    here = segment.indices
    there = torch.zeros(here.shape[0], segment.grid.cells, dtype=torch.bool, device=here.device)
    return there.scatter(1, here, True).unflatten(1, tuple(segment.grid))


def on_grids(patches: Sequence[Tensor], layout: TokenLayout) -> list[Tensor]:
    """Patches [rows, patches, dim] of each segment to maps [rows, dim, rows of its grid, columns]."""
    return [
        one.transpose(1, 2).unflatten(2, tuple(segment.grid))
        for one, segment in zip(patches, layout.segments, strict=True)
    ]


def linear(config: ViTConfig, background_bias: float, each: int = 1) -> nn.Linear:
    """The last layer of a head: each class `each` times in a row, weights of std 0.02, biases 0 but the first's."""
    layer = nn.Linear(config.dim, config.num_classes * each)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    nn.init.constant_(layer.bias[:each], background_bias)
    return layer
