"""LookHere: each head looks one way, and pays for distance (Fuller et al., 2024, section 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag

from sightline.attention.pattern import DirectedBias, Distance, FieldOfView, Outside, Pattern, Rounding
from sightline.encodings.base import PatternEncoding, TrunkShape
from sightline.encodings.knob import KnobSpec
from sightline.errors import InputError, require_known
from sightline.io.config import NonNegative, Number, Positive, config_dataclass

# Half-planes a * dy + b * dx >= 0 in (dy, dx) = key - query, y down: the names of the public code.
_UP, _DOWN, _LEFT, _RIGHT = (-1, 0), (1, 0), (0, -1), (0, 1)
_UP_RIGHT, _UP_LEFT, _DOWN_RIGHT, _DOWN_LEFT = (-1, 1), (-1, -1), (1, 1), (1, -1)


@dataclass(frozen=True)
class _Head:
    view: FieldOfView = field(default_factory=FieldOfView)
    penalised: bool = True
    from_centre: bool = False


_NONE, _ZERO = _Head(), _Head(penalised=False)

_PLANES = {
    "halves": ((_UP,), (_DOWN,), (_LEFT,), (_RIGHT,)),
    "corners": ((_UP, _LEFT), (_UP, _RIGHT), (_DOWN, _LEFT), (_DOWN, _RIGHT)),
    "triangles": ((_UP_LEFT, _UP_RIGHT), (_DOWN_LEFT, _DOWN_RIGHT), (_UP_LEFT, _DOWN_LEFT), (_UP_RIGHT, _DOWN_RIGHT)),
    "diagonals": ((_UP_RIGHT,), (_UP_LEFT,), (_DOWN_RIGHT,), (_DOWN_LEFT,)),
    "eighths1": ((_UP_RIGHT, _LEFT), (_DOWN_RIGHT, _LEFT), (_DOWN_LEFT, _UP), (_DOWN_RIGHT, _UP)),
    "eighths2": ((_UP_LEFT, _RIGHT), (_DOWN_LEFT, _RIGHT), (_UP_LEFT, _DOWN), (_UP_RIGHT, _DOWN)),
}
GROUPS: dict[str, tuple[_Head, ...]] = {
    **{name: tuple(_Head(FieldOfView(pair)) for pair in planes) for name, planes in _PLANES.items()},
    **{
        f"zero{name}": tuple(_Head(FieldOfView(pair), penalised=False) for pair in _PLANES[name])
        for name in ("halves", "corners", "triangles")
    },
    "none": (_NONE,) * 4,
    "zero": (_ZERO,) * 4,
    "none1zero3": (_NONE,) + (_ZERO,) * 3,
    "none2zero2": (_NONE,) * 2 + (_ZERO,) * 2,
    "none3zero1": (_NONE,) * 3 + (_ZERO,),
    "center": (_Head(from_centre=True),) * 4,
}
"""The names of the public code's language, four heads each."""

# (heads, names joined) -> how many heads each name gets: all that the public code accepts beside one name.
_COUNTS: dict[tuple[int, int], tuple[int, ...]] = {
    (6, 2): (4, 2),
    (12, 2): (8, 4),
    (16, 2): (8, 8),
    (12, 3): (4, 4, 4),
    (16, 3): (8, 4, 4),
    (16, 4): (4, 4, 4, 4),
}


# Of a preset, each 45 degrees from the next.
_DIRECTIONS = 8


class _Preset(NamedTuple):
    """`first`: degrees from up of the first of its eight views, clockwise."""

    language: str
    field_of_view: float
    first: float = 0.0


PRESETS: dict[str, _Preset] = {
    "lookhere_180": _Preset("halves-diagonals-none", 180),
    "lookhere_90": _Preset("triangles-corners-none", 90),
    "lookhere_45": _Preset("eighths1-eighths2-none", 45, 22.5),
}


