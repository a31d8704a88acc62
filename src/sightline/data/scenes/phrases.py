"""Scenes in words: of each class several captions that mean the same."""

from __future__ import annotations

from sightline.data.scenes import draw

_OPPOSITE: dict[str, str] = dict(zip(draw.RELATIONS, ("right of", "left of", "below", "above"), strict=True))
_OF_PAIRS = ("a {} {} a {}", "the {} is {} the {}", "there is a {} {} a {}", "a picture of a {} {} a {}")
_OF_COLOURS = (
    "a {colour} {shape}", "the {shape} is {colour}", "a {shape} that is {colour}", "there is a {colour} {shape}",
    "a picture of a {colour} {shape}",
)  # fmt: skip


def _pair(first: str, second: str, relation: str) -> tuple[str, ...]:
    """Also turned round, as "a square right of a disc" of a disc left of a square."""
    ways = (first, relation, second), (second, _OPPOSITE[relation], first)
    return tuple(phrase.format(*way) for way in ways for phrase in _OF_PAIRS)


_PAIRS = tuple(_pair(*pair, relation) for pair in draw.PAIRS for relation in draw.RELATIONS)
_COLOURED = tuple(
    tuple(one.format(colour=colour, shape=shape) for one in _OF_COLOURS) for colour, shape in draw.COLOURED
)
NAMES: dict[str, tuple[str, ...]] = {
    "pairs": tuple(f"{first} {relation} a {second}" for first, second in draw.PAIRS for relation in draw.RELATIONS),
    "captions": draw.COLOURED_CLASSES,
}
NAMES["search"] = NAMES["pairs"]
TEMPLATES = ("a {}", "there is a {}", "a picture of a {}")
CAPTIONS = {"pairs": _PAIRS, "search": _PAIRS, "captions": _COLOURED}
"""Task -> of each class its captions; the other tasks have none."""
