"""Two or more encodings together are an encoding that holds them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from sightline.attention.pattern import Pattern
from sightline.attention.rotation import Rotation
from sightline.encodings.base import Knob, PositionEncoding, RotaryEncoding, TrunkShape
from sightline.errors import InputError
from sightline.layout import TokenLayout


def _sum(parts: Iterable[Any]) -> Any:
    """The sum of those that there are, or None."""
    return functools.reduce(operator.add, present) if (present := [one for one in parts if one is not None]) else None


class Combined(PositionEncoding):
    """Embeddings are added, rotations follow one another, biases are added; the knob is the first part's that has
    one. Part `i` holds its parameters as `parts.i`."""

    # Its parts keep their own knobs.
    get_extra_state, set_extra_state = nn.Module.get_extra_state, nn.Module.set_extra_state
    source: ClassVar = "the sources of its parts"
    new_grid: ClassVar = "the rules of its parts"
    axes: ClassVar = None

    def __init__(self, parts: Sequence[PositionEncoding], shape: TrunkShape) -> None:
        super().__init__(tuple(part.config for part in parts), shape)
        turning = {part.pairing for part in parts if isinstance(part, RotaryEncoding)}
        if len(turning) > 1:
            names = "+".join(part.name for part in parts)
            raise InputError(
                f"encoding {names!r}: its rotations pair channels differently ({', '.join(sorted(turning))})"
            )
        self.parts = nn.ModuleList(parts)

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        """Symmetric only where every part is."""
        return all(part.symmetric for part in self._parts())

    def _parts(self) -> list[PositionEncoding]:
        return [part for part in self.parts if isinstance(part, PositionEncoding)]

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        return _sum(part.added(layer, layout) for part in self._parts())

    def rotation(self, layer: int, layout: TokenLayout) -> Rotation | None:
        return _sum(part.rotation(layer, layout) for part in self._parts())

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern | None:
        return _sum(part.pattern(layer, layout) for part in self._parts())

    @property
    def knob(self) -> Knob | None:
        return next((part.knob for part in self._parts() if part.knob is not None), None)

    def _turn_knob(self, value: float) -> None:
        next(part for part in self._parts() if part.knob is not None).set_knob(value)

    def no_weight_decay(self) -> set[str]:
        return {f"parts.{index}.{name}" for index, part in enumerate(self._parts()) for name in part.no_weight_decay()}
