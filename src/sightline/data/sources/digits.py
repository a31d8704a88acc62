"""The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn (UCI, Alpaydin and Kaynak, 1998)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from PIL import Image

from sightline.data.rng import generator
from sightline.data.source import Example, Source
from sightline.data.targets import Label
from sightline.errors import InputError, require_known

SIZES = {"train": 1297, "minival": 200, "test": 300}
_PIXELS = 8
_MARGIN = 4
_SHIFT = 1.0
_ZOOM = (0.85, 1.15)


def _split(labels: np.ndarray) -> dict[str, np.ndarray]:
    """The indices of each split, int64: shuffled once, with every class spread evenly over the order, then cut."""
    shuffled = generator("digits/split/1", 0).permutation(len(labels))
    ranks = np.empty(len(labels))
    for label in range(10):
        members = shuffled[labels[shuffled] == label]
        ranks[members] = (np.arange(len(members)) + 0.5) / len(members)
    order = shuffled[np.argsort(ranks[shuffled], kind="stable")]
    parts = np.split(order, np.cumsum(list(SIZES.values()))[:-1])
    # In the order of the data set, so that no split is sorted by anything that was drawn.
    return {name: np.sort(part) for name, part in zip(SIZES, parts, strict=True)}


class Digits(Source):
    """Ten classes, one channel repeated three times; small enough to train on in minutes.

    The digits are enlarged (bicubic) to the shorter side of the image and centred on black. `train` is shifted by up
    to one of the eight pixels and zoomed by up to 15 %, by (seed, epoch, index).
    """

    name: ClassVar[str] = "digits"

    def __init__(self) -> None:
        """Raises InputError where scikit-learn is missing."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise InputError("the data set digits needs scikit-learn: pip install '.[digits]'") from None
        self.task, self.classes, self.groups, self.splits = "classification", tuple("0123456789"), {}, tuple(SIZES)
        images, labels = load_digits(return_X_y=True)
        images = np.round(images.reshape(-1, _PIXELS, _PIXELS) * (255 / 16)).astype(np.uint8)
        # uint8 [1797, 16, 16] with a black margin, and int64 [1797].
        self._images = np.pad(images, ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN)))
        self._labels = np.asarray(labels, np.int64)
        self._members = _split(self._labels)

    def length(self, split: str) -> int:
        """1,297 for train, 200 for minival, 300 for test."""
        require_known("split of digits", split, SIZES)
        return SIZES[split]

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """One digit; see the class for how it is enlarged and moved."""
        self.check(split, index, image_size)
        member = int(self._members[split][index])
        centre_y = centre_x = _MARGIN + _PIXELS / 2
        reach = _PIXELS / 2
        if split == "train" and not self.still:
            y, x, zoom = generator("digits/train/1", seed, index, epoch=epoch).random(3).tolist()
            centre_y += (2 * y - 1) * _SHIFT
            centre_x += (2 * x - 1) * _SHIFT
            reach *= _ZOOM[0] + (_ZOOM[1] - _ZOOM[0]) * zoom
        box = (centre_x - reach, centre_y - reach, centre_x + reach, centre_y + reach)
        side = min(image_size)
        digit = Image.fromarray(self._images[member]).resize((side, side), Image.Resampling.BICUBIC, box=box)
        image = np.zeros((*image_size, 3), dtype=np.uint8)
        top, left = ((whole - side) // 2 for whole in image_size)
        image[top : top + side, left : left + side] = np.asarray(digit)[:, :, None]
        return Example(image, Label(int(self._labels[member])), f"digits/{split}/{index}")
