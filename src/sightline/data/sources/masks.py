"""Any images with maps of labels: masks:DIR."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import ClassVar

import numpy as np

from sightline.data.allowance import Unreadable
from sightline.data.file_listing import side_by_side
from sightline.data.image_file import read_numbers
from sightline.data.label_map import MOST_CLASSES, Legend
from sightline.data.paired import ImagesWithMaps, images_and_maps, names_in
from sightline.data.splits import split_folders
from sightline.data.stored import roles
from sightline.errors import InputError, UnreadableDataError
from sightline.targets import IGNORE


class Masks(ImagesWithMaps):
    """Images in `DIR/images/SPLIT/` at any depth, each with a PNG of the same path in `DIR/masks/SPLIT/`, whose every
    pixel is the number of a class, or 255, which is `IGNORE`.

    SPLIT is as `imagefolder` has it, `val` being `test` where there is no `test`; images directly in `DIR/images` are
    one split, `test`. `DIR/classes.txt` has the name of a class a line, the first that of 0. Where there is none, the
    classes are called by their numbers, up to the highest that is in any map: all are then read once, and what was
    found is remembered. An image that `train` holds too is left out of the splits that measure.
    """

    name: ClassVar[str] = "masks"

    def __init__(self, root: str | Path) -> None:
        """Scan the folder DIR.

        Raises:
            InputError: the folder is not as described.
            UnreadableDataError: a folder in it may not be read.
        """
        root, skipped = Path(root), list[Unreadable]()
        images, maps, names = root / "images", root / "masks", root / "classes.txt"
        splits = split_folders(images, "test", skipped) if images.is_dir() else {"test": images}
        parts = {
            split: images_and_maps(folder, maps / folder.relative_to(images), skipped)
            for split, folder in splits.items()
        }
        known = names_in(names, "the name of a class a line", MOST_CLASSES) if names.exists() else ()
        super().__init__(root, parts, roles(parts), known, _legend(len(known)), skipped)
        self._leave_out_twins()
        if not known:
            count = self._highest() + 1
            self.pixel_classes, self.legend = tuple(map(str, range(count))), _legend(count)

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


def _legend(count: int) -> Legend:
    return Legend(range(count), f"0 to {count - 1}, or {IGNORE}, which is ignored")
