"""One encoding for each stage of a trunk whose stages have other widths, heads and grids."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from sightline.attention.pattern import Pattern
from sightline.attention.rotation import Rotation
from sightline.encodings.base import AddedEncoding, PositionEncoding, TrunkShape
from sightline.encodings.create import EncodingGroup, make_encoding, share_options
from sightline.encodings.discovery import registry
from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout


class StagedEncoding(EncodingGroup):
    """Hooks of a layer are those of its stage's encoding; the knob and the rule are set in all of them.

    Attributes:
        stages: the encoding of each stage, its layers counted from the stage's first.
        embedding: what is added to the embedded patches, made for the grid of the whole image, or None.
    """

    extrapolation: ClassVar = "the rules of its parts, in each stage by the stage's own grid"

    def __init__(
        self, stages: Sequence[PositionEncoding], embedding: PositionEncoding | None, shape: TrunkShape
    ) -> None:
        super().__init__(stages[0].config, shape)
        self.stages: Any = nn.ModuleList(stages)
        self.embedding = embedding
        depths = [one.shape.depth for one in stages]
        self._places = [
            (stage, layer - first)
            for stage, (first, depth) in enumerate(zip(itertools.accumulate([0, *depths]), depths, strict=False))
            for layer in range(first, first + depth)
        ]

    def members(self) -> dict[str, PositionEncoding]:
        stages = {f"stages.{number}": one for number, one in enumerate(self.stages)}
        return stages if self.embedding is None else {**stages, "embedding": self.embedding}

    def holders(self, of: Literal["knob", "resize_rule"]) -> list[PositionEncoding]:
        """All stages, or else the embedding."""
        return [one for one in self.stages if getattr(one, of) is not None] or super().holders(of)

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        return None if self.embedding is None else self.embedding("added", layer, layout)

    def rotation(self, layer: int, layout: TokenLayout) -> Rotation | None:
        stage, own = self._places[layer]
        return self.stages[stage]("rotation", own, layout)

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern | None:
        stage, own = self._places[layer]
        return self.stages[stage]("pattern", own, layout)


def create_staged(name: str, shapes: Sequence[TrunkShape], image: TrunkShape, config: Mapping[str, Any]) -> Any:
    """An encoding for each of these stages, and what of it is added to the tokens for the image's own grid.

    Args:
        name: as `create_encoding`'s.
        shapes: of each stage; its grid is that in which tokens meet there.
        image: depth of all stages, and the first one's heads and width.
        config: as `create_encoding`'s.

    Raises:
        InputError: as `create_encoding`, or an embedding is to be added before other layers than the first.
    """
    known = registry()
    parts = share_options(name, config)
    added = [one for one in parts if issubclass(known[one[0]], AddedEncoding)]
    for part, options in added:
        where = {**known[part].names[part], **options}.get("at", "input")
        if where != "input":
            raise InputError(f"encoding {part}: at {where!r}: stages have other widths and grids (expected 'input')")
    meeting = [one for one in parts if one not in added] or [("none", {})]
    stages = [make_encoding("+".join(part for part, _ in meeting), meeting, shape) for shape in shapes]
    embedding = make_encoding("+".join(part for part, _ in added), added, image) if added else None
    staged = StagedEncoding(stages, embedding, image)
    staged.name = name
    return staged
