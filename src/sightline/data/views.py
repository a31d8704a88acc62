"""How the images of a split are shown where each keeps its own aspect."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sightline.data.sampling import budget_grid, native_grid
from sightline.errors import InputError
from sightline.tokens.grid import Grid

NATIVE_TOKENS = 1024
"""The most patches of an image that is seen at its own size, unless another number is asked for."""


@dataclass(frozen=True, slots=True, order=True)
class View:
    """Images at their own aspect.

    Attributes:
        kind: `native` shows each at its own size, scaled down where it has more than `patches` patches; `tokens`
            scales it, up or down, to as near to `patches` patches as its aspect allows (NaViT appendix D).
        patches: at least 1.
    """

    kind: Literal["native", "tokens"]
    patches: int = NATIVE_TOKENS

    def __post_init__(self) -> None:
        if self.patches < 1:
            raise InputError(f"view {self.kind}: {self.patches} patches (expected: at least 1)")

    @property
    def name(self) -> str:
        """As it is written on the command line and in rows: "native", "max:4096", "tokens:256"."""
        if self.kind == "tokens":
            return f"tokens:{self.patches}"
        return "native" if self.patches == NATIVE_TOKENS else f"max:{self.patches}"

    @classmethod
    def parse(cls, name: str) -> View | None:
        """The inverse of `name`; None where it is none of these."""
        if name == "native":
            return cls("native")
        # Python reads no number of thousands of digits, and no image has so many patches.
        found = re.fullmatch(r"(max|tokens):0*([1-9][0-9]{0,17})", name)
        return cls("native" if found[1] == "max" else "tokens", int(found[2])) if found else None

    def grid(self, image_size: tuple[int, int], patch_size: int) -> Grid:
        """The patches of an image of (height, width) pixels; for `tokens`, of which the aspect counts."""
        rule = budget_grid if self.kind == "tokens" else native_grid
        return rule(image_size, patch_size, self.patches)
