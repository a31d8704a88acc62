"""What a preparation is: how the stored images of a suite are shown to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from sightline import registry
from sightline.data.transforms import ImageTransform, whole_crop
from sightline.data.views import View
from sightline.models import ViTConfig
from sightline.targets import Crop


@dataclass(frozen=True)
class Preparation(ImageTransform):
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
        return cls(interpolation=config.interpolation, crop=config.crop, careful=careful)

    @classmethod
    def view(cls, resolution: int | View, patch_size: int) -> int | View:
        """How images are shown where a resolution was asked for: a square side in pixels stays one."""
        return resolution


@dataclass(frozen=True)
class Whole(ImageTransform):
    """Images that were cut to a square before: shown whole, whatever the preparation."""

    def measured(self, size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
        return whole_crop(size, image_size)


def centre(size: tuple[int, int], scaled: tuple[int, int], image_size: tuple[int, int]) -> Crop:
    """The middle of an image that is scaled as a whole: of a side in pixels, value by value, torchvision's `Resize` and
    `CenterCrop` of Pillow images.

    Args:
        size: (height, width) in pixels of the image; scaled: of the whole once it is scaled, no smaller than
            `image_size`, that of what is cut out.
    """
    top, left = (round((whole - part) / 2) for whole, part in zip(scaled, image_size, strict=True))
    y, x = size[0] / scaled[0], size[1] / scaled[1]
    # What reflects is scaled as a whole; nothing of this reaches beyond the picture.
    return Crop((top * y, left * x, (top + image_size[0]) * y, (left + image_size[1]) * x), image_size, reflects=True)


def covering(size: tuple[int, int], shorter: int) -> tuple[int, int]:
    """(height, width) of an image whose shorter side becomes so many pixels, as torchvision's `Resize` rounds."""
    height, width = size
    if height <= width:
        return shorter, int(shorter * width / height)
    return int(shorter * height / width), shorter


def preparation_class(name: str) -> type[Preparation]:
    """The preparation of that name.

    Raises:
        InputError: there is none; names the nearest.
    """
    return registry.find(Preparation, __package__ or "", "preparation", name)
