"""Targets of images, and how they follow the crop of a picture. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from PIL import Image

from sightline.data.rng import generator
from sightline.errors import InputError

Box = tuple[float, float, float, float]

Lines = slice | np.ndarray

IGNORE = 255
"""The class of a pixel that counts nowhere."""

_MOST_SCALED = 16
"""Times as long as what is shown of it, at most, a picture is scaled as a whole."""


@dataclass(frozen=True, slots=True)
class Crop:
    """A part of a picture at another size, perhaps mirrored.

    Attributes:
        box: (y0, x0, y1, x1) in pixels of the picture before, not always whole ones.
        image_size: (height, width) in pixels of the picture after.
        mirrored: left and right change places, last.
        whole: the picture is scaled as a whole, in which the box stands at whole pixels, as torchvision's `Resize` and
            a crop do; it may then reach beyond the picture.
        fill: the colour beyond the picture, values from 0 to 255; None takes its reflection, as `np.pad`.
    """

    box: Box
    image_size: tuple[int, int]
    mirrored: bool = False
    whole: bool = False
    fill: tuple[int, ...] | None = None

    def apply_to_map(self, values: np.ndarray, outside: int = 0) -> np.ndarray:
        """Values of pixels [height, width, ...], as of a mask: each new pixel takes that in which its centre lies, as
        Pillow's `nearest`, and `outside` where a colour is filled in."""
        size = values.shape[0], values.shape[1]
        box, scaled, shown = self.scaled(size)
        y, x = (line[lines] for line, lines in zip(map(_nearest, size, box[:2], box[2:], scaled), shown, strict=True))
        moved = self.filled(values[y[:, None], x], size, outside)
        return moved[:, ::-1] if self.mirrored else moved

    def filled(self, shown: np.ndarray, size: tuple[int, int], value: int | tuple[int, ...]) -> np.ndarray:
        """[height, width, ...] of the picture after, before it is mirrored, with `value` beyond the picture of that
        (height, width); as it is where there is no fill."""
        if self.fill is None:
            return shown
        lines = map(_places, size, self.box[:2], self.box[2:], self.image_size)
        rows, cols = ((places >= 0) & (places < whole) for places, whole in lines)
        inside = (rows[:, None] & cols).reshape(*self.image_size, *[1] * (shown.ndim - 2))
        return np.where(inside, shown, np.asarray(value, shown.dtype))

    def scaled(self, size: tuple[int, int]) -> tuple[Box, tuple[int, int], tuple[Lines, Lines]]:
        """Of a picture of (height, width) the box that is scaled, to which (height, width), and the rows and columns of
        that which are shown, before it is mirrored."""
        if not self.whole:
            return self.box, self.image_size, (slice(None), slice(None))
        parts = [_reflected(*one) for one in zip(size, self.box[:2], self.box[2:], self.image_size, strict=True)]
        (y0, y1, height, rows), (x0, x1, width, cols) = parts
        return (y0, x0, y1, x1), (height, width), (rows, cols)

    def apply_to_boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes float [n, 4] as (y0, x0, y1, x1) in pixels, cut to the picture; one outside of it has no area left."""
        y0, x0, y1, x1 = self.box
        height, width = self.image_size
        scale = np.array([height / (y1 - y0), width / (x1 - x0)] * 2)
        moved = ((boxes - np.array([y0, x0, y0, x0])) * scale).clip(0, [height, width] * 2)
        return moved[:, [0, 3, 2, 1]] * [1, -1, 1, -1] + [0, width, 0, width] if self.mirrored else moved

    @property
    def region(self) -> tuple[slice, slice]:
        """The rows and columns of the picture before whose centres lie in the box, at least one each."""
        starts = [math.ceil(low - 0.5) for low in self.box[:2]]
        ends = [math.ceil(high - 0.5) for high in self.box[2:]]
        rows, cols = (slice(start, max(end, start + 1)) for start, end in zip(starts, ends, strict=True))
        return rows, cols


def _reflected(side: int, low: float, high: float, count: int) -> tuple[float, float, int, np.ndarray]:
    """Of `side` pixels, `count` are shown that lie between two places, perhaps beyond them: what is scaled, from and
    to, in how many pixels, and which of those are shown, int64 [count]."""
    places, whole = _places(side, low, high, count)
    places = places % max(2 * whole - 2, 1)
    lines = np.minimum(places, 2 * whole - 2 - places)
    # Of a strip that would be long beyond use, that part alone.
    begin, end = (0, whole) if whole <= _MOST_SCALED * count else (int(lines.min()), int(lines.max()) + 1)
    return begin * side / whole, min(end * side / whole, side), end - begin, lines - begin


def _places(side: int, low: float, high: float, count: int) -> tuple[np.ndarray, int]:
    """Where the shown pixels stand in a side that is scaled as a whole, int64 [count], some perhaps beyond it; and how
    many pixels that side has."""
    whole = max(round(side * count / (high - low)), 1)
    return np.arange(count) + round(low * whole / side), whole


def _nearest(side: int, low: float, high: float, count: int) -> np.ndarray:
    """Which of `side` pixels each of `count` takes that lie between two places: int32 [count]."""
    line = Image.fromarray(np.arange(side, dtype=np.int32)[None])
    return np.asarray(line.resize((count, 1), Image.Resampling.NEAREST, box=(low, 0, high, 1)))[0]


class Target:
    """The target of an image: a frozen dataclass of a task's own."""

    def transform(self, crop: Crop) -> Self:
        """The target of a part of the picture; by default it is that of the whole."""
        return self

    def for_evaluation(self, crop: Crop) -> Self:
        """The same in evaluation, where it may keep what the picture loses, as `Pixels`."""
        return self.transform(crop)

    def describe(self, classes: Sequence[str]) -> str:
        """In short, with the names of `classes`; nothing by default."""
        return ""

    def counted(self) -> Mapping[int, int]:
        """How many pixels, or objects, are of each class, by its number; nothing by default."""
        return {}

    def mix(self, other: Any, share: float) -> Self:
        """Of two pictures mixed, `share` of this one; raises InputError where such cannot be mixed."""
        raise InputError(f"mixing: a {type(self).__name__.lower()} cannot be mixed (expected mixing null)")


