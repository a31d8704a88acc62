"""What of a map of classes lies at the boundaries of its classes (Cheng et al. 2021, Boundary IoU, section 4)."""

from __future__ import annotations

import math

import numpy as np

# Of the image's diagonal (section 4.2).
_SHARE = 0.02


def band_width(size: tuple[int, int]) -> int:
    """How far inwards a boundary reaches, in pixels: 2 % of the diagonal of an image of (height, width), rounded, at
    least 1."""
    return max(1, round(_SHARE * math.hypot(*size)))


def boundary_mask(labels: np.ndarray, width: int) -> np.ndarray:
    """Which pixels are no further than `width` from one of another class, or from beyond the image: bool [height,
    width].

    For each class, its mask less that mask eroded `width` times by 3 x 3 pixels, as the authors' code has it, where
    nothing is beyond the image. Of all classes at once: a pixel is inside where the square of 2 `width` + 1 pixels
    around it holds one class alone, so that time and memory are of the image, whatever the width and the classes.

    Args:
        labels: uint8 [height, width].
    """
    # Slow to load, and only segmentation needs it.
    from scipy.ndimage import maximum_filter1d, minimum_filter1d

    inside = np.zeros(labels.shape, bool)
    if min(labels.shape) > 2 * width:
        low = high = labels
        for axis in (0, 1):
            low = minimum_filter1d(low, 2 * width + 1, axis)
            high = maximum_filter1d(high, 2 * width + 1, axis)
        inner = (slice(width, -width),) * 2
        inside[inner] = (low == high)[inner]
    return ~inside
