"""What each way of computing attention costs on this processor, and which is the fastest for a call.

A few numbers a processor that ship with the package (`processors/`): nanoseconds for a pair of query and key of a head,
by form, at some numbers of tokens. Nothing is measured at run time, so that a call gives the same every time; of a
processor without numbers SDPA computes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, NamedTuple

import torch

from sightline.attention import products
from sightline.attention.pattern import DirectedBias, Pattern
from sightline.distributed import machine

Pass = Literal["forward", "training"]

SPARSE_FORMS = ("tiles", "rectangles")
"""The back ends that leave out what a pattern hides: what they cost goes with what it shows."""
OF_PRODUCTS = ("tiles", "by_head")
"""The forms that are measured with torch's own matrix products too where others are faster (`products.py`), ..."""
PLAIN = "_plain_products"
"""... with this behind their names."""

# The share of a sparse form's time that does not go with the pairs that a pattern shows (docs/LOG.md).
_FIXED = 0.4


class Point(NamedTuple):
    """Nanoseconds a pair of query and key, of images of so many tokens: of an image alone, and beside others."""

    tokens: int
    alone: float
    beside: float


class Group(NamedTuple):
    """What was measured together."""

    dtype: str
    work: Pass
    head_dim: int

    @classmethod
    def of(cls, dtype: torch.dtype, *, training: bool, head_dim: int) -> Group:
        """That of a call."""
        return cls(str(dtype).removeprefix("torch."), "training" if training else "forward", head_dim)


