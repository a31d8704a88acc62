"""The scenes of both tasks: which numbers are drawn, from which ranges, and in which order."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sightline.data.rng import generator
from sightline.data.scenes.outlines import (
    SHAPES,
    Background,
    Colour,
    Grating,
    Pair,
    Scene,
    SceneObject,
    Stroke,
    glyph_set,
    object_points,
)
from sightline.errors import require_known

DRAW_ORDER = 1
"""The version of the draws below: whatever changes what is drawn, or the order, makes other scenes and raises it."""

GLYPH_GROUPS = ("bdpq", "un", "hy", "69", "ae", "MW", "NZ", "S25", "LJ7", "E3")
GLYPH_CLASSES = tuple("".join(GLYPH_GROUPS))
RELATIONS = ("left of", "right of", "above", "below")
PAIRS = tuple((first, second) for place, first in enumerate(SHAPES) for second in SHAPES[place + 1 :])
PAIR_CLASSES = tuple(f"{first} {relation} {second}" for first, second in PAIRS for relation in RELATIONS)
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0), "cyan": (0, 1, 1),
           "magenta": (1, 0, 1)}  # fmt: skip
"""Of `captions`: name of a colour -> whether there is much of red, of green, of blue."""
COLOURED = tuple((colour, shape) for shape in SHAPES for colour in COLOURS)
COLOURED_CLASSES = tuple(map(" ".join, COLOURED))
HELD_OUT_CLASSES = ("green disc", "blue square", "yellow triangle", "magenta ring")
"""Of `captions`: those that its split `heldout` shows, and no other split."""
_USUAL = ("train", "minival", "test")
SPLITS = {"glyphs": (*_USUAL, "heldout_fonts"), "pairs": _USUAL, "search": _USUAL, "many": _USUAL,
          "captions": (*_USUAL, "heldout")}  # fmt: skip
"""Task -> its splits. `search` is pairs that are drawn so many pixels large in an image of any extent; `many` is one to
five shapes, which may hide each other in part, and its label is their number; `captions` is one shape of a colour."""

SIZE = (0.3, 0.95)
ROTATION = (-15.0, 15.0)
SHEAR = (-0.15, 0.15)
ASPECT = (-0.15, 0.15)
BACKGROUND_COLOUR = (0.0, 0.35)
OBJECT_COLOUR = (0.65, 1.0)
NAMED_COLOUR = (0.05, 0.25), (0.75, 1.0)
"""Of an object whose colour has a name: where there is little of a primary colour, and where there is much."""
BACKGROUND_GRADIENT = (-0.15, 0.15)
OBJECT_GRADIENT = (-0.1, 0.1)
GRATINGS = 4
GRATING_FREQUENCY = (1.0, 8.0)
GRATING_AMPLITUDE = (-0.04, 0.04)
STROKE_WIDTH = (0.02, 0.06)
STROKE_COLOUR = (0.35, 0.85)
PAIR_GAP = 0.1
"""Room between the two boxes of a pair, at least, as a fraction of the pair's size."""
PAIR_SHARE = (0.4, 0.6)
"""Part of the remaining room that the first object's longest side takes; the second takes the rest."""
PAIR_SLANT = (-0.5, 0.5)
"""Offset across the relation's axis as a fraction of the offset along it: at 1 the relation would be ambiguous."""

MANY = (0.25, 0.3, 0.25, 0.1, 0.1)
"""How often there are 1, 2, ... shapes in `many`: 2.5 in the mean."""
MANY_CLASSES = ("1 shape", *(f"{count} shapes" for count in range(2, len(MANY) + 1)))
MANY_SIZE = (0.15, 0.45)
"""Longest side of each shape in `many`, as a fraction of the image's shorter side."""
_PLACES = 8

_DRAWS = {"glyphs": 80, "pairs": 80, "search": 80, "many": 200, "captions": 80}
_TURN = (0.0, 2 * math.pi)


class _Draws:
    """The uniform numbers of one scene, taken one after the other."""

    def __init__(self, task: str, split: str, seed: int, index: int) -> None:
        stream = f"scenes/{task}/{split}/{DRAW_ORDER}"
        numbers = generator(stream, seed, index).random(_DRAWS[task]).tolist()
        self.next: Callable[[], float] = iter(numbers).__next__

    def within(self, limits: tuple[float, float]) -> float:
        low, high = limits
        return low + (high - low) * self.next()

    def pair(self) -> Pair:
        return self.next(), self.next()

    def colour(self, limits: tuple[float, float]) -> Colour:
        return self.within(limits), self.within(limits), self.within(limits)

    def choice(self, count: int) -> int:
        return int(self.next() * count)


def _background(draws: _Draws) -> Background:
    colour, gradient = draws.colour(BACKGROUND_COLOUR), draws.colour(BACKGROUND_GRADIENT)
    angle, gratings = draws.within(_TURN), list[Grating]()
    for _ in range(GRATINGS):
        frequency, direction = draws.within(GRATING_FREQUENCY), draws.within(_TURN)
        wave = frequency * math.sin(direction), frequency * math.cos(direction)
        gratings.append(Grating(wave, draws.within(_TURN), draws.colour(GRATING_AMPLITUDE)))
    return Background(colour, gradient, angle, tuple(gratings))


