"""Crops of images in evaluation and in training: which part of an image is shown, and at what size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from PIL import Image

from sightline.data.rng import generator
from sightline.data.targets import Box, Crop
from sightline.errors import InputError, require_known
from sightline.io.config import Share, check_value

INTERPOLATIONS = {one.name.lower(): one for one in Image.Resampling}
CropMode = Literal["center", "squash", "border"]
"""timm's names of what of an image is shown in evaluation."""
TrainCrop = Literal["simple", "bit", "whole"]
Parts = float | TrainCrop
"""The smallest part of an image's area that is shown in training, or another way to cut it (`RandomResizedCrop`)."""
_CROP_ATTEMPTS = 10
# Pixels by which a simple random crop enlarges an image on each side.
_SIMPLE_BORDER = 4
# 448 px of 384.
_BIT_ENLARGED = 7 / 6


def check_image_size(image_size: tuple[int, int]) -> None:
    """Raise InputError for a (height, width) without pixels."""
    if min(image_size) < 1:
        size = f"{image_size[0]}x{image_size[1]}"
        raise InputError(f"image size {size} has no pixels (expected: height, width >= 1)")


class FrameStream:
    """The frames of a clip as they are read from files: of one size, each read once."""

    def __init__(self, frames: Iterator[Image.Image]) -> None:
        """Raises what reading the first of them does."""
        self.first, self._rest = next(frames), frames

    def __iter__(self) -> Iterator[Image.Image]:
        yield self.first
        yield from self._rest


Picture = np.ndarray | Image.Image | FrameStream
"""uint8 [height, width, 3] or a clip [frames, height, width, 3], an RGB image of Pillow, or a clip of such."""


def size_of(image: Picture) -> tuple[int, int]:
    """(height, width) in pixels, of a clip those of its frames."""
    image = image.first if isinstance(image, FrameStream) else image
    return (image.height, image.width) if isinstance(image, Image.Image) else (image.shape[-3], image.shape[-2])