@dataclass(frozen=True, slots=True)
class Label(Target):
    """The class of an image.

    Attributes:
        label: its number; other: that of what it was mixed with, the same where it was not; share: of `label`.
    """

    label: int
    other: int | None = None
    share: float = 1.0

    def describe(self, classes: Sequence[str]) -> str:
        return classes[self.label]

    def mix(self, other: Any, share: float) -> Self:
        return replace(self, other=other.label, share=share)


@dataclass(frozen=True, slots=True)
class Captions(Target):
    """What is said of an image in words.

    Attributes:
        captions: at least one; of a training image the one that is drawn for the epoch.
        meaning: images of equal numbers from 0 on have captions that mean the same; -1 where that is not known.
    """

    captions: tuple[str, ...]
    meaning: int = -1

    def describe(self, classes: Sequence[str]) -> str:
        return self.captions[0]


@dataclass(frozen=True, slots=True)
class LabelledCaptions(Label):
    """The class of an image, and what is said of it in words, as `Captions`; there may be none."""

    captions: tuple[str, ...] = field(default=(), kw_only=True)
    meaning: int = field(default=-1, kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class Pixels(Target):
    """The class of each pixel.

    Attributes:
        pixels: uint8 [height, width], the number of a class, or `IGNORE`. In training it is as large as the picture;
            in evaluation that of the stored image's part that is shown, at its own size.
        origin: (row, column) where that part begins.
        whole: (height, width) of that image, None of the whole one.
    """

    pixels: np.ndarray
    origin: tuple[int, int] = (0, 0)
    whole: tuple[int, int] | None = None

    def counted(self) -> Mapping[int, int]:
        """As `Target.counted`; `IGNORE` is among them."""
        return _counts(self.pixels)

    def transform(self, crop: Crop) -> Self:
        return replace(self, pixels=crop.apply_to_map(self.pixels, IGNORE))

    def for_evaluation(self, crop: Crop) -> Self:
        rows, cols = crop.region
        whole = self.pixels.shape[0], self.pixels.shape[1]
        return replace(self, pixels=self.pixels[rows, cols], origin=(rows.start, cols.start), whole=whole)


@dataclass(frozen=True, slots=True, eq=False)
class Objects(Target):
    """Where the objects of an image are.

    Attributes:
        boxes: float64 [n, 4], (y0, x0, y1, x1) in pixels of a picture of `size`.
        labels: int64 [n], the class of each.
        size: (height, width) in pixels; in evaluation that of the stored image's part that is shown.
        crowd: bool [n], many objects in one box, where a detection counts neither as right nor as wrong.
        areas: float64 [n] in square pixels of that picture, by which objects are small or large.
        masks: bool [n, height, width], or None where they are not known.
        negative_classes: of which it is known that no object is here; None where all objects of all classes are known.
        non_exhaustive_classes: of which not every object is known (LVIS).
        origin: (row, column) of the stored image where the picture begins, in evaluation.
    """

    boxes: np.ndarray
    labels: np.ndarray
    size: tuple[int, int]
    crowd: np.ndarray
    areas: np.ndarray
    masks: np.ndarray | None = None
    negative_classes: tuple[int, ...] | None = None
    non_exhaustive_classes: tuple[int, ...] = ()
    origin: tuple[int, int] = (0, 0)

    @property
    def objects(self) -> Self:
        """Itself, as targets that have more than objects have them."""
        return self

    def counted(self) -> Mapping[int, int]:
        """As `Target.counted`."""
        return _counts(self.labels)

    def transform(self, crop: Crop) -> Self:
        """The same objects in the same order; one that is not on the picture any more has a box of no area."""
        boxes = crop.apply_to_boxes(self.boxes)
        # Of an object that is cut, as much as of its box.
        shares = _areas(boxes) / np.maximum(_areas(self.boxes), 1e-12)
        masks = self.masks
        if masks is not None:
            masks = crop.apply_to_map(masks.transpose(1, 2, 0)).transpose(2, 0, 1)
        return replace(self, boxes=boxes, size=crop.image_size, areas=self.areas * shares, masks=masks)

    def for_evaluation(self, crop: Crop) -> Self:
        rows, cols = crop.region
        box = (rows.start, cols.start, rows.stop, cols.stop)
        part = self.transform(Crop(box, (rows.stop - rows.start, cols.stop - cols.start)))
        return replace(part, origin=(rows.start, cols.start))


def with_one_caption(target: Any, *, seed: int, epoch: int, index: int) -> Any:
    """The target of a training image: of several captions one is drawn, each as likely, in any process the same.

    Args:
        seed: of the run.
        epoch: of its pass over the data.
        index: of the image in its split.
    """
    captions = getattr(target, "captions", ())
    if len(captions) < 2:
        return target
    drawn = generator("caption/1", seed, index, epoch=epoch).integers(len(captions))
    return replace(target, captions=(captions[int(drawn)],))


def _counts(numbers: np.ndarray) -> dict[int, int]:
    values, counts = np.unique(numbers, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _areas(boxes: np.ndarray) -> np.ndarray:
    """Of boxes [n, 4], in their own units, squared."""
    return (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
