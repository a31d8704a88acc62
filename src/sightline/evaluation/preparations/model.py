"""The model's own preparation, as timm validates its models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from sightline.data.transforms import whole_crop
from sightline.errors import InputError
from sightline.evaluation.preparations.base import Preparation, centre, covering
from sightline.models import ViTConfig
from sightline.targets import Crop


@dataclass(frozen=True)
class OwnPreparation(Preparation):
    """The model's crop fraction and filter: the shorter side is scaled to floor(side / crop), and the middle cut out;
    value by value timm's `create_transform` of that size.

    Attributes:
        squash: the whole image is scaled to a square instead, where timm says so of a model (`crop_mode`).
    """

    name: ClassVar[str] = "model"
    squash: bool = False

    @classmethod
    def of(cls, config: ViTConfig, *, careful: bool = False) -> Self:
        mode = _crop_mode(config)
        if mode not in ("center", "squash"):
            raise InputError(
                f"preparation model: timm's crop_mode {mode!r} is not known here (allowed: center, squash)"
            )
        return cls(interpolation=config.interpolation, crop=config.crop, squash=mode == "squash")

    def measured(self, size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
        if self.crop is None:
            return whole_crop(size, image_size)
        target = [math.floor(side / self.crop) for side in image_size]
        scaled = (target[0], target[1]) if self.squash else covering(size, target[0])
        return centre(size, scaled, image_size)


def _crop_mode(config: ViTConfig) -> str:
    """timm's word for how the models of a name are shown; "center" for models of others."""
    match config.origin:
        case {"project": "timm", "config": {"model": str(name)} as given}:
            from sightline.runtime import import_timm

            told = given.get("pretrained_cfg_overlay") or {}
            known = import_timm().models.get_pretrained_cfg(name, allow_unregistered=True)
            return told.get("crop_mode") or getattr(known, "crop_mode", None) or "center"
    return "center"
