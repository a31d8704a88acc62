"""Maps of four layers at four strides, joined from coarse to fine: UperNet on a plain vision transformer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import Index, Positive, Rising, check_value, config_dataclass
from sightline.models.batch_norm import JointBatchNorm
from sightline.models.config import Side, ViTConfig, Width
from sightline.models.dense_head import BiasOptions, on_grids, require_complete
from sightline.models.head import TokenHead, patch_tokens
from sightline.tokens.layout import TokenLayout

RESCALES = (4.0, 2.0, 1.0, 0.5, 0.25)
POOLS = (1, 2, 3, 6)

Maps = list[Tensor]
"""[rows, channels, height, width] of each segment of a layout."""


@config_dataclass
class UperNetOptions(BiasOptions):
    """Of `UperNetHead`.

    Attributes:
        layers: four, counted from 0 and rising, the same ones twice where there are fewer; None takes the ends of the
            four quarters of the trunk.
        channels: of each level; rescales: as `Feature2Pyramid`; pools: sides of the pyramid pooling.
    """

    layers: Annotated[tuple[Index, Index, Index, Index], Rising] | None = None
    channels: Width = 256
    rescales: tuple[Positive, Positive, Positive, Positive] = RESCALES[:4]
    pools: Annotated[tuple[Side, ...], Field(min_length=1)] = POOLS


class NormedConv(nn.Module):
    """A convolution without bias, batch norm and ReLU (mmcv's ConvModule)."""

    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False)
        self.bn = JointBatchNorm(outputs)

    def forward(self, maps: Maps) -> Maps:
        return [F.relu(one) for one in self.bn.of([self.conv(one) for one in maps])]


class Feature2Pyramid(nn.Module):
    """Four maps of one stride as maps of four (mmsegmentation's neck of that name): finer by transposed convolutions,
    coarser by max pooling, which leaves out what is left over at the edge.

    A map whose sides are less than what is pooled is continued by its edge.
    """

    def __init__(self, dim: int, rescales: Sequence[float] = RESCALES[:4]) -> None:
        """Args: rescales: how many times finer than the patch grid each map is, of 4, 2, 1, 0.5 and 0.25.

        Raises:
            InputError: another.
        """
        super().__init__()
        if unknown := [scale for scale in rescales if scale not in RESCALES]:
            said = f"head_options.rescales: {unknown[0]!r} is not known (allowed: {', '.join(map(str, RESCALES))})"
            raise InputError(said, field="rescales", value=unknown[0])
        self.rescales = tuple(rescales)
        if 4 in rescales:
            first, last = (nn.ConvTranspose2d(dim, dim, 2, 2) for _ in range(2))
            self.upsample_4x = nn.ModuleList([first, JointBatchNorm(dim), nn.GELU(), last])
        if 2 in rescales:
            self.upsample_2x = nn.ModuleList([nn.ConvTranspose2d(dim, dim, 2, 2)])

    def forward(self, levels: Sequence[Maps]) -> list[Maps]:
        return [self._rescaled(maps, scale) for maps, scale in zip(levels, self.rescales, strict=True)]

    def _rescaled(self, maps: Maps, scale: float) -> Maps:
        if scale < 1:
            return [_pooled(one, round(1 / scale)) for one in maps]
        if scale == 1:
            return maps
        for part in self.upsample_4x if scale == 4 else self.upsample_2x:
            maps = part.of(maps) if isinstance(part, JointBatchNorm) else [part(one) for one in maps]
        return maps


def _pooled(one: Tensor, side: int) -> Tensor:
    missing = [max(side - length, 0) for length in one.shape[-2:]]
    if any(missing):
        one = F.pad(one, (0, missing[1], 0, missing[0]), mode="replicate")
    return F.max_pool2d(one, side)


