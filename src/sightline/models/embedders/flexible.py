"""Flat patches of any size to tokens, by one kernel that is resized to them (FlexiViT)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import build_config, config_dataclass
from sightline.models.config import PatchSide, ViTConfig
from sightline.models.embedder import Embedder
from sightline.models.kernel_resize import KernelRule, resize_kernel
from sightline.tokens.layout import TokenLayout


@config_dataclass
class FlexibleConfig:
    """Configuration of `FlexiblePatchEmbed`.

    Attributes:
        base: side in pixels of the kernel that is learnt (FlexiViT: 32).
        sizes: sides of the patches that it may be used with; none for any.
        rule: how a patch would be resized: `bilinear` in big_vision's weights. With it a patch size far below the
            base begins with tokens that are far smaller; with antialias all begin alike.
    """

    base: PatchSide = 32
    sizes: tuple[PatchSide, ...] = ()
    rule: KernelRule = "bicubic_antialias"


class ResizedLinear(nn.Linear):
    """A linear layer with a weight that is made of its own, in its call: there weights are that are kept elsewhere."""

    def forward(self, input: Tensor, weight: Callable[[], Tensor]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return F.linear(input, weight(), self.bias)


class FlexiblePatchEmbed(Embedder):
    """A linear layer over flat patches of the size that a batch has: the kernel of `base` pixels resized by its
    pseudo-inverse (Beyer et al. 2023, section 3.4). The rows say the size: channels * side**2 values. Oblong patches
    are those of the patchifier (`set_patch_size`).

    Attributes:
        proj: weight [dim, channels * base**2] over (channel, y, x), and the bias, which no resize touches.
    """

    name = "flexible"
    Options: ClassVar[Any] = FlexibleConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.options: FlexibleConfig = build_config(FlexibleConfig, config.embedder_options, "embedder_options")
        if config.patch_norm:
            raise InputError(
                "patch_norm true: has a factor for each pixel of a patch (expected false where it is flexible)"
            )
        self._check_size(config.patch_size)
        self.channels = config.channels
        self.proj = ResizedLinear(config.channels * self.options.base**2, config.dim, bias=config.patch_bias)

    def _check_size(self, side: int) -> None:
        if self.options.sizes and side not in self.options.sizes:
            near = sorted(sorted(self.options.sizes, key=lambda one: (abs(one - side), one))[:2])
            raise InputError(
                f"patch_size {side}: is none of the model's embedder_options.sizes (nearest: "
                f"{' or '.join(map(str, near))})"
            )

    def set_patch_size(self, size: Sequence[int], config: ViTConfig) -> None:
        if size[0] == size[1]:
            self._check_size(size[0])
        super().set_patch_size(size, config)

    def values_of(self, rows: Tensor) -> int:
        values, side = rows.shape[-1], self._side(rows)
        return values if side and self.channels * side**2 == values else self.patchifier.patch_dim

    def _side(self, rows: Tensor) -> int:
        return math.isqrt(rows.shape[-1] // self.channels)

    def forward(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        size = self.patch_size if rows.shape[-1] == self.patchifier.patch_dim else (self._side(rows),) * 2
        return self.proj(rows, partial(self.kernel, size))

    def kernel(self, size: Sequence[int]) -> Tensor:
        """The weight for patches of (height, width) pixels: [dim, channels * height * width]; gradients go through the
        resize, which is made once a batch (.3 % of an image's operations in a ViT-B with patches of 16)."""
        base = self.options.base
        square = self.proj.weight.reshape(-1, self.channels, base, base)
        return resize_kernel(square, size, self.options.rule).flatten(1)
