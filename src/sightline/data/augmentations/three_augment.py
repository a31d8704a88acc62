"""3-Augment: each image is made grey, solarised or blurred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from sightline.data.augmenting import Augmentation, require_range
from sightline.io.checks import require_whole


@dataclass(frozen=True)
class ThreeAugment(Augmentation):
    """One of the three, each as likely as the others (DeiT III, Touvron et al. 2022), with the numbers of the public
    code (`augment.py` of facebookresearch/deit) and of timm's `3a`. The recipe has colour jitter after it.

    Attributes:
        threshold: a value from here on is inverted by solarising.
        radius: least and greatest standard deviation of the blur in pixels, of any image size; uniform.
    """

    name: ClassVar[str] = "three_augment"

    threshold: int = 128
    radius: tuple[float, float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        require_whole("augment.three_augment.threshold", self.threshold, 0, 256)
        object.__setattr__(self, "radius", require_range("augment.three_augment.radius", self.radius))

    def __call__(self, image: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        picture = Image.fromarray(image)
        which = draws.integers(3)
        if which == 0:
            changed = picture.convert("L").convert("RGB")
        elif which == 1:
            changed = ImageOps.solarize(picture, self.threshold)
        else:
            changed = picture.filter(ImageFilter.GaussianBlur(draws.uniform(*self.radius)))
        return np.asarray(changed)
