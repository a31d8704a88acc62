"""Random erasing: noise, or one colour, in a box of the image."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np

from sightline.data.augmentations import Augmentation
from sightline.io.config import Positive, Rising, Share, config_dataclass

_ATTEMPTS = 10


@config_dataclass
class RandomErasing(Augmentation):
    """Zhong et al. 2020, as timm's `RandomErasing`; the defaults are those of DeiT (Touvron et al. 2021).

    timm erases what is normalised already: here the same, brought back to bytes (noise beyond black and white is cut).
    It is done before images are mixed, so that a mixed image may show two boxes, as in DeiT.

    Attributes:
        chance: that an image is erased at all.
        area: least and greatest share of the image, uniform. A box that does not fit is drawn again, ten times at most.
        aspect: least and greatest height / width of the box, log-uniform.
        fill: `pixel` draws each value by itself, `mean` puts the mean colour.
        mean, std: of the colours from 0 to 1, by which images are normalised; the default is ImageNet's.
    """

    name: ClassVar[str] = "random_erasing"

    chance: Share = 0.25
    area: Annotated[tuple[Share, Share], Rising] = (0.02, 1 / 3)
    aspect: Annotated[tuple[Positive, Positive], Rising] = (0.3, 1 / 0.3)
    fill: Literal["pixel", "mean"] = "pixel"
    mean: tuple[Share, Share, Share] = (0.485, 0.456, 0.406)
    std: tuple[Share, Share, Share] = (0.229, 0.224, 0.225)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if rng.random() > self.chance:
            return image
        height, width = image.shape[:2]
        low, high = (math.log(ratio) for ratio in self.aspect)
        for _ in range(_ATTEMPTS):
            area = rng.uniform(*self.area) * height * width
            aspect = math.exp(rng.uniform(low, high))
            rows, cols = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if rows < height and cols < width:
                top, left = rng.integers(height - rows + 1), rng.integers(width - cols + 1)
                erased = image.copy()
                erased[top : top + rows, left : left + cols] = self._colours(rng, rows, cols)
                return erased
        return image

    def _colours(self, rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
        noise = rng.standard_normal((rows, cols, 3)) if self.fill == "pixel" else np.zeros(3)
        values = 255 * (np.array(self.mean) + np.array(self.std) * noise)
        return values.round().clip(0, 255).astype(np.uint8)
