"""Maps of several strides from the last map alone, and objects from every place of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import Positive, config_dataclass
from sightline.models.box_head import BoxHead, BoxOutputs, DensePredictor
from sightline.models.config import ViTConfig, Width
from sightline.models.dense_head import on_grids, require_complete
from sightline.models.head import patch_tokens
from sightline.models.heads.fcos import HiddenOrNone
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import grid_coords

SCALES = (4.0, 2.0, 1.0, 0.5)


@config_dataclass
class SimplePyramidOptions:
    """`channels`, `scales`, `coarsest`: as `SimplePyramid`; `hidden`: as `fcos`."""

    channels: Width = 96
    scales: Annotated[tuple[Positive, ...], Field(min_length=1)] = SCALES
    coarsest: bool = False
    hidden: HiddenOrNone = 96


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels at each place of a map [images, channels, height, width]."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NormalizedConv(nn.Conv2d):
    """A convolution without a bias, and a norm of its channels after it."""

    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        super().__init__(inputs, outputs, side, padding=side // 2, bias=False)
        self.norm = ChannelNorm(outputs, eps=1e-6)

    def forward(self, input: Tensor) -> Tensor:
        return self.norm(super().forward(input))


class SimplePyramid(nn.ModuleList):
    """ViTDet's pyramid (Li et al. 2022, section 3): the last map four times and twice as fine by transposed
    convolutions, as it is, and half as fine by pooling; after each a 1x1 and a 3x3 convolution with layer norms.

    Attributes:
        strides: of each map, in patches.
    """

    def __init__(self, dim: int, channels: int, scales: Sequence[float] = SCALES, *, coarsest: bool = False) -> None:
        """Args:
        dim: channels of the last map; channels: of each map that is made.
        scales: how many times finer than the last map each is: of 4, 2, 1 and 0.5.
        coarsest: every second place of the last of them is one map more.

        Raises:
            InputError: another scale.
        """
        super().__init__(_level(dim, channels, scale) for scale in scales)
        self.coarsest = coarsest
        self.strides = [1 / scale for scale in scales] + [2 / scales[-1]] * coarsest

    def forward(self, maps: Tensor) -> list[Tensor]:
        """[images, dim, rows, cols] -> for each stride [images, channels, ...]; a side is halved downwards, to at least
        1."""
        # A side of one patch has no half: it is doubled at the edge, and its half is itself.
        wide = [max(2 - side, 0) for side in maps.shape[-2:]]
        halved = F.pad(maps, (0, wide[1], 0, wide[0]), mode="replicate") if any(wide) else maps
        made = [level(halved if stride == 2 else maps) for level, stride in zip(self, self.strides, strict=False)]
        return [*made, made[-1][..., ::2, ::2]] if self.coarsest else made


def _level(dim: int, channels: int, scale: float) -> nn.Sequential:
    if scale == 4:
        finer = [nn.ConvTranspose2d(dim, dim // 2, 2, 2), ChannelNorm(dim // 2, eps=1e-6), nn.GELU()]
        finer, dim = [*finer, nn.ConvTranspose2d(dim // 2, dim // 4, 2, 2)], dim // 4
    elif scale == 2:
        finer, dim = [nn.ConvTranspose2d(dim, dim // 2, 2, 2)], dim // 2
    elif scale == 1:
        finer = []
    elif scale == 0.5:
        finer = [nn.MaxPool2d(2, 2)]
    else:
        said = f"head_options.scales: {scale!r} is not known (allowed: {', '.join(map(str, SCALES))})"
        raise InputError(said, field="scales", value=scale)
    return nn.Sequential(*finer, NormalizedConv(dim, channels, 1), NormalizedConv(channels, channels, 3))


class SimplePyramidHead(BoxHead):
    """The head of `fcos` on every map of ViTDet's simple pyramid, the same weights on all of them.

    Takes whole images. Each map is of one image alone, so that convolutions never see its neighbours in a pack.
    """

    name: ClassVar[str] = "simple_pyramid"
    supports_token_dropping: ClassVar[bool] = False
    matching: ClassVar = "places"
    Options: ClassVar[type] = SimplePyramidOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        options: SimplePyramidOptions = self.options
        self.pyramid = SimplePyramid(config.dim, options.channels, options.scales, coarsest=options.coarsest)
        self.at_places = DensePredictor(options.channels, config.num_classes, options.hidden)

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[BoxOutputs]:
        require_complete(self.name, layout)
        return [self._found(one) for one in on_grids(patch_tokens(tokens, layout), layout)]

    def _found(self, last: Tensor) -> BoxOutputs:
        maps = self.pyramid(last)
        features = torch.cat([one.flatten(2).transpose(1, 2) for one in maps], dim=1)
        return self.at_places(features, self._places(maps))

    def _places(self, maps: Sequence[Tensor]) -> Tensor:
        """The middle of each place of the maps, and its reach, in patch units: [1, places, 3]."""
        every = []
        for one, stride in zip(maps, self.pyramid.strides, strict=True):
            coords = grid_coords(Grid(*one.shape[-2:]), one.device).float()
            middle = (coords + 0.5) * stride
            every.append(F.pad(middle, (0, 1), value=stride))
        return torch.cat(every).unsqueeze(0)
