"""The hybrid's embedder: a ResNet stem, and patches of its maps (ViT section 3.1, "Hybrid Architecture")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import build_config
from sightline.models.config import ViTConfig
from sightline.models.embedder import Embedder
from sightline.models.resnet_stem import ResNetOptions, ResNetStem, convolutions
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import Fit, Patchifier, grid_after_fit, patchify, unpatchify


def resnet_options(config: ViTConfig) -> ResNetOptions:
    """The stem's configuration.

    Raises:
        InputError: an option that is not known or out of range, a patch that the stride does not divide, or norms of
            the patch embedding.
    """
    options: ResNetOptions = build_config(ResNetOptions, config.embedder_options, "embedder_options")
    if config.patch_size % options.stride:
        said = f"a multiple of the stride {options.stride} of embedder_options.layers {list(options.layers)}"
        raise InputError(f"patch_size {config.patch_size}: must be {said}")
    if config.patch_norm:
        raise InputError("patch_norm true: embedder resnet has none around its patches (expected false)")
    return options


def stem_fit(image_size: int | Sequence[int], patch_size: int, stride: int) -> Fit:
    """The fit with which a stem trained at a size (height, width), or one side, takes what its original takes: any size
    where a patch is one cell. Patches of several cells would make rows of `crop` large for all, so it is left to
    whoever wants other sizes, unless they are the model's own."""
    sides = Grid.checked(image_size, "image_size")
    return "exact" if patch_size > stride and not any(side % patch_size for side in sides) else "crop"


