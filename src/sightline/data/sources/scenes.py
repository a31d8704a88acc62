"""The embedded data set: vector scenes of glyphs or of pairs of shapes, which never run out and need no download."""

from __future__ import annotations

import math
from typing import ClassVar, Self

from sightline.checks import require
from sightline.data.scenes.draw import GLYPH_CLASSES, GLYPH_GROUPS, PAIR_CLASSES, PAIRS, RELATIONS, SPLITS, draw
from sightline.data.scenes.render import render
from sightline.data.source import Example, Source
from sightline.data.transforms import ImageTransform
from sightline.targets import Label

LENGTHS = {"train": None, "minival": 2_000, "test": 10_000, "heldout_fonts": 10_000}


_GLYPHS = {group: tuple(map(GLYPH_CLASSES.index, group)) for group in GLYPH_GROUPS}
_PAIRS = {
    f"{first}+{second}": tuple(PAIR_CLASSES.index(f"{first} {relation} {second}") for relation in RELATIONS)
    for first, second in PAIRS
}


class Scenes(Source):
    """One task of the scenes: "glyphs" (24 characters in 10 confusable groups) or "pairs" (6 pairs x 4 relations).

    `train` is endless: index i of seed s is always the same scene, whatever the epoch. `heldout_fonts` (glyphs only)
    is `test` with five fonts that no other split uses.
    """

    name: ClassVar[str] = "scenes"
    transform: ImageTransform

    def __init__(self, task: str = "glyphs") -> None:
        """Raises InputError for a task that is not "glyphs" or "pairs"."""
        require("task of scenes", task, SPLITS)
        self.task = task
        self.classes = GLYPH_CLASSES if task == "glyphs" else PAIR_CLASSES
        self.groups = _GLYPHS if task == "glyphs" else _PAIRS
        self.splits = SPLITS[task]
        # Glyphs are not mirrored.
        self.transform = ImageTransform(scale=(1.0, 1.0), flip=0.0, interpolation="bilinear")
        self._group_of = {label: group for group, labels in self.groups.items() for label in labels}

    @classmethod
    def open(cls, argument: str) -> Self:
        """The task named by the argument; glyphs when there is none."""
        return cls(argument or "glyphs")

    def prepared(self, interpolation: str, crop: float | None) -> Self:
        """The same: what is measured is drawn at its size."""
        return self

    def length(self, split: str) -> int | None:
        """None for train, which is endless; 2,000 for minival, 10,000 for the others."""
        require(f"split of scenes:{self.task}", split, self.splits)
        return LENGTHS[split]

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """A scene rendered at `image_size`; `epoch` changes nothing, since `train` never repeats an index."""
        self.check(split, index, image_size)
        scene = draw(self.task, split, index, seed)
        name, group = f"scenes/{self.task}/{split}/{index}", {"group": self._group_of[scene.label]}
        if split == "train" and self.transform.scale[0] < 1:
            # Drawn so large that no part of it is enlarged.
            times = 1 / math.sqrt(self.transform.scale[0] * self.transform.aspect[0])
            large = math.ceil(times * image_size[0]), math.ceil(times * image_size[1])
            whole = Example(render(scene, large).image, Label(scene.label), name, group)
            return self.shown(whole, split, index, image_size, seed=seed, epoch=0)
        return Example(render(scene, image_size).image, Label(scene.label), name, group | {"size": scene.size})
