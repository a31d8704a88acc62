"""What is said of an image, and how it follows what was done to the picture. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from PIL import Image

from sightline.errors import InputError

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Crop:
    """What a transform did to a picture: a part of it at another size, perhaps mirrored.

    Attributes:
        box: (y0, x0, y1, x1) in pixels of the picture before; need not be whole.
        image_size: (height, width) in pixels of the picture after.
        mirrored: left and right changed places, last.
    """

    box: Box
    image_size: tuple[int, int]
    mirrored: bool = False

    def of_map(self, values: np.ndarray) -> np.ndarray:
        """Values of each pixel, as a mask has them: each new pixel takes that in which its centre lies, as Pillow's
        `nearest` says which that is.

        Args:
            values: [height, width, ...] of the picture before; of the picture after is returned.
        """
        y, x = map(_nearest, values.shape[:2], self.box[:2], self.box[2:], self.image_size)
        moved = values[y[:, None], x]
        return moved[:, ::-1] if self.mirrored else moved

    def of_boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes float [n, 4] as (y0, x0, y1, x1) in pixels, cut to the picture; one outside of it has no area left."""
        y0, x0, y1, x1 = self.box
        height, width = self.image_size
        scale = np.array([height / (y1 - y0), width / (x1 - x0)] * 2)
        moved = ((boxes - np.array([y0, x0, y0, x0])) * scale).clip(0, [height, width] * 2)
        return moved[:, [0, 3, 2, 1]] * [1, -1, 1, -1] + [0, width, 0, width] if self.mirrored else moved


def _nearest(side: int, low: float, high: float, count: int) -> np.ndarray:
    """Which of `side` pixels each of `count` takes that lie between two places: int32 [count]."""
    line = Image.fromarray(np.arange(side, dtype=np.int32)[None])
    return np.asarray(line.resize((count, 1), Image.Resampling.NEAREST, box=(low, 0, high, 1)))[0]


class Target:
    """What is said of an image: a frozen dataclass of a task's own."""

    def moved(self, crop: Crop) -> Self:
        """The same of a part of the picture; by default it is said of the whole, and stays."""
        return self

    def words(self, classes: Sequence[str]) -> str:
        """In short, for a person; nothing by default. `classes` are their names."""
        return ""

    def mixed(self, other: Any, share: float) -> Self:
        """Of two pictures mixed, `share` of this one.

        Raises:
            InputError: pictures of this kind cannot be mixed.
        """
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

    def words(self, classes: Sequence[str]) -> str:
        return classes[self.label]

    def mixed(self, other: Any, share: float) -> Self:
        return replace(self, other=other.label, share=share)
