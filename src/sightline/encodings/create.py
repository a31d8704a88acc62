"""From a name and a configuration to an encoding; two or more together are an encoding that holds them."""

from __future__ import annotations

import dataclasses
import functools
import operator
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.attention.pattern import Pattern
from sightline.attention.rotation import Rotation
from sightline.encodings.base import PositionEncoding, RotaryEncoding, TrunkShape
from sightline.encodings.discovery import registry, unknown_encoding_error
from sightline.encodings.knob import Knob, ResizeRule
from sightline.errors import InputError, unknown_name_error
from sightline.io.config import build_config
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout


class EncodingGroup(PositionEncoding):
    """An encoding that holds others, which keep their own knobs; its knob and its rule are those of some of them.

    Embeddings are added, rotations follow one another, biases are added.
    """

    get_extra_state, set_extra_state = nn.Module.get_extra_state, nn.Module.set_extra_state
    source: ClassVar = "the sources of its parts"
    extrapolation: ClassVar = "the rules of its parts"
    axes: ClassVar = None

    @abstractmethod
    def members(self) -> dict[str, PositionEncoding]:
        """Those that it holds, each by the name before its parameters."""

    def first_layer(self, place: str) -> int:
        """The trunk's layer that is a member's layer 0."""
        return 0

    def _joined(self, hook: str, layer: int, layout: TokenLayout) -> Any:
        own = [(one, layer - self.first_layer(place)) for place, one in self.members().items()]
        given = [one(hook, number, layout) for one, number in own if 0 <= number < one.shape.depth]
        present = [one for one in given if one is not None]
        return functools.reduce(operator.add, present) if present else None

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        return self._joined("added", layer, layout)

    def rotation(self, layer: int, layout: TokenLayout) -> Rotation | None:
        return self._joined("rotation", layer, layout)

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern | None:
        return self._joined("pattern", layer, layout)

    def holders(self, of: Literal["knob", "resize_rule"]) -> list[PositionEncoding]:
        """The members whose knob or rule it is: the first that has one."""
        return [one for one in self.members().values() if getattr(one, of) is not None][:1]

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        """Symmetric only where every part is."""
        return all(one.symmetric for one in self.members().values())

    @property
    def knob(self) -> Knob | None:
        return next((one.knob for one in self.holders("knob")), None)

    def _turn_knob(self, value: float) -> None:
        for one in self.holders("knob"):
            one.set_knob(value)

    @property
    def resize_rule(self) -> ResizeRule | None:
        return next((one.resize_rule for one in self.holders("resize_rule")), None)

    def set_resize_rule(self, value: str) -> None:
        holders = self.holders("resize_rule")
        if not holders:
            super().set_resize_rule(value)  # raises
        for one in holders:
            one.set_resize_rule(value)

    def layer_of(self, name: str) -> int | None:
        place, one = next(pair for pair in self.members().items() if name.startswith(f"{pair[0]}."))
        return one.layer_of(name.removeprefix(f"{place}."))

    def no_weight_decay(self) -> set[str]:
        return {f"{place}.{name}" for place, one in self.members().items() for name in one.no_weight_decay()}


class CompositeEncoding(EncodingGroup):
    """Parts that are asked in every layer; the knob is the first part's that has one, and so is the rule. Part `i`
    holds its parameters as `parts.i`."""

    def __init__(self, parts: Sequence[PositionEncoding], shape: TrunkShape) -> None:
        super().__init__(tuple(part.config for part in parts), shape)
        self.name = "+".join(part.name for part in parts)
        turning = {part.pairing for part in parts if isinstance(part, RotaryEncoding)}
        if len(turning) > 1:
            pairings = ", ".join(sorted(turning))
            raise InputError(f"encoding {self.name!r}: its rotations pair channels differently ({pairings})")
        self.parts: Any = nn.ModuleList(parts)

    def members(self) -> dict[str, PositionEncoding]:
        return {f"parts.{index}": part for index, part in enumerate(self.parts)}

    def extra_flops_per_token(self) -> int:
        return sum(part.extra_flops_per_token() for part in self.parts)


