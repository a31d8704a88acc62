"""COCO's files of annotations: which objects are where in which image, held in columns, since there may be a million
and workers get a copy. Masks are pixel for pixel those of pycocotools."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import FailFast, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from sightline.data.targets import Objects
from sightline.errors import InputError, validation_error
from sightline.io.read import read_bytes

EXPECTED = "COCO's annotations of objects"
# Bytes that a file may have: twice LVIS's largest.
_LARGEST = 1 << 31
_NO_AREA = "objects without area in their image"
_SHORT = "parts of outlines with fewer than 3 points"
_CUT = "boxes beyond their image, cut"
_POLYGONS, _RUNS = 1, 2
# x, y of three points.
_LEAST_NUMBERS = 6
# How far outside of its image a corner may be, in pixels, at least: far outside there is nothing to draw.
_REACH = 2**16
# Whole numbers that a floating point number tells apart.
Id = Annotated[int, Field(ge=0, lt=2**53)]
Side = Annotated[int, Field(ge=1, lt=2**53)]


@dataclass(slots=True)
class _Image:
    id: Id
    height: Side
    width: Side
    file_name: str | None = None
    coco_url: str | None = None
    neg_category_ids: list[int] | None = None
    not_exhaustive_category_ids: list[int] | None = None


@dataclass(slots=True)
class _Annotation:
    """What may be wrong with one object is looked at later: it is a fault of its image alone."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: Any
    area: Any = None
    iscrowd: Any = None
    segmentation: Any = None


@dataclass(slots=True)
class _Category:
    id: Id
    name: Annotated[str, Field(min_length=1)]


@dataclass(slots=True)
class _File:
    images: Annotated[list[_Image], FailFast()]
    annotations: Annotated[list[_Annotation], FailFast()]
    categories: Annotated[list[_Category], FailFast()]


_FILE = TypeAdapter(_File)


