"""What blocks are given of an encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from sightline.attention.pattern import Pattern
from sightline.attention.rotation import Rotation
from sightline.tokens.layout import TokenLayout

if TYPE_CHECKING:
    from sightline.encodings.base import PositionEncoding


class Hooks:
    """The three hooks of an encoding as blocks are given them.

    Each is a call of the module, within which weights that others keep elsewhere are there (accelerate's offloading).
    It is no module itself, which they would move to where a block computes.
    """

    def __init__(self, encoding: PositionEncoding) -> None:
        self._encoding = encoding

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        return self._encoding("added", layer, layout)

    def rotation(self, layer: int, layout: TokenLayout) -> Rotation | None:
        return self._encoding("rotation", layer, layout)

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern | None:
        return self._encoding("pattern", layer, layout)
