"""Data sets that say one class of each image, or what it shows in words, or both."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from sightline.data.folders import folders_in, split_by_name, splits_among
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import NO_CLASS, NO_LABEL
from sightline.data.skip_policy import Unreadable
from sightline.data.stored import FileSource, split_roles
from sightline.data.targets import Captions, Label, LabelledCaptions, Target
from sightline.errors import InputError, SightlineError, UnreadableDataError

BAD_LABEL = -2
"""The label of an image whose label cannot be read, or is none of the classes."""
_SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)
MOST_CLASSES = 1 << 20
"""A label beyond is no number of a class."""


class ClassificationFiles(FileSource):
    """Images of one class each, or with captions, or both.

    An image whose label cannot be read, or is none of the classes, is one that cannot be read. A split none of whose
    images has a label, as a test set whose labels are withheld, is not measured; where no split has one, the images can
    be listed and predicted, and no split can be asked for. What `train` holds too is left out of the splits that
    measure. `train` shows random parts of the images (`train_crop`), the others their centre (`eval_crop`).

    Where no image has a label, captions are what is said of them: an image without one cannot be read, and where one
    says left or right `train` mirrors no image. Beside labels there are captions where each labelled image has one.

    Attributes:
        labels: of each row of the listing.
    """

    reduced: ClassVar[bool] = True
    _no_label: SightlineError | None = None

    def __init__(
        self,
        root: Path,
        classes: Sequence[str],
        listing: ImageIndex,
        labels: Sequence[int],
        faults: Mapping[int, str] | None = None,
        captions: Sequence[tuple[str, ...]] = (),
        needs_captions: bool = False,
    ) -> None:
        """A data set of these images, all rows of the listing, each with a label or `NO_LABEL`, and captions or none;
        `faults`: row -> why its label cannot be read; with `needs_captions` an image without one cannot be read either,
        though it has a label. Raises InputError where a split to train on has one class alone."""
        self.task, self.classes, self.labels, self._faults = "classification", tuple(classes), labels, faults or {}
        alone = max(labels, default=NO_LABEL) < 0
        whole = all(one or label < 0 for one, label in zip(captions, labels, strict=False))
        if needs_captions or (any(captions) and (alone or whole)):
            self.captions, self.provides = captions, ("label", "captions")
        if self.captions and alone:
            # What is wrong with labels is nothing of a data set that has none.
            self.task, self.classes, self.provides, self._faults = "contrastive", (), ("captions",), {}
            self._no_label = None
        if "train" in listing.splits and len(self.classes) == 1:
            place = self._places.get("train", root / "train")
            raise InputError(f"{place}: one class only, {self.classes[0]!r} (expected: at least 2)")
        super().__init__(root, listing)
        if "label" in self.provides:
            self._leave_out_unlabelled(root)
        self.says_sides = any(_SIDES.search(one) for some in self.captions for one in some)
        if self.says_sides and self.provides == ("captions",):
            self.transform = self.transform.changed(flip=0.0)
        self._leave_out_twins()

    def _leave_out_unlabelled(self, root: Path) -> None:
        """A split without labels is not measured."""
        listing, absent = self.listing, np.asarray(self.labels) == NO_LABEL
        without = [folder for folder, own in self._rows.items() if absent[own].all() or not self.classes]
        self.unlabelled = frozenset(without)
        if len(without) < len(self._rows):
            self._take_roles(split_roles(one for one in self._rows if one not in without))
        elif self._no_label is None:
            first = min(self._faults, default=0)
            said = f"{self._faults.get(first, 'no label')}; no label of {root} can be read"
            expected = "(expected: labels, to train on or to measure; predict needs none)"
            self._no_label = UnreadableDataError(f"{listing.paths[first]}: {said} {expected}")
        for folder in without:
            instead = self._folder_of.get("test")
            measured = f"; {instead} is the test" if folder == "test" and instead and instead not in without else ""
            reason = f"no labels, so it is not measured{measured}"
            self.skipped = (Unreadable(str(self.place_of(folder)), reason), *self.skipped)

    def _folder(self, split: str) -> str:
        if self._no_label is not None:
            raise self._no_label
        return super()._folder(split)

    def _hint(self, split: str) -> str:
        # A split of a data set was named instead of the data set.
        if split_by_name(self.root.name) and "train" in splits_among(folders_in(self.root.parent), self.root.parent):
            return f"; did you mean {self.name}:{self.root.parent}?"
        return super()._hint(split)

    def class_name(self, row: int) -> str:
        """As `FileSource.class_name`."""
        if "label" not in self.provides:
            return super().class_name(row)
        return "no label" if self.listing.splits[row] in self.unlabelled else self.classes[self.labels[row]]

    def header_error(self, row: int) -> str | None:
        """As `FileSource.header_error`; what is wrong with what is said of an image is the image's too."""
        return super().header_error(row) or self._fault(row)

    def _fault(self, row: int) -> str | None:
        if self.listing.splits[row] in self.unlabelled:
            return None
        if self.captions and not self.captions[row]:
            return "no caption"
        if "label" not in self.provides or 0 <= self.labels[row] < len(self.classes):
            return None
        said = f"label {self.labels[row]} is no class (expected: 0 to {len(self.classes) - 1})"
        return self._faults.get(row, said)

    def target(self, row: int, size: tuple[int, int]) -> Target:
        if (reason := self._fault(row)) is not None:
            raise UnreadableDataError(f"{self.listing.paths[row]}: {reason}")
        label, captions = self.labels[row], self.captions[row] if self.captions else ()
        if "label" not in self.provides or label == NO_LABEL:
            return Captions(captions) if captions else Target()
        return LabelledCaptions(label, captions=captions) if captions else Label(label)

    def rows_of(self, split: str) -> list[int]:
        """The row of the listing of each image of a split, in the order of the indices."""
        return self._rows[self._folder(split)].tolist()

    def labels_of(self, split: str) -> list[int]:
        """The label of each image of a split, in the order of the indices."""
        return [self.labels[row] for row in self.rows_of(split)]

    def subset(self, split: str, indices: Sequence[int]) -> Self:
        """The same data set, of whose split these images are left, in this order."""
        folder, made = self._folder(split), copy.copy(self)
        made._rows = self._rows | {folder: self._rows[folder][np.asarray(indices, np.int64)]}
        return made


