"""What a head may attend to and at what penalty, said once: the reference that every back end is compared with."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.spreading import DisplacementIndex, covering, crop_table, spread, with_prefix
from sightline.attention.wide import at_least_float32, wide_dtype
from sightline.errors import InputError
from sightline.tokens.cache import ByteLRUCache, is_cacheable
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment

Distance = Literal["linear", "sqrt", "square"]
Outside = Literal["inf", "max", "zero"]
Rounding = Literal["official", "exact"]
BiasSource = Literal["places", "queries", "keys", "attention"]

BFLOAT16_MAX = torch.finfo(torch.bfloat16).max

# Tables of displacements by (term, grid, device), of no more than 1 MiB each.
_TABLES = ByteLRUCache("tables of displacements", 10 << 20)
_KEPT_ELEMENTS = 2**18


@dataclass(frozen=True)
class FieldOfView:
    """Which displacements a head sees: up to two closed half-planes a * dy + b * dx >= 0, joined by all or any.

    Attributes:
        planes: integer normals (a, b), or of as many numbers as there are axes; none means that everything is seen.
        join: `all` is their intersection, `any` their union.
        within: normals of half-spaces in which a key must be besides.
    """

    planes: tuple[tuple[int, ...], ...] = ()
    join: Literal["all", "any"] = "all"
    within: tuple[tuple[int, ...], ...] = ()

    def visible(self, *shift: Tensor) -> Tensor:
        """Whether a key at displacement (dy, dx), or (dt, dy, dx), is seen: bool, the broadcast shape of these."""

        def beyond(normal: tuple[int, ...]) -> Tensor:
            return functools.reduce(torch.add, [a * d for a, d in zip(normal, shift, strict=True)]) >= 0

        everything = torch.ones_like(functools.reduce(torch.add, shift), dtype=torch.bool)
        seen = [beyond(normal) for normal in self.planes] or [everything]
        joined = functools.reduce(torch.logical_and if self.join == "all" else torch.logical_or, seen)
        return functools.reduce(torch.logical_and, [beyond(normal) for normal in self.within], joined)


class BiasTerm(ABC):
    """One summand of the scores' bias, as a function of (query, key, head) on one image's grid. What is below -2e38
    may count as -inf, and a query whose keys are all masked so has no answer.

    Attributes:
        made_of: where it is not `places`, what it adds is made of `queries`, `keys` or `attention` (`content_bias`),
            by a back end that knows it; its own bias is 0.
    """

    made_of: BiasSource = "places"

    @abstractmethod
    def relative(self, grid: Grid, device: torch.device) -> Tensor:
        """The bias by displacement (dy, dx) = key - query in cells.

        Returns:
            float32 [heads, 2 rows - 1, 2 cols - 1]; displacement (dy, dx) stands at [dy + rows - 1, dx + cols - 1]; and
            so on where a grid has more axes.
        """

    def by_key(self, grid: Grid, device: torch.device) -> Tensor | None:
        """A bias that depends on where the key stands alone: float32 [heads, *grid], or None."""
        return None

    def prefix(self) -> Tensor | None:
        """Bias of prefix slots, in the order of BEiT's three extra table rows: float32 [3, heads] of a prefix query on
        patch keys, a patch query on prefix keys, a prefix query on prefix keys; None is 0."""
        return None


@dataclass(frozen=True)
class DirectedBias(BiasTerm):
    """A field of view and a penalty that grows with the distance (LookHere section 3, ALiBi equation 1).

    bias = -(scale * (slope_h * f(distance))) inside the view of head h, and `outside` elsewhere. A slope of 0 keeps
    the mask: the mask is a mask and the penalty a penalty.

    Attributes:
        views: one a head.
        slopes: one a head, at least 0.
        from_centre: one a head; True measures the distance of the key from the grid's centre, not from the query,
            always linearly.
        scale: global slope times the layer's slope, at least 0.
        distance: f, of the Euclidean distance in cells.
        steps: how far a cell is along each axis; None is 1 along all.
        outside: `inf` masks, `max` puts the penalty of the grid's greatest distance, `zero` none.
        rounding: `official` computes in float64, rounds the product once to bfloat16, and masks with the smallest
            bfloat16, as the public LookHere code; `exact` does not round and masks with -inf.
    """

    views: tuple[FieldOfView, ...]
    slopes: tuple[float, ...]
    from_centre: tuple[bool, ...]
    scale: float = 1.0
    distance: Distance = "linear"
    outside: Outside = "inf"
    rounding: Rounding = "exact"
    steps: tuple[float, ...] | None = None

    def relative(self, grid: Grid, device: torch.device) -> Tensor:
        """As `BiasTerm.relative`, to be read and not written: cut from a table that covers many grids, and is kept."""
        for normal in (normal for view in self.views for normal in (*view.planes, *view.within)):
            if len(normal) != len(grid):
                said = f"views of {len(normal)} axes for a grid of {len(grid)}, {grid!r}"
                raise InputError(f"a directed pattern: {said}")
        if not is_cacheable(device):
            return self._relative(grid, device)
        cover = grid if self.outside == "max" else covering([grid])
        if len(self.views) * math.prod(2 * side - 1 for side in cover) > _KEPT_ELEMENTS:
            return self._relative(grid, device)
        table = _TABLES.get_tensor((self, cover, device), device, lambda: self._relative(cover, device))
        return crop_table(table, cover, grid)

    def _relative(self, grid: Grid, device: torch.device) -> Tensor:
        shift = _along_axes([torch.arange(1 - side, side, device=_float64_device(device)) for side in grid])
        distance = self._distance(shift)
        penalty = {"linear": distance, "sqrt": distance**0.5, "square": distance**2}[self.distance]
        # A head that measures from the centre has its penalty by key; here it has only its view.
        bias = self._rounded(torch.stack([slope * penalty for slope in self._slopes(from_centre=False)]))
        unseen = ~torch.stack([view.visible(*shift) for view in self.views])
        masked = -BFLOAT16_MAX if self.rounding == "official" else -torch.inf
        beyond = {"inf": masked, "max": bias.amin(tuple(range(1, bias.dim())), keepdim=True), "zero": -0.0}
        return torch.where(unseen, beyond[self.outside], bias).to(device)

    def by_key(self, grid: Grid, device: torch.device) -> Tensor | None:
        if not any(self.from_centre):
            return None
        places = [torch.arange(side, device=_float64_device(device)).double() for side in grid]
        distance = self._distance(_along_axes([place - place[-1] / 2 for place in places]))
        return self._rounded(torch.stack([slope * distance for slope in self._slopes(from_centre=True)])).to(device)

    def _slopes(self, *, from_centre: bool) -> list[float]:
        """The slopes of the heads that measure from there, 0 for the others."""
        both = zip(self.slopes, self.from_centre, strict=True)
        return [slope if central == from_centre else 0.0 for slope, central in both]

    def _distance(self, shift: Sequence[Tensor]) -> Tensor:
        """The Euclidean length of displacements in cells, float64."""
        if self.steps is not None:
            shift = [step * one.double() for step, one in zip(self.steps, shift, strict=True)]
        return functools.reduce(torch.add, [one.square() for one in shift]).double().sqrt()

    def _rounded(self, penalty: Tensor) -> Tensor:
        bias = self.scale * penalty
        if self.rounding == "official":
            bias = bias.to(torch.bfloat16)
        # Negated last, as the public code does: a distance of 0 gives -0.0.
        return -bias.float()


def _along_axes(values: Sequence[Tensor]) -> list[Tensor]:
    """Values along each axis of a grid, as tensors that broadcast over all of it."""
    last = len(values) - 1
    return [one.view(*(1,) * axis, -1, *(1,) * (last - axis)) for axis, one in enumerate(values)]


def _float64_device(device: torch.device) -> torch.device:
    """Apple's GPUs have no float64; the tables are small, so they are made on the CPU there."""
    return torch.device("cpu") if device.type == "mps" else device


