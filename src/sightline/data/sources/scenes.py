"""The embedded data set: vector scenes of glyphs or of pairs of shapes, which never run out and need no download."""

from __future__ import annotations

import copy
import math
from typing import ClassVar, Self

import numpy as np

from sightline.data.scenes.description import Scene
from sightline.data.scenes.draw import GLYPH_CLASSES, GLYPH_GROUPS, PAIR_CLASSES, PAIRS, RELATIONS, SPLITS, draw
from sightline.data.scenes.render import render
from sightline.data.source import Example, Source
from sightline.data.transforms import train_view
from sightline.errors import choose

LENGTHS = {"train": None, "minival": 2_000, "test": 10_000, "heldout_fonts": 10_000}


def _glyph_groups() -> dict[str, tuple[int, ...]]:
    return {group: tuple(GLYPH_CLASSES.index(character) for character in group) for group in GLYPH_GROUPS}


def _pair_groups() -> dict[str, tuple[int, ...]]:
    count = len(RELATIONS)
    return {f"{a}+{b}": tuple(range(place * count, (place + 1) * count)) for place, (a, b) in enumerate(PAIRS)}


class Scenes(Source):
    """One task of the scenes: "glyphs" (24 characters in 10 confusable groups) or "pairs" (6 pairs x 4 relations).

    `train` is endless: index i of seed s is always the same scene, whatever the epoch. `heldout_fonts` (glyphs only)
    is `test` with five fonts that no other split uses.
    """

    name: ClassVar[str] = "scenes"

    def __init__(self, task: str = "glyphs") -> None:
        """Raises InputError for a task that is not "glyphs" or "pairs"."""
        if task not in SPLITS:
            raise choose("task of scenes", task, SPLITS)
        self.task = task
        self.classes = GLYPH_CLASSES if task == "glyphs" else PAIR_CLASSES
        self.groups = _glyph_groups() if task == "glyphs" else _pair_groups()
        self.splits = SPLITS[task]
        self._least, self._stretch = 1.0, (3 / 4, 4 / 3)
        self._group_of = {label: group for group, labels in self.groups.items() for label in labels}

    @classmethod
    def open(cls, argument: str) -> Self:
        """The task named by the argument; glyphs when there is none."""
        return cls(argument or "glyphs")

    def length(self, split: str) -> int | None:
        """None for train, which is endless; 2,000 for minival, 10,000 for the others."""
        if split not in self.splits:
            raise choose(f"split of scenes:{self.task}", split, self.splits)
        return LENGTHS[split]

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """A scene rendered at `image_size`; `epoch` changes nothing, since `train` never repeats an index."""
        self.check(split, index, image_size)
        scene = draw(self.task, split, index, seed)
        part = split == "train" and self._least < 1
        return Example(
            image=self._part(scene, image_size, seed, index) if part else render(scene, image_size).image,
            label=scene.label,
            group=self._group_of[scene.label],
            size=None if part else scene.size,
            name=f"scenes/{self.task}/{split}/{index}",
        )

    def _part(self, scene: Scene, image_size: tuple[int, int], seed: int, index: int) -> np.ndarray:
        """A random part of a scene, which is drawn so large that none is enlarged; glyphs are not mirrored."""
        times = 1 / math.sqrt(self._least * self._stretch[0])
        height, width = image_size
        image = render(scene, (math.ceil(times * height), math.ceil(times * width))).image
        part = {"scale": (self._least, 1.0), "aspect": self._stretch, "flip": 0.0}
        return train_view(image, image_size, seed=seed, epoch=0, index=index, interpolation="bilinear", **part)

    def keeping_aspect(self) -> Self:
        """As `Source.keeping_aspect`."""
        kept = copy.copy(self)
        kept._stretch = (1.0, 1.0)
        return kept

    def showing_parts(self, least: float) -> Self:
        """As `Source.showing_parts`; scenes are shown whole unless it is said."""
        shown = copy.copy(self)
        shown._least = least
        return shown
