"""What a head may attend to and at what penalty, said once: the reference that every back end is compared with."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.spreading import crop_table, in_rows, may_be_traced, spread, spread_beside_prefix, with_prefix
from sightline.attention.view import FieldOfView as FieldOfView
from sightline.attention.wide import at_least_float32, wide_dtype
from sightline.errors import InputError
from sightline.tokens.cache import ByteLRUCache, is_cacheable
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment, row_major_index

Distance = Literal["linear", "sqrt", "square"]
Outside = Literal["inf", "max", "zero"]
Rounding = Literal["official", "exact"]
BiasSource = Literal["places", "queries", "keys", "attention"]

BFLOAT16_MAX = torch.finfo(torch.bfloat16).max


class BiasTerm(ABC):
    """One summand of the scores' bias, as a function of (query, key, head) on one image's grid. What is below -2e38
    may count as -inf, and a query whose keys are all masked so has no answer.

    Attributes:
        made_of: where it is not `places`, what it adds is made of `queries`, `keys` or `attention` (`contextual`), by a
            back end that knows it; its own bias is 0.
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
        """Bias of prefix slots: float32 [3, heads] for patch->prefix, prefix->patch, prefix->prefix keys; None is 0.

        Row 0 is a prefix query on patch keys, row 1 a patch query on prefix keys, row 2 a prefix query on prefix
        keys (the order of BEiT's three extra table rows).
        """
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
        for view in self.views:
            for normal in (*view.planes, *view.within):
                if len(normal) != len(grid):
                    raise InputError(
                        f"a directed pattern: views of {len(normal)} axes for a grid of {len(grid)}, {grid!r}"
                    )
        keeps = type(grid.cells) is int and is_cacheable(device)
        cover = covering([grid]) if keeps and self.outside != "max" else grid
        if not keeps or len(self.views) * math.prod(2 * side - 1 for side in cover) > _KEPT_ELEMENTS:
            return self._relative(grid, device)
        table = _TABLES.get_tensor((self, cover, device), device, lambda: self._relative(cover, device))
        inner = (slice(most - side, most + side - 1) for most, side in zip(cover, grid, strict=True))
        return table[(slice(None), *inner)]

    def _relative(self, grid: Grid, device: torch.device) -> Tensor:
        where = _float64_device(device)
        shift = _along_axes([torch.arange(1 - side, side, device=where) for side in grid])
        distance = self._distance(shift)
        penalty = {"linear": distance, "sqrt": distance**0.5, "square": distance**2}[self.distance]
        # A head that measures from the centre has its penalty by key; here it has only its view.
        inside = torch.stack([slope * penalty for slope in self._slopes(from_centre=False)])
        unseen = ~torch.stack([view.visible(*shift) for view in self.views])
        if self.outside == "inf":
            bias = self._rounded(inside)
            bias = bias.masked_fill(unseen, -BFLOAT16_MAX if self.rounding == "official" else -torch.inf)
        elif self.outside == "max":
            bias = self._rounded(torch.where(unseen, inside.amax(tuple(range(1, inside.dim())), keepdim=True), inside))
        else:
            bias = self._rounded(inside.masked_fill(unseen, 0.0))
        return bias.to(device)

    def _slopes(self, *, from_centre: bool) -> list[float]:
        """The slopes of the heads that measure from there, 0 for the others."""
        both = zip(self.slopes, self.from_centre, strict=True)
        return [slope if central == from_centre else 0.0 for slope, central in both]

    def by_key(self, grid: Grid, device: torch.device) -> Tensor | None:
        if not any(self.from_centre):
            return None
        where = _float64_device(device)
        places = [torch.arange(side, device=where).double() for side in grid]
        distance = self._distance(_along_axes([place - place[-1] / 2 for place in places]))
        return self._rounded(torch.stack([slope * distance for slope in self._slopes(from_centre=True)])).to(device)

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


# Tables of displacements by (term, grid, device), of no more than 1 MiB each, of grids of a multiple of so many cells,
# or frames.
_TABLES = ByteLRUCache("tables of displacements", 10 << 20)
_KEPT_ELEMENTS, _COVER_STEP, _COVER_FRAMES = 2**18, 16, 4
_PLACES = ByteLRUCache("places in tables of displacements", 4 << 20)