class PyramidDecoder(nn.Module):
    """UperNet's head (Xiao et al. 2018, section 3.1; mmsegmentation's UPerHead): pyramid pooling of the coarsest map
    (PSPNet), sums from coarse to fine (FPN), and all levels joined at the finest. Without its dropout."""

    def __init__(self, inputs: int, channels: int, classes: int, pools: Sequence[int] = POOLS) -> None:
        super().__init__()
        self.pools = tuple(pools)
        self.psp_modules = nn.ModuleList(NormedConv(inputs, channels, 1) for _ in pools)
        self.bottleneck = NormedConv(inputs + len(pools) * channels, channels, 3)
        self.lateral_convs = nn.ModuleList(NormedConv(inputs, channels, 1) for _ in range(3))
        self.fpn_convs = nn.ModuleList(NormedConv(channels, channels, 3) for _ in range(3))
        self.fpn_bottleneck = NormedConv(4 * channels, channels, 3)
        self.conv_seg = nn.Conv2d(channels, classes, 1)
        nn.init.normal_(self.conv_seg.weight, std=0.01)
        nn.init.zeros_(self.conv_seg.bias)  # type: ignore[arg-type]

    def forward(self, levels: Sequence[Maps]) -> Maps:
        """Four levels, the finest first, to logits of its size."""
        laterals = [conv(maps) for conv, maps in zip(self.lateral_convs, levels[:3], strict=True)]
        laterals.append(self.pooled(levels[3]))
        for level in (2, 1, 0):
            laterals[level] = _each(_summed, laterals[level], laterals[level + 1])
        joined = [conv(maps) for conv, maps in zip(self.fpn_convs, laterals[:3], strict=True)] + laterals[3:]
        return [self.conv_seg(one) for one in self.fpn_bottleneck(_each(_beside, *joined))]

    def pooled(self, maps: Maps) -> Maps:
        """The coarsest level with means of its parts beside it: the topmost lateral."""
        means = [
            conv([F.adaptive_avg_pool2d(one, side) for one in maps])
            for side, conv in zip(self.pools, self.psp_modules, strict=True)
        ]
        return self.bottleneck(_each(_beside, maps, *means))


def _each(made: Callable[..., Tensor], *levels: Maps) -> Maps:
    """Segment by segment."""
    return [made(*maps) for maps in zip(*levels, strict=True)]


def _summed(one: Tensor, above: Tensor) -> Tensor:
    return one + _as_large(above, one)


def _beside(one: Tensor, *others: Tensor) -> Tensor:
    return torch.cat([one, *(_as_large(other, one) for other in others)], dim=1)


def _as_large(one: Tensor, other: Tensor) -> Tensor:
    size = other.shape[-2:]
    # One that is as large already stays as it is either way; a program that is exported asks no size.
    if not torch.compiler.is_exporting() and one.shape[-2:] == size:
        return one
    return F.interpolate(one, size=size, mode="bilinear", align_corners=False)


class UperNetHead(TokenHead):
    """UperNet on four layers of the trunk.

    Level i takes the i-th of `layers`; the trunk's last layer is normed as its outputs are, the others are not (as
    mmsegmentation's vision transformer with `final_norm`). Maps are as fine as the finest level, `patch_size /
    rescales[0]` pixels. Takes whole images; each map is of one image alone, so that convolutions never see its
    neighbours in a pack. In training the statistics of its norms are those of the whole batch.
    """

    name: ClassVar[str] = "upernet"
    supports_token_dropping: ClassVar[bool] = False
    Options: ClassVar[type] = UperNetOptions

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        options: UperNetOptions = self.options
        self.depth = config.depth
        self.layers = options.layers or tuple(max(self.depth * quarter // 4 - 1, 0) for quarter in (1, 2, 3, 4))
        check_value("layers", self.layers, tuple[Annotated[int, Field(lt=self.depth)], ...], "head upernet")
        self.neck = Feature2Pyramid(config.dim, options.rescales)
        self.decode_head = PyramidDecoder(config.dim, options.channels, config.num_classes, options.pools)
        nn.init.constant_(self.decode_head.conv_seg.bias[:1], options.background_bias)  # type: ignore[index]

    def predict(self, model: Any, rows: Tensor, layout: TokenLayout) -> Maps:
        require_complete(self.name, layout)
        outputs = model.blocks.collect(model.embed(rows, layout), set(self.layers), layout, model.encoding.hooks)
        if self.layers[-1] == self.depth - 1:
            outputs[-1] = model.norm(outputs[-1])
        by_layer = dict(zip(sorted(set(self.layers)), outputs, strict=True))
        return self([by_layer[layer] for layer in self.layers], layout)

    def forward(self, tokens: Sequence[Tensor] | Tensor, layout: TokenLayout) -> Maps:
        """Args: tokens: those of the four layers, each [rows, slots, dim].

        Raises:
            InputError: they are those of one layer.
        """
        if isinstance(tokens, Tensor):
            layers = ", ".join(map(str, self.layers))
            raise InputError(f"head {self.name}: reads layers {layers}, got the last alone (expected model(images))")
        return self.decode_head(self.neck([on_grids(patch_tokens(one, layout), layout) for one in tokens]))
