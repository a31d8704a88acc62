"""NaViT's preparation, and how its paper prepares images for the ViT that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.data.crops import eval_crop, whole_crop
from sightline.data.sizes import View
from sightline.data.targets import Crop
from sightline.evaluation.preparations.base import Preparation


@dataclass(frozen=True)
class NaViTPreparation(Preparation):
    """Images keep their aspect, nothing is cut off, and each has as many patches as a square of the side that is asked
    for, as nearly as its aspect allows (NaViT section 3.1 and appendix D): a side of 224 pixels with patches of 16 is
    the view `tokens:196`, as rows name it. The filter is the model's."""

    name: ClassVar[str] = "navit"

    @classmethod
    def view(cls, resolution: int | View, patch_size: int) -> int | View:
        if isinstance(resolution, View):
            return resolution
        return View("tokens", max(round(resolution / patch_size), 1) ** 2)


@dataclass(frozen=True)
class BaselinePreparation(Preparation):
    """Of the ViT beside it (appendix G, "Crop"): images are resized to a square, whatever their aspect, of whose sides
    the middle 87.5 % are shown; those of ImageNet-A and ObjectNet keep their aspect, and the middle 75 % of the shorter
    side, as a square, are shown. The filter is the model's: the paper does not say its own."""

    name: ClassVar[str] = "navit_vit_baseline"

    def measured(self, size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
        if self.crop is None:
            return whole_crop(size, image_size)
        if self.careful:
            return eval_crop(size, image_size, 0.75)
        return eval_crop(size, image_size, 0.875, "squash")