@dataclass(frozen=True)
class StemPatchifier(Patchifier):
    """Images to rows that hold every pixel, with those that a stem is to pass over after them.

    A stem gives ceil(side / stride) cells of any image. `pad` makes their number a multiple of the patch's cells by
    zeros, as timm's `dynamic_img_pad`; `crop` passes over those beyond the last whole patch, as a convolution without
    padding does (vit_jax, timm). Where the patch is one cell both are the same.

    Attributes:
        stride: of the stem.
    """

    stride: int = 4

    @property
    def tile(self) -> int:
        """Side in pixels of what a row holds: under `crop` a few whole patches must hold all that follows them."""
        return 2 * self.patch_size - self.stride if self.fit == "crop" else self.patch_size

    @property
    def patch_dim(self) -> int:
        return self.channels * self.tile**2

    def grid_of(self, height: int, width: int) -> Grid:
        if self.fit != "crop":
            return super().grid_of(height, width)
        # Of the map, which has a cell for every stride of pixels begun.
        cells, patch = grid_after_fit(height, width, self.stride, "pad"), self.patch_size // self.stride
        if min(cells) < patch:
            least = (patch - 1) * self.stride + 1
            raise InputError(
                f"image of {height}x{width} pixels: holds no whole patch of {patch}x{patch} stem cells (expected sides "
                f"of at least {least})"
            )
        return Grid(*(side // patch for side in cells))

    def valid_size(self, height: int, width: int) -> tuple[int, int] | None:
        if self.fit not in ("pad", "crop"):
            return None
        covered = tuple(side * self.tile for side in self.grid_of(height, width))
        return None if covered == (height, width) else (height, width)

    def __call__(self, images: Tensor) -> tuple[Tensor, Grid]:
        if self.fit not in ("pad", "crop"):
            return super().__call__(images)
        height, width = images.shape[-2:]
        grid = self.grid_of(height, width)
        rows, cols = grid.planar("images")
        if self.valid_size(height, width) is not None:
            images = F.pad(images, (0, cols * self.tile - width, 0, rows * self.tile - height))
        return patchify(images, self.tile), grid

    def unpatchify(self, rows: Tensor, grid: Grid) -> Tensor:
        """What lies under the patches: as large as they are together."""
        tall, wide = (side * self.patch_size for side in grid)
        return unpatchify(rows, grid, self.tile)[..., :tall, :wide]

    def whole(self, rows: Tensor, grid: Grid, pixels: tuple[int, int] | None) -> Tensor:
        """The images as they were cut: of `pixels`, or all that is in the rows."""
        images = unpatchify(rows, grid, self.tile)
        return images if pixels is None else images[..., : pixels[0], : pixels[1]]


class ResNetEmbed(Embedder):
    """A ResNet with group norm and standardised weights over whole images, then a linear layer over patches of its map.

    Images of one size go through the stem together, wherever they stand in a pack.

    Attributes:
        backbone: the stem.
        proj: weight [dim, channels * side**2] over (channel, y, x) of a patch of `side` cells of the stem's map.
    """

    name = "resnet"
    supports_token_dropping: ClassVar[bool] = False

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.backbone = ResNetStem(config.channels, resnet_options(config))
        _, *kernel = self.kernel_of(config)
        self.side = kernel[-1]
        self.proj = nn.Linear(math.prod(kernel), config.dim, bias=config.patch_bias)

    @classmethod
    def patchifier_of(cls, config: ViTConfig) -> StemPatchifier:
        return StemPatchifier(config.patch_size, config.channels, config.fit, resnet_options(config).stride)

    @classmethod
    def options_of(cls, config: ViTConfig) -> dict[str, Any]:
        return dict(vars(resnet_options(config)))

    @classmethod
    def kernel_of(cls, config: ViTConfig) -> tuple[int, int, int, int]:
        options = resnet_options(config)
        side = config.patch_size // options.stride
        return config.dim, options.channels, side, side

    @classmethod
    def multiplications(cls, config: ViTConfig) -> int:
        """Of a patch of an image that patches divide."""
        _, _, side, _ = kernel = cls.kernel_of(config)
        layers = convolutions(config.channels, resnet_options(config))
        return math.prod(kernel) + side**2 * sum(one.multiplications for one in layers)

    @classmethod
    def held(cls, config: ViTConfig, training: bool) -> tuple[int, int]:
        _, channels, side, _ = cls.kernel_of(config)
        layers, cells = convolutions(config.channels, resnet_options(config)), side**2
        if not training:
            # What a convolution and its norm gave, and the shortcut.
            return cells * 3 * max(one.given for one in layers), max(one.weights for one in layers)
        # Of the largest of 3 x 3 its place too, in eight bytes.
        kept = sum(one.kept for one in layers) + 3 * layers[0].given // 4
        # Weights without their mean, divided.
        return cells * (kept + channels), 2 * sum(one.weights for one in layers)

    def forward(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        patchifier: Any = self.patchifier
        images = [
            patchifier.whole(piece, segment.grid, segment.pixels)
            for piece, segment in zip(self.pieces(rows, layout), layout.segments, strict=True)
        ]
        if not torch.compiler.is_compiling():
            # Channels last: on a CPU a root takes a third of the time.
            images = [one.contiguous(memory_format=torch.channels_last) for one in images]
        maps = self.backbone(images) if len(images) == 1 else self._by_size(images)
        tokens = [self._tokens(one, segment.grid) for one, segment in zip(maps, layout.segments, strict=True)]
        return layout.patches_only().to_layout_order(torch.cat(tokens, dim=1) if len(tokens) > 1 else tokens[0])

    def _by_size(self, images: list[Tensor]) -> list[Tensor]:
        """The stem's maps of images [rows, channels, height, width], those of one size in one call."""
        groups: dict[tuple[int, ...], list[Tensor]] = {}
        for image in images:
            groups.setdefault(tuple(image.shape[-2:]), []).append(image)
        maps = self.backbone([torch.cat(alike) for alike in groups.values()])
        # Of one size they come in their order.
        parts = {size: iter(one.split(images[0].shape[0])) for size, one in zip(groups, maps, strict=True)}
        return [next(parts[tuple(image.shape[-2:])]) for image in images]

    def _tokens(self, one: Tensor, grid: Grid) -> Tensor:
        """A map [rows, channels, height, width] to tokens [rows, patches, dim], row-major."""
        sides = [side * self.side for side in grid]
        if self.patchifier.fit == "pad":
            one = F.pad(one, (0, sides[1] - one.shape[-1], 0, sides[0] - one.shape[-2]))
        return self.proj(patchify(one[..., : sides[0], : sides[1]], self.side))
