"""Views of an image: what a model is shown of it, in evaluation and in training."""

from __future__ import annotations

import math

import numpy as np

from sightline.data.randomness import generator
from sightline.data.resize import check_image_size, native_grid, resize, resize_part
from sightline.data.sampling import budget_grid
from sightline.errors import InputError

_CROP_ATTEMPTS = 10


def eval_view(
    image: np.ndarray, image_size: tuple[int, int], *, interpolation: str = "bicubic", crop: float = 1.0
) -> np.ndarray:
    """The centre of an image: scaled until it just covers `image_size` / `crop`, then cut to `image_size`.

    For a square size this is the usual evaluation: the shorter side resized to size / crop, and a centre crop; the
    result is that of the two steps (Pillow may order its passes otherwise), but the enlarged image is never made.

    Args:
        image: uint8 [height, width, 3].
        image_size: (height, width) in pixels of the result.
        interpolation: a filter of Pillow, antialiased.
        crop: fraction of the scaled image that the crop's larger relative side keeps, above 0 up to 1.

    Returns:
        uint8 [height, width, 3].

    Raises:
        InputError: `crop` is out of range, or the size or the interpolation is not allowed.
    """
    if not 0 < crop <= 1:
        raise InputError(f"crop {crop} is out of range (expected: above 0, at most 1)")
    check_image_size(image_size)
    height, width = image.shape[:2]
    target = [math.floor(side / crop) for side in image_size]
    if target[0] * width >= target[1] * height:
        scaled = (target[0], max(target[0] * width // height, target[1]))
    else:
        scaled = (max(target[1] * height // width, target[0]), target[1])
    top, left = ((whole - part) / 2 for whole, part in zip(scaled, image_size, strict=True))
    top, left = round(top), round(left)
    y, x = height / scaled[0], width / scaled[1]
    box = (top * y, left * x, min((top + image_size[0]) * y, height), min((left + image_size[1]) * x, width))
    return resize_part(image, box, image_size, interpolation)


def train_view(
    image: np.ndarray,
    image_size: tuple[int, int],
    *,
    seed: int,
    epoch: int,
    index: int,
    scale: tuple[float, float] = (0.35, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.5,
    interpolation: str = "bicubic",
) -> np.ndarray:
    """A random part of an image, resized and perhaps mirrored, as a function of (seed, epoch, index) alone.

    Args:
        image: uint8 [height, width, 3].
        image_size: (height, width) in pixels of the result.
        seed: the run's seed.
        epoch: the pass over the data.
        index: the image's index in its split.
        scale: smallest and largest part of the image's area.
        aspect: smallest and largest width / height of the part, relative to those of `image_size`; log-uniform.
        flip: probability of a left-right mirror.
        interpolation: a filter of Pillow, antialiased.

    Returns:
        uint8 [height, width, 3].

    Raises:
        InputError: a number is out of range, or the size or the interpolation is not allowed.
    """
    check_image_size(image_size)
    if not 0 < scale[0] <= scale[1] <= 1:
        raise InputError(f"scale {scale} is out of range (expected: 0 < low <= high <= 1)")
    if not 0 < aspect[0] <= aspect[1]:
        raise InputError(f"aspect {aspect} is out of range (expected: 0 < low <= high)")
    if not 0 <= flip <= 1:
        raise InputError(f"flip {flip} is out of range (expected: 0 to 1)")
    draws = generator("train_view/1", seed, index, epoch=epoch).random((_CROP_ATTEMPTS + 1, 4))
    target_aspect = image_size[1] / image_size[0]
    box = _random_box(draws[1:], image.shape[0], image.shape[1], scale, aspect, target_aspect)
    view = resize_part(image, box, image_size, interpolation)
    return np.ascontiguousarray(view[:, ::-1]) if draws[0, 0] < flip else view


def _random_box(
    draws: np.ndarray,
    height: int,
    width: int,
    scale: tuple[float, float],
    aspect: tuple[float, float],
    target_aspect: float,
) -> tuple[float, float, float, float]:
    """The first drawn box that fits; else the largest centred one whose aspect is as near as the image permits."""
    low, high = math.log(aspect[0]), math.log(aspect[1])
    for area_draw, aspect_draw, y_draw, x_draw in draws.tolist():
        area = height * width * (scale[0] + (scale[1] - scale[0]) * area_draw)
        ratio = target_aspect * math.exp(low + (high - low) * aspect_draw)
        rows, cols = math.sqrt(area / ratio), math.sqrt(area * ratio)
        if rows <= height and cols <= width:
            top, left = y_draw * (height - rows), x_draw * (width - cols)
            return top, left, min(top + rows, height), min(left + cols, width)
    ratio = min(max(width / height, target_aspect * aspect[0]), target_aspect * aspect[1])
    rows, cols = min(height, width / ratio), min(width, height * ratio)
    top, left = (height - rows) / 2, (width - cols) / 2
    return top, left, top + rows, left + cols


def native_view(
    image: np.ndarray, patch_size: int, max_tokens: int | None = None, *, interpolation: str = "bicubic"
) -> np.ndarray:
    """The whole image at its own aspect, resized to a whole number of patches; see `native_grid` for which.

    Args:
        image: uint8 [height, width, 3].
        patch_size: side of a patch in pixels.
        max_tokens: most patches allowed; None for any number.
        interpolation: a filter of Pillow, antialiased.

    Returns:
        uint8 [rows * patch_size, cols * patch_size, 3]; the image itself where it fits already.

    Raises:
        InputError: `patch_size` or `max_tokens` is below 1, or the interpolation is not allowed.
    """
    grid = native_grid((image.shape[0], image.shape[1]), patch_size, max_tokens)
    size = (grid.rows * patch_size, grid.cols * patch_size)
    return image if size == image.shape[:2] else resize(image, size, interpolation)


def budget_view(image: np.ndarray, patch_size: int, tokens: int, *, interpolation: str = "bicubic") -> np.ndarray:
    """The whole image at its own aspect, resized, up or down, to at most so many patches and as near to them as the
    aspect allows (NaViT appendix D).

    Args:
        image: uint8 [height, width, 3].
        patch_size: side of a patch in pixels.
        tokens: patches.
        interpolation: a filter of Pillow, antialiased.

    Returns:
        uint8 [rows * patch_size, cols * patch_size, 3].

    Raises:
        InputError: `patch_size` or `tokens` is below 1, or the interpolation is not allowed.
    """
    grid = budget_grid((image.shape[0], image.shape[1]), patch_size, tokens)
    return resize(image, (grid.rows * patch_size, grid.cols * patch_size), interpolation)
