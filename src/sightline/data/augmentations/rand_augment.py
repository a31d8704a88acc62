"""RandAugment: some operations, drawn from a fixed list, each at the same magnitude."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from pydantic import Field

from sightline.data.augmentations import Augmentation
from sightline.io.config import config_dataclass

BINS = 31
"""How many magnitudes there are, 0 the weakest."""

_MOVES = ("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "color": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}
# In torchvision's order.
_OPERATIONS = (*_MOVES, *_ENHANCERS, "posterize", "solarize", "autocontrast", "equalize")


@config_dataclass
class RandAugment(Augmentation):
    """RandAugment(operations, magnitude) of Cubuk et al. 2020, as torchvision's `RandAugment` of Pillow images does it:
    its 14 operations (identity too), drawn with replacement, 31 magnitudes, nearest neighbours, black where nothing is.

    The default is LookHere's RandAugment(2, 15); its training code is not public, so that whose list it took is not
    known. timm's `rand-m15-n2` is another: 15 operations, magnitudes to 10, each applied half the time.

    Attributes:
        operations: how many are applied, one after the other.
        magnitude: 0 to 30.
    """

    name: ClassVar[str] = "rand_augment"
    moves_pixels: ClassVar[bool] = True

    operations: Annotated[int, Field(ge=1, le=100)] = 2
    magnitude: Annotated[int, Field(ge=0, lt=BINS)] = 15

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        picture = Image.fromarray(image)
        for _ in range(self.operations):
            picture = _applied(_OPERATIONS[rng.integers(len(_OPERATIONS))], picture, self.magnitude, rng)
        return np.asarray(picture)


def _applied(operation: str, picture: Image.Image, magnitude: int, rng: np.random.Generator) -> Image.Image:
    def signed(most: float) -> float:
        return _between(0.0, most, magnitude) * (-1 if rng.integers(2) else 1)

    def affine(*matrix: float) -> Image.Image:
        return picture.transform(picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)

    if operation in _ENHANCERS:
        return _ENHANCERS[operation](picture).enhance(1.0 + signed(0.9))
    match operation:
        case "shear_x":
            return affine(1, signed(0.3), 0, 0, 1, 0)
        case "shear_y":
            return affine(1, 0, 0, signed(0.3), 1, 0)
        case "translate_x":
            return affine(1, 0, -int(signed(150.0 / 331.0 * picture.width)), 0, 1, 0)
        case "translate_y":
            return affine(1, 0, 0, 0, 1, -int(signed(150.0 / 331.0 * picture.height)))
        case "rotate":
            return picture.rotate(signed(30.0), Image.Resampling.NEAREST)
        case "posterize":
            return ImageOps.posterize(picture, 8 - round(magnitude / ((BINS - 1) / 4)))
        case "solarize":
            # Only whole values are compared with it.
            return ImageOps.solarize(picture, math.ceil(_between(255.0, 0.0, magnitude)))
        case "autocontrast":
            return ImageOps.autocontrast(picture)
        case "equalize":
            return ImageOps.equalize(picture)
    return picture


def _between(first: float, last: float, magnitude: int) -> float:
    """In torchvision's own float32: a pixel more or less hangs on the last bit."""
    return float(torch.linspace(first, last, BINS)[magnitude])
