"""Any images with maps of labels: masks:DIR."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from sightline.data import paired
from sightline.data.folders import folder_like, split_folders
from sightline.data.image_file import read_label_map
from sightline.data.image_index import thread_map
from sightline.data.skip_policy import Unreadable
from sightline.data.targets import IGNORE
from sightline.errors import InputError, UnreadableDataError

# Of numbers in the name of a data set that is proposed.
_MOST_LISTED = 64


class Masks(paired.SegmentationFiles):
    """Images in `DIR/images/SPLIT/` at any depth, each with a PNG of the same path in `DIR/masks/SPLIT/`, whose every
    pixel is the number of a class, or 255, which is `IGNORE`.

    SPLIT is as `imagefolder` has it, in either folder, `val` being `test` where there is no `test`; images directly in
    `DIR/images` are one split, `test`. `DIR/classes.txt` has the name of a class a line, the first that of 0. Where
    there is none, the classes are called by their numbers, up to the highest that is in any map: all are then read
    once, and what was found is remembered. `masks:DIR,values=0+255` says which numbers are classes, in their order; 255
    among them is one, and where there are no names, classes are called by these numbers. An image that `train` holds
    too is left out of the splits that measure.
    """

    name: ClassVar[str] = "masks"
    options: ClassVar[tuple[str, ...]] = ("values",)

    def __init__(self, root: str | Path, values: str = "") -> None:
        """Scan DIR; `values` is the stored number of each class, as "0+255", by default they count from 0. Raises
        InputError where the folder is not as described, UnreadableDataError where one may not be read."""
        stored = [int(one) for one in values.split("+") if one.isdecimal()]
        if values != "+".join(map(str, dict.fromkeys(stored))) or max(stored, default=0) > 0xFFFF:
            raise InputError(f"masks:{root}: values={values} (expected: different numbers of 16 bits, as values=0+255)")
        root, skipped = Path(root), list[Unreadable]()
        images, maps, names = root / "images", root / "masks", root / "classes.txt"
        splits = split_folders(images, "test", skipped) if images.is_dir() else {"test": images}
        parts = {
            split: paired.images_and_maps(folder, maps if folder == images else folder_like(folder.name, maps), skipped)
            for split, folder in splits.items()
        }
        known = paired.names_in(names, paired.MOST_CLASSES) if names.exists() else ()
        if known and stored and len(known) != len(stored):
            raise InputError(f"{names}: {len(known)} names (expected: {len(stored)}, one for each of values)")
        super().__init__(root, parts, known, _legend(stored or range(len(known))), skipped)
        self._named, self._counted = bool(known), not known and not stored
        self._leave_out_twins()
        if not known:
            numbers = stored or range(self._highest() + 1)
            self.pixel_classes, self.legend = tuple(map(str, numbers)), _legend(numbers)

    def doubt(self) -> paired.Doubt | None:
        """As `SegmentationFiles.doubt`; or numbers are no classes, or most classes up to the highest have no pixels."""
        found = self._seen()
        few, unread = len({*found} - {IGNORE, paired.UNREAD}) < 2, paired.UNREAD in found
        if not few and not self._counted:
            return None
        numbers = self._numbers()
        every = [one for one in numbers if one != IGNORE]
        # Of one class alone there is no way.
        way = self._by_values(numbers, few and not unread) if len(found) > 1 or unread else None
        if unknown := [one for one in every if one not in self.legend.values]:
            hint = f"; {way} makes each number a class" if way else ""
            said = f"{', '.join(map(str, unknown[:5]))} is no class (expected: {self.legend.expected}{hint})"
        elif few:
            return None if unread else self._of_one_class(found, way)
        elif way is None or 2 * len(every) >= len(self.pixel_classes):
            return None
        else:
            alone = f"{', '.join(map(str, every))} alone have pixels ({way} leaves the others out)"
            said = f"of {len(self.pixel_classes)} classes {alone}"
        return paired.Doubt(f"{self.root / 'masks'}: {said}", way, hopeless=few)

    def _by_values(self, numbers: list[int], whole: bool = False) -> str | None:
        """The name of the same data in which each of these is a class, 255 where `whole` or for a second one; None
        where they do not fit the names."""
        chosen = [one for one in numbers if whole or one != IGNORE]
        chosen = chosen if len(chosen) > 1 else numbers
        fits = len(chosen) <= _MOST_LISTED and (not self._named or len(chosen) == len(self.pixel_classes))
        return f"masks:{self.root},values={'+'.join(map(str, chosen))}" if fits else None

    def _highest(self) -> int:
        """The highest number of a class in all maps, of those that can be read."""
        numbers = self._numbers()
        if not numbers or numbers[0] >= IGNORE:
            # One that cannot be read, as a picture in colours, says why.
            read_label_map(self.listing.paths[self._map_of[self._map_of >= 0][0]])
            way = f"; {self._by_values(numbers)} takes others" if len(numbers) > 1 else ""
            expected = f"(expected: numbers from 0 up; {IGNORE} is ignored{way})"
            raise InputError(f"{self.root / 'masks'}: no map says a class {expected}")
        return max(one for one in numbers if one < IGNORE)

    def _numbers(self) -> list[int]:
        """The numbers in all maps, of those that can be read, in their order."""

        def numbers_in(path: str) -> list[int]:
            # A map that cannot be read is said where its image is asked for.
            with contextlib.suppress(UnreadableDataError):
                return np.unique(read_label_map(path)).tolist()
            return []

        def measure(paths: list[str]) -> list[int]:
            return sorted(set[int]().union(*(numbers for _, numbers in thread_map(numbers_in, paths))))

        return self._noted("numbers", self._map_of[self._map_of >= 0].tolist(), None, measure)


def _legend(values: Sequence[int]) -> paired.LabelMapping:
    said = f"0 to {len(values) - 1}" if isinstance(values, range) else ", ".join(map(str, values))
    ignored = () if IGNORE in values else (IGNORE,)
    return paired.LabelMapping(values, f"{said}, or {IGNORE}, which is ignored" if ignored else said, ignored)
