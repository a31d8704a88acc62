"""Flat patches of any size to tokens, by one kernel that is resized to them (FlexiViT)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import build_config, config_dataclass
from sightline.models.config import PatchSide, ViTConfig
from sightline.models.embedder import Embedder
from sightline.models.kernel_resize import KernelRule, resize_kernel
from sightline.tokens.cache import is_cacheable, make_detached
from sightline.tokens.layout import TokenLayout

# Patch sizes whose kernels are kept: as many as FlexiViT is trained with, and some.
_MOST_KEPT = 16


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
        self._kernels: OrderedDict[Any, tuple[Tensor, Tensor]] = OrderedDict()

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
        values = rows.shape[-1]
        side = math.isqrt(values // self.channels)
        return values if side and self.channels * side**2 == values else self.patchifier.patch_dim

    def forward(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        values = rows.shape[-1]
        side = math.isqrt(values // self.channels)
        size = self.patch_size if values == self.patchifier.patch_dim else (side, side)
        return self.proj(rows, partial(self.kernel, size))

    def kernel(self, size: Sequence[int]) -> Tensor:
        """The weight for patches of (height, width) pixels: [dim, channels * height * width].

        With gradients it is made each time, as a part of the graph; without, once for the weights as they are.
        """
        weight, size = self.proj.weight, tuple(size)
        if size == (self.options.base, self.options.base):
            return weight
        if (torch.is_grad_enabled() and weight.requires_grad) or not is_cacheable(weight.device) or _sharded():
            # The weights will change, perhaps behind the back of their version.
            self._kernels.clear()
            return self._resized(size)
        version = None if weight.is_inference() else weight._version
        key = size, weight.data_ptr(), version, weight.dtype, weight.device
        if key not in self._kernels:
            # The weight is held too, so that no other can come to stand in its place.
            self._kernels[key] = make_detached(lambda: self._resized(size)), weight.detach()
            while len(self._kernels) > _MOST_KEPT:
                self._kernels.popitem(last=False)
        return self._kernels[key][0]

    def _resized(self, size: Sequence[int]) -> Tensor:
        base = self.options.base
        square = self.proj.weight.reshape(-1, self.channels, base, base)
        return resize_kernel(square, size, self.options.rule).flatten(1)

    def __getstate__(self) -> dict[str, Any]:
        """Without the kernels that are kept, in copies and in what is pickled."""
        return {**self.__dict__, "_kernels": OrderedDict()}


def _sharded() -> bool:
    """Whether weights may be gathered anew for each pass, into the same memory."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()
