"""Any images with maps of labels: masks:DIR."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from sightline.data.allowance import Unreadable
from sightline.data.file_listing import side_by_side
from sightline.data.image_file import read_numbers
from sightline.data.label_map import MOST_CLASSES, Legend
from sightline.data.labelled import options_of
from sightline.data.paired import ImagesWithMaps, images_and_maps, names_in
from sightline.data.splits import split_folders
from sightline.data.stored import roles
from sightline.errors import InputError, UnreadableDataError
from sightline.targets import IGNORE

_NAMES = "classes.txt"
_MOST_STORED = 0xFFFF


class Masks(ImagesWithMaps):
    """Images in `DIR/images/SPLIT/` at any depth, each with a PNG of the same path in `DIR/masks/SPLIT/`, whose every
    pixel is the number of a class, or 255, which is `IGNORE`.

    SPLIT is as `imagefolder` has it, `val` being `test` where there is no `test`; images directly in `DIR/images` are
    one split, `test`. `DIR/classes.txt` has the name of a class a line, the first that of 0. Where there is none, the
    classes are called by their numbers, up to the highest that is in any map: all are then read once, and what was
    found is remembered. `masks:DIR,values=0+255` says which numbers are classes, in their order; 255 among them is one,
    and where there are no names, classes are called by these numbers. An image that `train` holds too is left out of
    the splits that measure.
    """

    name: ClassVar[str] = "masks"

    def __init__(self, root: str | Path, values: Sequence[int] = ()) -> None:
        """Scan the folder DIR.

        Args:
            values: the stored number of each class; by default they count from 0.

        Raises:
            InputError: the folder is not as described, or there are not as many names as values.
            UnreadableDataError: a folder in it may not be read.
        """
        root, skipped = Path(root), list[Unreadable]()
        images, maps, names = root / "images", root / "masks", root / _NAMES
        splits = split_folders(images, "test", skipped) if images.is_dir() else {"test": images}
        parts = {
            split: images_and_maps(folder, maps / folder.relative_to(images), skipped)
            for split, folder in splits.items()
        }
        known = names_in(names, "the name of a class a line", MOST_CLASSES) if names.exists() else ()
        if known and values and len(known) != len(values):
            raise InputError(f"{names}: {len(known)} names (expected: {len(values)}, one for each of values)")
        super().__init__(root, parts, roles(parts), known, _legend(values or range(len(known))), skipped)
        self._leave_out_twins()
        if not known:
            numbers = values or range(self._highest() + 1)
            self.pixel_classes, self.legend = tuple(map(str, numbers)), _legend(numbers)

    @classmethod
    def open(cls, argument: str) -> Self:
        """The folder that the argument names, with its option `values`."""
        place, options = options_of(argument, ("values",))
        said = options.get("values")
        if said is None:
            return super().open(place)
        numbers = [int(one) for one in said.split("+") if one.isdecimal()]
        if said != "+".join(map(str, numbers)) or len(set(numbers)) < len(numbers) or max(numbers) > _MOST_STORED:
            expected = f"different whole numbers up to {_MOST_STORED}, as values=0+255"
            raise InputError(f"masks:{argument}: values={said} (expected: {expected})")
        return cls(place, numbers)

    @classmethod
    def folders(cls, argument: str) -> tuple[Path, ...]:
        """As `StoredImages.folders`, of what the options follow."""
        return super().folders(options_of(argument, ("values",))[0])

    def as_two_classes(self, found: Sequence[int]) -> str | None:
        """With what is ignored as a class."""
        named = (self.root / _NAMES).exists()
        if IGNORE not in found or len(found) < 2 or (named and len(self.pixel_classes) != 2):
            return None
        return f"masks:{self.root},values={self.legend.values[found[0]]}+{IGNORE}"

    def _highest(self) -> int:
        """The highest number of a class in all maps, of those that can be read."""
        listing, rows = self.listing, self._map_of[self._map_of >= 0].tolist()
        of = hashlib.sha256(
            repr([listing.names[row] for row in rows]).encode() + listing.stamps[rows].tobytes()
        ).hexdigest()
        known = listing.notes.get("highest", {})
        if known.get("of") != of:
            found = [highest for _, highest in side_by_side(_highest_in, [listing.paths[row] for row in rows])]
            listing.notes["highest"] = known = {"of": of, "highest": max(found)}
            listing.changed = True
            self.remember()
        if known["highest"] < 0:
            # One that cannot be read, as a picture in colours, says why.
            read_numbers(listing.paths[rows[0]])
            raise InputError(
                f"{self.root / 'masks'}: no map says a class (expected: numbers from 0 up; {IGNORE} is ignored)"
            )
        return known["highest"]


def _highest_in(path: str) -> int:
    """-1 where there is none, or the map cannot be read, which is said where its image is asked for."""
    try:
        numbers = read_numbers(path)
    except UnreadableDataError:
        return -1
    return int(numbers[numbers < IGNORE].astype(np.int64).max(initial=-1))


def _legend(values: Sequence[int]) -> Legend:
    said = f"0 to {len(values) - 1}" if isinstance(values, range) else ", ".join(map(str, values))
    ignored = () if IGNORE in values else (IGNORE,)
    return Legend(values, f"{said}, or {IGNORE}, which is ignored" if ignored else said, ignored)
