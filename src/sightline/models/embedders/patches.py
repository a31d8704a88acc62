"""Flat patches to tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from sightline.attention.onednn import linear
from sightline.errors import InputError
from sightline.io.config import build_config, config_dataclass
from sightline.models.config import ViTConfig
from sightline.models.embedder import Embedder
from sightline.models.kernel_resize import KernelRule, resize_kernel
from sightline.models.norm import make_norm
from sightline.tokens.layout import TokenLayout


@config_dataclass
class PatchesConfig:
    """Configuration of `PatchEmbed`.

    Attributes:
        rule: how a patch would be resized, where the kernel is made one of another patch size.
    """

    rule: KernelRule = "bicubic_antialias"


class PatchEmbed(Embedder):
    """A linear layer over flat patches (ViT section 3.1), the convolution of other projects with its weight reshaped.

    Attributes:
        proj: the linear layer, weight [dim, channels * patch_size**2] over (channel, y, x).
        norm_input, norm: of the flat patch and of its token (Dual PatchNorm; vit-pytorch's NaViT; Swin
            has the second alone), or identities.
    """

    name = "patches"
    Options: ClassVar[Any] = PatchesConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.options = build_config(self.Options, config.embedder_options, "embedder_options")
        self.norm_input = make_norm(config, self.patchifier.patch_dim, there=config.patch_norm is True)
        self.proj = nn.Linear(self.patchifier.patch_dim, config.dim, bias=config.patch_bias)
        self.norm = make_norm(config, config.dim, there=config.patch_norm is not False)

    def forward(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        return self.norm(linear(self.proj, self.norm_input(rows)))

    def check_other_patches(self, config: ViTConfig) -> None:
        """Refused where the norm before the kernel has weights for the pixels of a patch."""
        super().check_other_patches(config)
        if config.patch_norm:
            said = f"patch_norm true: has a factor for each pixel of a patch of patch_size {config.patch_size}"
            raise InputError(f"{said} (expected patch_norm false for another)")

    def set_patch_size(self, size: Sequence[int], config: ViTConfig) -> None:
        """The kernel is resized once, in float64, and is then one of that size: what shrinks loses what it was."""
        weight = self.proj.weight
        square = weight.detach().double().unflatten(1, (config.channels, *self.patch_size))
        resized = resize_kernel(square, size, self.options.rule).flatten(1).to(weight.dtype)
        super().set_patch_size(size, config)
        self.proj.weight = nn.Parameter(resized, requires_grad=weight.requires_grad)
        self.proj.in_features = resized.shape[1]
