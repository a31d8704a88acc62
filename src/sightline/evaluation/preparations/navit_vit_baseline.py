"""How NaViT's paper prepares images for the ViT that it is compared with (its appendix G, "Crop")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.data.crops import eval_crop, whole_crop
from sightline.data.targets import Crop
from sightline.evaluation.preparations.base import Preparation


@dataclass(frozen=True)
class BaselinePreparation(Preparation):
    """Images are resized to a square, whatever their aspect, of whose sides the middle 87.5 % are shown; those of
    ImageNet-A and ObjectNet keep their aspect, and the middle 75 % of the shorter side, as a square, are shown. The
    filter is the model's: the paper does not say its own."""

    name: ClassVar[str] = "navit_vit_baseline"

    def measured(self, size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
        if self.crop is None:
            return whole_crop(size, image_size)
        if self.careful:
            return eval_crop(size, image_size, 0.75)
        return eval_crop(size, image_size, 0.875, "squash")
