"""The embedded data set: vector scenes of glyphs or of shapes, which never run out and need no download."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from sightline.data.crops import RandomResizedCrop
from sightline.data.scenes import draw as scenes
from sightline.data.scenes.outlines import SHAPES
from sightline.data.scenes.phrases import CAPTIONS, NAMES, TEMPLATES
from sightline.data.scenes.render import RenderedScene, render
from sightline.data.skip_policy import Progress
from sightline.data.source import Example, Source
from sightline.data.targets import Crop, LabelledCaptions, Objects, with_one_caption
from sightline.errors import InputError, require_known

# Lengths of `search` scale with so many pixels: those of the training that it is meant for.
_SEARCHED = 32
LENGTHS = {"train": None, "minival": 2_000, "test": 10_000, "heldout_fonts": 10_000, "heldout": 10_000}
_GLYPHS = {group: tuple(map(scenes.GLYPH_CLASSES.index, group)) for group in scenes.GLYPH_GROUPS}
_PAIRS = {
    f"{one}+{two}": tuple(scenes.PAIR_CLASSES.index(f"{one} {relation} {two}") for relation in scenes.RELATIONS)
    for one, two in scenes.PAIRS
}


@dataclass(frozen=True, slots=True, eq=False)
class SceneTarget(LabelledCaptions):
    """All that a scene says: its class, captions, and exactly what is where, which is worked out where it is asked for.

    Attributes:
        drawn: the scene in pixels; things: int64 [objects], which class each object is.
        crops: what was done to the picture since, one after the other.
    """

    drawn: RenderedScene = field(kw_only=True)
    things: np.ndarray = field(kw_only=True)
    crops: tuple[Crop, ...] = field(default=(), kw_only=True)

    def transform(self, crop: Crop) -> Self:
        return replace(self, crops=(*self.crops, crop))

    @property
    def seen(self) -> RenderedScene:
        """The scene in pixels of the picture as it is now; a classifier never asks."""
        boxes, masks = self.drawn.boxes, self.drawn.masks
        for crop in self.crops:
            boxes, masks = crop.apply_to_boxes(boxes), crop.apply_to_map(masks.transpose(1, 2, 0)).transpose(2, 0, 1)
        return replace(self.drawn, boxes=boxes, masks=masks)

    @property
    def pixels(self) -> np.ndarray:
        """As `Pixels`: 0 is the background, the others are the things."""
        return self.seen.pixels(self.things + 1)

    @property
    def objects(self) -> Objects:
        """Each object's whole box and mask, whatever is drawn over it."""
        seen, count = self.seen, len(self.things)
        height, width = seen.masks.shape[1:]
        areas = seen.masks.sum(axis=(1, 2), dtype=np.float64)
        crowd = np.zeros(count, bool)
        return Objects(seen.boxes, self.things, (height, width), crowd, areas, seen.masks >= 0.5)


class Scenes(Source):
    """One task of the scenes: "glyphs" (24 characters in 10 confusable groups), "pairs" (6 pairs x 4 relations of two
    shapes), "search" (pairs as large in pixels as at 32 px in an image of any extent), "many" (1 to 5 shapes) or
    "captions" (one of 4 shapes in one of 6 colours). Pairs, search and captions have captions too.

    `train` is endless: index i of seed s is always the same scene, whatever the epoch. `heldout_fonts` (glyphs only)
    is `test` with five fonts that no other split uses; `heldout` (captions only) shows the four colours of shapes that
    no other split does.

    Attributes:
        class_captions: of each class, by its number; none of glyphs and many.
    """

    name: ClassVar[str] = "scenes"
    provides = ("label", "pixels", "objects")
    is_synthetic: ClassVar[bool] = True
    transform: RandomResizedCrop

    def __init__(self, task: str = "glyphs") -> None:
        """Raises InputError for a task that is none of these."""
        require_known("task of scenes", task, scenes.SPLITS)
        self.task, self.splits = task, scenes.SPLITS[task]
        own = {"glyphs": scenes.GLYPH_CLASSES, "many": scenes.MANY_CLASSES, "captions": scenes.COLOURED_CLASSES}
        self.classes = own.get(task, scenes.PAIR_CLASSES)
        self.class_captions = CAPTIONS.get(task, ())
        self.provides += ("captions",) if self.class_captions else ()
        if self.class_captions:
            self.class_words, self.templates = NAMES[task], TEMPLATES
        self.says_sides = bool(self.class_captions) and task != "captions"
        self.groups = {"glyphs": _GLYPHS, "many": {}, "captions": {}}.get(task, _PAIRS)
        self.object_classes = scenes.GLYPH_CLASSES if task == "glyphs" else SHAPES
        self.pixel_classes = ("background", *self.object_classes)
        # Glyphs are not mirrored.
        self.transform = RandomResizedCrop(scale=(1.0, 1.0), flip=0.0, interpolation="bilinear")
        self._group_of = {label: group for group, labels in self.groups.items() for label in labels}

    @classmethod
    def open(cls, argument: str, progress: Progress | None = None) -> Self:
        """The task named by the argument; glyphs when there is none."""
        return cls(argument or "glyphs")

    def with_view(self, **changes: Any) -> Self:
        """As `Source.with_view`; whole scenes are drawn at their size and never resized."""
        made = super().with_view(**changes)
        if made.transform.interpolation != self.transform.interpolation and not made.transform.shows_parts:
            said = f"interpolation {made.transform.interpolation}: has no effect on whole scenes"
            raise InputError(f"{said} (expected parts below 1)")
        return made

    def length(self, split: str) -> int | None:
        """None for train, which is endless; 2,000 for minival, 10,000 for the others."""
        require_known("split of scenes", split, self.splits)
        return LENGTHS[split]

    def all_captions(self, split: str) -> Iterator[str]:
        """As `Source.all_captions`: every sentence that is drawn from."""
        self.check(split)
        if not self.class_captions:
            return super().all_captions(split)
        return (one for some in self.class_captions for one in some)

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """A scene rendered at `image_size`; `epoch` changes the part that is shown, where there is one."""
        self.check(split, index, image_size)
        scene, shown = scenes.draw(self.task, split, index, seed), {"seed": seed, "epoch": epoch}
        trained = split == "train" and not self.still
        cut = trained and self.transform.shows_parts
        # Drawn so large that no part of it is enlarged.
        times = 1 / math.sqrt(self.transform.scale[0] * self.transform.aspect[0]) if cut else 1
        size = math.ceil(times * image_size[0]), math.ceil(times * image_size[1])
        seen = render(scene, size, times * min(_SEARCHED, *image_size) if self.task == "search" else None)
        things = np.array([self.object_classes.index(item.outline[1]) for item in scene.objects])
        captions = self.class_captions[scene.label] if self.class_captions else ()
        target = SceneTarget(scene.label, drawn=seen, things=things, captions=captions, meaning=scene.label)
        target = with_one_caption(target, index=index, **shown) if split == "train" else target
        group: dict[str, str | float] = {"group": self._group_of[scene.label]} if self.groups else {}
        example = Example(seen.image, target, f"scenes/{self.task}/{split}/{index}", group)
        if cut:
            return self.shown(example, split, index, image_size, **shown)
        if trained and self.transform.flip:
            mirrored = self.transform.train_crop(image_size, image_size, index=index, **shown).mirrored
            crop = Crop((0, 0, *image_size), image_size, mirrored)
            example = replace(example, image=self.transform.cut(seen.image, crop), target=target.transform(crop))
        return replace(example, slices=group | {"size": scene.size})
