"""The images of a suite's part: files with a class each, found by whoever knows the layout of their data set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sightline.data.image_index import ImageIndex
from sightline.data.image_list import images_below, natural_key
from sightline.data.labelled import ClassificationFiles
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError

TEST = "test"


@dataclass(frozen=True)
class LabelledFile:
    """An image: its file, its name below the data set's folder, and the number of its class."""

    path: str
    name: str
    label: int


class SuiteImages(ClassificationFiles):
    """One split, `test`, in the order in which they were found."""

    name: ClassVar[str] = "suite"

    def __init__(self, data: str, root: Path, classes: Sequence[str], images: Iterable[LabelledFile]) -> None:
        """A data set of these images.

        Args:
            data: its name; root: its folder, for messages.
        """
        found = list(images)
        names = [f"{TEST}/{one.name}" for one in found]
        self.remembered_as = root / f":suite:{data}"
        listing = ImageIndex.of_files(names, [one.path for one in found])
        super().__init__(root, classes, listing, [one.label for one in found])


def in_class_folders(root: Path, labels: Mapping[str, int], what: str) -> list[LabelledFile]:
    """The images of `root/CLASS/`, at any depth below, class by class in natural order (2 before 10).

    Args:
        labels: the number of a class by its folder's name; what: the data set, for messages.

    Raises:
        InputError: there is no such folder, one in it is none of the classes, or there is no image; names the folder.
        UnreadableDataError: a folder may not be read.
    """
    found: list[LabelledFile] = []
    skipped: list[Unreadable] = []
    if not root.is_dir():
        raise InputError(f"{root}: no such folder (expected {what}: CLASS/images in it)")
    folders = sorted(one for one in os.listdir(root) if (root / one).is_dir() and not one.startswith("."))
    for folder in sorted(folders, key=natural_key):
        if folder not in labels:
            expected = ", ".join(list(labels)[:3])
            raise InputError(
                f"{root / folder}: is no class of {what} (expected {len(labels)} folders: {expected}, ...)"
            )
        paths = sorted(images_below(root / folder, skipped), key=natural_key)
        above = len(os.fspath(root)) + 1
        found += [LabelledFile(path, path[above:], labels[folder]) for path in paths]
    if not found:
        raise InputError(f"{root}: holds no image in class folders (expected {what}: CLASS/images in it)")
    return found


def spread_over_classes(labels: Sequence[Any], count: int) -> list[int]:
    """Places of so many images, spread over their classes: one of each before a second of any; where not each class
    has one more, classes spread over all of them. All of fewer.

    Returns:
        Rising places.
    """
    seen: dict[Any, int] = {}
    rounds: list[list[int]] = []
    for place, label in enumerate(labels):
        number = seen[label] = seen.get(label, 0) + 1
        if number > len(rounds):
            rounds.append([])
        rounds[number - 1].append(place)
    chosen: list[int] = []
    for one in rounds:
        left = count - len(chosen)
        if left <= 0:
            break
        # By class, whatever the order of the images.
        some = sorted(one, key=lambda place: labels[place])
        chosen += some if len(some) <= left else [some[number * len(some) // left] for number in range(left)]
    return sorted(chosen)