def understood(
    said: Sequence[int | str], splits: np.ndarray, where: str, names: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[int], dict[int, str]]:
    """The names of the classes, the label of each image, and row -> why its word is no class.

    Where most labels are words, classes without names are called by those of `train`, or of all splits where there is
    none, sorted by code point; else by their numbers, up to the highest. Raises InputError where there are more words
    than half of the images: they are no labels.

    Args:
        said: of each image its number or its word, `NO_LABEL` or `BAD_LABEL`.
        splits: the split of each.
        where: what says it, for messages.
        names: of the classes, where they have some.
    """
    said = [NO_LABEL if one in ("", "-1") else one for one in said]
    within = ((splits == "train") | ("train" not in splits)).tolist()
    trained = [one for one, counts in zip(said, within, strict=True) if counts and one not in (NO_LABEL, BAD_LABEL)]
    if 2 * sum(isinstance(one, str) for one in trained) <= len(trained):
        highest = max((one for one in trained if isinstance(one, int) and 0 <= one < MOST_CLASSES), default=-1)
        classes = tuple(names or map(str, range(highest + 1)))
        return classes, [BAD_LABEL if isinstance(one, str) else one for one in said], {}
    classes = tuple(names or sorted(set(map(str, trained))))
    if not names and 2 * len(classes) > len(trained):
        counted = f"{len(classes)} words for {len(trained)} images"
        raise InputError(f"{where}: {counted} are no labels (at most half as many)")
    numbers = {name: number for number, name in enumerate(classes)}
    labels = [one if one in (NO_LABEL, BAD_LABEL) else numbers.get(str(one), BAD_LABEL) for one in said]
    reason = f"is none of the {len(classes)} classes ({', '.join(classes[:5])}{', ...' * (len(classes) > 5)})"
    unknown = {row: f"label {one!r} {reason}" for row, one in enumerate(said) if one != BAD_LABEL == labels[row]}
    return classes, labels, unknown


def captions_in(said: object) -> tuple[str, ...]:
    """The captions in a text, or in a list of texts, each on one line; what is empty or no text is none."""
    texts = said if isinstance(said, list | tuple) else [said]
    return tuple(filter(None, (" ".join(one.split()) for one in texts if isinstance(one, str))))


def class_part(classes: Sequence[str], label: int) -> str:
    """What names an image's class in a listing, where a name is SPLIT/CLASS/IMAGE."""
    return classes[label].replace("/", "_") if 0 <= label < len(classes) else NO_CLASS
