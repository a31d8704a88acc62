"""What a position encoding is: three hooks that a block calls on whatever encoding it holds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

import torch
from pydantic import Field, InstanceOf
from torch import Tensor, nn

from sightline.attention.content_bias import ContentBias
from sightline.attention.pattern import Pattern
from sightline.attention.rotation import Pairing, Rotation
from sightline.encodings.checks import check_embedding, check_written
from sightline.encodings.knob import KNOB_STATE, Knob, KnobSpec, ResizeRule
from sightline.encodings.options import AddedConfig as AddedConfig
from sightline.encodings.options import EncodingConfig
from sightline.errors import InputError, require_known
from sightline.io.config import Count, Index, check_value, config_dataclass
from sightline.tokens.grid import Grid
from sightline.tokens.layout import Segment, TokenLayout


@config_dataclass(kw_only=False)
class TrunkShape:
    """What an encoding knows of the transformer that holds it."""

    depth: Count
    heads: Count
    dim: Count
    train_grid: InstanceOf[Grid]
    num_prefix_tokens: Index
    head_width: Count | None = None

    def __post_init__(self) -> None:
        if self.head_width is None and self.dim % self.heads:
            raise InputError(f"dim {self.dim}: must be divisible by heads {self.heads}", field="dim", value=self.dim)

    @property
    def head_dim(self) -> int:
        return self.head_width or self.dim // self.heads


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


def _knob_state(self: PositionEncoding) -> Tensor:
    # float64 []; no buffer, which a model's precision, sharding and averaging would round. NaN without a knob.
    return torch.tensor(math.nan if self.knob is None else self.knob.value, dtype=torch.float64, device="cpu")


def _restore_knob(self: PositionEncoding, state: Tensor) -> None:
    if self.knob is not None and not state.is_meta and not math.isnan(value := float(state)):
        self.set_knob(value)


class PositionEncoding(nn.Module):
    """A position encoding: no-op hooks, each called with (layer, layout) in every block.

    Subclasses are final or abstract. A final one is one file, lists its registered names with the configuration
    that each presets, and has a `Config` beside it (`config_dataclass`) where it has options.
    """

    names: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Registered name -> configuration that the name presets."""
    Config: ClassVar[type] = EncodingConfig
    source: ClassVar[str] = ""
    """Paper and equation, in a line."""
    extrapolation: ClassVar[str] = ""
    """What happens on a grid other than the training grid, in a line."""
    symmetric: ClassVar[bool] = False
    """Swapping rows and columns changes nothing."""
    tunable: ClassVar[KnobSpec | None] = None
    """The field of its configuration that is its knob, which the attribute of that name holds as it is now."""
    resized_by: ClassVar[str | None] = None
    """The field of its configuration that says how its tables are made for another grid."""
    axes: ClassVar[int | tuple[int, ...] | None] = 2
    """Of the grids that it is for, as 3 for (frames, rows, cols); None for any number; several where it is made for
    the number that its training grid has."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A knob is part of the state: where one can be turned, it is kept as torch keeps what is no tensor."""
        super().__init_subclass__(**kwargs)
        if {"_turn_knob", "tunable"} & set(vars(cls)) and "get_extra_state" not in vars(cls):
            cls.get_extra_state, cls.set_extra_state = _knob_state, _restore_knob

    def __init__(self, config: Any, shape: TrunkShape) -> None:
        super().__init__()
        self.config = self._configured = config
        self.shape = shape
        self.name = next(iter(self.names), type(self).__name__)
        self.check_axes(len(shape.train_grid))
        if self.tunable is not None:
            setattr(self, self.tunable.name, float(getattr(config, self.tunable.name)))

    def forward(self, hook: str, layer: int, layout: TokenLayout) -> Any:
        """What a hook of that name gives."""
        return getattr(self, hook)(layer, layout)

    @property
    def hooks(self) -> Hooks:
        """As blocks call them."""
        return Hooks(self)

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        """Embeddings added to the tokens before `layer`: [1 or rows, slots, dim], or None."""
        return None

    def rotation(self, layer: int, layout: TokenLayout) -> Rotation | None:
        """How q and k of `layer` are turned, or None."""
        return None

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern | None:
        """What the heads of `layer` may attend to and at what penalty, or None."""
        return None

    @property
    def made_for(self) -> int | None:
        """How many axes the grids have that this one is for; None for any number."""
        return len(self.shape.train_grid) if isinstance(self.axes, tuple) else self.axes

    def check_axes(self, given: int) -> None:
        """Refuse grids of another number of axes by an InputError, which says how many it is for."""
        ways = self.axes if isinstance(self.axes, tuple) else (self.axes,)
        # Of several ways it is made for that of its training grid.
        ways = (self.made_for,) if self.made_for in ways else ways
        if None not in ways and given not in ways:
            raise InputError(f"encoding {self.name}: a grid of {given} axes (expected {' or '.join(map(str, ways))})")

    def axis_steps(self, time_step: float) -> tuple[float, ...] | None:
        """How far a cell is along each axis (`DirectedBias.steps`), where a step in time is as far as so many
        patches; an InputError for images, where it is not 1."""
        axes = len(self.shape.train_grid)
        if time_step != 1 and axes == 2:
            raise InputError(f"encoding {self.name}: time_step {time_step}: is of clips (expected 1 for images)")
        return None if time_step == 1 else (time_step, *(1.0,) * (axes - 1))

    @property
    def knob(self) -> Knob | None:
        """The extrapolation parameter, or None where there is none."""
        if self.tunable is None:
            return None
        name, low, high, candidates = self.tunable
        return Knob(name, getattr(self, name), float(getattr(self.config, name)), low, high, candidates)

    def set_knob(self, value: float) -> None:
        """Set the extrapolation parameter.

        Raises:
            InputError: there is none, or `value` is out of its range.
        """
        knob = self.knob
        if knob is None:
            raise InputError(f"encoding {self.name} has no knob")
        check_value(f"knob {knob.name}", value, Annotated[float, Field(ge=knob.low, le=knob.high)])
        self._turn_knob(float(value))

    def _turn_knob(self, value: float) -> None:
        assert self.tunable is not None
        setattr(self, self.tunable.name, value)

    @property
    def resize_rule(self) -> ResizeRule | None:
        """How tables are made for another grid, or None where nothing is resized."""
        name = self.resized_by
        if name is None:
            return None
        # Nested literals are flat.
        allowed = get_args(Literal[get_type_hints(type(self.config))[name]])  # type: ignore[valid-type]
        return ResizeRule(name, getattr(self.config, name), getattr(self._configured, name), allowed)

    def set_resize_rule(self, value: str) -> None:
        """Set that rule. What was configured stays the default; it is no part of a state dict, but `save_model` writes
        it as the configuration of the model.

        Raises:
            InputError: there is none, or `value` is not one of its candidates.
        """
        rule = self.resize_rule
        if rule is None:
            raise InputError(f"encoding {self.name} has no table that is resized")
        require_known(f"rule {rule.name}", value, rule.candidates)
        self.config = replace(self._configured, **{rule.name: value})

    def _load_from_state_dict(self, state, prefix, metadata, strict, missing, *rest) -> None:  # type: ignore[override]
        """A state without a knob, as older versions and other projects have it, leaves the knob as it is."""
        super()._load_from_state_dict(state, prefix, metadata, strict, missing, *rest)
        if prefix + KNOB_STATE in missing:
            missing.remove(prefix + KNOB_STATE)

    def inflate_from_image(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of this encoding, made for clips, from those of the same one made for images, by name relative to
        this module: what it has of a still image, for each frame alike; those that hang on no grid stay."""
        made = dict(state)
        for place, one in self.named_modules():
            if isinstance(one, PositionEncoding):
                start = f"{place}." if place else ""
                own = {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}
                made |= {start + name: tensor for name, tensor in one.inflated(own).items()}
        return made

    def inflated(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of its own weights, as `inflate_from_image`, those that are others for clips."""
        return {}

    def _whole(self, grid: Sequence[int], layer: int) -> Segment:
        """All patches of a grid, for a layer that there is."""
        if not 0 <= layer < self.shape.depth:
            raise InputError(f"layer {layer}: expected 0 to {self.shape.depth - 1}")
        return Segment.from_grid(Grid.checked(grid, axes=self.made_for), self.device)

    @property
    def device(self) -> torch.device:
        """Of its weights, or the CPU."""
        return next((parameter.device for parameter in self.parameters()), torch.device("cpu"))

    def extra_flops_per_token(self) -> int:
        """Multiplications a slot in a layer of what tokens hold, beside those of attention itself."""
        return 0

    def layer_of(self, name: str) -> int | None:
        """As which layer a parameter learns where rates fall with depth: -1 the embedding, None the head."""
        return None

    def no_weight_decay(self) -> set[str]:
        """Names of parameters, relative to this module, that weight decay must leave alone."""
        return {name for name, _ in self.named_parameters()}

    def extra_repr(self) -> str:
        return f"name={self.name!r}, config={self.config}"


class AddedEncoding(PositionEncoding):
    """An embedding for each patch, added to the tokens before the first layer, or before every one. A subclass has
    `embedding`, or `embedding_on` where its weights do not say where tokens are.

    Attributes:
        later: the same encoding for each layer after the first, where every layer has weights of its own; else None.
    """

    Config = AddedConfig

    def __init__(self, config: Any, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        check_written(self, AddedEncoding, ("embedding_on", "embedding", "added"), "(grid, device)")
        self.at: str = getattr(config, "at", "input")
        self.later: Any = None
        if self.at == "every":
            later = (type(self)(replace(config, at="input"), shape) for _ in range(shape.depth - 1))
            self.later = nn.ModuleList(later)

    def embedding(self, grid: Sequence[int]) -> Tensor:
        """The embedding of each patch: float32 [cells, dim], row-major."""
        return self.embedding_on(grid, self.device)

    def embedding_on(self, grid: Sequence[int], device: torch.device) -> Tensor:
        """The same on a device."""
        return self.embedding(grid)

    def prefix_embedding(self) -> Tensor | None:
        """What is added to the prefix slots: [num_prefix_tokens, dim], or None."""
        return None

    def layer_of(self, name: str) -> int | None:
        kind, _, rest = name.partition(".")
        if kind == "later":
            return int(rest.partition(".")[0]) + 1
        return None if self.at == "shared" else -1

    def added(self, layer: int, layout: TokenLayout) -> Tensor | None:
        if layer != 0 and self.later is not None:
            return self.later[layer - 1]("added", 0, layout)
        if layer != 0 and self.at == "input":
            return None
        self.check_axes(layout.axes)
        # The sides of a single image may be symbolic, which are no key.
        keys = [one.grid for one in layout.segments] if layout.images > layout.rows else [None]
        tables = {key: self.embedding_on(key or layout.segments[0].grid, layout.device) for key in dict.fromkeys(keys)}
        if not torch.compiler.is_compiling():
            for key, table in tables.items():
                check_embedding(self, table, key or layout.segments[0].grid)
        pieces = [
            tables[key].unsqueeze(0) if one.row_major else tables[key][one.indices]
            for key, one in zip(keys, layout.segments, strict=True)
        ]
        rows = max(piece.shape[0] for piece in pieces)
        return layout.join(torch.cat([piece.expand(rows, -1, -1) for piece in pieces], dim=1), self.prefix_embedding())

    def set_resize_rule(self, value: str) -> None:
        for one in self.later or ():
            one.set_resize_rule(value)
        super().set_resize_rule(value)

    def set_knob(self, value: float) -> None:
        for one in self.later or ():
            one.set_knob(value)
        super().set_knob(value)


class RotaryEncoding(PositionEncoding):
    """Angles for each patch that turn q and k in every layer.

    Attributes:
        pairing: which channels are turned together.
        reads_grid: the angles hang on the image's grid too; else those of all images are made by one call.
    """

    pairing: Pairing = "adjacent"
    reads_grid: bool = True

    @abstractmethod
    def angles(self, coords: Tensor, grid: Grid, layer: int) -> Tensor:
        """Angles at coordinates int64 [1 or rows, patches, axes] in cells, (y, x) where there are two, of images of one
        grid: float32 [1 or rows, 1 or heads, patches, head_dim / 2]."""

    def angle_cache_key(self, layer: int) -> Hashable:
        """All that the angles of a layer hang on beside the layout, which are then made once for all layers where it
        is equal; None where it is a weight, or not known: they are made in every layer."""
        return None

    def axis_pairs(self) -> tuple[int, ...]:
        """How many channel pairs of a head turn with each axis where nothing is said: a share alike, and time has what
        is left over. An InputError where a head has too few channels."""
        head_dim, axes = self.shape.head_dim, len(self.shape.train_grid)
        if axes < 3:
            shares, expected = (head_dim // (2 * axes),) * axes, f"a multiple of {2 * axes}"
        else:
            third = head_dim // 6
            shares, expected = (head_dim // 2 - 2 * third, third, third), "even for clips, and 6 or more"
        if 2 * sum(shares) != head_dim or not all(shares):
            raise InputError(f"{self.name}: head_dim {head_dim} (dim / heads) must be {expected}")
        return shares

    def rotation(self, layer: int, layout: TokenLayout) -> Rotation:
        self.check_axes(layout.axes)
        shared = self.angle_cache_key(layer)

        def make() -> Rotation:
            # A window's piece is turned as it would be in the whole window.
            places = [(segment.coords, segment.window_grid) for segment in layout.segments]
            if not self.reads_grid and not torch.compiler.is_compiling():
                places = [(torch.cat([coords for coords, _ in places], dim=1), places[0][1])]
            pieces = [self.angles(coords, grid, layer) for coords, grid in places]
            # Slots stand in dimension 1 for `join`, heads before them for attention.
            patches = torch.cat(pieces, dim=2).transpose(1, 2)
            return Rotation(layout.join(patches).transpose(1, 2), self.pairing)

        return make() if shared is None else layout.cached(("rotation", type(self), shared), make)

    def rotation_angles(self, grid: Sequence[int], layer: int = 0) -> Tensor:
        """Angles on a whole grid: float32 [1 or heads, cells, head_dim / 2]."""
        segment = self._whole(grid, layer)
        return self.angles(segment.coords, segment.grid, layer)[0]


class PatternEncoding(PositionEncoding):
    """A bias on the scores."""

    @abstractmethod
    def layer_pattern(self, layer: int) -> Pattern:
        """The pattern of a layer, for any grid."""

    def pattern(self, layer: int, layout: TokenLayout) -> Pattern:
        self.check_axes(layout.axes)
        return self.layer_pattern(layer)

    def extra_flops_per_token(self) -> int:
        """Of each token with each vector of the terms that are made of content."""
        terms = [term for term in self.layer_pattern(0).terms if isinstance(term, ContentBias)]
        return self.shape.heads * sum(term.weights[0].numel() for term in terms)

    def bias_matrix(self, grid: Sequence[int], layer: int = 0, num_prefix_tokens: int = 1) -> Tensor:
        """The bias of a layer on a whole grid: float32 [heads, N, N] of N tokens, prefix tokens first; rows are
        queries, columns keys."""
        segment = self._whole(grid, layer)
        return self.layer_pattern(layer).bias(segment, segment, num_prefix_tokens, num_prefix_tokens)[0]
