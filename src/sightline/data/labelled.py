"""Data sets that say one class of each image."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from sightline.data.file_listing import FileListing
from sightline.data.image_list import NO_CLASS
from sightline.data.stored import StoredImages, roles
from sightline.errors import InputError, UnreadableDataError, choose
from sightline.targets import Label

MOST_CLASSES = 1 << 20
"""A label beyond is no number of a class."""


class LabelledImages(StoredImages):
    """Images of one class each.

    An image whose label cannot be read, or is none of the classes, is one that cannot be read. What `train` holds too
    is left out of the splits that measure. `train` shows random parts of the images (`train_crop`), the others their
    centre (`eval_crop`).

    Attributes:
        labels: of each row of the listing.
    """

    reduced: ClassVar[bool] = True

    def __init__(
        self,
        root: Path,
        classes: Sequence[str],
        listing: FileListing,
        labels: Sequence[int],
        faults: Mapping[int, str] | None = None,
    ) -> None:
        """A data set of these images, all rows of the listing.

        Args:
            root: the folder.
            labels: of each row.
            faults: row -> why its label cannot be read.

        Raises:
            InputError: a split to train on has one class alone.
            UnreadableDataError: no label can be read.
        """
        self.task, self.classes, self.labels, self._faults = "classification", tuple(classes), labels, faults or {}
        if not self.classes:
            first = min(self._faults, default=0)
            said = self._faults.get(first, f"label {labels[first]} is no number of a class")
            raise UnreadableDataError(f"{listing.paths[first]}: {said}; no label of {root} can be read")
        folders = np.array(listing.splits)
        rows = {folder: np.flatnonzero(folders == folder) for folder in dict.fromkeys(listing.splits)}
        if "train" in rows and len(self.classes) == 1:
            place = self._places.get("train", root / "train")
            raise InputError(f"{place}: one class only, {self.classes[0]!r} (expected: at least 2)")
        super().__init__(root, listing, rows, roles(rows))
        self._leave_out_twins()

    def counted_as(self, row: int) -> str:
        """As `StoredImages.counted_as`."""
        return self.classes[self.labels[row]]

    def header_fault(self, row: int) -> str | None:
        """As `StoredImages.header_fault`; what is wrong with its label is the image's too."""
        return super().header_fault(row) or self._label_fault(row)

    def _label_fault(self, row: int) -> str | None:
        if row in self._faults:
            return self._faults[row]
        if 0 <= self.labels[row] < len(self.classes):
            return None
        last = len(self.classes) - 1
        return f"label {self.labels[row]} is none of the {last + 1} classes (expected: 0 to {last})"

    def target_of(self, row: int, size: tuple[int, int]) -> Label:
        if (reason := self._label_fault(row)) is not None:
            raise UnreadableDataError(f"{self.listing.paths[row]}: {reason}")
        return Label(self.labels[row])

    def rows_of(self, split: str) -> list[int]:
        """The row of the listing of each image of a split, in the order of the indices."""
        return self._rows[self._folder(split)].tolist()

    def labels_of(self, split: str) -> list[int]:
        """The label of each image of a split, in the order of the indices."""
        return [self.labels[row] for row in self.rows_of(split)]

    def chosen(self, split: str, indices: Sequence[int]) -> Self:
        """The same data set, of whose split these images are left, in this order."""
        folder, made = self._folder(split), copy.copy(self)
        made._rows = self._rows | {folder: self._rows[folder][np.asarray(indices, np.int64)]}
        return made


def numbered(labels: np.ndarray, splits: np.ndarray) -> tuple[str, ...]:
    """The names of classes that have none: "0" to the highest label of `train`, or of all splits where there is none.

    Args:
        labels: int64, of each image; below 0, or `MOST_CLASSES` and more, where there is none.
        splits: the split of each.
    """
    trained = labels[splits == "train"] if "train" in splits else labels
    known = trained[(trained >= 0) & (trained < MOST_CLASSES)]
    return tuple(map(str, range(int(known.max(initial=-1)) + 1)))


def class_part(classes: Sequence[str], label: int) -> str:
    """What names an image's class in a listing, where a name is SPLIT/CLASS/IMAGE."""
    return classes[label].replace("/", "_") if 0 <= label < len(classes) else NO_CLASS


def options_of(argument: str, allowed: Collection[str]) -> tuple[str, dict[str, str]]:
    """What a data set is opened by, "PLACE,option=value,...", taken apart.

    Raises:
        InputError: an option is not known, is given twice, or has no value.
    """
    # A pattern may hold commas too.
    found = re.fullmatch(r"(.*?)((?:,[A-Za-z_]+=[^,]*)*)", argument, re.DOTALL)
    assert found is not None
    options: dict[str, str] = {}
    for pair in found[2].split(",")[1:]:
        option, _, value = pair.partition("=")
        if option not in allowed:
            raise choose(f"{argument}: option", option, allowed)
        if option in options or not value:
            raise InputError(f"{argument}: option {option} {'twice' if value else 'without a value'} (expected: one)")
        options[option] = value
    return found[1], options
