"""3-Augment: each image is made grey, solarised or blurred."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from PIL import Image, ImageFilter, ImageOps
from pydantic import Field

from sightline.data.augmentations import Augmentation
from sightline.io.config import NonNegative, Rising, config_dataclass


@config_dataclass
class ThreeAugment(Augmentation):
    """One of the three, each as likely as the others (DeiT III, Touvron et al. 2022), with the numbers of the public
    code (`augment.py` of facebookresearch/deit) and of timm's `3a`. The recipe has colour jitter after it.

    Attributes:
        threshold: a value from here on is inverted by solarising.
        radius: least and greatest standard deviation of the blur in pixels, of any image size; uniform.
    """

    name: ClassVar[str] = "three_augment"

    threshold: Annotated[int, Field(ge=0, le=256)] = 128
    radius: Annotated[tuple[NonNegative, NonNegative], Rising] = (0.1, 2.0)

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        picture = Image.fromarray(image)
        which = rng.integers(3)
        if which == 0:
            changed = picture.convert("L").convert("RGB")
        elif which == 1:
            changed = ImageOps.solarize(picture, self.threshold)
        else:
            changed = picture.filter(ImageFilter.GaussianBlur(rng.uniform(*self.radius)))
        return np.asarray(changed)
