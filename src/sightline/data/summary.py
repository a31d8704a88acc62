"""What recipes want to know of a data set: how large its images are, and their mean and deviation, measured once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sightline.data.crops import apply_crop, eval_crop
from sightline.data.image_file import ImageRef, read_image
from sightline.data.image_index import thread_map
from sightline.errors import UnreadableDataError

# Enough for two digits of the mean and the deviation.
SAMPLED = 256
# Larger images tell nothing more, and take seconds each.
MOST_PIXELS = 1 << 24
_SIDE = 64
_THREADS = 4


@dataclass(frozen=True)
class Summary:
    """Of a split.

    Attributes:
        images: whose headers can be read.
        side: median over them of the root of height x width, in pixels.
        mean, std: of red, green and blue in [0, 1] over the centres of `sampled` images, to three digits.
        provides: what is said of each, as `Source.provides`.
    """

    images: int
    side: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    sampled: int
    provides: tuple[str, ...] = ()


def measure_colours(images: Sequence[ImageRef]) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """Mean and deviation of red, green and blue over the centres of images, and of how many; what cannot be read is
    left out. The same for the same files, in any order of finishing."""
    centres = [centre for _, centre in thread_map(_centre, images, _THREADS) if centre is not None]
    count = max(len(centres), 1)
    mean = sum((centre.mean(axis=(0, 1)) for centre in centres), np.zeros(3)) / count
    squares = sum(((centre**2).mean(axis=(0, 1)) for centre in centres), np.zeros(3)) / count
    # Of images of one colour the deviation is 0, by which nothing can be divided.
    std = np.sqrt(np.maximum(squares - mean**2, 1e-4))
    return tuple(round(one, 3) for one in mean.tolist()), tuple(round(one, 3) for one in std.tolist()), len(centres)


def _centre(stored: ImageRef) -> np.ndarray | None:
    """float64 [64, 64, 3] in [0, 1]."""
    try:
        image = read_image(stored, least=(2 * _SIDE, 2 * _SIDE))
    except UnreadableDataError:
        return None
    return apply_crop(image, eval_crop((image.shape[0], image.shape[1]), (_SIDE, _SIDE))) / 255.0