def create_encoding(
    name: str,
    *,
    depth: int,
    heads: int,
    dim: int,
    head_dim: int | None = None,
    train_grid: Sequence[int] | int = 14,
    num_prefix_tokens: int = 1,
    **config: Any,
) -> PositionEncoding:
    """Build a position encoding.

    Args:
        name: a registered name (`list_encodings()`), or some joined by "+", as "rope_mixed+learned_1d".
        depth: layers of the transformer.
        heads: of each layer.
        dim: width of its tokens.
        head_dim: width of a head, where it is not dim / heads.
        train_grid: (rows, cols) of the training resolution, in patches; as many sides as its
            grids have axes, or one for all.
        num_prefix_tokens: CLS and register tokens.
        **config: fields of the encoding's `Config`. Where several are joined, a field that more than one has is
            given as "part.field".

    Raises:
        InputError: an unknown name or option (names the nearest), or a value out of range.
    """
    parts, known = share_options(name, config), registry()
    fixed = [axes for part, _ in parts if isinstance(axes := known[part].axes, int)]
    grid = Grid.checked(train_grid, "train_grid", next(iter(fixed), 2) if isinstance(train_grid, int) else None)
    return make_encoding(parts, TrunkShape(depth, heads, dim, grid, num_prefix_tokens, head_dim))


def make_encoding(parts: Sequence[tuple[str, Mapping[str, Any]]], shape: TrunkShape) -> PositionEncoding:
    """The encoding of these parts, (registered name, options) each as `share_options` gives them.

    Raises:
        InputError: as `create_encoding`.
    """
    made, known = [], registry()
    for part, options in parts:
        cls = known[part]
        made.append(_made(cls, build_config(cls.Config, {**cls.names[part], **options}, f"encoding {part}"), shape))
        made[-1].name = part
    return made[0] if len(made) == 1 else CompositeEncoding(made, shape)


def _made(cls: type[PositionEncoding], config: Any, shape: TrunkShape) -> PositionEncoding:
    try:
        return cls(config, shape)
    except (RuntimeError, TypeError):
        # Where shapes alone are asked for, somebody else's may need values: it has them, and they are forgotten.
        if torch.get_default_device().type != "meta" or cls.__module__.startswith("sightline.encodings."):
            raise
        with torch.device("cpu"):
            return cls(config, shape).to("meta")


def components(encoding: PositionEncoding) -> list[PositionEncoding]:
    """The encodings that a joined one is made of, or the one that it is; of one for each stage those of all stages."""
    if (stages := getattr(encoding, "stages", None)) is not None:
        embedding = [] if encoding.embedding is None else components(encoding.embedding)  # type: ignore[arg-type]
        return [*embedding, *(part for stage in stages for part in components(stage))]
    return list(getattr(encoding, "parts", [encoding]))


def encoding_options(encoding: PositionEncoding) -> dict[str, Any]:
    """The whole configuration of an encoding as `create_encoding` takes it, its defaults written out."""
    parts = components(encoding)
    if len(parts) == 1:
        return dataclasses.asdict(parts[0].config)
    # The parts of all stages have one configuration.
    return {f"{part.name}.{key}": value for part in parts for key, value in dataclasses.asdict(part.config).items()}


def share_options(name: str, config: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each part of a joined name, and its own options; refuses as `create_encoding`."""
    names, known = str(name).split("+"), registry()
    parts: list[tuple[str, dict[str, Any]]] = [(part, {}) for part in names]
    # Every option as it may be written -> the parts that have it.
    owners: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for one in parts:
        if one[0] not in known:
            raise unknown_encoding_error(one[0])
        for field in known[one[0]].Config.__dataclass_fields__:
            owners.setdefault(field, []).append(one)
            owners.setdefault(f"{one[0]}.{field}", []).append(one)
    flat: dict[str, Any] = {}
    for key, value in config.items():
        # A group of keys named as a part is that part's options, as a configuration file writes them.
        grouped = len(names) > 1 and key in names and isinstance(value, dict)
        flat |= {f"{key}.{inner}": one for inner, one in value.items()} if grouped else {key: value}
    for key, value in flat.items():
        if key not in owners:
            spelled = [one for one in owners if ("." in one) == (len(names) > 1)]
            raise unknown_name_error(f"encoding {name}: option", key, spelled)
        if "." not in key and len(owners[key]) > 1:
            options = ", ".join(f"{part}.{key}" for part, _ in owners[key])
            raise InputError(f"encoding {name}: option {key!r} is ambiguous (expected one of {options})")
        owners[key][0][1][key.rpartition(".")[2]] = value
    return parts
