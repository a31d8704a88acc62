"""What a preparation is: how the stored images of a suite are shown to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from sightline import registry
from sightline.data.crops import RandomResizedCrop, whole_crop
from sightline.data.sizes import View
from sightline.data.targets import Crop
from sightline.models import ViTConfig


@dataclass(frozen=True)
class Preparation(RandomResizedCrop):
    """One way, in a file of its own: `measured` says which part of an image is shown, `cut` makes it.

    What it was made by stays: `prepared` of a source changes `crop` and `interpolation`, which are the model's.

    Attributes:
        name: as `--preparation` and rows say it.
        careful: of a suite that is prepared in another way than others, as NaViT's baseline does ImageNet-A.
    """

    name: ClassVar[str]
    careful: bool = False

    @classmethod
    def of(cls, config: ViTConfig, *, careful: bool = False) -> Self:
        """For a model.

        Raises:
            InputError: the model's own preparation is not known here.
        """
        return cls(interpolation=config.interpolation, crop=config.crop, crop_mode=config.crop_mode, careful=careful)

    @classmethod
    def view(cls, resolution: int | View, patch_size: int) -> int | View:
        """How images are shown where a resolution was asked for: a square side in pixels stays one."""
        return resolution


@dataclass(frozen=True)
class OwnPreparation(Preparation):
    """The model's crop fraction, crop mode and filter, as `preprocessing` and `evaluate --data` take them: pixel by
    pixel timm's `create_transform` of that size."""

    name: ClassVar[str] = "model"


@dataclass(frozen=True)
class Whole(RandomResizedCrop):
    """Images that were cut to a square before: shown whole, whatever the preparation."""

    def measured(self, size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
        return whole_crop(size, image_size)


def preparation_class(name: str) -> type[Preparation]:
    """The preparation of that name.

    Raises:
        InputError: there is none; names the nearest.
    """
    return registry.find(Preparation, __package__ or "", "preparation", name)
