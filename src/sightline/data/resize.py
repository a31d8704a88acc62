"""Images at other sizes, with Pillow's antialiased filters, and without making anything larger on the way."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from sightline.checks import require
from sightline.errors import InputError
from sightline.grid import Grid

INTERPOLATIONS = {one.name.lower(): one for one in Image.Resampling}


def check_image_size(image_size: tuple[int, int]) -> None:
    """Raise InputError for a (height, width) without pixels."""
    if min(image_size) < 1:
        size = f"{image_size[0]}x{image_size[1]}"
        raise InputError(f"image size {size} has no pixels (expected: height, width >= 1)")


def resize_part(
    image: np.ndarray, box: tuple[float, float, float, float], image_size: tuple[int, int], interpolation: str
) -> np.ndarray:
    """A part of an image at another size; filters reach beyond the part where the image goes on.

    Args:
        image: uint8 [height, width, 3].
        box: (y0, x0, y1, x1) in pixels, within the image; need not be whole.
        image_size: (height, width) of the result.
        interpolation: one of `INTERPOLATIONS`.

    Returns:
        uint8 [height, width, 3].

    Raises:
        InputError: the interpolation is not known, or the size has no pixels.
    """
    require("interpolation", interpolation, INTERPOLATIONS)
    check_image_size(image_size)
    height, width = image_size
    y0, x0, y1, x1 = box
    resized = Image.fromarray(image).resize((width, height), INTERPOLATIONS[interpolation], box=(x0, y0, x1, y1))
    return np.asarray(resized)


def native_grid(image_size: tuple[float, float], patch_size: int, max_tokens: int | None = None) -> Grid:
    """The grid of patches that fits an image best.

    Each side is rounded to the nearest multiple of the patch, at least one. Where that gives more than `max_tokens`
    patches, the grid within the limit whose aspect is nearest to the image's is taken, and of equal ones the largest.

    Args:
        image_size: (height, width) in pixels.
        patch_size: side of a patch in pixels.
        max_tokens: most patches allowed; None for any number.

    Raises:
        InputError: a side, `patch_size` or `max_tokens` is below 1.
    """
    if min(image_size) < 1 or patch_size < 1:
        size = f"{image_size[0]}x{image_size[1]}"
        raise InputError(f"image of {size} pixels, patches of {patch_size}: all must be at least 1")
    if max_tokens is not None and max_tokens < 1:
        raise InputError(f"max_tokens {max_tokens} is out of range (expected: at least 1)")
    tall, wide = image_size[0] / patch_size, image_size[1] / patch_size
    rows, cols = max(math.floor(tall + 0.5), 1), max(math.floor(wide + 0.5), 1)
    if max_tokens is None or rows * cols <= max_tokens:
        return Grid(rows, cols)
    aspect = tall / wide
    ideal = math.sqrt(max_tokens * aspect)
    candidates = []
    for near in (math.floor(ideal), math.ceil(ideal)):
        rows = min(max(near, 1), max_tokens)
        candidates.append(Grid(rows, min(max(math.floor(rows / aspect + 0.5), 1), max_tokens // rows)))
    for near in (math.floor(ideal / aspect), math.ceil(ideal / aspect)):
        cols = min(max(near, 1), max_tokens)
        candidates.append(Grid(min(max(math.floor(cols * aspect + 0.5), 1), max_tokens // cols), cols))
    return min(candidates, key=lambda grid: (abs(math.log(grid.rows / grid.cols / aspect)), -grid.cells, grid))
