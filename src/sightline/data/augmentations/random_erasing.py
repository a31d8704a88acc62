"""Random erasing: noise, or one colour, in a box of the image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sightline.data.augmenting import Augmentation, require_range
from sightline.errors import InputError
from sightline.io.checks import require, require_list, require_number

Fill = Literal["pixel", "mean"]
_ATTEMPTS = 10


@dataclass(frozen=True)
class RandomErasing(Augmentation):
    """Zhong et al. 2020, as timm's `RandomErasing`; the defaults are those of DeiT (Touvron et al. 2021).

    timm erases what is normalised already, with normal noise or zeros: here the same, brought back to bytes (so noise
    beyond black and white is cut). It is done before images are mixed, so that a mixed image may show two boxes, as in
    DeiT; what is said of the image stays.

    Attributes:
        chance: that an image is erased at all.
        area: least and greatest share of the image, uniform. A box that does not fit is drawn again, ten times at most.
        aspect: least and greatest height / width of the box, log-uniform.
        fill: `pixel` draws each value by itself, `mean` puts the mean colour.
        mean, std: of the colours from 0 to 1, by which images are normalised; the default is ImageNet's.
    """

    name: ClassVar[str] = "random_erasing"

    chance: float = 0.25
    area: tuple[float, float] = (0.02, 1 / 3)
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    fill: Fill = "pixel"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        where = f"augment.{self.name}"
        require_number(f"{where}.chance", self.chance, high=1)
        require(f"{where}.fill", self.fill, ("pixel", "mean"))
        object.__setattr__(self, "area", require_range(f"{where}.area", self.area, high=1))
        object.__setattr__(self, "aspect", require_range(f"{where}.aspect", self.aspect))
        require_number(f"{where}.aspect", self.aspect[0], above=True)
        for name in ("mean", "std"):
            value = getattr(self, name)
            require_list(f"{where}.{name}", value)
            if len(value) != 3:
                raise InputError(f"{where}.{name} {value!r}: expected three numbers")
            for one in value:
                require_number(f"{where}.{name}", one, high=1)
            object.__setattr__(self, name, tuple(value))

    def __call__(self, image: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        if draws.random() > self.chance:
            return image
        height, width = image.shape[:2]
        low, high = (math.log(ratio) for ratio in self.aspect)
        for _ in range(_ATTEMPTS):
            area = draws.uniform(*self.area) * height * width
            aspect = math.exp(draws.uniform(low, high))
            rows, cols = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if rows < height and cols < width:
                top, left = draws.integers(height - rows + 1), draws.integers(width - cols + 1)
                erased = image.copy()
                erased[top : top + rows, left : left + cols] = self._colours(draws, rows, cols)
                return erased
        return image

    def _colours(self, draws: np.random.Generator, rows: int, cols: int) -> np.ndarray:
        noise = draws.standard_normal((rows, cols, 3)) if self.fill == "pixel" else np.zeros(3)
        values = 255 * (np.array(self.mean) + np.array(self.std) * noise)
        return values.round().clip(0, 255).astype(np.uint8)
