"""The corruptions of ImageNet-C, made on the fly: own code, after the definitions of Hendrycks and Dietterich (2019).

Numbers of the five severities are theirs. What they draw by libraries that are not here (ImageMagick's motion blur, in
`motion_blur` and `snow`, and OpenCV's blur and affine warp) follows the same formulas. In `glass_blur` pixels change
places, as theirs are meant to: their line swaps two views of one array, and so copies one pixel over the other. The
published images were also stored as JPEG of quality 85, which is left out. `frost` needs photographs of frost, and is
not there.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage

from sightline.errors import require_known

SIDE = 224
"""Of a corrupted image in pixels: the strengths are made for it."""
SEVERITIES = 5
_Image = np.ndarray
_Draws = np.random.Generator


def corrupted(image: np.ndarray, corruption: str, severity: int, name: str) -> np.ndarray:
    """An image, corrupted; what is drawn hangs on the name of the image, the corruption and the severity alone.

    Args:
        image: uint8 [height, width, 3]; severity: 1 to 5.

    Raises:
        InputError: there is no such corruption; names the nearest.
    """
    require_known("corruption", corruption, CORRUPTIONS)
    seed = hashlib.sha256(f"imagenet-c/1/{corruption}/{severity}/{name}".encode("utf-8", "surrogatepass")).digest()
    make, strengths = CORRUPTIONS[corruption]
    made = make(image.astype(np.float64) / 255, strengths[severity - 1], np.random.default_rng(list(seed[:16])))
    # Truncated, as theirs.
    return (made.clip(0, 1) * 255).astype(np.uint8)


def _gaussian_noise(x: _Image, scale: float, draws: _Draws) -> _Image:
    return x + draws.normal(scale=scale, size=x.shape)


def _shot_noise(x: _Image, photons: float, draws: _Draws) -> _Image:
    return draws.poisson(x * photons) / photons


def _impulse_noise(x: _Image, amount: float, draws: _Draws) -> _Image:
    hit, salt = draws.random(x.shape) < amount, draws.random(x.shape) < 0.5
    return np.where(hit, salt.astype(np.float64), x)


def _defocus_blur(x: _Image, how: tuple[int, float], draws: _Draws) -> _Image:
    radius, smooth = how
    reach, around = (8, 1) if radius <= 8 else (radius, 2)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    bell = np.exp(-(np.arange(-around, around + 1) ** 2) / (2 * smooth**2))
    bell /= bell.sum()
    kernel = ndimage.convolve(disk / disk.sum(), bell[:, None] * bell, mode="mirror")
    return ndimage.correlate(x, kernel[..., None], mode="mirror")


def _glass_blur(x: _Image, how: tuple[float, int, int], draws: _Draws) -> _Image:
    sigma, reach, times = how
    x = _blurred(x, sigma)
    height, width = x.shape[:2]
    places = np.arange(height * width).reshape(height, width)
    for _ in range(times):
        moves = draws.integers(-reach, reach, (height, width, 2))
        for row in range(height - reach, reach, -1):
            for col in range(width - reach, reach, -1):
                other = row + moves[row, col, 0], col + moves[row, col, 1]
                places[row, col], places[other] = places[other], places[row, col]
    return _blurred(x.reshape(-1, x.shape[2])[places], sigma)


def _blurred(x: _Image, sigma: float) -> _Image:
    return ndimage.gaussian_filter(x, (sigma, sigma, 0), mode="nearest", truncate=4)


def _motion_blur(x: _Image, how: tuple[int, float], draws: _Draws) -> _Image:
    return _moved(x, *how, draws.uniform(-45, 45))


def _moved(x: _Image, radius: int, sigma: float, angle: float) -> _Image:
    """Half a bell along a direction in degrees, as ImageMagick blurs by motion."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    rows = np.ceil(steps * math.sin(math.radians(angle)) - 0.5).astype(int)
    cols = np.ceil(steps * math.cos(math.radians(angle)) - 0.5).astype(int)
    height, width = x.shape[:2]
    total = np.zeros_like(x)
    for weight, row, col in zip(weights, rows, cols, strict=True):
        y = (np.arange(height) + row).clip(0, height - 1)
        total += weight * x[y[:, None], (np.arange(width) + col).clip(0, width - 1)]
    return total


def _zoom_blur(x: _Image, how: tuple[float, float], draws: _Draws) -> _Image:
    factors = np.arange(1, *how)
    total = x.copy()
    for factor in factors:
        total += _zoomed(x, factor)
    return total / (len(factors) + 1)


