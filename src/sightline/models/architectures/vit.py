"""The vision transformer (Dosovitskiy et al., 2021)."""

from __future__ import annotations

from sightline.errors import InputError
from sightline.models.block import Block
from sightline.models.config import ViTConfig
from sightline.models.timm_surface import TimmSurface
from sightline.models.trunk import Trunk


class VisionTransformer(TimmSurface):
    """A plain ViT at any resolution and aspect ratio, with timm's surface: pre-norm blocks, all alike."""

    name = "vit"

    def make_trunk(self, config: ViTConfig) -> Trunk:
        if config.architecture_options:
            raise InputError(
                f"architecture vit: option {next(iter(config.architecture_options))!r} is not known (it has no options)"
            )
        return Trunk(Block(config, layer) for layer in range(config.depth))
