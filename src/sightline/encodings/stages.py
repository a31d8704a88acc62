"""One encoding for each stage of a trunk whose stages have other widths, heads and grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import nn

from sightline.encodings.base import AddedEncoding, PositionEncoding, TrunkShape
from sightline.encodings.create import EncodingGroup, make_encoding, share_options
from sightline.encodings.discovery import registry
from sightline.errors import InputError


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

    def members(self) -> dict[str, PositionEncoding]:
        stages = {f"stages.{number}": one for number, one in enumerate(self.stages)}
        return stages if self.embedding is None else {**stages, "embedding": self.embedding}

    def first_layer(self, place: str) -> int:
        _, _, number = place.partition(".")
        return sum(one.shape.depth for one in self.stages[: int(number or 0)])

    def holders(self, of: Literal["knob", "resize_rule"]) -> list[PositionEncoding]:
        """All stages, or else the embedding."""
        return [one for one in self.stages if getattr(one, of) is not None] or super().holders(of)


def create_staged(name: str, shapes: Sequence[TrunkShape], image: TrunkShape, config: Mapping[str, Any]) -> Any:
    """An encoding for each of these stages, and what of it is added to the tokens for the image's own grid.

    Args:
        name, config: as those of `create_encoding`.
        shapes: of each stage; its grid is that in which tokens meet there.
        image: depth of all stages, and the first one's heads and width.

    Raises:
        InputError: as `create_encoding`, or an embedding is to be added before other layers than the first.
    """
    known, parts = registry(), share_options(name, config)
    added = [one for one in parts if issubclass(known[one[0]], AddedEncoding)]
    for part, options in added:
        where = {**known[part].names[part], **options}.get("at", "input")
        if where != "input":
            raise InputError(f"encoding {part}: at {where!r}: stages have other widths and grids (expected 'input')")
    meeting = [one for one in parts if one not in added] or [("none", {})]
    stages = [make_encoding(meeting, shape) for shape in shapes]
    staged = StagedEncoding(stages, make_encoding(added, image) if added else None, image)
    staged.name = name
    return staged