class CocoFile:
    """What a file says: each image, and each object, by its number in the file.

    Attributes:
        path: the file; digest: half of its SHA-256, in hexadecimal.
        image_ids, files, sizes: of each image: its id, what names its file, (height, width) in pixels.
        absent, unfinished: of each image, rising numbers of classes as LVIS says them, or None.
        names: id of a category -> its name, by rising id.
        faults: image -> the first thing that is wrong with what is said of it; it is not to be used.
        left_out: what is passed over, as pycocotools and torchvision do -> how often.
    """

    def __init__(self, path: Path, file_key: str = "file_name") -> None:
        """Read a file, of 2 GiB at most, in which `file_key` of an image names its file; raises InputError where it is
        no such file, or contradicts itself: a key is missing, an id is there twice, an annotation is of an image or a
        category that is not there."""
        self.path, said = path, self._read(path)
        self.image_ids = list(self._by_id("images", said.images))
        self._by_id("annotations", said.annotations)
        self.names = {known: one.name for known, one in sorted(self._by_id("categories", said.categories).items())}
        self._class_of = {category: number for number, category in enumerate(self.names)}
        self.sizes = [(one.height, one.width) for one in said.images]
        self.files = list[str]()
        self.absent, self.unfinished = list[tuple[int, ...] | None](), list[tuple[int, ...]]()
        for number, one in enumerate(said.images):
            where, file = f"images[{number}]", getattr(one, file_key)
            if not file:
                raise InputError(f"{path}: {where}: has no {file_key!r} (expected: {EXPECTED})")
            self.files.append(file)
            absent, unfinished = one.neg_category_ids, one.not_exhaustive_category_ids or []
            self.absent.append(None if absent is None else self._classes(where, "neg_category_ids", absent))
            self.unfinished.append(self._classes(where, "not_exhaustive_category_ids", unfinished))
        self._add_objects(said.annotations)

    def _read(self, path: Path) -> _File:
        content = read_bytes(path, _LARGEST, EXPECTED)
        self.digest = hashlib.sha256(content).hexdigest()[:32]
        try:
            return _FILE.validate_json(content.removeprefix(b"\xef\xbb\xbf"), strict=True)
        except ValidationError as error:
            [fault, *_] = error.errors(include_url=False, include_input=False)
            if fault["loc"]:
                raise validation_error(error, str(path), _File) from None
            raise InputError(f"{path}: {fault['msg']} (expected: {EXPECTED})") from None

    def _by_id(self, what: str, records: Sequence[Any]) -> dict[int, Any]:
        found = dict[int, Any]()
        for number, one in enumerate(records):
            if one.id in found:
                said = f"the id {one.id} is that of {what}[{records.index(found[one.id])}] too"
                raise InputError(f"{self.path}: {what}[{number}]: {said}")
            found[one.id] = one
        return found

    def _classes(self, where: str, key: str, categories: Sequence[int]) -> tuple[int, ...]:
        """The classes that are named by their ids, rising."""
        if unknown := [known for known in categories if known not in self._class_of]:
            expected = f"the id of one of {len(self.names)} categories"
            raise InputError(f"{self.path}: {where}: {key} {str(unknown[0])!r} (expected: {expected})")
        return tuple(sorted(self._class_of[known] for known in categories))

    def _add_objects(self, annotations: Sequence[_Annotation]) -> None:
        boxes, areas, crowd, classes, images = array("d"), array("d"), bytearray(), array("q"), array("q")
        outlines, ends, passed, self.faults = array("d"), array("q", [0]), Counter[str](), dict[int, str]()
        places = {known: image for image, known in enumerate(self.image_ids)}
        for number, one in enumerate(annotations):
            where = f"annotations[{number}]"
            if one.image_id not in places:
                expected = f"that of one of {len(places)} images"
                raise InputError(f"{self.path}: {where}: image_id {str(one.image_id)!r} (expected: {expected})")
            image, [own] = places[one.image_id], self._classes(where, "category_id", [one.category_id])
            size = self.sizes[image]
            try:
                box, was_cut = _box(one.bbox or [0.0] * 4, size)
                if box[0] == box[2] or box[1] == box[3]:
                    passed[_NO_AREA] += 1
                    continue
                area = math.nan if one.area is None else one.area
                if type(area) not in (int, float) or area < 0 or area == math.inf:
                    raise ValueError(f"its area {str(area)[:40]} (expected: square pixels)")
                if (one.iscrowd or 0) not in (0, 1):
                    raise ValueError(f"its iscrowd {str(one.iscrowd)[:40]} (expected: 0 or 1)")
                kind, parts, short = _outline(one.segmentation, size)
            except (ValueError, TypeError, OverflowError) as error:
                self.faults.setdefault(image, f"{self.path}: annotation {one.id}: {error}")
                continue
            passed[_CUT] += was_cut
            passed[_SHORT] += short
            # Of each its kind, then each part after its length.
            outlines.append(kind)
            for part in parts:
                outlines.append(len(part))
                outlines.extend(part)
            ends.append(len(outlines))
            boxes.extend(box)
            areas.append(area)
            crowd.append(int(one.iscrowd or 0))
            classes.append(own)
            images.append(image)
        self.left_out = {what: passed[what] for what in (_NO_AREA, _SHORT, _CUT) if passed[what]}
        self._boxes, self._areas, self._crowd = np.array(boxes).reshape(-1, 4), np.array(areas), np.array(crowd, bool)
        self._labels, image_of = np.array(classes, np.int64), np.array(images, np.int64)
        self._outlines, self._ends = np.array(outlines), ends
        # The objects of an image, in the order of the file.
        self._order = np.argsort(image_of, kind="stable")
        self._starts = np.searchsorted(image_of[self._order], np.arange(len(self.sizes) + 1))

    def objects(self, image: int) -> Objects:
        """The objects of an image, by its number; those of one with a fault are not to be used. Masks are None where an
        outline of an object is not known; an area that is not said is that of the mask, or of the box."""
        rows = self._order[self._starts[image] : self._starts[image + 1]]
        size, boxes, areas = self.sizes[image], self._boxes[rows], self._areas[rows]
        outlines = [self._outlines[self._ends[row] : self._ends[row + 1]] for row in rows.tolist()]
        # The objects are the last axis in memory, in which a crop moves them together.
        masks = np.zeros((*size, len(rows)), bool).transpose(2, 0, 1)
        for place, outline in enumerate(outlines):
            masks[place] = _mask(outline, size)
            if np.isnan(areas[place]):
                areas[place] = masks[place].sum() or np.prod(boxes[place, 2:] - boxes[place, :2])
        known, said = all(one[0] for one in outlines), (self.absent[image], self.unfinished[image])
        return Objects(boxes, self._labels[rows], size, self._crowd[rows], areas, masks if known else None, *said)


