"""Colours of classes, the same for the same number everywhere, and what is drawn over an image with them."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.targets import IGNORE


def class_colours(count: int) -> np.ndarray:
    """Colours that are told apart, uint8 [count, 3]; the first is black, for what stands behind everything.

    The bits of a class's number are spread over the three channels, the lowest first, as Pascal VOC's are.
    """
    numbers = np.arange(count)
    colours = np.zeros((count, 3), np.uint8)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= (((numbers >> (3 * bit + channel)) & 1) << (7 - bit)).astype(np.uint8)
    return colours


def overlay(image: np.ndarray, labels: np.ndarray, strength: float = 0.55) -> Image.Image:
    """An image under the colours of its pixels' classes; class 0 and what has no class stay as they are.

    Args:
        image: uint8 [height, width, 3]; labels: uint8 [height, width].
    """
    shown = (labels != 0) & (labels != IGNORE)
    mixed = image * (1 - strength) + class_colours(256)[labels] * strength
    return Image.fromarray(np.where(shown[..., None], mixed, image).astype(np.uint8))
