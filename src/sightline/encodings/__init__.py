"""Position encodings: one file each in `added/`, `rotation/` and `pattern/`; the folder is the registry."""

from sightline.encodings.base import (
    AddedEncoding,
    Knob,
    PatternEncoding,
    PositionEncoding,
    RotaryEncoding,
    TrunkShape,
)
from sightline.encodings.create import create_encoding
from sightline.encodings.discovery import add_encodings, list_encodings

__all__ = [
    "AddedEncoding",
    "Knob",
    "PatternEncoding",
    "PositionEncoding",
    "RotaryEncoding",
    "TrunkShape",
    "add_encodings",
    "create_encoding",
    "list_encodings",
]
