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
from sightline.evaluation.suites.base import TEST, EvalSet, OpenedSuite, Suite, SuiteImages, in_class_folders, place_of
from sightline.io.read import RECORD, read_json, read_text

# Its images have a red frame, so that nobody trains on them unseen; it is to be cut off.
_FRAME = 2


class ObjectNetSuite(Suite):
    """`objectnet:ROOT`, with `images/` and `mappings/` in it, or in `objectnet-1.0` below it: the classes that its
    mappings give classes of ImageNet, any of which is right; of all 1,000 one is answered. The red frame of two pixels
    is cut off."""

    name: ClassVar[str] = "objectnet"

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        root = cls.root(cls.parse(argument)[0])
        found = place_of(root, (".", "objectnet-1.0", "objectnet"), lambda one: (one / "mappings").is_dir())
        if found is None:
            raise InputError(
                f"suite objectnet: no mappings in {root} (looked for mappings, objectnet-1.0/mappings, "
                "objectnet/mappings; expected images/ beside it)"
            )
        right = _right_answers(found / "mappings")
        # Classes that ImageNet lacks are no question to a model of ImageNet, and passed over.
        labels = {name: numbers[0] if numbers else 0 for name, numbers in right.items()}
        images = in_class_folders(found / "images", labels, cls.name)
        shared = [one for one in images if right[one.name.split("/")[0]]]
        if not shared:
            raise InputError(f"{found / 'images'}: no image of a class that ImageNet has too")
        scoring = Scoring(cls.name, [right[one.name.split("/")[0]] for one in shared])
        source = _Framed(found / "images", synsets(), shared)
        part = EvalSet(cls.name, source, TEST, (scoring,), imagenet=True, careful=True)
        return OpenedSuite((part,), (), (root,))


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


def _right_answers(folder: Path) -> dict[str, list[int]]:
    """The numbers of ImageNet's classes that are right for the images in a folder, by its name; none of a class that
    ImageNet lacks."""
    files = ("folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json", "pytorch_to_imagenet_2012_id.json")
    names, words, lines = (read_json(folder / one, "a mapping of ObjectNet") for one in files)
    text = read_text(folder / "imagenet_to_label_2012_v2", RECORD, "names of ImageNet's classes").splitlines()
    try:
        # Its first line has the number 0; the numbers that torch sorts classes by are others.
        number_of = {text[line].strip(): int(number) for number, line in lines.items() if number.isdecimal()}
        asked = {name: words[label].split("; ") if label in words else [] for name, label in names.items()}
        right = {name: [number_of[one.strip()] for one in some] for name, some in asked.items()}
    except (LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{folder}: the mappings do not fit each other ({type(error).__name__}: {error})") from None
    return right