def _box(said: Any, size: tuple[int, int]) -> tuple[tuple[float, ...], bool]:
    """(y0, x0, y1, x1) of (x, y, width, height), cut to an image of (height, width), and whether it was cut."""
    numbers = isinstance(said, list) and all(type(one) in (int, float) and math.isfinite(one) for one in said)
    if not (numbers and len(said) == 4):
        raise ValueError(f"its box {str(said)[:80]} (expected: x, y, width, height)")
    x, y, width, height = map(float, said)
    box = (y, x, y + height, x + width)
    y0, x0, y1, x1 = (min(max(side, 0.0), float(most)) for side, most in zip(box, (*size, *size), strict=True))
    cut = (y0, x0, max(y0, y1), max(x0, x1))
    return cut, cut != box


def _outline(said: Any, size: tuple[int, int]) -> tuple[int, list[Any], int]:
    """An outline in an image of (height, width): whether it is of polygons or runs, 0 where it is not known, its parts,
    and how many polygons of fewer than three points were left out. Raises ValueError, TypeError or OverflowError where
    it is none."""
    if isinstance(said, dict) and said:
        return _RUNS, [_runs(said, size)], 0
    parts = [_polygon(one, size) for one in said or ()]
    taken = [part for part in parts if len(part) >= _LEAST_NUMBERS]
    return _POLYGONS if said else 0, taken, len(parts) - len(taken)


def _polygon(said: Any, size: tuple[int, int]) -> array[float]:
    """(x, y) of the corners, one after the other, in pixels; a last number without a second one is left out."""
    if not isinstance(said, list):
        raise ValueError(f"its outline: {str(said)[:40]!r} (expected: a list of x, y, ...)")
    part, reach = array("d", said[: len(said) // 2 * 2]), max(2 * max(size), _REACH)
    if len(part) >= _LEAST_NUMBERS and (far := [corner for corner in part if not abs(corner) <= reach]):
        raise ValueError(f"its outline: a corner at {far[0]} (expected: within the image)")
    return part


def _runs(said: dict[str, Any], size: tuple[int, int]) -> list[int]:
    """The lengths of runs down the columns, the first of them outside, which fill the image."""
    own, counts = said.get("size"), said.get("counts")
    runs: Any = runs_of_text(counts) if isinstance(counts, str) else counts
    whole = isinstance(runs, list) and all(type(run) is int and run >= 0 for run in runs)
    if own != list(size) or not whole or sum(runs) != size[0] * size[1]:
        shown = f"its outline: size {str(own)[:40]}, counts {str(counts)[:40]}"
        raise ValueError(f"{shown} (expected: {list(size)}, and runs that add up to {size[0] * size[1]})")
    return runs


def _mask(outline: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """What an outline encloses in its image of (height, width): bool [height, width]."""
    from pycocotools import mask as coco_masks

    parts, at = list[Any](), 1
    while at < len(outline):
        end = at + 1 + int(outline[at])
        parts.append(outline[at + 1 : end].tolist())
        at = end
    if not parts:
        return np.zeros(size, bool)
    if outline[0] == _RUNS:
        parts = [{"size": list(size), "counts": list(map(int, parts[0]))}]
    encode: Any = coco_masks.frPyObjects
    return coco_masks.decode(coco_masks.merge(encode(parts, *size))).astype(bool)


def runs_of_text(text: str) -> list[int]:
    """The lengths of runs from COCO's text of them: six bits a letter from `0` on, the lowest five of a number first, a
    sixth that says whether it goes on; from the fourth number on, each is said less the last but one. Raises ValueError
    where it is no such text."""
    runs, number, bits = list[int](), 0, 0
    for letter in text.encode():
        digit = letter - ord("0")
        if not 0 <= digit < 64:
            break
        number |= (digit & 31) << bits
        bits += 5
        if digit < 32:
            # The highest bit of the last digit is the sign.
            number -= (digit >> 4 & 1) << bits
            runs.append(number + (runs[-2] if len(runs) > 2 else 0))
            number = bits = 0
    else:
        if not bits:
            return runs
    raise ValueError(f"its outline: counts {text[:40]!r} (expected: whole numbers as COCO writes them)")
