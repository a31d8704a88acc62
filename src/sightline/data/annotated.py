"""Images whose objects a file of COCO's format says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from sightline.data.annotations import CocoFile
from sightline.data.image_file import said_if_turned
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import IMAGE_SUFFIXES, images_below, stamp_of
from sightline.data.skip_policy import Unreadable
from sightline.data.stored import FileSource
from sightline.data.targets import Objects
from sightline.errors import InputError, UnreadableDataError


class DetectionFiles(FileSource):
    """Images with objects: boxes, outlines, crowds.

    What contradicts itself in a file (ids that are there twice or not at all, an image that is missing) is refused when
    it is opened; an object that says nonsense (a box that is not finite, runs that do not fill the image) makes its
    image one that cannot be read, and so does an image of another size. What published files have is read as
    pycocotools and torchvision do: boxes are cut at the edge; an object whose box has no area then, and a polygon of
    fewer than three points, are left out (`left_out`); an area that is not said is that of the mask, or of the box.

    Attributes:
        whole_folders: whether an image that no annotations name was passed over, and not another data set's.
        category_ids: of each of `things`, in the file: what results are to be written with.
    """

    provides: ClassVar[tuple[str, ...]] = ("objects",)
    whole_folders: ClassVar[bool] = True
    category_ids: tuple[int, ...]

    def __init__(self, root: Path, parts: Mapping[str, tuple[CocoFile, Sequence[Path]]], folder_of: Mapping[str, str]):
        """A data set of what some files say.

        Args:
            parts: split's own name -> its annotations, and where the file of each of its images should be.
            folder_of: name of a split -> split's own name.

        Raises:
            InputError: an image is missing, is named twice, or two files have other categories.
        """
        self.task, self.classes = "detection", ()
        (first, _), *others = parts.values()
        for other, _ in others:
            if other.names != first.names:
                raise InputError(f"{other.path}: its categories are not those of {first.path} (expected: the same)")
        if not first.names:
            raise InputError(f"{first.path}: has no categories (expected: one or more)")
        self.category_ids, self.object_classes = tuple(first.names), tuple(first.names.values())
        names, paths, stamps, rows = [], [], [], {}
        self._said_by: list[tuple[CocoFile, int]] = []
        for own, (said, files) in parts.items():
            rows[own] = np.arange(len(names), len(names) + len(files))
            here = [*files, said.path]
            names += [f"{own}/{path.relative_to(root).as_posix()}" for path in here]
            paths += map(str, here)
            found = _found(said, files)
            stamps += [*(found.pop(os.fspath(path)) for path in files), stamp_of(said.path)]
            if self.whole_folders:
                self.skipped += tuple(Unreadable(path, f"not among the images of {said.path}") for path in found)
            self._said_by += [(said, number) for number in range(len(here))]
        listing = ImageIndex(names, paths, np.array(stamps, np.int64))
        super().__init__(root, listing, rows, folder_of)
        for own, (said, _) in parts.items():
            # Of the annotations the whole content is known.
            row = int(rows[own][-1]) + 1
            listing.samples[row], listing.read[row] = np.frombuffer(bytes.fromhex(said.digest), np.uint8), True
            listing.digests[row] = said.digest
        self.left_out = {str(said.path): said.left_out for said, _ in parts.values() if said.left_out}
        self._places = {own: said.path for own, (said, _) in parts.items()}

    def image_id(self, split: str, index: int) -> int:
        """The id of an image in its file, which results are to be written with; raises InputError as `example`."""
        said, number = self._said_by[self._row(split, index)]
        return said.image_ids[number]

    def header_error(self, row: int) -> str | None:
        """As `FileSource.header_error`; what is wrong with what is said of an image is the image's too."""
        if (own := super().header_error(row)) is not None:
            return own
        return self._fault(row, tuple(self.listing.sizes[row].tolist()))

    def _fault(self, row: int, size: tuple[int, ...]) -> str | None:
        said, number = self._said_by[row]
        if number in said.faults:
            return said.faults[number]
        if size == said.sizes[number]:
            return None
        here, there = (f"{height} x {width}" for height, width in (size, said.sizes[number]))
        turned = said_if_turned(self.listing.image(row), size, said.sizes[number])
        return f"is {here} pixels (expected: {there}, height x width, as {said.path} says){turned}"

    def target(self, row: int, size: tuple[int, int]) -> Objects:
        if (reason := self._fault(row, size)) is not None:
            raise UnreadableDataError(f"{self.listing.paths[row]}: {reason}")
        said, number = self._said_by[row]
        return said.objects(number)


def _found(said: CocoFile, files: Sequence[Path]) -> dict[str, tuple[int, int, int]]:
    """Stamps of all images in the folders of these, those among them.

    Raises:
        InputError: the file of an image is missing, or two images have one.
    """
    if not files:
        raise InputError(f"{said.path}: has no images (expected: one or more)")
    found: dict[str, tuple[int, int, int]] = {}
    skipped: list[Unreadable] = []
    for folder in dict.fromkeys(path.parent for path in files):
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder (expected: the images of {said.path})")
        found |= {entry.path: stamp_of(entry) for entry in images_below(folder, skipped)}
    missing = [number for number, path in enumerate(files) if os.fspath(path) not in found]
    if missing:
        raise InputError(
            f"{files[missing[0]]}: no such file (expected: images[{missing[0]}] of {said.path} names it; "
            f"{len(missing)} of {len(files)} are missing)"
        )
    if len(set(files)) < len(files):
        [(twice, count)] = Counter(files).most_common(1)
        raise InputError(f"{said.path}: {count} of its images are {twice} (expected: one)")
    return found


def file_in(said: CocoFile, number: int, folder: Path, name: str) -> Path:
    """Where the file of an image is: at a path below its folder, or below the folder beside which that is.

    Raises:
        InputError: the name is no such path of an image.
    """
    place = Path(name)
    if place.is_absolute() or ".." in place.parts or "\0" in name or not name.lower().endswith(IMAGE_SUFFIXES):
        raise InputError(f"{said.path}: images[{number}]: {name[:80]!r} (expected: the name of an image's file)")
    beside = place.parts[0] == folder.name and len(place.parts) > 1 and not (folder / folder.name).is_dir()
    return (folder.parent if beside else folder) / place
