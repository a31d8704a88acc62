"""Flat patches to tokens."""

from __future__ import annotations

from torch import Tensor, nn

from sightline.layout import TokenLayout
from sightline.models.config import ViTConfig
from sightline.models.embedder import Embedder
from sightline.models.norm import make_norm


class PatchEmbed(Embedder):
    """A linear layer over flat patches (ViT section 3.1), the convolution of other projects with its weight reshaped.

    Attributes:
        proj: the linear layer, weight [dim, channels * patch_size**2] over (channel, y, x).
        norm_input, norm: of the flat patch and of its token (Dual PatchNorm; vit-pytorch's NaViT; Swin
            has the second alone), or identities.
    """

    name = "patches"

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.norm_input = make_norm(config, self.cutter.values, there=config.patch_norm is True)
        self.proj = nn.Linear(self.cutter.values, config.dim, bias=config.patch_bias)
        self.norm = make_norm(config, config.dim, there=config.patch_norm is not False)

    def forward(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        return self.norm(self.proj(self.norm_input(rows)))
