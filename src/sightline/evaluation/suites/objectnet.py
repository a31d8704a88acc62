"""ObjectNet: its classes that ImageNet has too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sightline.data.source import Example
from sightline.errors import InputError
from sightline.evaluation.imagenet import synsets
from sightline.evaluation.scoring import Scoring
from sightline.evaluation.suite_images import SuiteImages, in_class_folders
from sightline.evaluation.suites.base import EvalSet, OpenedSuite, Suite, options_in, place_of, required_root
from sightline.io.read import RECORD, read_json, read_text

# Its images have a red frame, so that nobody trains on them unseen; it is to be cut off.
_FRAME = 2
_NAMES = "folder_to_objectnet_label.json"
_TO_IMAGENET = "objectnet_to_imagenet_1k.json"
_LINES = "pytorch_to_imagenet_2012_id.json"
_WORDS = "imagenet_to_label_2012_v2"


class ObjectNetSuite(Suite):
    """`objectnet:ROOT`, with `images/` and `mappings/` in it, or in `objectnet-1.0` below it: the classes that its
    mappings give classes of ImageNet, any of which is right; of all 1,000 one is answered. The red frame of two pixels
    is cut off."""

    name: ClassVar[str] = "objectnet"

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        place, _ = options_in(argument, (), cls.name)
        root = required_root(place, cls.name)
        found = place_of(root, (".", "objectnet-1.0", "objectnet"), lambda one: (one / "mappings").is_dir())
        if found is None:
            raise InputError(
                f"suite objectnet: no mappings in {root} (looked for mappings, objectnet-1.0/mappings, "
                "objectnet/mappings; expected images/ beside it)"
            )
        right = _right(found / "mappings")
        images = in_class_folders(found / "images", _every(found, right), "objectnet")
        # Classes that ImageNet lacks are no question to a model of ImageNet.
        shared = [one for one in images if one.name.split("/")[0] in right]
        if not shared:
            raise InputError(f"{found / 'images'}: no image of a class that ImageNet has too")
        answers = [right[one.name.split("/")[0]] for one in shared]
        source = _Framed("objectnet", found / "images", synsets(), shared)
        scoring = Scoring("objectnet", answers)
        return OpenedSuite(
            (EvalSet("objectnet", source, "test", (scoring,), imagenet=True, careful=True),), (), (root,)
        )


class _Framed(SuiteImages):
    """Images without their frame."""

    def stored_size(self, split: str, index: int) -> tuple[int, int]:
        height, width = super().stored_size(split, index)
        return max(height - 2 * _FRAME, 1), max(width - 2 * _FRAME, 1)

    def shown(self, example: Example, *shown: Any, **drawn: Any) -> Example:
        pixels = np.asarray(example.image)
        inner = pixels[_FRAME:-_FRAME, _FRAME:-_FRAME]
        seen = replace(example, image=np.ascontiguousarray(inner) if inner.size else pixels)
        return super().shown(seen, *shown, **drawn)


def _right(folder: Path) -> dict[str, list[int]]:
    """The numbers of ImageNet's classes that are right for the images in a folder, by its name.

    Raises:
        InputError: a mapping is missing, or two of them disagree.
    """
    names, words, lines = (_read(folder / one) for one in (_NAMES, _TO_IMAGENET, _LINES))
    text = read_text(folder / _WORDS, RECORD, "names of ImageNet's classes").splitlines()
    # Its first line has the number 0; the numbers that torch sorts classes by are others.
    beyond = [line for line in lines.values() if not isinstance(line, int) or not 0 <= line < len(text)]
    if beyond:
        raise InputError(f"{folder / _LINES}: line {beyond[0]} is beyond the {len(text)} lines of {_WORDS}")
    number_of = {text[line].strip(): int(number) for number, line in lines.items() if number.isdecimal()}
    found: dict[str, list[int]] = {}
    for name, label in names.items():
        if not isinstance(label, str):
            raise InputError(f"{folder / _NAMES}: {name}: expected the name of a class, got {str(label)[:40]!r}")
        if label in words:
            for one in str(words[label]).split("; "):
                if one.strip() not in number_of:
                    raise InputError(f"{folder / _TO_IMAGENET}: {one!r} of {label!r} is no line of {_WORDS}")
                found.setdefault(name, []).append(number_of[one.strip()])
    if not found:
        raise InputError(f"{folder}: gives no class of ObjectNet a class of ImageNet")
    if max(map(max, found.values())) >= len(synsets()):
        raise InputError(
            f"{folder / _LINES}: numbers beyond {len(synsets()) - 1} (expected those of ImageNet's classes)"
        )
    return found


def _every(root: Path, right: dict[str, list[int]]) -> dict[str, int]:
    """The first right class of each folder; 0 for those of no class of ImageNet, which are passed over."""
    return {name: right.get(name, [0])[0] for name in _read(root / "mappings" / _NAMES)}


def _read(file: Path) -> dict[str, Any]:
    record = read_json(file, "a mapping of ObjectNet")
    if not isinstance(record, dict):
        raise InputError(f"{file}: expected names and values")
    return record