def _zoomed(x: _Image, factor: float) -> _Image:
    """The middle of an image, enlarged to its size."""
    height, width = x.shape[:2]
    inner = [math.ceil(side / factor) for side in (height, width)]
    top, left = ((side - part) // 2 for side, part in zip((height, width), inner, strict=True))
    large: Any = ndimage.zoom(x[top : top + inner[0], left : left + inner[1]], (factor, factor, 1), order=1)
    top, left = ((part - side) // 2 for side, part in zip((height, width), large.shape, strict=False))
    return large[top : top + height, left : left + width]


def _snow(x: _Image, how: tuple[float, ...], draws: _Draws) -> _Image:
    mean, scale, zoom, least, radius, sigma, left = how
    height, width = x.shape[:2]
    flakes = _zoomed(draws.normal(mean, scale, (height, width, 1)), zoom)
    flakes = np.where(flakes < least, 0, flakes).clip(0, 1)
    flakes = _moved(flakes, int(radius), sigma, draws.uniform(-135, -45))
    grey = x @ np.array([0.299, 0.587, 0.114])
    x = left * x + (1 - left) * np.maximum(x, (grey * 1.5 + 0.5)[..., None])
    return x + flakes + np.rot90(flakes, 2)


def _fog(x: _Image, how: tuple[float, float], draws: _Draws) -> _Image:
    amount, decay = how
    height, width = x.shape[:2]
    most = x.max()
    side = 1 << max(height, width, 2).bit_length()
    x = x + amount * _plasma(side, decay, draws)[:height, :width, None]
    return x * most / (most + amount)


def _plasma(side: int, decay: float, draws: _Draws) -> np.ndarray:
    """Clouds from 0 to 1, [side, side] and periodic, by the diamond-square algorithm; `side` is a power of two."""
    made, step, rough = np.zeros((side, side)), side, 100.0

    def near(total: np.ndarray) -> np.ndarray:
        return total / 4 + rough * draws.uniform(-rough, rough, total.shape)

    while step >= 2:
        half = step // 2
        corners = made[::step, ::step]
        right = corners + np.roll(corners, -1, 1)
        made[half::step, half::step] = near(right + np.roll(right, -1, 0))
        middles = made[half::step, half::step]
        made[::step, half::step] = near(right + middles + np.roll(middles, 1, 0))
        made[half::step, ::step] = near(corners + np.roll(corners, -1, 0) + middles + np.roll(middles, 1, 1))
        step, rough = half, rough / decay
    made -= made.min()
    return made / made.max()


def _brightness(x: _Image, more: float, draws: _Draws) -> _Image:
    # Of one hue and saturation all channels go with the value, the largest of them.
    value = x.max(axis=2, keepdims=True)
    bright = (value + more).clip(0, 1)
    return np.where(value > 0, x * bright / np.maximum(value, 1e-12), bright)


def _contrast(x: _Image, left: float, draws: _Draws) -> _Image:
    mean = x.mean(axis=(0, 1), keepdims=True)
    return (x - mean) * left + mean


def _elastic_transform(x: _Image, how: tuple[float, float, float], draws: _Draws) -> _Image:
    strength, sigma, reach = (one * SIDE for one in how)
    height, width = x.shape[:2]
    middle, arm = np.array([height, width]) // 2, min(height, width) // 3
    before = np.array([middle + arm, [middle[0] + arm, middle[1] - arm], middle - arm], np.float64)
    after = before + draws.uniform(-reach, reach, before.shape)
    # Rows of (y, x, 1) times this are where a pixel of the result comes from.
    back = np.linalg.solve(np.column_stack((after, np.ones(3))), before)
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), axis=-1).astype(np.float64)
    x = _taken(x, grid @ back[:2] + back[2], "mirror")
    shifts = [
        ndimage.gaussian_filter(draws.uniform(-1, 1, (height, width)), sigma, mode="reflect", truncate=3) * strength
        for _ in range(2)
    ]
    return _taken(x, grid + np.stack(shifts, axis=-1), "reflect")


def _taken(x: _Image, places: np.ndarray, mode: str) -> _Image:
    """The values at places [height, width, (y, x)], bilinear."""
    coordinates = places.transpose(2, 0, 1)
    channels = [ndimage.map_coordinates(x[..., one], coordinates, order=1, mode=mode) for one in range(x.shape[2])]
    return np.stack(channels, axis=-1)


def _pixelate(x: _Image, share: float, draws: _Draws) -> _Image:
    image = _picture(x)
    small = image.resize((int(image.width * share), int(image.height * share)), Image.Resampling.BOX)
    return np.asarray(small.resize(image.size, Image.Resampling.BOX)) / 255


def _jpeg_compression(x: _Image, quality: int, draws: _Draws) -> _Image:
    content = io.BytesIO()
    _picture(x).save(content, "JPEG", quality=quality)
    return np.asarray(Image.open(content)) / 255


def _picture(x: _Image) -> Image.Image:
    return Image.fromarray((x * 255).round().astype(np.uint8))


CORRUPTIONS: dict[str, tuple[Callable[[_Image, Any, _Draws], _Image], tuple[Any, ...]]] = {
    "gaussian_noise": (_gaussian_noise, (0.08, 0.12, 0.18, 0.26, 0.38)),
    "shot_noise": (_shot_noise, (60, 25, 12, 5, 3)),
    "impulse_noise": (_impulse_noise, (0.03, 0.06, 0.09, 0.17, 0.27)),
    "defocus_blur": (_defocus_blur, ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))),
    "glass_blur": (_glass_blur, ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))),
    "motion_blur": (_motion_blur, ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))),
    "zoom_blur": (_zoom_blur, ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))),
    "snow": (
        _snow,
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    "fog": (_fog, ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))),
    "brightness": (_brightness, (0.1, 0.2, 0.3, 0.4, 0.5)),
    "contrast": (_contrast, (0.4, 0.3, 0.2, 0.1, 0.05)),
    # Strength, smoothness and reach of the displacement over the side of the image.
    "elastic_transform": (
        _elastic_transform,
        tuple(
            (strength * 244 / SIDE, sigma * 244 / SIDE, reach * 244 / SIDE)
            for strength, sigma, reach in (
                (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
            )
        ),
    ),
    "pixelate": (_pixelate, (0.6, 0.5, 0.4, 0.3, 0.25)),
    "jpeg_compression": (_jpeg_compression, (25, 18, 15, 10, 7)),
}  # fmt: skip
"""Name -> how it is made, and its strengths from severity 1 to 5."""
