"""Maps of labels as they are stored: a PNG whose every pixel is a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sightline.data.image_file import MAX_PIXELS, read_label_map
from sightline.data.targets import IGNORE
from sightline.errors import UnreadableDataError

MOST_CLASSES = IGNORE
"""Classes that a map of bytes can tell apart, beside `IGNORE`."""


class LabelMapping:
    """Which class each stored number means.

    Attributes:
        values: the stored number of each class; ignored: of pixels that count nowhere.
        expected: the numbers that are allowed, in words.
    """

    def __init__(self, class_of: Sequence[int], expected: str, ignored: Sequence[int] = (IGNORE,)) -> None:
        """A legend.

        Args:
            class_of: the stored number of each class, in the order of the classes.
            ignored: stored numbers of pixels that count nowhere.
        """
        self.values, self.ignored, self.expected = tuple(class_of), tuple(ignored), expected
        # -1 is no class.
        self._table = np.full(max(*self.values, *self.ignored, 255) + 1, -1, np.int16)
        self._table[list(ignored)] = IGNORE
        self._table[list(class_of)] = np.arange(len(class_of))

    def read(self, path: str, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """The class of each pixel of a stored map: uint8 [height, width], `IGNORE` where nothing is said.

        Raises:
            UnreadableDataError: as `read_label_map`, or a number is none of the legend's; names the first such one and
                where it is.
        """
        numbers = read_label_map(path, max_pixels=max_pixels)
        classes = self._table[np.minimum(numbers, len(self._table) - 1)]
        wrong = (classes < 0) | (numbers >= len(self._table))
        if wrong.any():
            row, col = np.argwhere(wrong)[0].tolist()
            raise UnreadableDataError(
                f"{path}: value {int(numbers[row, col])} at row {row}, column {col} is no class (expected: "
                f"{self.expected})"
            )
        return classes.astype(np.uint8)