@dataclass(frozen=True, eq=False)
class TableBias(BiasTerm):
    """A learned bias for each displacement, made for each grid, with gradients (BEiT).

    Attributes:
        values: grid -> [heads, 2 rows - 1, 2 cols - 1], by displacement key - query, or one axis for each of the grid.
        extra: [3, heads] as `BiasTerm.prefix`, or None.
    """

    values: Callable[[Grid], Tensor]
    extra: Tensor | None = None

    def relative(self, grid: Grid, device: torch.device) -> Tensor:
        return at_least_float32(self.values(grid))

    def prefix(self) -> Tensor | None:
        return self.extra


@dataclass(frozen=True, eq=False)
class ImageMask(BiasTerm):
    """A bias of prefix queries that was computed of what each image shows, as of queries that look at their own masks
    alone (Mask2Former, Cheng et al. 2022, equation 2). Patches that ask have none.

    Attributes:
        values: for each segment of the layout float [1 or rows, 1 or heads, prefix slots, its slots], in the order of
            the slots; -inf masks.
        heads: how many there are.
    """

    values: Sequence[Tensor]
    heads: int

    def relative(self, grid: Grid, device: torch.device) -> Tensor:
        """Nothing hangs on displacements."""
        return torch.zeros(self.heads, *(2 * side - 1 for side in grid), device=device)

    def of_image(self, image: int, heads: slice, num_prefix_queries: int, patches: int) -> Tensor:
        """The bias of some queries of one image on all of its slots: [1 or rows, heads, queries, slots].

        Args:
            num_prefix_queries: all prefix slots or, of a block of the patches that ask, none.
            patches: how many patches ask.
        """
        values = self.values[image][:, :, :num_prefix_queries]
        if values.shape[1] > 1:
            values = values[:, heads]
        count = len(range(*heads.indices(self.heads)))
        return F.pad(values, (0, 0, 0, patches)).expand(-1, count, -1, -1)


