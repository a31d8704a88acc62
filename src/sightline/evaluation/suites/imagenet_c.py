"""ImageNet-C: validation images, corrupted in fourteen ways at five strengths."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

from sightline.data.crops import apply_crop, eval_crop, size_of
from sightline.data.source import Example
from sightline.errors import InputError
from sightline.evaluation.corruptions import CORRUPTIONS, SEVERITIES, SIDE, corrupted
from sightline.evaluation.imagenet import VALIDATION, synsets, validation
from sightline.evaluation.preparations.base import Whole
from sightline.evaluation.scoring import Scoring
from sightline.evaluation.suites.base import TEST, EvalSet, OpenedSuite, Suite, SuiteImages, place_of

_RESIZED = 256


class ImageNetCSuite(Suite):
    """`imagenet-c:ROOT`, where ROOT is as of the suite `imagenet`: the validation images, cut to 224 pixels as the
    published ones were, corrupted (`evaluation/corruptions.py`: each image always in one way), and shown whole in every
    preparation, at other sizes resized. `,corruptions=fog+snow` and `,severities=1+5` take some; a part is called as
    `imagenet-c-fog-3`."""

    name: ClassVar[str] = "imagenet-c"

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        place, options = cls.parse(argument, "corruptions", "severities")
        root = cls.root(place)
        kinds = cls.chosen(options.get("corruptions"), CORRUPTIONS, "corruption")
        levels = cls.chosen(options.get("severities"), [str(one + 1) for one in range(SEVERITIES)], "severity")
        folder = place_of(root, VALIDATION)
        if folder is None:
            looked = f"looked for the folders {', '.join(VALIDATION)}"
            raise InputError(f"suite {cls.name}: no validation images in {root} ({looked})")
        images = _Corrupted(folder, synsets(), validation(folder, root))
        parts = []
        for kind in kinds:
            for level in levels:
                data = f"{cls.name}-{kind}-{level}"
                parts.append(EvalSet(data, images.by(kind, int(level)), TEST, (Scoring(data),), imagenet=True))
        return OpenedSuite(tuple(parts), (), (root,))


class _Corrupted(SuiteImages):
    """Images of 224 pixels, corrupted in one way."""

    _kind: str = ""
    _level: int = 0

    def by(self, kind: str, level: int) -> _Corrupted:
        """The same images, corrupted so."""
        made = copy.copy(self)
        made._kind, made._level, made.transform = kind, level, Whole()
        return made

    def stored_size(self, split: str, index: int) -> tuple[int, int]:
        super().stored_size(split, index)
        return SIDE, SIDE

    def shown(self, example: Example, split: str, index: int, *shown: Any, **drawn: Any) -> Example:
        crop = eval_crop(size_of(example.image), (SIDE, SIDE), SIDE / _RESIZED)
        middle = apply_crop(example.image, crop, "bilinear")
        # By the name of the file alone: the same wherever the data set stands.
        name = self.example_name(split, index).rpartition("/")[2]
        made = corrupted(middle, self._kind, self._level, name)
        return super().shown(replace(example, image=made), split, index, *shown, **drawn)
