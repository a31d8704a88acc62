"""A scene as numbers, nothing about pixels; the outlines that it is made of, glyphs of fonts and four plain shapes, and
where they lie."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

SHAPES = ("disc", "square", "triangle", "ring")
_DISC_CORNERS = 128
_RING_HOLE = 0.55

Colour = tuple[float, float, float]
"""Red, green, blue; 0 is black, 1 full."""

Pair = tuple[float, float]
"""Two fractions, (y, x)."""


@dataclass(frozen=True, slots=True)
class Grating:
    """A cosine wave over the image: (y, x) cycles per shorter side, radians at the top left corner, and an amplitude in
    each colour."""

    frequency: Pair
    phase: float
    amplitude: Colour


@dataclass(frozen=True, slots=True)
class Background:
    """What is behind everything.

    Attributes:
        colour: in the middle of the image, before the gratings, which are its texture.
        gradient: the change of colour from edge to edge of the image, in the direction (sin, cos) in (y, x) of
            `gradient_angle` in radians.
    """

    colour: Colour
    gradient: Colour
    gradient_angle: float
    gratings: tuple[Grating, ...]


@dataclass(frozen=True, slots=True)
class Stroke:
    """A straight line behind the objects that means nothing, from (y, x) to (y, x) as fractions of the image's height
    and width; its own width is one of the shorter side."""

    start: Pair
    end: Pair
    width: float
    colour: Colour


@dataclass(frozen=True, slots=True)
class SceneObject:
    """A filled outline.

    Attributes:
        outline: (face, character), or ("shape", name).
        size: longest side of its upright box, fraction of the image's shorter side.
        rotation: degrees, anticlockwise as seen.
        shear: x moves by this times y, before the rotation.
        aspect: the outline is made wider by the factor 1 + aspect, before the shear.
        colour: in the middle of its box.
        gradient, gradient_angle: as `Background`, of its box.
    """

    outline: tuple[str, str]
    size: float
    rotation: float
    shear: float
    aspect: float
    colour: Colour
    gradient: Colour
    gradient_angle: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene, independent of the resolution and the aspect ratio at which it is rendered.

    Attributes:
        task, split, seed, index: where it comes from.
        label: the class.
        size: longest side of the box around all objects, fraction of the image's shorter side.
        position: (y, x) of that box, 0 at the top or left edge of the image, 1 at the bottom or right edge.
        background, strokes, objects: drawn over one another, in this order.
        offsets: for each object the centre of its box relative to the first object's, (y, x), fractions of the
            image's shorter side.
    """

    task: str
    split: str
    seed: int
    index: int
    label: int
    size: float
    position: Pair
    background: Background
    strokes: tuple[Stroke, ...]
    objects: tuple[SceneObject, ...]
    offsets: tuple[Pair, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """Closed contours, filled where they turn from y to x and empty where they turn back: float64 [points, 2], (y, x),
    y down, in a box that is centred on 0 and whose longest side is 1, and int64 [points], the point after each."""

    points: np.ndarray
    following: np.ndarray

    @staticmethod
    def of(contours: list[np.ndarray]) -> Outline:
        """The outline of contours, float [points, 2] each, that are not closed by a repeated point."""
        lengths = [len(contour) for contour in contours]
        ends = np.cumsum(lengths)
        following = np.arange(1, ends[-1] + 1)
        following[ends - 1] = ends - lengths
        return Outline(np.concatenate(contours).astype(np.float64), following)


@dataclass(frozen=True, slots=True, eq=False)
class GlyphSet:
    """All glyphs: `outlines[face, character]`, the faces of the training fonts, and the faces held out."""

    outlines: dict[tuple[str, str], Outline]
    train_faces: tuple[str, ...]
    held_out_faces: tuple[str, ...]


@lru_cache(maxsize=1)
def glyph_set() -> GlyphSet:
    """The glyphs that come with the package; see `glyph_outlines.NOTICE.txt` for their sources and licences."""
    file = resources.files("sightline.data.sources").joinpath("glyph_outlines.npz")
    with file.open("rb") as handle, np.load(handle, allow_pickle=False) as data:
        characters, faces, held_out = (data[name].tolist() for name in ("characters", "faces", "held_out"))
        contours = np.split(data["points"].astype(np.float64) / 65534, np.cumsum(data["lengths"])[:-1])
        glyphs = data["glyphs"].tolist()
    parts: dict[tuple[str, str], list[np.ndarray]] = {}
    for glyph, contour in zip(glyphs, contours, strict=True):
        face, character = divmod(glyph, len(characters))
        parts.setdefault((faces[face], characters[character]), []).append(contour)
    train, held = (tuple(itertools.compress(faces, [out == kind for out in held_out])) for kind in (False, True))
    return GlyphSet({key: Outline.of(contours) for key, contours in parts.items()}, train, held)


def _disc(diameter: float) -> np.ndarray:
    turns = np.arange(_DISC_CORNERS) * (2 * math.pi / _DISC_CORNERS)
    return 0.5 * diameter * np.stack([np.cos(turns), np.sin(turns)], axis=1)


@lru_cache(maxsize=1)
def shape_outlines() -> dict[tuple[str, str], Outline]:
    """The plain shapes, under ("shape", name)."""
    square = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    height = math.sqrt(3) / 2
    triangle = np.array([[height / 2, -0.5], [height / 2, 0.5], [-height / 2, 0.0]])
    contours = [_disc(1.0)], [square], [triangle], [_disc(1.0), _disc(_RING_HOLE)[::-1]]
    return {("shape", name): Outline.of(one) for name, one in zip(SHAPES, contours, strict=True)}


def outline(key: tuple[str, str]) -> Outline:
    """The outline that a scene object names."""
    return shape_outlines()[key] if key[0] == "shape" else glyph_set().outlines[key]


def object_points(item: SceneObject) -> tuple[np.ndarray, np.ndarray]:
    """An object's outline, made wider, sheared, turned and scaled: float64 [points, 2], (y, x) in shorter sides of the
    image from the centre of its upright box, and float64 [2], the (height, width) of that box."""
    turn = math.radians(item.rotation)
    sin, cos = math.sin(turn), math.cos(turn)
    wide = 1.0 + item.aspect
    matrix = np.array([[cos - sin * item.shear, -sin * wide], [sin + cos * item.shear, cos * wide]])
    # Not `@`: a BLAS may round differently with another number of threads.
    points = np.einsum("pj,ij->pi", outline(item.outline).points, matrix)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = item.size / (high - low).max()
    return (points - (low + high) * 0.5) * scale, (high - low) * scale


def placed_points(
    scene: Scene, image_size: tuple[int, int], unit: float | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """The outlines of all objects in an image of (height, width) pixels, `unit` as `render`: for each float64 [points,
    2], (y, x) in pixels from the top left corner, and float64 [objects, 4], the boxes (y0, x0, y1, x1) in pixels."""
    shorter = unit or min(image_size)
    shapes = [object_points(item) for item in scene.objects]
    offsets = np.array(scene.offsets)
    halves = np.array([extent for _, extent in shapes]) * 0.5
    low, high = (offsets - halves).min(axis=0), (offsets + halves).max(axis=0)
    room = np.array(image_size) / shorter - (high - low)
    centres = offsets + (np.array(scene.position) * room - low)
    placed = [(points + centre) * shorter for (points, _), centre in zip(shapes, centres, strict=True)]
    return placed, np.concatenate([centres - halves, centres + halves], axis=1) * shorter