def _strokes(draws: _Draws) -> tuple[Stroke, ...]:
    # All numbers are taken whether or not the stroke is there: what follows must not depend on it.
    present = draws.next() < 0.5
    stroke = Stroke(draws.pair(), draws.pair(), draws.within(STROKE_WIDTH), draws.colour(STROKE_COLOUR))
    return (stroke,) if present else ()


def _object(draws: _Draws, outline: tuple[str, str], size: float, name: str = "") -> SceneObject:
    """An object of a colour near white, or of one with a name."""
    red, green, blue = (NAMED_COLOUR[much] for much in COLOURS[name]) if name else [OBJECT_COLOUR] * 3
    return SceneObject(
        outline=outline,
        size=size,
        rotation=draws.within(ROTATION),
        shear=draws.within(SHEAR),
        aspect=draws.within(ASPECT),
        colour=(draws.within(red), draws.within(green), draws.within(blue)),
        gradient=draws.colour(OBJECT_GRADIENT),
        gradient_angle=draws.within(_TURN),
    )


def draw(task: str, split: str, index: int, seed: int = 0) -> Scene:
    """The scene with this index, independent of batches, processes and resolution; splits other than `train` are those
    of seed 0. Raises InputError where the task, the split or a number (0 to 2**64 - 1) is not allowed."""
    require_known("task of scenes", task, SPLITS)
    require_known(f"split of scenes:{task}", split, SPLITS[task])
    seed = seed if split == "train" else 0
    draws = _Draws(task, split, seed, index)
    drawn = {"glyphs": _glyph, "many": _many, "captions": _coloured}.get(task, _pair)(draws, split)
    label, size, position, objects, offsets = drawn
    background, strokes = _background(draws), _strokes(draws)
    return Scene(task, split, seed, index, label, size, position, background, strokes, objects, offsets)


# Label, size, position, objects and offsets, as `Scene`.
_Drawn = tuple[int, float, Pair, tuple[SceneObject, ...], tuple[Pair, ...]]


def _glyph(draws: _Draws, split: str) -> _Drawn:
    glyphs = glyph_set()
    faces = glyphs.held_out_faces if split == "heldout_fonts" else glyphs.train_faces
    label = draws.choice(len(GLYPH_CLASSES))
    face = faces[draws.choice(len(faces))]
    size, position = draws.within(SIZE), draws.pair()
    return label, size, position, (_object(draws, (face, GLYPH_CLASSES[label]), size),), ((0.0, 0.0),)


def _coloured(draws: _Draws, split: str) -> _Drawn:
    shown = [at for at, one in enumerate(COLOURED_CLASSES) if (one in HELD_OUT_CLASSES) == (split == "heldout")]
    label = shown[draws.choice(len(shown))]
    colour, shape = COLOURED[label]
    size, position = draws.within(SIZE), draws.pair()
    return label, size, position, (_object(draws, ("shape", shape), size, colour),), ((0.0, 0.0),)


def _pair(draws: _Draws, split: str) -> _Drawn:
    """Two shapes in a box whose longest side is `size`, along the axis of their relation."""
    label = draws.choice(len(PAIR_CLASSES))
    names, relation = PAIRS[label // len(RELATIONS)], label % len(RELATIONS)
    size, position = draws.within(SIZE), draws.pair()
    share, slant = draws.within(PAIR_SHARE), draws.within(PAIR_SLANT)
    room = size * (1 - PAIR_GAP)
    first = _object(draws, ("shape", names[0]), room * share)
    second = _object(draws, ("shape", names[1]), room * (1 - share))
    axis = 1 if relation < 2 else 0
    extents = [float(object_points(item)[1][axis]) for item in (first, second)]
    # The box of both reaches exactly `size`, so the gap takes what the longest sides leave.
    distance = size - sum(extents) / 2
    along = distance if relation % 2 == 0 else -distance
    across = distance * slant
    return label, size, position, (first, second), ((0.0, 0.0), (across, along) if axis == 1 else (along, across))


def _many(draws: _Draws, split: str) -> _Drawn:
    """Shapes of any kinds in the unit square, each at that of a few drawn places where it covers least of the others.

    The later ones are drawn over the earlier ones.
    """
    share, position = draws.next(), draws.pair()
    count = 1 + sum(share >= sum(MANY[:more]) for more in range(1, len(MANY)))
    objects: list[SceneObject] = []
    boxes = np.zeros((0, 4))
    for _ in range(count):
        item = _object(draws, ("shape", SHAPES[draws.choice(len(SHAPES))]), draws.within(MANY_SIZE))
        extent = object_points(item)[1]
        corners = np.array([draws.pair() for _ in range(_PLACES)]) * (1 - extent)
        places = np.concatenate([corners, corners + extent], axis=1)
        covered = np.maximum(
            np.minimum(places[:, None, 2:], boxes[:, 2:]) - np.maximum(places[:, None, :2], boxes[:, :2]), 0
        ).prod(axis=-1)
        objects.append(item)
        boxes = np.concatenate([boxes, places[[covered.sum(axis=1).argmin()]]])
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    offsets = tuple((float(y), float(x)) for y, x in centres - centres[0])
    size = float((boxes[:, 2:].max(axis=0) - boxes[:, :2].min(axis=0)).max())
    return count - 1, size, position, tuple(objects), offsets
