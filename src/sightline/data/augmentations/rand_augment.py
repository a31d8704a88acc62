"""RandAugment: some operations, drawn from a fixed list, each at the same magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from pydantic import Field

from sightline.data.augmenting import Augmentation
from sightline.io.config import config_dataclass

BINS = 31
"""How many magnitudes there are, 0 the weakest."""

_Operation = Callable[[Image.Image, int, np.random.Generator], Image.Image]


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

    def __call__(self, image: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        picture = Image.fromarray(image)
        for _ in range(self.operations):
            picture = _OPERATIONS[draws.integers(len(_OPERATIONS))](picture, self.magnitude, draws)
        return np.asarray(picture)


def _between(first: float, last: float, magnitude: int) -> float:
    """In torchvision's own float32: a pixel more or less hangs on the last bit."""
    return float(torch.linspace(first, last, BINS)[magnitude])


def _sign(draws: np.random.Generator) -> int:
    return -1 if draws.integers(2) else 1


def _affine(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def _same(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
    return picture


def _shear(axis: int) -> _Operation:
    """Along x (axis 0) or y, about the upper left corner."""

    def shear(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
        slope = _between(0.0, 0.3, magnitude) * _sign(draws)
        return _affine(picture, (1, 0, 0, slope, 1, 0) if axis else (1, slope, 0, 0, 1, 0))

    return shear


def _translate(axis: int) -> _Operation:
    """Along x (axis 0) or y, by whole pixels."""

    def translate(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
        pixels = int(_between(0.0, 150.0 / 331.0 * picture.size[axis], magnitude)) * _sign(draws)
        return _affine(picture, (1, 0, 0, 0, 1, -pixels) if axis else (1, 0, -pixels, 0, 1, 0))

    return translate


def _rotate(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
    return picture.rotate(_between(0.0, 30.0, magnitude) * _sign(draws), Image.Resampling.NEAREST)


def _enhance(enhancer: Callable[[Image.Image], ImageEnhance._Enhance]) -> _Operation:
    def enhance(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
        return enhancer(picture).enhance(1.0 + _between(0.0, 0.9, magnitude) * _sign(draws))

    return enhance


def _posterize(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
    return ImageOps.posterize(picture, 8 - round(magnitude / ((BINS - 1) / 4)))


def _solarize(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
    # Only whole values are compared with it.
    return ImageOps.solarize(picture, math.ceil(_between(255.0, 0.0, magnitude)))


def _autocontrast(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
    return ImageOps.autocontrast(picture)


def _equalize(picture: Image.Image, magnitude: int, draws: np.random.Generator) -> Image.Image:
    return ImageOps.equalize(picture)


# In torchvision's order.
_OPERATIONS: tuple[_Operation, ...] = (
    _same,
    _shear(0),
    _shear(1),
    _translate(0),
    _translate(1),
    _rotate,
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Sharpness),
    _posterize,
    _solarize,
    _autocontrast,
    _equalize,
)
