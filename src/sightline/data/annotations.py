"""COCO's files of annotations: which objects are where in which image, held in columns."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.outlines import OutlineList
from sightline.data.targets import Objects
from sightline.errors import InputError
from sightline.io.read import read_bytes

EXPECTED = "COCO's annotations of objects"
# Bytes that a file may have: twice LVIS's largest.
_LARGEST = 1 << 31
# Whole numbers that a floating point number tells apart.
_MOST = 2**53
_KEYS = ("images", "annotations", "categories")
_NO_AREA = "objects without area in their image"
_SHORT = "parts of outlines with fewer than 3 points"
_CUT = "boxes beyond their image, cut"


class CocoFile:
    """What a file says: each image, and each object, by its number in the file.

    Attributes:
        path: the file; digest: half of its SHA-256, in hexadecimal.
        image_ids, files, sizes: of each image: its id, what names its file, (height, width) in pixels.
        absent, unfinished: of each image, rising numbers of classes as LVIS says them; `absent` is None where nothing
            is said.
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
        self.path, self.names = path, {}
        images, annotations, categories = self._read()
        places, known = self._ids("images", images), self._ids("categories", categories)
        self._ids("annotations", annotations)
        for category in sorted(known):
            where = f"categories[{known[category]}]"
            self.names[category] = self._text(where, categories[known[category]], "name")
        self._class_of = {category: number for number, category in enumerate(self.names)}
        self.image_ids, self.files, self.sizes = list(places), list[str](), list[tuple[int, int]]()
        self.absent, self.unfinished = list[tuple[int, ...] | None](), list[tuple[int, ...]]()
        for number, one in enumerate(images):
            where = f"images[{number}]"
            self.files.append(self._text(where, one, file_key))
            self.sizes.append((self._whole(where, one, "height", 1), self._whole(where, one, "width", 1)))
            self.absent.append(self._classes(where, one, "neg_category_ids"))
            self.unfinished.append(self._classes(where, one, "not_exhaustive_category_ids") or ())
        self._add_objects(annotations, places)

    def _read(self) -> list[list[dict[str, Any]]]:
        content = read_bytes(self.path, _LARGEST, EXPECTED)
        self.digest = hashlib.sha256(content).hexdigest()[:32]
        try:
            # Numbers may be NaN or infinite: that is a fault of the image that they stand in.
            said = json.loads(content.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path}: is not JSON ({error}), expected {EXPECTED}") from None
        if not isinstance(said, dict):
            raise InputError(f"{self.path}: is no object of JSON, expected {EXPECTED}")
        for key in _KEYS:
            if key not in said:
                raise InputError(f"{self.path}: has no {key!r} (expected: {EXPECTED}, with {', '.join(_KEYS)})")
            if not isinstance(said[key], list):
                raise InputError(f"{self.path}: {key} is no list (expected: a list of objects)")
            for number, one in enumerate(said[key]):
                if not isinstance(one, dict):
                    raise InputError(f"{self.path}: {key}[{number}] is {str(one)[:40]!r} (expected: an object)")
        return [said[key] for key in _KEYS]

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

    def _ids(self, what: str, records: list[dict[str, Any]]) -> dict[int, int]:
        """Id -> the number of its record; raises InputError where two have one."""
        found: dict[int, int] = {}
        for number, one in enumerate(records):
            known = self._whole(f"{what}[{number}]", one, "id")
            if known in found:
                said = f"the id {known} is that of {what}[{found[known]}] too"
                raise InputError(f"{self.path}: {what}[{number}]: {said}")
            found[known] = number
        return found

    def _classes(self, where: str, one: dict[str, Any], key: str) -> tuple[int, ...] | None:
        """The classes that an image names by their ids."""
        value = one.get(key)
        if value is not None and not (isinstance(value, list) and all(type(known) is int for known in value)):
            raise self._refuse(where, key, value, "a list of ids")
        return None if value is None else tuple(sorted(self._class(where, key, known) for known in value))

    def _class(self, where: str, key: str, category: int) -> int:
        if category not in self._class_of:
            raise self._refuse(where, key, category, f"the id of one of {len(self.names)} categories")
        return self._class_of[category]

    def _add_objects(self, annotations: list[dict[str, Any]], places: Mapping[int, int]) -> None:
        boxes, areas, crowd, classes, images = array("d"), array("d"), bytearray(), array("q"), array("q")
        self._outlines, passed, self.faults = OutlineList(), Counter[str](), dict[int, str]()
        for number, one in enumerate(annotations):
            where = f"annotations[{number}]"
            known, category = self._whole(where, one, "image_id"), self._whole(where, one, "category_id")
            if known not in places:
                raise self._refuse(where, "image_id", known, f"that of one of {len(places)} images")
            image, own = places[known], self._class(where, "category_id", category)
            size, said = self.sizes[image], self._of(where, one, "bbox")
            try:
                box, was_cut = _box(said or [0.0] * 4, size)
                if box[0] == box[2] or box[1] == box[3]:
                    passed[_NO_AREA] += 1
                    continue
                area, many = _area(one.get("area")), one.get("iscrowd") or 0
                if many not in (0, 1):
                    raise ValueError(f"its iscrowd {str(many)[:40]} (expected: 0 or 1)")
                passed[_SHORT] += self._outlines.add(one.get("segmentation"), size)
            except ValueError as error:
                self.faults.setdefault(image, f"{self.path}: annotation {one['id']}: {error}")
                continue
            passed[_CUT] += was_cut
            boxes.extend(box)
            areas.append(area)
            crowd.append(int(many))
            classes.append(own)
            images.append(image)
        self.left_out = {what: passed[what] for what in (_NO_AREA, _SHORT, _CUT) if passed[what]}
        self._boxes, self._areas, self._crowd = np.array(boxes).reshape(-1, 4), np.array(areas), np.array(crowd, bool)
        self._labels = np.array(classes, np.int64)
        # The objects of an image, in the order of the file.
        self._order = np.argsort(np.array(images, np.int64), kind="stable")
        self._starts = np.searchsorted(np.array(images, np.int64)[self._order], np.arange(len(self.sizes) + 1))

    def objects(self, image: int) -> Objects:
        """The objects of an image, by its number; those of one with a fault are not to be used. Masks are None where an
        outline of an object is not known."""
        rows = self._order[self._starts[image] : self._starts[image + 1]]
        size, absent, areas, known = self.sizes[image], self.absent[image], self._areas[rows], self._outlines.known
        for place in np.flatnonzero(np.isnan(areas)).tolist():
            row = int(rows[place])
            drawn = self._outlines.mask(row, size).sum() if known(row) else 0
            areas[place] = drawn or np.prod(self._boxes[row, 2:] - self._boxes[row, :2])
        masks = None
        if all(map(known, rows.tolist())):
            # The objects are the last axis in memory, in which a crop moves them together.
            masks = np.zeros((*size, len(rows)), bool).transpose(2, 0, 1)
            for place, row in enumerate(rows.tolist()):
                masks[place] = self._outlines.mask(row, size)
        return Objects(
            self._boxes[rows],
            self._labels[rows],
            size,
            self._crowd[rows],
            areas,
            masks,
            absent,
            self.unfinished[image],
        )


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and abs(value) < _MOST)


def _box(said: Any, size: tuple[int, int]) -> tuple[tuple[float, ...], bool]:
    """(y0, x0, y1, x1) of (x, y, width, height), cut to an image of (height, width), and whether it was cut."""
    if not (isinstance(said, list) and len(said) == 4 and all(map(_is_number, said))):
        raise ValueError(f"its box {str(said)[:80]} (expected: x, y, width, height)")
    x, y, width, height = map(float, said)
    box = (y, x, y + height, x + width)
    if not all(map(math.isfinite, box)):
        raise ValueError(f"its box {[x, y, width, height]} is not finite (expected: x, y, width, height)")
    y0, x0, y1, x1 = (min(max(side, 0.0), float(most)) for side, most in zip(box, (*size, *size), strict=True))
    cut = (y0, x0, max(y0, y1), max(x0, x1))
    return cut, cut != box


def _area(said: Any) -> float:
    if said is None:
        return math.nan
    if not (_is_number(said) and math.isfinite(said) and said >= 0):
        raise ValueError(f"its area {str(said)[:40]} (expected: square pixels)")
    return float(said)
