"""A ResNet without its classifier, with group norm and standardised weights, as hybrids have it before the trunk.

ViT (section 3.1 and appendix B.1) takes BiT's: bottlenecks whose norms follow the convolutions, strides at their 3 x 3.
Layers take and give lists of maps [images, channels, height, width], each of another size: a weight is standardised
once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import Count, Positive, config_dataclass

Standardisation = Literal["official", "timm"]
Maps = list[Tensor]


@config_dataclass
class ResNetOptions:
    """The configuration of the stem, `embedder_options`.

    Attributes:
        layers: units of each stage: (3, 4, 6, 3) is ResNet-50, (3, 4, 9) the one at stride 16 (ViT's second option: the
            units of its fourth stage stand in the third), (2, 2, 2, 2) R26, () the root alone.
        width_factor: of all widths, those of ResNet-50 at 1: 64 channels in the root.
        groups, norm_eps: of every group norm; the epsilon is 1e-6 officially, 1e-5 in timm.
        standardisation: of the weights, as `standardize_weight`.
    """

    layers: Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], Field(max_length=6)] = (3, 4, 9)
    width_factor: Annotated[float, Field(gt=0, le=256)] = 1.0
    groups: Count = 32
    norm_eps: Positive = 1e-6
    standardisation: Standardisation = "official"

    def __post_init__(self) -> None:
        # A kernel of one number has no deviation.
        if self.width < 2 or self.width % self.groups:
            said = f"width_factor {self.width_factor:g}: a root of {self.width} channels"
            said = f"{said} (expected 2 or more, a multiple of groups {self.groups}; 64 at 1)"
            raise InputError(said, field="width_factor", value=self.width_factor)

    @property
    def width(self) -> int:
        """Channels of the root."""
        return int(64 * self.width_factor)

    @property
    def channels(self) -> int:
        """Of the last map."""
        return 4 * self.width * 2 ** (len(self.layers) - 1) if self.layers else self.width

    @property
    def stride(self) -> int:
        """Pixels along a side of a cell of the last map."""
        return 4 * 2 ** max(len(self.layers) - 1, 0)


def standardize_weight(weight: Tensor, form: Standardisation) -> Tensor:
    """Kernels [outputs, inputs, height, width], each of mean 0 and deviation 1 (Qiao et al. 2019).

    The epsilon is a part of what a checkpoint computes: `official` divides by sqrt(var) + 1e-5 (vit_jax
    `models_resnet.weight_standardize`), `timm` by sqrt(var + 1e-8) (`StdConv2dSame`); the variance is the population's.
    """
    # Of 16-bit weights the deviation would be none.
    wide = weight.float() if weight.dtype.itemsize < 4 else weight
    if form == "timm":
        flat = wide.flatten(1).unsqueeze(0)
        normed = F.batch_norm(flat, None, None, training=True, momentum=0.0, eps=1e-8)
        return normed.view_as(weight).to(weight.dtype)
    variance, mean = torch.var_mean(wide, dim=(1, 2, 3), correction=0, keepdim=True)
    return ((wide - mean) / (variance.sqrt() + 1e-5)).to(weight.dtype)


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """(before, after) a side, so that ceil(side / stride) places come out: TensorFlow's SAME, the less first."""
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2