def whole_crop(size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
    """The whole image, its aspect changed where that of `image_size` differs."""
    return Crop((0, 0, *size), image_size)


def eval_crop(
    size: tuple[int, int],
    image_size: tuple[int, int],
    crop: float = 1.0,
    mode: CropMode = "center",
    fill: tuple[int, ...] = (0, 0, 0),
) -> Crop:
    """What of an image is shown in evaluation: the image is scaled, then its centre is cut out; pixel by pixel timm's
    `transforms_imagenet_eval`.

    Args:
        size, image_size: (height, width) in pixels of the image and of the result.
        crop: the fraction of the scaled image that is shown, above 0 up to 1.
        mode: `center` scales until `image_size` / `crop` is just covered, `squash` changes the aspect, `border` scales
            until the image just fits inside, with the colour `fill`, from 0 to 255, beside it.

    Raises InputError where `crop` or `mode` is not allowed, or the size has no pixels.
    """
    if not 0 < crop <= 1:
        raise InputError(f"crop {crop}: expected more than 0, at most 1", field="crop", value=crop)
    require_known("crop_mode", mode, get_args(CropMode))
    check_image_size(image_size)
    (height, width), target = size, (math.floor(image_size[0] / crop), math.floor(image_size[1] / crop))
    if mode == "squash":
        scaled = target
    elif mode == "center" and target[0] == target[1]:
        # As torchvision's `Resize` of a side rounds.
        side = target[0]
        scaled = (side, int(side * width / height)) if height <= width else (int(side * height / width), side)
    else:
        ratio = (max if mode == "border" else min)(height / target[0], width / target[1])
        scaled = max(round(height / ratio), 1), max(round(width / ratio), 1)
    top, left = (
        round((whole - part) / 2) if whole >= part else -((part - whole) // 2)
        for whole, part in zip(scaled, image_size, strict=True)
    )
    shown_fill = fill if mode == "border" else None
    return Crop(_stored_box(size, scaled, (top, left), image_size), image_size, whole=True, fill=shown_fill)


def _stored_box(
    size: tuple[int, int], scaled: tuple[int, int], corner: tuple[int, int], image_size: tuple[int, int]
) -> Box:
    """A box of `image_size` at a corner (top, left) of a scaled image, in pixels of the image before it was scaled."""
    (top, left), y, x = corner, size[0] / scaled[0], size[1] / scaled[1]
    return top * y, left * x, (top + image_size[0]) * y, (left + image_size[1]) * x


def apply_crop(image: Picture, crop: Crop, interpolation: str = "bicubic") -> np.ndarray:
    """Crop an image by one of `INTERPOLATIONS`, antialiased; filters reach beyond the part where the image goes on. Of
    a clip the same part of each frame is shown.

    Returns:
        uint8 [height, width, 3], or with frames before; the image itself where it is shown as it is.

    Raises:
        InputError: the interpolation is not known, or the size has no pixels.
    """
    require_known("interpolation", interpolation, INTERPOLATIONS)
    check_image_size(crop.image_size)
    size = size_of(image)
    if isinstance(image, FrameStream):
        return np.stack([apply_crop(frame, crop, interpolation) for frame in image])
    if crop.box == (0, 0, *size) and crop.image_size == size and not crop.mirrored:
        return np.asarray(image)
    if isinstance(image, np.ndarray) and image.ndim > 3:
        return np.stack([apply_crop(frame, crop, interpolation) for frame in image])
    (y0, x0, y1, x1), (height, width), (rows, cols) = crop.scaled(size)
    picture = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    resized = picture.resize((width, height), INTERPOLATIONS[interpolation], box=(x0, y0, x1, y1))
    if crop.mirrored and not crop.whole:
        # Many times as fast as turning the columns of an array.
        return np.asarray(resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    view = np.asarray(resized)[rows][:, cols]
    if crop.fill is not None:
        view = crop.filled(view, size, crop.fill)
    return np.ascontiguousarray(view[:, ::-1]) if crop.mirrored else view


@dataclass(frozen=True)
class RandomResizedCrop:
    """How the stored images of a data set are shown; raises InputError where a number is out of range.

    Attributes:
        scale: smallest and largest part of an image's area that is shown in training.
        flip: how often it is mirrored.
        aspect: smallest and largest width / height of the part, relative to those of its view; log-uniform.
        interpolation: a filter of Pillow, antialiased.
        crop, crop_mode, fill: in evaluation (`eval_crop`); a crop of None resizes the whole image.
        train_crop_mode: what is cut in training in place of `scale` and `aspect`. `simple`, the simple random crop of
            DeiT III: an image is scaled until it just covers `image_size`, enlarged by its own reflection of 4 pixels
            on each side, then cut anywhere. Of a square size it is, value by value, torchvision's `Resize(size)`,
            `RandomCrop(size, padding=4, padding_mode="reflect")` and `RandomHorizontalFlip` of Pillow images (of an
            image more than 16 times as long as wide to a level or two). `bit` (Kolesnikov et al. 2020, BiT, appendix
            F): the whole image is resized to 7 / 6 of `image_size`, whatever its aspect, then cut anywhere. `whole`:
            it is resized to `image_size`, and not cut.
    """

    scale: tuple[float, float] = (0.35, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    interpolation: str = "bicubic"
    crop: float | None = 1.0
    crop_mode: CropMode = "center"
    fill: tuple[int, ...] = (0, 0, 0)
    train_crop_mode: TrainCrop | None = None

    def __post_init__(self) -> None:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise InputError(f"scale {self.scale}: expected 0 < low <= high <= 1", field="scale", value=self.scale)
        if not 0 < self.aspect[0] <= self.aspect[1]:
            raise InputError(f"aspect {self.aspect}: expected 0 < low <= high", field="aspect", value=self.aspect)
        check_value("flip", self.flip, Share)

    def changed(self, parts: Parts | None = None, **fields: Any) -> Self:
        """The same with the fields that are not None changed; `parts` as `Source.with_view`."""
        changes = {name: value for name, value in fields.items() if value is not None}
        if isinstance(parts, str):
            require_known("parts", parts, get_args(TrainCrop))
            changes |= {"train_crop_mode": parts, "scale": (1.0, 1.0), "aspect": (1.0, 1.0)}
        elif parts is not None:
            # The largest part of a source's own is kept with its smallest.
            if parts != self.scale[0]:
                changes["scale"] = (parts, 1.0)
            if self.train_crop_mode is not None:
                changes |= {"train_crop_mode": None, "scale": (parts, 1.0), "aspect": RandomResizedCrop.aspect}
        return replace(self, **changes)

    @property
    def parts(self) -> Parts:
        """What is shown of an image in training, as `Source.with_view` takes it."""
        return self.train_crop_mode or self.scale[0]

    @property
    def shows_parts(self) -> bool:
        """Whether a training image may be cut."""
        return self.train_crop_mode in ("simple", "bit") or self.scale[0] < 1

    @property
    def most_enlarged(self) -> int:
        """A drawn part is as large as its view at least, whichever it is, in an image so many times as large."""
        return max(math.ceil(1 / math.sqrt(self.scale[0] * self.aspect[0])), 2)

    def train_crop(
        self, size: tuple[int, int], image_size: tuple[int, int], *, seed: int, epoch: int, index: int
    ) -> Crop:
        """A random part of an image, perhaps mirrored, as a function of (seed, epoch, index) alone; arguments and
        errors as `eval_crop` and `Source.example`."""
        check_image_size(image_size)
        (height, width), (rows, cols) = size, image_size
        if self.train_crop_mode is not None:
            rng, border = generator("simple_crop/1", seed, index, epoch=epoch), 0
            if self.train_crop_mode == "simple":
                border, scaled = _SIMPLE_BORDER, (max(cols * height // width, rows), max(rows * width // height, cols))
            else:
                enlarged = _BIT_ENLARGED if self.train_crop_mode == "bit" else 1
                scaled = round(rows * enlarged), round(cols * enlarged)
            top, left = (
                int(rng.integers(whole + 2 * border - part + 1)) - border
                for whole, part in zip(scaled, image_size, strict=True)
            )
            box = _stored_box(size, scaled, (top, left), image_size)
            return Crop(box, image_size, bool(rng.random() < self.flip), whole=True)
        draws = generator("train_view/1", seed, index, epoch=epoch).random((_CROP_ATTEMPTS + 1, 4))
        return Crop(self._random_box(draws[1:], height, width, cols / rows), image_size, bool(draws[0, 0] < self.flip))

    def _random_box(self, draws: np.ndarray, height: int, width: int, target_aspect: float) -> Box:
        """The first drawn box that fits; else the largest centred one whose aspect is as near as the image permits."""
        (least, most), (narrowest, widest) = self.scale, self.aspect
        low, high = math.log(narrowest), math.log(widest)
        for area_draw, aspect_draw, y_draw, x_draw in draws.tolist():
            area = height * width * (least + (most - least) * area_draw)
            ratio = target_aspect * math.exp(low + (high - low) * aspect_draw)
            rows, cols = math.sqrt(area / ratio), math.sqrt(area * ratio)
            if rows <= height and cols <= width:
                top, left = y_draw * (height - rows), x_draw * (width - cols)
                return top, left, min(top + rows, height), min(left + cols, width)
        ratio = min(max(width / height, target_aspect * narrowest), target_aspect * widest)
        rows, cols = min(height, width / ratio), min(width, height * ratio)
        top, left = (height - rows) / 2, (width - cols) / 2
        return top, left, top + rows, left + cols

    def measured(self, size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
        """The crop of an image in evaluation."""
        if self.crop is None:
            return whole_crop(size, image_size)
        return eval_crop(size, image_size, self.crop, self.crop_mode, self.fill)

    def cut(self, image: Picture, crop: Crop) -> np.ndarray:
        """What is shown of an image: [height, width, 3], of a clip with frames before, uint8, or float32 from 0 to 255
        where a kind computes so."""
        return apply_crop(image, crop, self.interpolation)
