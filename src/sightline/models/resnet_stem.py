"""A ResNet without its classifier, with group norm and standardised weights, as hybrids have it before the trunk.

ViT (section 3.1 and appendix B.1) takes BiT's: bottlenecks whose norms follow the convolutions, strides at their 3 x 3.
Layers take and give lists of maps [images, channels, height, width], each of another size: a weight is standardised
once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Standardisation = Literal["official", "timm"]
Maps = list[Tensor]


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

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, *, form: Standardisation) -> None:
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


def _normed(norm: nn.Module, maps: Maps, *, relu: bool = True) -> Maps:
    # In place: what a norm keeps for the backward pass is its input.
    return [norm(one).relu_() if relu else norm(one) for one in maps]


def same_max_pool(x: Tensor) -> Tensor:
    """The largest of 3 x 3 at every second place, SAME: what a window has beyond an even side is cut off."""
    return F.max_pool2d(x, 3, 2, padding=[side % 2 for side in x.shape[-2:]], ceil_mode=True)


class Root(nn.Module):
    """7 x 7 at every second pixel, norm, ReLU, and the largest of 3 x 3 at every second place of that."""

    def __init__(self, channels: int, width: int, groups: int, eps: float, form: Standardisation) -> None:
        super().__init__()
        self.conv = StandardisedConv(channels, width, 7, 2, form=form)
        self.norm = nn.GroupNorm(groups, width, eps)

    def forward(self, maps: Maps) -> Maps:
        return [same_max_pool(one) for one in _normed(self.norm, self.conv(maps))]


class Shortcut(nn.Module):
    """What stands beside the first unit of a stage, also where nothing is strided: 1 x 1 and a norm."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int, eps: float, form: Standardisation) -> None:
        super().__init__()
        self.conv = StandardisedConv(inputs, outputs, 1, stride, form=form)
        self.norm = nn.GroupNorm(groups, outputs, eps)

    def forward(self, maps: Maps) -> Maps:
        return _normed(self.norm, self.conv(maps), relu=False)


class Unit(nn.Module):
    """A bottleneck: 1 x 1, 3 x 3 (with the stride), 1 x 1, a norm after each, and the shortcut before the last ReLU."""

    def __init__(
        self, inputs: int, middle: int, stride: int, groups: int, eps: float, form: Standardisation, *, first: bool
    ) -> None:
        super().__init__()
        self.downsample = Shortcut(inputs, 4 * middle, stride, groups, eps, form) if first else None
        self.conv1 = StandardisedConv(inputs, middle, 1, form=form)
        self.norm1 = nn.GroupNorm(groups, middle, eps)
        self.conv2 = StandardisedConv(middle, middle, 3, stride, form=form)
        self.norm2 = nn.GroupNorm(groups, middle, eps)
        self.conv3 = StandardisedConv(middle, 4 * middle, 1, form=form)
        self.norm3 = nn.GroupNorm(groups, 4 * middle, eps)
        # It begins as its shortcut (vit_jax).
        nn.init.zeros_(self.norm3.weight)

    def forward(self, maps: Maps) -> Maps:
        beside = maps if self.downsample is None else self.downsample(maps)
        inner = _normed(self.norm1, self.conv1(maps))
        inner = _normed(self.norm2, self.conv2(inner))
        inner = _normed(self.norm3, self.conv3(inner), relu=False)
        return [one.add_(other).relu_() for one, other in zip(inner, beside, strict=True)]


class ResNetStage(nn.Module):
    """Units of one width, the first of which is strided but in the first stage."""

    def __init__(
        self, units: int, inputs: int, middle: int, stride: int, groups: int, eps: float, form: Standardisation
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for number in range(units):
            first = number == 0
            width, step = (inputs, stride) if first else (4 * middle, 1)
            self.blocks.append(Unit(width, middle, step, groups, eps, form, first=first))

    def forward(self, maps: Maps) -> Maps:
        for block in self.blocks:
            maps = block(maps)
        return maps


class ResNetStem(nn.Module):
    """A root and stages of units; images of any sizes to maps that are ceil(side / stride) large.

    Args:
        channels: of the images.
        layers: units of each stage; none leaves the root alone.
        width: of the root; a stage's is 4 times it, then 8, 16, ... times.
        groups, eps: of every norm.
        form: of the weights' standardisation.
    """

    def __init__(
        self, channels: int, layers: Sequence[int], width: int, groups: int, eps: float, form: Standardisation
    ) -> None:
        super().__init__()
        self.stem = Root(channels, width, groups, eps, form)
        self.stages = nn.ModuleList()
        inputs = width
        for number, units in enumerate(layers):
            middle = width * 2**number
            self.stages.append(ResNetStage(units, inputs, middle, 1 + (number > 0), groups, eps, form))
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


def convolutions(channels: int, layers: Sequence[int], width: int) -> list[Convolution]:
    """Those of a `ResNetStem`, the root's first."""
    stride = 4 * 2 ** max(len(layers) - 1, 0)
    found = [Convolution(channels, width, 7, stride**2, stride**2 // 4)]
    inputs, seen = width, stride**2 // 16
    for number, units in enumerate(layers):
        middle = width * 2**number
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