def parse_directions(directions: str, heads: int) -> list[tuple[_Head, float]]:
    """The heads of one layer from the public code's language: (what it sees, its slope).

    Raises:
        InputError: an unknown name, or a number of heads that the public code does not accept for these names.
    """
    names = directions.split("-")
    for name in names:
        require_known(f"lookhere directions {directions!r}: name", name, GROUPS)
    counts = (heads,) if len(names) == 1 and heads % 4 == 0 else _COUNTS.get((heads, len(names)), ())
    # Two heads of a directed name, or a run of six equal names, have no slopes in the public code.
    if heads == 6 and counts and (not _is_undirected(names[1]) or names[0] == names[1]):
        counts = ()
    if not counts:
        raise InputError(
            f"lookhere directions {directions!r} with {heads} heads: expected one name with any multiple of 4 heads; "
            "two with 12, 16, or 6 with none, zero or center second; three with 12 or 16; four with 16; "
            f"the presets {', '.join(sorted(PRESETS))} take any number of heads"
        )
    named = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    slopes: list[float] = []
    for name, run in groupby(named):
        length = len(list(run))
        slopes += _spread(length) if _is_undirected(name) else [2.0 ** -(1 + index // 4) for index in range(length)]
    # Each name gets a multiple of four heads, or the last one two.
    return [(GROUPS[name][index % 4], slope) for index, (name, slope) in enumerate(zip(named, slopes, strict=True))]


def _is_undirected(name: str) -> bool:
    """As the public code: names with zero in them take the undirected slopes, also where a view remains."""
    return any(word in name for word in ("none", "zero", "center"))


def _spread(count: int) -> list[float]:
    """The first ones of four, or each of the four equally often."""
    return [(1 / 4, 1 / 16, 1 / 64, 1 / 256)[index if count <= 4 else 4 * index // count] for index in range(count)]


# Two borders that are closer than this may get the same normal, and then they would bound a line, not a cone.
_NARROWEST = 0.001


def field_of_view(direction: float, field_of_view: float) -> FieldOfView:
    """The field of view around a direction, borders included.

    Args:
        direction: degrees clockwise from up, any finite number: 90 is right, 180 down, 270 and -90 left.
        field_of_view: the whole angle in degrees, 0.001 to 360 (`LookHereConfig` refuses others): up to 180 two
            half-planes intersect, beyond they are joined by any, and 360 is everything.

    Returns:
        A view whose normals are the nearest ones of integers up to 2**18: on grids of up to 4096 a side no cell is on
        the wrong side, and one within 2e-6 radians of a border may count as on it. Multiples of 45 degrees are exact.
    """
    if field_of_view == 360:
        return FieldOfView()
    towards, half = direction % 360, field_of_view / 2
    normals = _normal(towards - half + 90), _normal(towards + half - 90)
    return FieldOfView(tuple(dict.fromkeys(normals)), "all" if field_of_view <= 180 else "any")


def _normal(degrees: float) -> tuple[int, int]:
    """Integers (a, b) along (dy, dx) of a direction clockwise from up."""
    dy, dx = -math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    steep = abs(dy) > abs(dx)
    longer, shorter = (dy, dx) if steep else (dx, dy)
    # a * dy + b * dx with |a|, |b| <= 2**18 stays within int32 on grids of up to 4096 cells a side.
    ratio = Fraction(shorter / abs(longer)).limit_denominator(2**18)
    whole = ratio.denominator if longer > 0 else -ratio.denominator
    return (whole, ratio.numerator) if steep else (ratio.numerator, whole)


def assign_preset_heads(name: str, heads: int) -> list[tuple[_Head, float]]:
    """The heads of a preset for any number of heads.

    12 and 16 heads are the public code's. Otherwise round(2 heads / 3) heads are directed, at least one is not
    where there are two or more, and a single head is undirected; the directed ones take every 8/n-th of the eight
    directions, clockwise from up. The first head of a direction has slope 1/2, the second 1/4, and so on. The
    undirected ones take 1/4, 1/16, 1/64, 1/256 in turn, evenly.
    """
    preset = PRESETS[name]
    if heads in (12, 16):
        return parse_directions(preset.language, heads)
    directed = min(round(2 * heads / 3), heads - 1)
    directions = [_DIRECTIONS * index // directed for index in range(directed)]
    heads_of = [_Head(field_of_view(preset.first + 45 * direction, preset.field_of_view)) for direction in directions]
    slopes = [2.0 ** -(1 + index - directions.index(direction)) for index, direction in enumerate(directions)]
    return list(zip(heads_of, slopes, strict=True)) + [(_NONE, slope) for slope in _spread(heads - directed)]


Time = Literal["all", "past", "future", "now"]
# Half-spaces of (dt, dy, dx) = key - query, the frame of the query included.
_TIMES: dict[Time, tuple[tuple[int, ...], ...]] = {
    "all": (),
    "past": ((-1, 0, 0),),
    "future": ((1, 0, 0),),
    "now": ((-1, 0, 0), (1, 0, 0)),
}


def assign_head_times(heads: Sequence[_Head]) -> tuple[Time, ...]:
    """When each head of a layer looks, on clips, where nothing is said.

    The paper leaves directions in space and time to future work; this is our rule. A head that looks one way in space
    does so in every frame. Of those that see all of space, n of them, the first look into the past and the future in
    turn: two where there are two or three, else 2 (n // 4); the others see all of the clip.
    """
    free = [index for index, head in enumerate(heads) if not head.view.planes]
    turned = free[: 2 * max(1, len(free) // 4)] if len(free) > 1 else []
    times: dict[int, Time] = {index: "future" if number % 2 else "past" for number, index in enumerate(turned)}
    return tuple(times.get(index, "all") for index in range(len(heads)))


Looking = tuple[Number, Annotated[float, Field(ge=_NARROWEST, le=360)], NonNegative]
"""(direction in degrees clockwise from up, whole field of view in degrees, slope) of one head."""


def _one_a_layer(views: Any) -> bool:
    """Whether these are lists of views, one a layer, whose own entries are no numbers."""
    first = views[0] if isinstance(views, list | tuple) and views else None
    return isinstance(first, list | tuple) and bool(first) and all(isinstance(one, list | tuple) for one in first)


Views = Annotated[
    Annotated[tuple[Looking, ...], Field(min_length=1), Tag("heads")]
    | Annotated[tuple[tuple[Looking, ...], ...], Tag("layers")],
    Discriminator(lambda views: "layers" if _one_a_layer(views) else "heads"),
]


@config_dataclass
class LookHereConfig:
    """Configuration of `LookHere`.

    Attributes:
        directions: the public code's language ("eighths1-eighths2-none"), a preset's name, or one of them a layer;
            None is lookhere_90, or nothing where `views` are given.
        views: instead of `directions` and `head_slopes`, (direction, field of view, slope) for each head, or a list of
            such lists, one a layer. Degrees: 0 looks up, 90 right, 180 down, 270 left; a field of view of 360 sees all.
            The layer's and the global slope multiply the head's; a slope of 0 keeps the mask.
        layer_slopes: slopes of the first and last layer, evenly spaced between.
        head_slopes: one a head, or None for the public code's.
        times: of clips, when each head looks: `past` and `future` with the frame of the query, `now` that frame alone,
            or `all`; None is `assign_head_times`.
        time_step: of clips, how many patches far a step of one tubelet in time is.
        global_slope: multiplies all slopes; the knob. 0 keeps the masks and removes the penalty.
        distance: how the penalty grows with the Euclidean distance.
        fill: what stands outside a field of view: a mask, the greatest penalty of the grid, or no penalty.
        rounding: `official` rounds the bias once to bfloat16, as the public code, `exact` does not.
        prune_below: blocks of pairs whose smallest penalty exceeds this may be skipped (None: only what is masked);
            faster at high resolution and exact only while scores differ by much less (benchmarks/pruning.py).
    """

    directions: str | tuple[str, ...] | None = None
    views: Views | None = None
    layer_slopes: tuple[NonNegative, NonNegative] = (1.5, 0.5)
    head_slopes: tuple[NonNegative, ...] | None = None
    times: Annotated[tuple[Time, ...], Field(min_length=1)] | None = None
    time_step: NonNegative = 1.0
    global_slope: NonNegative = 1.0
    distance: Distance = "linear"
    fill: Outside = "inf"
    rounding: Rounding = "official"
    prune_below: Positive | None = None

    def __post_init__(self) -> None:
        if self.views is None and self.directions is None:
            # Written out, so that a model's folder holds it.
            object.__setattr__(self, "directions", "lookhere_90")
        for other in ("directions", "head_slopes"):
            if self.views is not None and (value := getattr(self, other)) is not None:
                said = f"views and {other} {value!r}: expected one of the two, leave one out (a view has its slope)"
                raise InputError(said, field=other, value=value)


class LookHere(PatternEncoding):
    """Directed heads with a linear penalty: bias = -s_g s_l s_h f(distance) inside the head's field of view
    (LookHere section 3, equation 1). No parameter; computed from the geometry on any grid. On clips some heads look
    into the past and the future (`assign_head_times`), and the distance is that in space and time."""

    names: ClassVar = {"lookhere": {}, **{name: {"directions": name} for name in PRESETS}}
    Config: ClassVar = LookHereConfig
    source: ClassVar = "LookHere (2024), section 3, equation 1"
    extrapolation: ClassVar = "the same geometry in cells; nothing is resized"
    tunable: ClassVar = KnobSpec("global_slope", 0.0, 1e6, (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0))
    global_slope: float
    axes: ClassVar = (2, 3)
    unused_directions: int = 0
    """How many of the directions that its name stands for no head of a layer has, for want of heads."""

    def __init__(self, config: LookHereConfig, shape: TrunkShape) -> None:
        super().__init__(config, shape)
        self.steps, clips = self.axis_steps(config.time_step), len(shape.train_grid) == 3
        if config.times is not None and not clips:
            raise InputError("lookhere times: are of clips (expected none for images)")
        for name in ("head_slopes", "times"):
            self._check_count(name, getattr(config, name))
        key = "directions" if config.views is None else "views"
        given: Any = getattr(config, key)
        each = isinstance(given, tuple) and (key == "directions" or _one_a_layer(given))
        layers: tuple[Any, ...] = given if each else (given,) * shape.depth
        if len(layers) != shape.depth:
            raise InputError(f"lookhere {key}: {len(layers)} given for a depth of {shape.depth}, expected one each")
        self.heads_of_layer: list[list[tuple[_Head, float]]] = []
        for layer, one in enumerate(layers):
            if key == "views":
                self._check_count(f"views[{layer}]" if each else "views", one)
                heads = [(_Head(field_of_view(direction, angle)), slope) for direction, angle, slope in one]
            else:
                heads = (assign_preset_heads if one in PRESETS else parse_directions)(one, shape.heads)
            if key == "directions" and one in PRESETS:
                views = {head.view for head, _ in heads if head.view.planes}
                self.unused_directions = max(self.unused_directions, _DIRECTIONS - len(views))
            if clips:
                times = config.times or assign_head_times([head for head, _ in heads])
                heads = [(_in_time(head, time), slope) for (head, slope), time in zip(heads, times, strict=True)]
            self.heads_of_layer.append(heads)

    def _check_count(self, what: str, given: tuple[Any, ...] | None) -> None:
        if given is not None and len(given) != self.shape.heads:
            raise InputError(f"lookhere {what}: {len(given)} given for {self.shape.heads} heads, expected one each")

    def layer_slope(self, layer: int) -> float:
        """The slope of a layer, evenly spaced from the first to the last."""
        first, last = self.config.layer_slopes
        step = (last - first) / (self.shape.depth - 1) if self.shape.depth > 1 else 0.0
        return last if layer and layer == self.shape.depth - 1 else first + layer * step

    def layer_pattern(self, layer: int) -> Pattern:
        config, (heads, dealt) = self.config, zip(*self.heads_of_layer[layer], strict=True)
        slopes = zip(heads, config.head_slopes or dealt, strict=True)
        term = DirectedBias(
            views=tuple(head.view for head in heads),
            slopes=tuple(float(slope) if head.penalised else 0.0 for head, slope in slopes),
            from_centre=tuple(head.from_centre for head in heads),
            scale=self.global_slope * self.layer_slope(layer),
            distance=config.distance,
            outside=config.fill,
            rounding=config.rounding,
            steps=self.steps,
        )
        return Pattern((term,), config.prune_below)


def _in_time(head: _Head, time: Time) -> _Head:
    """A head of a plane, as one of clips that looks so in each frame of a time."""
    planes = tuple((0, *plane) for plane in head.view.planes)
    return replace(head, view=FieldOfView(planes, head.view.join, _TIMES[time]))
