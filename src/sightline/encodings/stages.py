"""One encoding for each stage of a trunk whose stages have other widths, heads and grids."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from sightline.attention.pattern import Pattern
from sightline.attention.rotation import Rotation
from sightline.encodings.base import AddedEncoding, PositionEncoding, TrunkShape
from sightline.encodings.create import create_encoding, share_options
from sightline.encodings.discovery import registry
from sightline.encodings.knob import Knob, ResizeRule
from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout


class StagedEncoding(PositionEncoding):
    """Hooks of a layer are those of its stage's encoding; the knob and the rule are set in all of them.

    Attributes:
        stages: the encoding of each stage, its layers counted from the stage's first.
        embedding: what is added to the embedded patches, made for the grid of the whole image, or None.
    """

    # The stages keep their own knobs.
    get_extra_state, set_extra_state = nn.Module.get_extra_state, nn.Module.set_extra_state
    source: ClassVar = "the sources of its parts"
    extrapolation: ClassVar = "the rules of its parts, in each stage by the stage's own grid"
    axes: ClassVar = None

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

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        """Symmetric only where every part is."""
        return all(part.symmetric for part in (*self.stages, *([self.embedding] if self.embedding else [])))

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        return None if self.embedding is None else self.embedding("added", layer, layout)

    def rotation(self, layer: int, layout: TokenLayout) -> Rotation | None:
        stage, own = self._places[layer]
        return self.stages[stage]("rotation", own, layout)

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern | None:
        stage, own = self._places[layer]
        return self.stages[stage]("pattern", own, layout)

    @property
    def knob(self) -> Knob | None:
        return self.stages[0].knob

    def _turn_knob(self, value: float) -> None:
        for stage in self.stages:
            stage.set_knob(value)

    @property
    def _ruled(self) -> list[PositionEncoding]:
        """Those whose tables are resized: of the stages, or else the embedding."""
        return [one for one in self.stages if one.resize_rule is not None] or [self.embedding or self.stages[0]]

    @property
    def resize_rule(self) -> ResizeRule | None:
        return self._ruled[0].resize_rule

    def set_resize_rule(self, value: str) -> None:
        for one in self._ruled:
            one.set_resize_rule(value)

    def layer_of(self, name: str) -> int | None:
        kind, _, inner = name.partition(".")
        return self.embedding.layer_of(inner) if kind == "embedding" and self.embedding else None

    def no_weight_decay(self) -> set[str]:
        named = {f"stages.{number}.{name}" for number, one in enumerate(self.stages) for name in one.no_weight_decay()}
        inner = set() if self.embedding is None else self.embedding.no_weight_decay()
        return named | {f"embedding.{name}" for name in inner}


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
    stages = [_create(meeting, shape) for shape in shapes]
    embedding = _create(added, image) if added else None
    found = StagedEncoding(stages, embedding, image)
    found.name = name
    return found


def _create(parts: Sequence[tuple[str, Mapping[str, Any]]], shape: TrunkShape) -> PositionEncoding:
    options = {f"{part}.{key}": value for part, own in parts for key, value in own.items()}
    return create_encoding(
        "+".join(part for part, _ in parts),
        depth=shape.depth,
        heads=shape.heads,
        dim=shape.dim,
        head_dim=shape.head_width,
        train_grid=shape.train_grid,
        num_prefix_tokens=shape.num_prefix_tokens,
        **options,
    )