class StandardisedConv(nn.Module):
    """A convolution without a bias, its weight standardised and its padding SAME: of the true size of each map."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, form: Standardisation) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.form: Standardisation = form
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        nn.init.normal_(self.weight, std=(inputs * kernel**2) ** -0.5)

    def forward(self, maps: Maps) -> Maps:
        weight = standardize_weight(self.weight, self.form)
        return [self._of(one, weight) for one in maps]

    def _of(self, x: Tensor, weight: Tensor) -> Tensor:
        (top, bottom), (left, right) = (same_padding(side, self.kernel, self.stride) for side in x.shape[-2:])
        if top == bottom and left == right:
            return F.conv2d(x, weight, stride=self.stride, padding=(top, left))
        return F.conv2d(F.pad(x, (left, right, top, bottom)), weight, stride=self.stride)

    def extra_repr(self) -> str:
        outputs, inputs = self.weight.shape[:2]
        return f"{inputs}, {outputs}, kernel={self.kernel}, stride={self.stride}, form={self.form!r}"


def same_max_pool(x: Tensor) -> Tensor:
    """The largest of 3 x 3 at every second place, SAME: what a window has beyond an even side is cut off."""
    return F.max_pool2d(x, 3, 2, padding=[side % 2 for side in x.shape[-2:]], ceil_mode=True)


def _norm(width: int, options: ResNetOptions) -> nn.GroupNorm:
    return nn.GroupNorm(options.groups, width, options.norm_eps)


class Shortcut(nn.Module):
    """A convolution and a norm: 1 x 1 beside the first unit of a stage, also where nothing is strided."""

    def __init__(self, inputs: int, outputs: int, stride: int, options: ResNetOptions, kernel: int = 1) -> None:
        super().__init__()
        self.conv = StandardisedConv(inputs, outputs, kernel, stride, options.standardisation)
        self.norm = _norm(outputs, options)

    def forward(self, maps: Maps) -> Maps:
        return [self.norm(one) for one in self.conv(maps)]


class Root(Shortcut):
    """7 x 7 at every second pixel, norm, ReLU, and the largest of 3 x 3 at every second place of that."""

    def __init__(self, channels: int, options: ResNetOptions) -> None:
        super().__init__(channels, options.width, 2, options, kernel=7)

    def forward(self, maps: Maps) -> Maps:
        # In place: what a norm keeps for the backward pass is its input.
        return [same_max_pool(one.relu_()) for one in super().forward(maps)]


class Unit(nn.Module):
    """A bottleneck: 1 x 1, 3 x 3 (with the stride), 1 x 1, a norm after each, and the shortcut before the last ReLU."""

    def __init__(self, inputs: int, middle: int, stride: int, options: ResNetOptions, *, first: bool) -> None:
        super().__init__()
        form = options.standardisation
        self.downsample = Shortcut(inputs, 4 * middle, stride, options) if first else None
        self.conv1 = StandardisedConv(inputs, middle, 1, 1, form)
        self.norm1 = _norm(middle, options)
        self.conv2 = StandardisedConv(middle, middle, 3, stride, form)
        self.norm2 = _norm(middle, options)
        self.conv3 = StandardisedConv(middle, 4 * middle, 1, 1, form)
        self.norm3 = _norm(4 * middle, options)
        # It begins as its shortcut (vit_jax).
        nn.init.zeros_(self.norm3.weight)

    def forward(self, maps: Maps) -> Maps:
        beside = maps if self.downsample is None else self.downsample(maps)
        inner = [self.norm1(one).relu_() for one in self.conv1(maps)]
        inner = [self.norm2(one).relu_() for one in self.conv2(inner)]
        inner = [self.norm3(one) for one in self.conv3(inner)]
        return [one.add_(other).relu_() for one, other in zip(inner, beside, strict=True)]


class ResNetStage(nn.Module):
    """Units of one width, the first of which is strided but in the first stage."""

    def __init__(self, units: int, inputs: int, middle: int, stride: int, options: ResNetOptions) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Unit(inputs, middle, stride, options, first=True)])
        self.blocks.extend(Unit(4 * middle, middle, 1, options, first=False) for _ in range(units - 1))

    def forward(self, maps: Maps) -> Maps:
        for block in self.blocks:
            maps = block(maps)
        return maps


class ResNetStem(nn.Module):
    """A root and stages of units, each twice as wide as the one before; images of any sizes to maps that are
    ceil(side / stride) large."""

    def __init__(self, channels: int, options: ResNetOptions) -> None:
        super().__init__()
        self.stem = Root(channels, options)
        self.stages = nn.ModuleList()
        inputs = options.width
        for number, units in enumerate(options.layers):
            middle = options.width * 2**number
            self.stages.append(ResNetStage(units, inputs, middle, 1 + (number > 0), options))
            inputs = 4 * middle

    def forward(self, maps: Maps) -> Maps:
        """Images [images, channels, height, width], a group for each size -> their maps [images, width, rows, cols]."""
        *_, last = self.steps(maps)
        return last

    def steps(self, maps: Maps) -> Iterator[Maps]:
        """What the root gives, then each stage."""
        # The root alone is faster with its channels last.
        maps = [one.contiguous() for one in self.stem(maps)] if self.stages else self.stem(maps)
        yield maps
        for stage in self.stages:
            maps = stage(maps)
            yield maps


class Convolution(NamedTuple):
    """One of a stem's, for each cell of its last map, where every size is a multiple.

    `seen` and `places` are the places of its input and its output.
    """

    inputs: int
    outputs: int
    kernel: int
    seen: int
    places: int
    beside: bool = False

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.kernel**2

    @property
    def multiplications(self) -> int:
        return self.weights * self.places

    @property
    def given(self) -> int:
        """Numbers of its output."""
        return self.outputs * self.places

    @property
    def kept(self) -> int:
        """Numbers for the backward pass: its output and that after the norm (a shortcut's is added and gone), and its
        input again where that was padded on one side."""
        again = self.inputs * self.seen if self.kernel > 1 and self.seen > self.places else 0
        return self.given * (1 if self.beside else 2) + again


def convolutions(channels: int, options: ResNetOptions) -> list[Convolution]:
    """Those of a `ResNetStem`, the root's first."""
    cell = options.stride**2
    found = [Convolution(channels, options.width, 7, cell, cell // 4)]
    inputs, seen = options.width, cell // 16
    for number, units in enumerate(options.layers):
        middle = options.width * 2**number
        places = seen // 4 if number else seen
        found.append(Convolution(inputs, 4 * middle, 1, seen, places, beside=True))
        for _ in range(units):
            found += [
                Convolution(inputs, middle, 1, seen, seen),
                Convolution(middle, middle, 3, seen, places),
                Convolution(middle, 4 * middle, 1, places, places),
            ]
            inputs, seen = 4 * middle, places
    return found
