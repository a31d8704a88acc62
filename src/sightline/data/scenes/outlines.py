"""The outlines that scenes are made of: glyphs of fonts, and four plain shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

GLYPH_FILE = "glyph_outlines.npz"
SHAPES = ("disc", "square", "triangle", "ring")
_DISC_CORNERS = 128
_RING_HOLE = 0.55


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """Closed contours, filled where they turn from y to x and empty where they turn back.

    Attributes:
        points: float64 [points, 2], (y, x), y down; the box is centred on 0 and its longest side is 1.
        following: int64 [points], the index of the point that an edge leads to.
    """

    points: np.ndarray
    following: np.ndarray

    @staticmethod
    def of(contours: list[np.ndarray]) -> Outline:
        """The outline of contours, float [points, 2] each, that are not closed by a repeated point."""
        following = []
        start = 0
        for contour in contours:
            following.append(np.roll(np.arange(start, start + len(contour)), -1))
            start += len(contour)
        return Outline(np.concatenate(contours).astype(np.float64), np.concatenate(following))


@dataclass(frozen=True, slots=True, eq=False)
class GlyphSet:
    """All glyphs: `outlines[face, character]`, the faces of the training fonts, and the faces held out."""

    outlines: dict[tuple[str, str], Outline]
    train_faces: tuple[str, ...]
    held_out_faces: tuple[str, ...]


@lru_cache(maxsize=1)
def glyph_set() -> GlyphSet:
    """The glyphs that come with the package; see `glyph_outlines.NOTICE.txt` for their sources and licences."""
    file = resources.files("sightline.data.sources").joinpath(GLYPH_FILE)
    with file.open("rb") as handle, np.load(handle, allow_pickle=False) as data:
        characters = [str(character) for character in data["characters"]]
        faces = [str(face) for face in data["faces"]]
        held_out = data["held_out"].tolist()
        contours = np.split(data["points"].astype(np.float64) / 65534, np.cumsum(data["lengths"])[:-1])
        glyphs = data["glyphs"].tolist()
    parts: dict[tuple[str, str], list[np.ndarray]] = {}
    for glyph, contour in zip(glyphs, contours, strict=True):
        face, character = divmod(glyph, len(characters))
        parts.setdefault((faces[face], characters[character]), []).append(contour)
    return GlyphSet(
        outlines={key: Outline.of(contours) for key, contours in parts.items()},
        train_faces=tuple(face for face, out in zip(faces, held_out, strict=True) if not out),
        held_out_faces=tuple(face for face, out in zip(faces, held_out, strict=True) if out),
    )


def _disc(diameter: float) -> np.ndarray:
    turns = np.arange(_DISC_CORNERS) * (2 * math.pi / _DISC_CORNERS)
    return 0.5 * diameter * np.stack([np.cos(turns), np.sin(turns)], axis=1)


@lru_cache(maxsize=1)
def shape_outlines() -> dict[tuple[str, str], Outline]:
    """The plain shapes, under ("shape", name)."""
    square = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    height = math.sqrt(3) / 2
    triangle = np.array([[height / 2, -0.5], [height / 2, 0.5], [-height / 2, 0.0]])
    contours = {
        "disc": [_disc(1.0)],
        "square": [square],
        "triangle": [triangle],
        "ring": [_disc(1.0), _disc(_RING_HOLE)[::-1]],
    }
    return {("shape", name): Outline.of(contours[name]) for name in SHAPES}


def outline(key: tuple[str, str]) -> Outline:
    """The outline that a scene object names."""
    return shape_outlines()[key] if key[0] == "shape" else glyph_set().outlines[key]
