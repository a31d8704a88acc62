"""The embedded data set with motion: a glyph that moves over a still, textured background."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from sightline.data.rng import generator
from sightline.data.scenes.draw import draw
from sightline.data.scenes.render import render_moving
from sightline.data.sizes import FrameSampling
from sightline.data.source import Example, Source
from sightline.data.targets import Label
from sightline.errors import require_known

DIRECTIONS = ("right", "down right", "down", "down left", "left", "up left", "up", "up right")
SIZE = (0.3, 0.5)
"""Longest side of the glyph's box, as a fraction of the image's shorter side."""
SPEED = (0.04, 0.1)
"""From one frame to the next, in shorter sides of the image: 1.3 to 3.2 pixels at 32."""
SLANT = math.radians(12)
"""By so much at most, to either side, the glyph moves beside its class's direction."""
LENGTHS = {"train": None, "minival": 2_000, "test": 10_000}


class Moving(Source):
    """The class is the direction, one of eight, in which a glyph moves.

    One frame alone does not tell: the glyph begins anywhere in the image, which has no edges (what leaves it on one
    side is seen on the other); glyph, font, colours, background and strokes are those of the scene of the same split,
    index and seed. Speeds are those of a camera: a clip of more frames shows the same motion for longer, and begins
    with the frames of a shorter one; a stride shows every so many frames of it.

    `train` is endless: index i of seed s is always the same clip, whatever the epoch.
    """

    name: ClassVar[str] = "moving"
    is_video: ClassVar[bool] = True
    is_synthetic: ClassVar[bool] = True
    classes = DIRECTIONS
    splits = tuple(LENGTHS)
    task = "directions"

    def __init__(self) -> None:
        self.groups = {}

    def length(self, split: str) -> int | None:
        """None for train, which is endless; 2,000 for minival, 10,000 for test."""
        require_known("split of moving", split, self.splits)
        return LENGTHS[split]

    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """A clip rendered at `image_size`; without a `sampling` its first frame, an image."""
        self.check(split, index, image_size)
        seed = seed if split == "train" else 0
        scene = draw("glyphs", split, index, seed)
        draws = generator(f"moving/{split}/1", seed, index)
        label = int(draws.integers(len(DIRECTIONS)))
        size, speed, slant = (low + (high - low) * draws.random() for low, high in (SIZE, SPEED, (-SLANT, SLANT)))
        begin = draws.random(2) * image_size
        angle = label * 2 * math.pi / len(DIRECTIONS) + slant
        sampling = self.sampling or FrameSampling(1)
        times = np.arange(sampling.count) * (sampling.stride or 1)
        step = np.array([math.sin(angle), math.cos(angle)]) * (speed * min(image_size))
        scene = replace(scene, objects=(replace(scene.objects[0], size=size),))
        clip = render_moving(scene, image_size, begin + times[:, None] * step)
        image = clip[0] if self.sampling is None else clip
        return Example(image, Label(label), self.example_name(split, index), {"size": size})
