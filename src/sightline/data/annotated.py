"""Images whose objects a file of COCO's format says."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from sightline.data.annotations import CocoFile
from sightline.data.image_file import orientation_note
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import IMAGE_SUFFIXES, images_below
from sightline.data.skip_policy import Unreadable
from sightline.data.stored import FileSource
from sightline.data.targets import Objects
from sightline.errors import InputError, UnreadableDataError


class DetectionFiles(FileSource):
    """Images with objects: boxes, outlines, crowds.

    A file that contradicts itself is refused when it is opened; an object that says nonsense (a box that is not finite,
    runs that do not fill the image), or an image of another size, cannot be read. What published files have is read as
    pycocotools and torchvision do: boxes are cut at the edge; objects without area then, and polygons of fewer than
    three points, are left out (`left_out`); an area that is not said is that of the mask, or of the box.

    Attributes:
        annotation_files: split's own name -> its annotations, below the folder; those that are not there are no split.
        roles: name of a split -> split's own name.
        file_key: what of an image names its file.
        whole_folders: whether an image that no annotations name was passed over, and not another data set's.
        category_ids: of each of `object_classes`, in the file: what results are to be written with.
    """

    provides: tuple[str, ...] = ("objects",)
    annotation_files: ClassVar[Mapping[str, str]]
    roles: ClassVar[Mapping[str, str]]
    file_key: ClassVar[str] = "file_name"
    whole_folders: ClassVar[bool] = True
    category_ids: tuple[int, ...]

    def __init__(self, root: str | Path) -> None:
        """Read the annotations in a folder; raises InputError where there are none, or they are not as described
        (`CocoFile`), an image is missing or is named twice, or two files have other categories."""
        root = Path(root)
        there = {own: root / file for own, file in self.annotation_files.items() if (root / file).exists()}
        if not there:
            raise InputError(f"{root}: no {' or '.join(self.annotation_files.values())} in it")
        parts = {own: CocoFile(path, self.file_key) for own, path in there.items()}
        first = next(iter(parts.values()))
        for other in parts.values():
            if other.names != first.names:
                raise InputError(f"{other.path}: its categories are not those of {first.path} (expected: the same)")
        if not first.names:
            raise InputError(f"{first.path}: has no categories (expected: one or more)")
        self.task, self.classes = "detection", ()
        self.category_ids, self.object_classes = tuple(first.names), tuple(first.names.values())
        # Of each row the annotations and the number of the image in them; behind the images of a file that file itself.
        paths, names, self._said_by = list[Path](), list[str](), list[tuple[CocoFile, int]]()
        for own, said in parts.items():
            listed = [*self._images(root, own, said), said.path]
            paths += listed
            names += [f"{own}/{path.relative_to(root).as_posix()}" for path in listed]
            self._said_by += [(said, number) for number in range(len(listed))]
        images = [row for row, (said, number) in enumerate(self._said_by) if number < len(said.files)]
        super().__init__(root, ImageIndex.of_files(names, paths), images, self.roles)
        for row in set(range(len(paths))).difference(images):
            # Of the annotations the whole content is known.
            digest = self._said_by[row][0].digest
            self.listing.samples[row] = np.frombuffer(bytes.fromhex(digest), np.uint8)
            self.listing.read[row], self.listing.digests[row] = True, digest
        self.left_out = {str(said.path): said.left_out for said in parts.values() if said.left_out}
        self._places = there

    @abstractmethod
    def image_path(self, root: Path, own: str, name: str) -> Path | None:
        """Where the file of an image should be, by what names it in the annotations of a split; None where that is no
        name of an image's file."""

    def _images(self, root: Path, own: str, said: CocoFile) -> list[Path]:
        """The file of each image, which is there, and is that of no other."""
        if not said.files:
            raise InputError(f"{said.path}: has no images (expected: one or more)")
        found = dict[Path, int]()
        for number, name in enumerate(said.files):
            path = self.image_path(root, own, name)
            if path is None or path in found:
                expected = "the name of an image's file" if path is None else f"not that of images[{found[path]}]"
                raise InputError(f"{said.path}: images[{number}]: {self.file_key} {name[:80]!r} (expected: {expected})")
            found[path] = number
        folders = dict.fromkeys(path.parent for path in found if path.parent.is_dir())
        there = {path for folder in folders for path in images_below(folder, [])}
        if missing := [path for path in found if os.fspath(path) not in there]:
            named = f"images[{found[missing[0]]}] of {said.path} names it; {len(missing)} of {len(found)} are missing"
            raise InputError(f"{missing[0]}: no such file (expected: {named})")
        if self.whole_folders:
            others = sorted(there - set(map(os.fspath, found)))
            self.skipped += tuple(Unreadable(path, f"not among the images of {said.path}") for path in others)
        return list(found)

    def image_id(self, split: str, index: int) -> int:
        """The id of an image in its file, which results are to be written with; raises InputError as `example`."""
        said, number = self._said_by[self._row(split, index)]
        return said.image_ids[number]

    def header_error(self, row: int) -> str | None:
        """As `FileSource.header_error`; what is wrong with what is said of an image is the image's too."""
        return super().header_error(row) or self._fault(row, tuple(self.listing.sizes[row].tolist()))

    def _fault(self, row: int, size: tuple[int, ...]) -> str | None:
        said, number = self._said_by[row]
        if number in said.faults or size == said.sizes[number]:
            return said.faults.get(number)
        here, there = (f"{height} x {width}" for height, width in (size, said.sizes[number]))
        turned = orientation_note(self.listing.image(row), size, said.sizes[number])
        return f"is {here} pixels (expected: {there}, height x width, as {said.path} says){turned}"

    def target(self, row: int, size: tuple[int, int]) -> Objects:
        if (reason := self._fault(row, size)) is not None:
            raise UnreadableDataError(f"{self.listing.paths[row]}: {reason}")
        said, number = self._said_by[row]
        return said.objects(number)


def path_below(folder: Path, name: str) -> Path | None:
    """Where the file of an image is: at a path below its folder, or below the folder beside which that is; None where
    the name is no such path of an image."""
    place = Path(name)
    if place.is_absolute() or ".." in place.parts or "\0" in name or not name.lower().endswith(IMAGE_SUFFIXES):
        return None
    beside = place.parts[0] == folder.name and len(place.parts) > 1 and not (folder / folder.name).is_dir()
    return (folder.parent if beside else folder) / place