@dataclass(frozen=True, eq=False)
class Pattern:
    """The sum of its terms. Which tokens meet at all is the layout's business.

    Attributes:
        terms: the summands, at least one.
        prune_below: a back end may skip a block of pairs whose smallest penalty exceeds this; None skips only what
            is masked. It is exact only while scores differ by much less.
    """

    terms: tuple[BiasTerm, ...]
    prune_below: float | None = None

    def __add__(self, other: Pattern) -> Pattern:
        bounds = [bound for bound in (self.prune_below, other.prune_below) if bound is not None]
        return Pattern(self.terms + other.terms, max(bounds) if len(bounds) == 2 else None)

    def terms_of(self, *what: BiasSource) -> list[BiasTerm]:
        """Its terms that are made of that, as `BiasTerm.made_of`; of `attention` are those that add to the output."""
        return [term for term in self.terms if term.made_of in what]

    @property
    def directed(self) -> bool:
        """Whether fields of view and distances say all."""
        return all(isinstance(term, DirectedBias) for term in self.terms)

    @property
    def of_images(self) -> bool:
        """Whether it hangs on what an image shows: images that stand alike have biases of their own."""
        return any(isinstance(term, ImageMask) for term in self.terms)

    def tables(self, grid: Grid, device: torch.device, frame: Grid | None = None) -> tuple[Tensor, Tensor | None]:
        """The whole bias of patches on a grid, a piece of `frame`: by displacement as `BiasTerm.relative`, and by
        key as `BiasTerm.by_key`."""
        relative = [crop_table(term.relative(frame or grid, device), frame or grid, grid) for term in self.terms]
        by_key = [one for term in self.terms if (one := term.by_key(grid, device)) is not None]
        total = functools.reduce(torch.add, relative)
        return total, functools.reduce(torch.add, by_key) if by_key else None

    def visible(self, relative: Tensor) -> Tensor:
        """Which displacements of a table are computed: bool of its shape. A masked one is not, whatever masks it."""
        visible = relative > -BFLOAT16_MAX
        return visible if self.prune_below is None else visible & (relative >= -self.prune_below)

    def displacement_index(self, images: Sequence[Segment], layout: TokenLayout) -> DisplacementIndex | None:
        """How the biases of images of a layout are read from one table, which is that of `tables` on `cover`; None
        where each needs its own: the grid's centre or its greatest distance plays a part, or something is learned."""
        shared = all(
            isinstance(term, DirectedBias) and term.outside != "max" and not any(term.from_centre)
            for term in self.terms
        )
        if not shared or any(len(one.coords) > 1 for one in images):
            return None
        return layout.cached(("spread", len(images)), lambda: DisplacementIndex.of(images, layout))

    def bias(
        self,
        queries: Segment,
        keys: Segment,
        num_prefix_queries: int,
        num_prefix_keys: int,
        dtype: torch.dtype = torch.float32,
        heads: slice = slice(None),
        image: int = 0,
    ) -> Tensor:
        """The bias of one image's scores.

        Args:
            queries: patches that ask.
            keys: patches that are looked at, of the same image.
            num_prefix_queries: prefix slots among the queries, which stand first.
            num_prefix_keys: the same of the keys.
            dtype: of the result; the sum of several terms is rounded once.
            heads: which heads it is for.
            image: the number of the segment in its layout, for terms of images.

        Returns:
            `dtype` [1 or rows, heads, prefix + patches of queries, prefix + patches of keys].
        """
        # A single term is rounded before it is spread over pairs: the same numbers, less memory.
        early = dtype if len(self.terms) == 1 else wide_dtype(dtype)
        grid, frame, device = keys.grid, keys.window_grid, keys.coords.device
        before = num_prefix_queries, num_prefix_keys

        def rendered(term: BiasTerm) -> Tensor:
            if isinstance(term, ImageMask):
                return term.of_image(image, heads, num_prefix_queries, queries.patches)
            table = crop_table(term.relative(frame, device)[heads], frame, grid)
            by_key, extra = term.by_key(grid, device), term.prefix()
            if by_key is None and extra is None:
                return spread(table.to(early), queries, keys, *before)
            bias = spread(table if by_key is not None else table.to(early), queries, keys)
            if by_key is not None:
                at_keys = by_key[(heads, *keys.coords.unbind(-1))].transpose(0, 1).unsqueeze(2)
                bias = (bias + at_keys).to(early)
            return with_prefix(bias, None if extra is None else extra[:, heads], *before)

        return functools.reduce(torch.add, map(rendered, self.terms)).to(dtype)
