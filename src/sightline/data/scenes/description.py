"""A scene as numbers: everything that was drawn, nothing about pixels."""

from __future__ import annotations

from dataclasses import dataclass

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
        colour: in the middle of its box; gradient, gradient_angle: as `Background`, of its box.
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
        task, split, seed, index: where it comes from; label: the class.
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