def images_of_batch(tokens: int) -> int:
    """How many images a measured batch has, of about 4,000 tokens: with fewer, what is made once for all of them weighs
    more."""
    # In whole numbers: a tracer has no others.
    return min(64, max(1, (4200 + tokens // 2) // max(1, tokens)))


@dataclass(frozen=True, eq=False)
class Costs:
    """The numbers of one processor.

    Attributes:
        processor: as `runtime.processor`.
        torch: its version; threads: how many it computed with.
        shown: the share of pairs that the measured pattern shows.
        onednn: how many times as fast oneDNN multiplies float32 matrices as torch's own product; 0: not measured.
        wide: how many times as fast bfloat16 matrices are multiplied in float32 as in bfloat16; 0: not measured.
        points: of each group by form, by increasing tokens.
    """

    processor: str
    torch: str
    threads: int
    shown: float = 1.0
    onednn: float = 0.0
    wide: float = 0.0
    points: Mapping[Group, Mapping[str, Sequence[Point]]] = field(default_factory=dict)
    _chosen: dict[Any, str] = field(default_factory=dict, repr=False)

    def fastest(
        self,
        forms: tuple[str, ...],
        dtype: torch.dtype,
        *,
        training: bool,
        head_dim: int,
        tokens: int,
        images: int,
        shown: float = 1.0,
    ) -> str:
        """The form that costs least; `forms[0]` where nothing was measured of its kind.

        Args:
            forms: to choose among; of equal ones the first.
            tokens: of an image; images: of the call.
            shown: the share of pairs that the pattern shows.
        """
        key = forms, dtype, training, head_dim, tokens, images, shown
        if key not in self._chosen:
            if len(self._chosen) >= 4096:
                self._chosen.clear()
            group = self.nearest(Group.of(dtype, training=training, head_dim=head_dim))
            found: dict[str, float] = {}
            if group is not None:
                measured = [one for one in forms if one in self.points[group] and self._reaches(group, one, tokens)]
                found = {one: self.predicted(group, one, tokens, images, shown) for one in measured}
            self._chosen[key] = min(found, key=lambda one: found[one], default=forms[0])
        return self._chosen[key]

    def _reaches(self, group: Group, form: str, tokens: int) -> bool:
        """Whether a form's numbers say anything of so many tokens: one that was given up has none of more."""
        last = self.points[group][form][-1].tokens
        more = [point.tokens for points in self.points[group].values() for point in points if point.tokens > last]
        return not more or tokens < min(more)

    def nearest(self, group: Group) -> Group | None:
        """The group that was measured with the head width that is nearest, or None."""
        alike = [one for one in self.points if one[:2] == group[:2]]
        return min(alike, key=lambda one: abs(math.log(one.head_dim / group.head_dim)), default=None)

    def predicted(self, group: Group, form: str, tokens: int, images: int, shown: float = 1.0) -> float:
        """Nanoseconds for a pair: between what was measured, and beyond long ones up to twice as many, by the
        logarithm of tokens; and by 1 / images."""
        points = self.points[group][form]
        above = next((number for number, point in enumerate(points) if point.tokens >= tokens), len(points) - 1)
        low, high = points[max(above - 1, 0)], points[above]
        share = 0.0
        if low.tokens < min(tokens, high.tokens):
            # Of short images a call's own time makes up the way down, which ends.
            reach = min(tokens, high.tokens * (2 if high.tokens >= 1000 else 1))
            share = math.log(reach / low.tokens) / math.log(high.tokens / low.tokens)
        alone, beside = (
            math.exp((1 - share) * math.log(getattr(low, one)) + share * math.log(getattr(high, one)))
            for one in ("alone", "beside")
        )
        many = max(2, images_of_batch(tokens))
        lonely = max(0.0, (1 / images - 1 / many) / (1 - 1 / many))
        cost = beside + (alone - beside) * lonely
        if form.removesuffix(PLAIN) in SPARSE_FORMS:
            cost *= _FIXED + (1 - _FIXED) * shown / self.shown
        return cost

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Costs:
        """Those of a file of `processors/`."""
        points = {
            Group(one["dtype"], one["work"], one["head_dim"]): {
                form: [Point(*of) for of in measured] for form, measured in one["forms"].items()
            }
            for one in record["groups"]
        }
        names = ("processor", "torch", "threads", "shown", "onednn", "wide")
        return cls(**{name: record[name] for name in names if name in record}, points=points)


_USED: list[Costs] = []


def current() -> Costs:
    """The numbers that choose here: those of `using`, else what ships for this processor and number of threads."""
    return _USED[-1] if _USED else found(torch.get_num_threads())


@contextlib.contextmanager
def using(costs: Costs) -> Iterator[None]:
    """Inside, in all threads of this process, these numbers choose."""
    _USED.append(costs)
    try:
        yield
    finally:
        # The last of equal ones: they may be used inside each other.
        del _USED[len(_USED) - 1 - _USED[::-1].index(costs)]


@functools.cache
def found(threads: int) -> Costs:
    """What ships for this processor, else none, by which SDPA computes."""
    return shipped(threads) or Costs(machine.processor(), torch.__version__, threads)


def shipped(threads: int) -> Costs | None:
    """What ships for this processor, of the nearest number of threads: a file a processor and number of threads."""
    alike = [one for one in _shipped() if one.processor == machine.processor()]
    return min(alike, key=lambda one: abs(one.threads - threads), default=None)


@functools.cache
def _shipped() -> list[Costs]:
    folder = resources.files("sightline.attention") / "processors"
    files = sorted(one.name for one in folder.iterdir() if one.name.endswith(".json"))
    return [Costs.of_record(json.loads((folder / name).read_text(encoding="utf-8"))) for name in files]


def chosen_form(
    forms: tuple[str, ...], dtype: torch.dtype, *, head_dim: int, tokens: int, images: int, shown: float = 1.0
) -> str:
    """The form of a call on a CPU, by the numbers that choose here and the products that are taken here."""
    plain = products.are_plain() and takes_onednn()
    named = tuple(one + PLAIN if plain and one in OF_PRODUCTS else one for one in forms)
    asked: Any = {"training": torch.is_grad_enabled(), "head_dim": head_dim}
    return current().fastest(named, dtype, tokens=tokens, images=images, shown=shown, **asked).removesuffix(PLAIN)


def sparse_choice(pattern: Pattern, tokens: int, images: int, dtype: torch.dtype, head_dim: int) -> str:
    """The form of any back end for a directed pattern, images of so many tokens each on average."""
    shown = shown_by(tuple(term for term in pattern.terms if isinstance(term, DirectedBias)))
    return chosen_form(all_forms(dtype, tokens), dtype, head_dim=head_dim, tokens=tokens, images=images, shown=shown)


# Most tokens at which the attention weights may be kept for the backward pass: beyond, they would cost more memory.
SHORT_TOKENS = 320
# Fewest tokens at which a head, or a tile, is worth calls of its own: below, they take twice the time of a batch.
_CALL_TOKENS = 190


def dense_forms(dtype: torch.dtype, tokens: int) -> tuple[str, ...]:
    """The dense forms that a call on a CPU may take."""
    low = ("sdpa_in_float32",) if dtype == torch.bfloat16 else ()
    of_head = ("by_head",) if tokens >= _CALL_TOKENS else ()
    return ("sdpa", *low, *of_head, *(("explicit",) if tokens <= SHORT_TOKENS else ()))


def all_forms(dtype: torch.dtype, tokens: int) -> tuple[str, ...]:
    """Those that a call with a directed pattern may take."""
    return (*dense_forms(dtype, tokens), *(SPARSE_FORMS if tokens >= _CALL_TOKENS else ()))


GAINS = 1.25
"""Where two ways are so near, it does not matter which is taken."""


def takes_onednn() -> bool:
    """Whether products in float32 on a CPU, of linear layers and of attention, are oneDNN's here, by the numbers
    that choose."""
    return current().onednn > GAINS and products.has_onednn()


def product_of(shapes: Set[products.Shape]) -> products.Product:
    """The float32 product that a size of image takes here: `products.product_of` where oneDNN is the faster library,
    else torch's own.

    Args:
        shapes: (m, n, k) of all products of that size.
    """
    return products.product_of(shapes) if takes_onednn() else products.plain


def takes_wide() -> bool:
    """Whether linear layers in bfloat16 on a CPU are computed in float32 here, by the numbers that choose."""
    return current().wide > GAINS


def of_one_form(name: str) -> Costs:
    """Numbers by which this form computes whatever it can, by the products that are taken here: to measure it."""
    groups = [Group(dtype, work, 1) for dtype in ("float32", "bfloat16") for work in ("forward", "training")]
    points = {group: {name: [Point(1, 1.0, 1.0)]} for group in groups}
    return dataclasses.replace(current(), points=points, _chosen={})


@functools.lru_cache(maxsize=256)
def shown_by(terms: tuple[DirectedBias, ...]) -> float:
    """The share of pairs of a square grid that all of these show, over their heads."""
    side = 16
    shift = torch.arange(1 - side, side)
    rows, cols = shift.view(-1, 1), shift.view(1, -1)
    weight = (side - rows.abs()) * (side - cols.abs())
    masking = [term.views for term in terms if term.outside == "inf"]
    shares = [1.0]
    if masking:
        seen = [
            torch.stack([view.visible(rows, cols) for view in heads]).all(0) for heads in zip(*masking, strict=True)
        ]
        shares = [float((weight * one).sum()) / side**4 for one in seen]
    return sum(shares) / len(shares)