def covering(grids: Iterable[Grid]) -> Grid:
    """A grid whose table of displacements holds those of all these in its middle, the same one for neighbours."""
    most = [max(sides) for sides in zip(*grids, strict=True)]
    steps = [_COVER_FRAMES] * (len(most) - 2) + [_COVER_STEP] * 2
    return Grid(*(-(-side // step) * step for side, step in zip(most, steps, strict=True)))


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

    @property
    def of_images(self) -> bool:
        """Whether it hangs on what an image shows: images that stand alike have biases of their own."""
        return any(isinstance(term, ImageMask) for term in self.terms)

    @property
    def has_centre(self) -> bool:
        """Whether a head measures from the centre of the grid."""
        return any(isinstance(term, DirectedBias) and any(term.from_centre) for term in self.terms)

    def spread(self, images: Sequence[Segment], layout: TokenLayout) -> DisplacementIndex | None:
        """How the biases of images of a layout are read from one table; None where each needs its own: the grid's
        centre or its greatest distance plays a part."""
        terms = [one for one in self.terms if isinstance(one, DirectedBias) and one.outside != "max"]
        of_grid = len(terms) < len(self.terms) or self.has_centre
        if of_grid or any(len(one.coords) > 1 for one in images):
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
            queries, keys: patches of the same image.
            num_prefix_queries, num_prefix_keys: prefix slots, which stand first.
            dtype: of the result; the sum of several terms is rounded once.
            heads: which heads it is for.
            image: the number of the segment in its layout, for terms of images.

        Returns:
            `dtype` [1 or rows, heads, prefix + patches of queries, prefix + patches of keys].
        """
        # A single term is rounded before it is spread over pairs: the same numbers, less memory.
        early = dtype if len(self.terms) == 1 else wide_dtype(dtype)
        grid, frame, device = keys.grid, keys.window_grid, keys.coords.device

        def rendered(term: BiasTerm) -> Tensor:
            if isinstance(term, ImageMask):
                return term.of_image(image, heads, num_prefix_queries, queries.patches)
            table, by_key, extra = term.relative(frame, device)[heads], term.by_key(grid, device), term.prefix()
            table = crop_table(table, frame, grid)
            if by_key is None:
                table = table.to(early)
                if extra is None and in_rows(queries, keys) and not may_be_traced(table):
                    return spread_beside_prefix(table, grid, num_prefix_queries, num_prefix_keys)
            bias = spread(table, queries, keys)
            if by_key is not None:
                at_keys = by_key[(heads, *keys.coords.unbind(-1))].transpose(0, 1).unsqueeze(2)
                bias = (bias + at_keys).to(early)
            return with_prefix(bias, None if extra is None else extra[:, heads], num_prefix_queries, num_prefix_keys)

        return functools.reduce(torch.add, map(rendered, self.terms)).to(dtype)


class DisplacementIndex(NamedTuple):
    """Which entries of a table of displacements the pairs of several images are.

    Attributes:
        cover: the grid of the table.
        places: int32 [pairs of all that stand apart], 0 for a pair with a prefix slot, else 1 + the table's index.
        images: of each image where its pairs start and how many slots it has.
    """

    cover: Grid
    places: Tensor
    images: list[tuple[int, int]]

    @classmethod
    def of(cls, images: Sequence[Segment], layout: TokenLayout) -> DisplacementIndex:
        prefix = layout.num_prefix_tokens
        cover = covering(one.grid for one in images)
        by_kind: dict[object, tuple[int, int]] = {}
        places, start = [], 0
        for one in images:
            if one.cache_key not in by_kind:
                by_kind[one.cache_key] = start, prefix + one.patches
                key = (one.cache_key, prefix, cover, layout.device)
                make = functools.partial(_places, one, prefix, cover)
                places.append(_PLACES.get_tensor(key, layout.device, make) if one.complete else make())
                # Not in place: a trace has tensors for numbers.
                start = start + places[-1].shape[0]
        return cls(cover, torch.cat(places), [by_kind[one.cache_key] for one in images])

    def biases(self, pattern: Pattern) -> list[Tensor]:
        """As `Pattern.bias` of each image: float32 [1, heads, slots, slots]."""
        values = self._table(pattern).index_select(1, self.places)
        return [values[:, start : start + n * n].view(1, len(values), n, n) for start, n in self.images]

    def _table(self, pattern: Pattern) -> Tensor:
        """[heads, 1 + entries], of which the first is that of prefix slots."""
        return F.pad(pattern.tables(self.cover, self.places.device)[0].flatten(1), (1, 0))


def _places(image: Segment, prefix: int, cover: Grid) -> Tensor:
    coords = image.coords[0]
    shift = coords.unsqueeze(0) - coords.unsqueeze(1) + (coords.new_tensor(cover) - 1)
    index = row_major_index(shift, Grid(*(2 * side - 1 for side in cover))) + 1
    return F.pad(index, (prefix, 0, prefix, 0)).int().flatten()
