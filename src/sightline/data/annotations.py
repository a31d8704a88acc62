"""COCO's files of annotations: which objects are where in which image, held in columns."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.outline_list import OutlineList
from sightline.data.targets import Objects
from sightline.errors import InputError
from sightline.io.read import read_bytes

EXPECTED = "COCO's annotations of objects"
# Bytes that a file may have: twice LVIS's largest.
_LARGEST = 1 << 31
# Whole numbers that a column holds, and that a floating point number tells apart.
_MOST = 2**53
_LISTS = ("neg_category_ids", "not_exhaustive_category_ids")


class CocoFile:
    """What a file says: each image, and each object, by its number in the file.

    Attributes:
        path: the file; digest: half of its SHA-256, in hexadecimal.
        image_ids, files, sizes: of each image: its id, what names its file, (height, width) in pixels.
        absent, unfinished: of each image, ids of categories as LVIS says them; `absent` is None where nothing is said.
        names: id of a category -> its name, by rising id.
        faults: image -> the first thing that is wrong with what is said of it; it is not to be used.
        left_out: what is passed over, as pycocotools and torchvision do -> how often.
    """

    def __init__(self, path: Path, file_key: str = "file_name") -> None:
        """Read a file, of 2 GiB at most.

        Args:
            file_key: what of an image names its file.

        Raises:
            InputError: it is no such file, or one that contradicts itself: a key is missing, an id is there twice, an
                annotation is of an image or a category that is not there. One line with the file and the place.
        """
        self.path, self._file_key = path, file_key
        self.image_ids: list[int] = []
        self.files: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        self.absent: list[list[int] | None] = []
        self.unfinished: list[list[int]] = []
        self.names: dict[int, str] = {}
        self.faults: dict[int, str] = {}
        self._ids, self._image_ids, self._categories = array("q"), array("q"), array("q")
        self._boxes, self._areas, self._crowd, self._outlines = array("d"), array("d"), bytearray(), OutlineList()
        # (annotation, what is wrong with it), while its image is not known yet.
        self._said: list[tuple[int, str]] = []
        said = self._read()
        takers = {"images": self._add_image, "annotations": self._add_object, "categories": self._add_category}
        for key, add in takers.items():
            if key not in said:
                raise InputError(f"{path}: has no {key!r} (expected: {EXPECTED}, with {', '.join(takers)})")
            elements = said.pop(key)
            if not isinstance(elements, list):
                raise InputError(f"{path}: {key} is no list (expected: a list of objects)")
            for number, one in enumerate(elements):
                if not isinstance(one, dict):
                    raise InputError(f"{path}: {key}[{number}] is {str(one)[:40]!r} (expected: an object)")
                add(number, one)
        self._resolve()
        there = self._check_geometry()
        for number, reason in sorted(self._said):
            if there[number]:
                said = f"{path}: annotation {self._ids[number]}: {reason}"
                self.faults.setdefault(int(self._image_of[number]), said)
        # The objects of an image, in the order of the file.
        order = np.argsort(self._image_of, kind="stable")
        self._order = order[there[order]]
        self._starts = np.searchsorted(self._image_of[self._order], np.arange(len(self.image_ids) + 1))

    def _read(self) -> dict[str, Any]:
        content = read_bytes(self.path, _LARGEST, EXPECTED)
        self.digest = hashlib.sha256(content).hexdigest()[:32]
        try:
            # Numbers may be NaN or infinite: that is a fault of the image that they stand in.
            said = json.loads(content.decode("utf-8-sig"))
        except RecursionError:
            raise InputError(f"{self.path}: is nested too deep, expected {EXPECTED}") from None
        except ValueError as error:
            raise InputError(f"{self.path}: is not JSON ({error}), expected {EXPECTED}") from None
        if not isinstance(said, dict):
            raise InputError(f"{self.path}: is no object of JSON, expected {EXPECTED}")
        return said

    def _refuse(self, where: str, key: str, value: object, expected: str) -> InputError:
        return InputError(f"{self.path}: {where}: {key} {str(value)[:40]!r} (expected: {expected})")

    def _of(self, where: str, one: dict[str, Any], key: str) -> Any:
        if key not in one:
            raise InputError(f"{self.path}: {where}: has no {key!r} (expected: {EXPECTED})")
        return one[key]

    def _whole(self, where: str, one: dict[str, Any], key: str, least: int = 0) -> int:
        value = self._of(where, one, key)
        if type(value) is not int or not least <= value < _MOST:
            raise self._refuse(where, key, value, f"a whole number from {least}")
        return value

    def _text(self, where: str, one: dict[str, Any], key: str) -> str:
        value = self._of(where, one, key)
        if not isinstance(value, str) or not value:
            raise self._refuse(where, key, value, "text")
        return value

    def _add_image(self, number: int, one: dict[str, Any]) -> None:
        where = f"images[{number}]"
        self.image_ids.append(self._whole(where, one, "id"))
        self.sizes.append((self._whole(where, one, "height", 1), self._whole(where, one, "width", 1)))
        self.files.append(self._text(where, one, self._file_key))
        for key in _LISTS:
            value = one.get(key)
            if value is not None and not (isinstance(value, list) and all(type(known) is int for known in value)):
                raise self._refuse(where, key, value, "a list of ids")
        self.absent.append(one.get(_LISTS[0]))
        self.unfinished.append(one.get(_LISTS[1]) or [])

    def _add_category(self, number: int, one: dict[str, Any]) -> None:
        where = f"categories[{number}]"
        known, name = self._whole(where, one, "id"), self._text(where, one, "name")
        if known in self.names:
            raise InputError(f"{self.path}: {where}: the id {known} is that of {self.names[known]!r} too")
        self.names[known] = name

    def _add_object(self, number: int, one: dict[str, Any]) -> None:
        where = f"annotations[{number}]"
        self._ids.append(self._whole(where, one, "id"))
        self._image_ids.append(self._whole(where, one, "image_id"))
        self._categories.append(self._whole(where, one, "category_id"))
        box, area, crowd = self._of(where, one, "bbox") or [0.0] * 4, one.get("area"), one.get("iscrowd") or 0
        if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
            self._said.append((number, f"its box {str(box)[:80]} (expected: x, y, width, height)"))
            box = (0.0, 0.0, 1.0, 1.0)
        if area is None:
            area = math.nan
        elif not (_is_number(area) and math.isfinite(area) and area >= 0):
            self._said.append((number, f"its area {str(area)[:40]} (expected: square pixels)"))
            area = 0.0
        if crowd not in (0, 1):
            self._said.append((number, f"its iscrowd {str(crowd)[:40]} (expected: 0 or 1)"))
            crowd = 0
        self._boxes.extend(box)
        self._areas.append(area)
        self._crowd.append(int(crowd))
        if (fault := self._outlines.add(one.get("segmentation"))) is not None:
            self._said.append((number, f"its outline: {fault}"))

    def _resolve(self) -> None:
        """Numbers of images and of things in the place of ids."""
        self._refuse_twice("images", self.image_ids)
        self._refuse_twice("annotations", self._ids)
        self.names = dict(sorted(self.names.items()))
        place = {known: number for number, known in enumerate(self.image_ids)}
        thing = {known: number for number, known in enumerate(self.names)}
        for number, (image, category) in enumerate(zip(self._image_ids, self._categories, strict=True)):
            if image not in place:
                raise self._refuse(f"annotations[{number}]", "image_id", image, f"that of one of {len(place)} images")
            if category not in thing:
                raise self._unknown(f"annotations[{number}]", "category_id", category)
        for key, lists in zip(_LISTS, (self.absent, self.unfinished), strict=True):
            for number, categories in enumerate(lists):
                if unknown := [one for one in categories or () if one not in thing]:
                    raise self._unknown(f"images[{number}]", key, unknown[0])
        self._image_of = np.array([place[known] for known in self._image_ids], np.int64)
        self._things = np.array([thing[known] for known in self._categories], np.int64)
        self._thing_of = thing

    def _unknown(self, where: str, key: str, category: int) -> InputError:
        return self._refuse(where, key, category, f"the id of one of {len(self.names)} categories")

    def _refuse_twice(self, what: str, ids: Sequence[int]) -> None:
        """Raise InputError where two have one id."""
        if len(set(ids)) == len(ids):
            return
        seen: dict[int, int] = {}
        for number, known in enumerate(ids):
            if known in seen:
                raise InputError(f"{self.path}: {what}[{number}]: the id {known} is that of {what}[{seen[known]}] too")
            seen[known] = number

    def _check_geometry(self) -> np.ndarray:
        """Which objects are on their image, bool [objects]; notes boxes and outlines that are no such, cuts the boxes,
        and makes them (y0, x0, y1, x1)."""
        x, y, width, height = np.array(self._boxes).reshape(-1, 4).T
        sizes = np.array(self.sizes, np.float64).reshape(-1, 2)[self._image_of]
        most = np.concatenate([sizes, sizes], axis=1)
        with np.errstate(invalid="ignore"):
            boxes = np.stack([y, x, y + height, x + width], axis=1)
            self.boxes = np.clip(boxes, 0, most)
            finite = np.asarray(np.isfinite(boxes).all(axis=1))
            there = ~finite | (self.boxes[:, 2:] > self.boxes[:, :2]).all(axis=1)
            cut = there & finite & (boxes != self.boxes).any(axis=1)
        for number in np.flatnonzero(~finite).tolist():
            said = [float(one[number]) for one in (x, y, width, height)]
            self._said.append((number, f"its box {said} is not finite (expected: x, y, width, height)"))
        self._said += [(number, f"its outline: {said}") for number, said in self._outlines.faults(sizes)]
        counts = {
            "objects without area in their image": int((~there).sum()),
            "parts of outlines with fewer than 3 points": int(np.array(self._outlines.too_short, int)[there].sum()),
            "boxes beyond their image, cut": int(cut.sum()),
        }
        self.left_out = {what: count for what, count in counts.items() if count}
        self.crowd, self.areas = np.array(self._crowd, bool), np.array(self._areas)
        self._boxes, self._areas, self._crowd = array("d"), array("d"), bytearray()
        return there

    def objects(self, image: int) -> Objects:
        """The objects of an image, by its number; those of one with a fault are not to be used. Masks are None where an
        outline of an object is not known."""
        rows = self._order[self._starts[image] : self._starts[image + 1]]
        size, absent, areas = self.sizes[image], self.absent[image], self.areas[rows]
        for place in np.flatnonzero(np.isnan(areas)).tolist():
            row = int(rows[place])
            drawn = self._outlines.mask(row, size).sum() if self._outlines.known(row) else 0
            areas[place] = drawn or np.prod(self.boxes[row, 2:] - self.boxes[row, :2])
        shapes = None
        if all(map(self._outlines.known, rows.tolist())):
            # The objects are the last axis in memory, in which a crop moves them together.
            shapes = np.zeros((*size, len(rows)), bool).transpose(2, 0, 1)
            for place, row in enumerate(rows.tolist()):
                shapes[place] = self._outlines.mask(row, size)
        return Objects(
            self.boxes[rows],
            self._things[rows],
            size,
            self.crowd[rows],
            areas,
            shapes,
            None if absent is None else tuple(sorted(self._thing_of[one] for one in absent)),
            tuple(sorted(self._thing_of[one] for one in self.unfinished[image])),
        )


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < _MOST)
