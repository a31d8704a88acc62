"""Colour jitter: brightness, contrast, saturation and hue, each by a drawn amount, in a drawn order."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from PIL import Image, ImageEnhance
from pydantic import Field

from sightline.data.augmentations import Augmentation
from sightline.io.config import NonNegative, config_dataclass


@config_dataclass
class ColourJitter(Augmentation):
    """As torchvision's `ColorJitter` of Pillow images; the default is that of DeiT III.

    Attributes:
        brightness, contrast, saturation: x draws a factor uniformly from max(0, 1 - x) to 1 + x; 0 changes nothing.
        hue: x turns it by a share of the circle, uniform from -x to x; at most .5.
    """

    name: ClassVar[str] = "colour_jitter"

    brightness: NonNegative = 0.3
    contrast: NonNegative = 0.3
    saturation: NonNegative = 0.3
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        order = rng.permutation(4)
        spreads = (self.brightness, self.contrast, self.saturation)
        factors = [rng.uniform(max(0.0, 1.0 - spread), 1.0 + spread) if spread else None for spread in spreads]
        turn = rng.uniform(-self.hue, self.hue) if self.hue else None
        picture = Image.fromarray(image)
        for which in order:
            if which == 3:
                picture = picture if turn is None else _turned(picture, turn)
            elif (factor := factors[which]) is not None:
                picture = _ENHANCERS[which](picture).enhance(factor)
        return np.asarray(picture)


_ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def _turned(picture: Image.Image, turn: float) -> Image.Image:
    """With its hue turned by a share of the circle, which Pillow's bytes divide into 256 steps, and torchvision's rule
    into 255."""
    hue, *others = picture.convert("HSV").split()
    # Towards zero, then around the circle.
    moved = np.asarray(hue) + np.uint8(int(turn * 255) % 256)
    return Image.merge("HSV", (Image.fromarray(moved), *others)).convert("RGB")
