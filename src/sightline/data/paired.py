"""Images, each with a map of labels of its own size beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sightline.data.image_file import MAX_PIXELS, orientation_note, read_label_map
from sightline.data.image_index import ImageIndex
from sightline.data.image_list import IMAGE_SUFFIXES, images_below
from sightline.data.skip_policy import Unreadable
from sightline.data.stored import FileSource
from sightline.data.targets import IGNORE, Pixels
from sightline.errors import InputError, UnreadableDataError
from sightline.io.read import CONFIGURATION, read_text

MOST_CLASSES = IGNORE
"""Classes that a map of bytes can tell apart, beside `IGNORE`."""
Files = Mapping[str, Path]
"""What an image and its map have in common -> a file."""
UNREAD = -1
"""Among classes, for a map that cannot be read."""


class LabelMapping:
    """Which class each stored number means: `values` of the classes, in their order, `ignored` those of pixels that
    count nowhere; `expected` says so in words."""

    def __init__(self, class_of: Sequence[int], expected: str, ignored: Sequence[int] = (IGNORE,)) -> None:
        self.values, self.ignored, self.expected = tuple(class_of), tuple(ignored), expected
        # Of each number that 16 bits hold; -1 is no class.
        self._table = np.full(1 << 16, -1, np.int16)
        self._table[list(ignored)] = IGNORE
        self._table[list(class_of)] = np.arange(len(class_of))

    def read(self, path: str, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
        """The class of each pixel of a stored map: uint8 [height, width], `IGNORE` where nothing is said; raises
        UnreadableDataError as `read_label_map`, or where a number is no class (names the first, and where it is)."""
        numbers = read_label_map(path, max_pixels=max_pixels)
        classes = self._table[numbers]
        if (classes < 0).any():
            row, col = np.argwhere(classes < 0)[0].tolist()
            said = f"value {int(numbers[row, col])} at row {row}, column {col} is no class"
            raise UnreadableDataError(f"{path}: {said} (expected: {self.expected})")
        return classes.astype(np.uint8)


class Doubt(NamedTuple):
    """What is odd of the numbers in the maps of `train`, in words; the name of the same data, read otherwise; whether
    nothing can be learned of it as it is."""

    said: str
    way: str | None
    hopeless: bool


def files_below(
    folder: Path,
    endings: Sequence[str],
    skipped: list[Unreadable],
    others: Sequence[str] = (),
    first_wins: bool = False,
) -> dict[str, Path]:
    """The files below a folder that end in one of these, by their paths below it without that ending, sorted; raises
    InputError where there is no such folder, or no such file in it, UnreadableDataError where one may not be read.

    Args:
        skipped: what ends otherwise, and hidden files, are added here; what ends in one of `others` is not.
        first_wins: of files that differ in their ending alone, that whose ending stands first is meant; else refused.
    """
    expected = f"(expected: files ending in {', '.join(endings)})"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder {expected}")
    found: dict[str, Path] = {}
    for path in map(Path, images_below(folder, skipped, tuple(one.lower() for one in (*endings, *others)))):
        ending = next((one for one in endings if path.name.lower().endswith(one.lower())), None)
        if ending is None:
            continue
        key = path.relative_to(folder).as_posix()[: -len(ending)]
        if key in found and not first_wins:
            raise InputError(f"{path}: {found[key].name} is beside it (expected: one file of this name)")
        if key not in found or ending == endings[0]:
            found[key] = path
    if not found:
        raise InputError(f"{folder}: no such files {expected}")
    return dict(sorted(found.items()))


def images_and_maps(images: Path, maps: Path, skipped: list[Unreadable]) -> tuple[Files, Files]:
    """The images below one folder and the PNG maps below another, as `files_below`."""
    return files_below(images, IMAGE_SUFFIXES, skipped), files_below(maps, (".png",), skipped)


class SegmentationFiles(FileSource):
    """Images with maps of labels.

    A map that cannot be read, whose size is not that of its upright image, or that holds a number which is no class,
    makes its image one that cannot be read. Labels are scored at the size in which they are stored.
    """

    provides: tuple[str, ...] = ("pixels",)

    def __init__(
        self,
        root: Path,
        parts: Mapping[str, tuple[Files, Files]],
        names: Sequence[str],
        legend: LabelMapping,
        skipped: Iterable[Unreadable] = (),
        roles: Mapping[str, str] | None = None,
    ) -> None:
        """A data set of the images and the maps of each folder of a split; raises InputError where an image has no map.

        Args:
            names: of the classes.
            legend: what numbers in the maps mean.
            roles: as `split_roles`.
        """
        self.task, self.classes, self.pixel_classes, self.legend = "segmentation", (), tuple(names), legend
        self.skipped = tuple(skipped)
        listed, map_of = list[tuple[str, Path]](), list[int]()
        for folder, (images, maps) in parts.items():
            if missing := [key for key in images if key not in maps]:
                said = f"{images[missing[0]]}: no map of labels ({len(missing)} of {len(images)} images have none"
                raise InputError(f"{said}; expected one for each, as in {next(iter(maps.values())).parent})")
            strays = (str(maps[key]) for key in maps if key not in images)
            self.skipped += tuple(Unreadable(path, "a map of labels without an image") for path in strays)
            first = len(listed) + len(images)
            map_of += [*range(first, first + len(images)), *[-1] * len(images)]
            listed += [(folder, part[key]) for part in (images, maps) for key in images]
        self._map_of = np.array(map_of, np.int64)
        self._places = {folder: next(iter(images.values())).parent for folder, (images, _) in parts.items()}
        names_listed = [f"{folder}/{path.relative_to(root).as_posix()}" for folder, path in listed]
        listing = ImageIndex.of_files(names_listed, [path for _, path in listed])
        super().__init__(root, listing, np.flatnonzero(self._map_of >= 0).tolist(), roles)

    def map_path(self, row: int) -> str:
        """Where the map of labels of an image is."""
        return self.listing.paths[self._map_of[row]]

    def legend_of(self, path: str) -> LabelMapping:
        """What the numbers in a map mean."""
        return self.legend

    def _beside(self, rows: Iterable[int]) -> list[int]:
        return self._map_of[list(rows)].tolist()

    def _noted(self, what: str, rows: Sequence[int], more: object, measure: Callable[[list[str]], list[int]]) -> Any:
        """What is found in the maps of these rows, given their paths: remembered under a name while they, and `more`,
        stay as they are; not where `UNREAD` is among it."""
        files = self.listing
        said = repr([[files.names[row] for row in rows], more]).encode() + files.stats[rows].tobytes()
        of = hashlib.sha256(said).hexdigest()
        found = files.noted(what, of, lambda: measure([files.paths[row] for row in rows]))
        if UNREAD in found:
            del files.notes[what]
        self.remember()
        return found

    def _seen(self) -> list[int]:
        """The classes of the pixels of `train`, with `IGNORE`, and `UNREAD` for a map that cannot be read, which is
        said where its image is asked for. Maps are read until the second class is seen."""

        def measure(paths: Iterable[str]) -> list[int]:
            seen = set[int]()
            for path in paths:
                try:
                    seen |= set(np.unique(self.legend_of(path).read(path, max_pixels=self.max_pixels)).tolist())
                except UnreadableDataError:
                    seen.add(UNREAD)
                if len(seen - {IGNORE, UNREAD}) > 1:
                    break
            return sorted(seen)

        rows = self._map_of[self._rows[self._folder("train")]].tolist()
        return self._noted("seen", rows, [self.legend.values, self.legend.ignored], measure)

    def doubt(self) -> Doubt | None:
        """What is odd of the numbers in the maps of `train`: its labelled pixels are all of one class."""
        found = self._seen()
        return None if UNREAD in found or len({*found} - {IGNORE}) > 1 else self._of_one_class(found)

    def _of_one_class(self, found: Sequence[int], way: str | None = None) -> Doubt:
        there = ", ".join(repr(self.pixel_classes[one]) for one in found if one != IGNORE) or "none of the classes"
        ignored = f"; {', '.join(map(str, self.legend.ignored))} is ignored" if IGNORE in found else ""
        hint = f"; {way} makes the ignored ones a class" if way else ""
        said = f"its pixels are all of {there}{ignored} (expected: of two classes or more{hint})"
        return Doubt(f"{self.place_of(self._folder('train'))}: {said}", way, hopeless=True)

    def check_classes(self, warn: Callable[[str], None] = lambda _: None) -> None:
        """Refuse to learn the class of pixels where those of `train` are all of one, by an InputError that names a way
        on where there is one; `warn` is told what else is odd of the numbers in the maps."""
        if (doubt := self.doubt()) is None:
            return
        if doubt.hopeless:
            raise InputError(doubt.said)
        warn(doubt.said)

    def header_error(self, row: int) -> str | None:
        """As `FileSource.header_error`; that of its map is the image's too, and so is another size."""
        beside = int(self._map_of[row])
        if (own := super().header_error(row)) is not None or beside < 0:
            return own
        if (reason := super().header_error(beside)) is not None:
            return f"its map of labels {self.listing.paths[beside]}: {reason}"
        return self._wrong_size(row, self.listing.sizes[beside].tolist(), self.listing.sizes[row].tolist())

    def target(self, row: int, size: tuple[int, int]) -> Pixels:
        path = self.map_path(row)
        classes = self.legend_of(path).read(path, max_pixels=self.max_pixels)
        if (reason := self._wrong_size(row, classes.shape, size)) is not None:
            raise UnreadableDataError(f"{self.listing.paths[row]}: {reason}")
        return Pixels(classes)

    def _wrong_size(self, row: int, size: Sequence[int], upright: Sequence[int]) -> str | None:
        """Why the map of an image of this (height, width) does not fit; None where it does, or was not read."""
        if tuple(size) in (tuple(upright), (0, 0)):
            return None
        here, there = (" x ".join(map(str, one)) for one in (size, upright))
        said = f"is {here} pixels (expected: {there}, height x width of the upright image)"
        note = orientation_note(self.listing.image(row), upright, size)
        return f"its map of labels {self.map_path(row)} {said}{note}"


def names_in(path: Path, most: int) -> tuple[str, ...]:
    """The names of classes in a file that has one a line; raises InputError as `read_text`, or where there are none,
    more than `most`, an empty one, or one twice."""
    expected = "the name of a class a line"
    names = [line.strip() for line in read_text(path, CONFIGURATION, expected).rstrip().splitlines()]
    if not 1 <= len(names) <= most:
        raise InputError(f"{path}: {len(names)} names (expected: {expected}, 1 to {most})")
    lines: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        first = lines.setdefault(name, number)
        if not name or first < number:
            said = f"the name {name!r} is that of line {first} too" if name else "an empty line"
            raise InputError(f"{path}:{number}: {said} (expected: {expected})")
    return tuple(names)
