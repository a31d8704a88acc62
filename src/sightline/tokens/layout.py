"""Where each token stands: the one record that uniform, packed and token-dropped batches share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.errors import InputError
from sightline.tokens.cache import is_cacheable, make_detached
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment, grid_coords

T = TypeVar("T")


class TokenLayout:
    """Tokens [rows, slots, dim] that know where they stand.

    A uniform batch has one image a row and one segment that all rows share; a pack has one row and a segment for
    each image. In both, an image is its prefix tokens (CLS, registers) followed by its patches. After its images a row
    may have padding slots: they are zero, belong to no image, attend to nothing and are not pooled.

    Attributes:
        segments: the images of one row, in order.
        rows: rows of the token tensor.
        num_prefix_tokens: prefix tokens of each image.
        padding: padding slots at the end of each row.
        seeds: int64 [images], of what is left to chance in training (`chance`), in the order of `image_ids`; None where
            nobody said them.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        *,
        rows: int,
        num_prefix_tokens: int,
        padding: int = 0,
        seeds: Tensor | None = None,
    ) -> None:
        self.segments = tuple(segments)
        self.rows = rows
        self.num_prefix_tokens = num_prefix_tokens
        self.padding = padding
        self.seeds = seeds
        self.seqlens = [num_prefix_tokens + segment.patches for segment in self.segments]
        """Slots of each image of one row, its prefix tokens included."""
        self.slots = sum(self.seqlens) + padding
        """Slots of one row, its padding included."""
        self._made: dict[Hashable, object] = {}
        # One object for all layers, so that what is made once a layout is made once here too.
        self._unpadded = self._like(padding=0) if padding else None

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is made of this layout alone: once, for all layers and as long as the layout lives.

        Args:
            key: everything else that it hangs on, as a class, a configuration and a knob. What is made of weights has
                no place here: it is made without gradients.
            make: called for the first who asks, and for each where nothing may be kept (`kept.may_keep`).
        """
        if not is_cacheable(self.device) or type(self.segments[0].coords if self.segments else None) is not Tensor:
            return make()
        if key not in self._made:
            self._made[key] = make_detached(make)
        return self._made[key]  # type: ignore[return-value]

    @classmethod
    def uniform(
        cls,
        grid: Sequence[int],
        rows: int,
        *,
        num_prefix_tokens: int = 1,
        device: torch.device | str = "cpu",
        tile: Grid | None = None,
        pixels: tuple[int, int] | None = None,
    ) -> TokenLayout:
        """A batch of `rows` images that all have one grid; `tile` and `pixels` as `Segment` has them."""
        segment = Segment.from_grid(Grid(*grid), torch.device(device), tile, pixels=pixels)
        return cls((segment,), rows=rows, num_prefix_tokens=num_prefix_tokens)

    @classmethod
    def packed(
        cls,
        grids: Iterable[Sequence[int]],
        *,
        num_prefix_tokens: int = 1,
        device: torch.device | str = "cpu",
        tile: Grid | None = None,
        pixels: Sequence[tuple[int, int] | None] | None = None,
    ) -> TokenLayout:
        """One row that holds images of any grids, one after the other, with nothing between them; `tile` and each of
        `pixels` as `Segment` has them."""
        grids = list(grids)
        both = zip(grids, [None] * len(grids) if pixels is None else pixels, strict=True)
        segments = [Segment.from_grid(Grid(*grid), torch.device(device), tile, pixels=size) for grid, size in both]
        return cls(segments, rows=1, num_prefix_tokens=num_prefix_tokens)

    def keep(self, indices: Tensor | Sequence[Tensor | Sequence[int]]) -> TokenLayout:
        """The layout after token dropping; the images keep their original grids.

        Args:
            indices: int64 [rows, kept] row-major patch indices for a uniform batch, or for a pack one [kept]
                tensor, or list of whole numbers, for each image.

        Raises:
            InputError: the number of index tensors is not the number of images, or a list holds anything but the
                indices of its image's patches.
        """
        count = 1 if isinstance(indices, Tensor) else len(indices)
        if count != len(self.segments):
            raise InputError(f"keep: {count} index tensors for {len(self.segments)} images")
        segments = []
        for number, segment in enumerate(self.segments):
            index = indices if isinstance(indices, Tensor) else indices[number]
            # A list is looked at; a tensor may be on another device.
            if not isinstance(index, Tensor):
                _check_indices(index, number, segment.grid.cells)
                index = torch.tensor(index, dtype=torch.int64, device=self.device)
            segments.append(Segment.from_indices(segment.grid, torch.atleast_2d(index), segment.pixels))
        return self._like(segments)

    def to(self, device: torch.device | str) -> TokenLayout:
        """The same images on a device; the coordinates of what was dropped go there in one transfer."""
        device = torch.device(device)
        if device == self.device:
            return self
        left = [segment.coords for segment in self.segments if not segment.complete]
        moved = torch.cat(left, dim=1).to(device, non_blocking=True) if left else torch.empty(1, 0, 2)
        parts = iter(moved.split([coords.shape[1] for coords in left], dim=1))
        new = (grid_coords(one.grid, device, one.tile)[None] if one.complete else next(parts) for one in self.segments)
        seeds = None if self.seeds is None else self.seeds.to(device, non_blocking=True)
        moved = [replace(one, coords=coords) for one, coords in zip(self.segments, new, strict=True)]
        return self._like(moved, seeds=seeds)

    def with_seeds(self, seeds: Sequence[int]) -> TokenLayout:
        """The same images with the seeds of what is left to chance, one an image (`chance.image_seed`).

        Raises:
            InputError: there are more or fewer images.
        """
        if len(seeds) != self.images:
            raise InputError(f"seeds: {len(seeds)} for {self.images} images")
        return self._like(seeds=torch.tensor(seeds, dtype=torch.int64, device=self.device))

    def pad_to(self, slots: int) -> TokenLayout:
        """The same images with padding slots at the end, so that a row has `slots` of them.

        Sequences of a fixed length in one batch are one row too: tokens of two images never meet, so it does not
        matter which sequence the padding is in.

        Raises:
            InputError: the images alone take more slots.
        """
        used = sum(self.seqlens)
        if slots < used:
            raise InputError(f"pad_to {slots}: the images take {used} slots")
        return self if slots == self.slots else self._like(padding=slots - used)

    @property
    def unpadded(self) -> TokenLayout:
        """The same images without the padding."""
        return self if self._unpadded is None else self._unpadded

    def query_layout(self, count: int) -> TokenLayout:
        """A layout of `count` prefix tokens and no patch for each image: the probes of attention pooling."""
        segments = [Segment(segment.grid, segment.coords[:, :0], complete=False) for segment in self.segments]
        return self._like(segments, num_prefix_tokens=count, padding=0)

    def tiled(self, tile: Grid) -> TokenLayout:
        """The same whole images in tiles, as `Segment.tile`, of grids of two axes; windows, and images with dropped
        patches, stay as they are."""
        whole = [one.complete and one.window is None for one in self.segments]
        both = zip(whole, self.segments, strict=True)
        made = (
            Segment.from_grid(one.grid, self.device, tile, pixels=one.pixels) if moves else one for moves, one in both
        )
        return self._like(list(made))

    def with_prefix(self, count: int) -> TokenLayout:
        """The same images, each with `count` prefix tokens more, which stand before those that it has."""
        return self._like(num_prefix_tokens=self.num_prefix_tokens + count)

    def patches_only(self) -> TokenLayout:
        """The same images without their prefix tokens and the padding."""
        return self._like(num_prefix_tokens=0, padding=0)

    def _like(self, segments: Sequence[Segment] | None = None, **changes: Any) -> TokenLayout:
        """These images, or others, in rows like these but for the changes."""
        rest = {name: getattr(self, name) for name in ("rows", "num_prefix_tokens", "padding", "seeds")}
        return TokenLayout(self.segments if segments is None else segments, **(rest | changes))

    @property
    def images(self) -> int:
        """Images in all rows."""
        return self.rows * len(self.segments)

    @property
    def device(self) -> torch.device:
        return self.segments[0].coords.device if self.segments else torch.device("cpu")

    @property
    def axes(self) -> int:
        """How many axes the images' grids have."""
        return len(self.segments[0].grid) if self.segments else 2

    @property
    def coords(self) -> Tensor:
        """The place of each slot, 0 at prefix and padding slots: int64 [1 or rows, slots, axes]."""
        return self.cached("coords", lambda: self.join(torch.cat([segment.coords for segment in self.segments], dim=1)))

    @property
    def grids(self) -> Tensor:
        """The grid of the image of each slot, of ones at padding slots: int64 [1, slots, axes]."""

        def make() -> Tensor:
            grids, lengths = [*(one.grid for one in self.segments), (1,) * self.axes], [*self.seqlens, self.padding]
            places = zip(grids, lengths, strict=True)
            sides = [[torch.full((1, length), side, device=self.device) for side in grid] for grid, length in places]
            return torch.cat([torch.stack(one, dim=-1) for one in sides], dim=1)

        return self.cached("grids", make)

    @property
    def image_ids(self) -> Tensor:
        """The image of each slot, counted over all rows, -1 at padding slots: int64 [rows, slots]."""

        def make() -> Tensor:
            row = [torch.full((length,), number, device=self.device) for number, length in enumerate(self.seqlens)]
            first = torch.arange(self.rows, device=self.device).unsqueeze(1) * len(self.segments)
            images = torch.cat(row).unsqueeze(0) + first
            return F.pad(images, (0, self.padding), value=-1) if self.padding else images

        return self.cached("image ids", make)

    @property
    def is_prefix(self) -> Tensor:
        """True at prefix slots: bool [slots]."""

        def make() -> Tensor:
            first = [torch.arange(length, device=self.device) < self.num_prefix_tokens for length in self.seqlens]
            return F.pad(torch.cat(first), (0, self.padding)) if self.padding else torch.cat(first)

        return self.cached("is prefix", make)

    @property
    def slot_positions(self) -> Tensor:
        """The place of each slot in its image, prefix tokens first and then the patches by their row-major number, 0 at
        padding slots: int64 [1 or rows, slots]."""

        def make() -> Tensor:
            first, parts = torch.arange(self.num_prefix_tokens, device=self.device), []
            for one in self.segments:
                patches = one.indices + self.num_prefix_tokens
                parts += [first.expand(patches.shape[0], -1), patches]
            return F.pad(torch.cat(parts, dim=1), (0, self.padding))

        return self.cached("places", make)

    def join(self, patches: Tensor, prefix: Tensor | None = None) -> Tensor:
        """Lay patch tokens and prefix tokens into slots.

        Args:
            patches: [1 or rows, patches of all images of a row, ...]; none for padding.
            prefix: [num_prefix_tokens, ...], the same for each image; zeros where None.

        Returns:
            [1 or rows, slots, ...]; zeros at padding slots.
        """
        count, inner = self.num_prefix_tokens, patches.shape[2:]
        pieces = [patches]
        if count:
            shape = (patches.shape[0], count, *inner)
            first = patches.new_zeros(shape) if prefix is None else prefix
            counts = [segment.patches for segment in self.segments]
            images = pieces if len(counts) == 1 else patches.split(counts, dim=1)
            pieces = [piece for image in images for piece in (first.to(patches).expand(shape), image)]
        if self.padding:
            pieces.append(patches.new_zeros((patches.shape[0], self.padding, *inner)))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def split(self, tokens: Tensor) -> list[Tensor]:
        """The slots of each image: a list of [rows, its slots, ...], one for each segment; none of padding."""
        if self.padding:
            tokens = tokens[:, : -self.padding]
        return [tokens] if len(self.segments) == 1 else list(tokens.split(self.seqlens, dim=1))

    def to_layout_order(self, patches: Tensor) -> Tensor:
        """Row-major patches of each image to the order of this layout: [rows, patches and padding of a row, ...]."""
        order = self._like(num_prefix_tokens=0)._order()
        return patches if order is None else patches.index_select(1, order)

    def to_row_major(self, tokens: Tensor) -> Tensor:
        """Tokens [rows, slots, ...] with each image's patches in row-major order; dropped ones do not come back."""
        order = self._order()
        return tokens if order is None else tokens.index_select(1, self.cached("back", order.argsort))

    def _order(self) -> Tensor | None:
        """Where each slot's token stands while images are row-major: int64 [slots]; None where nothing moves."""
        if all(one.tile is None for one in self.segments):
            return None

        def make() -> Tensor:
            order = torch.arange(self.slots, device=self.device)
            start = self.num_prefix_tokens
            for segment, length in zip(self.segments, self.seqlens, strict=True):
                if segment.complete:
                    order[start : start + segment.patches] = segment.indices[0] + start
                start += length
            return order

        return self.cached("order", make)

    def __reduce__(self):
        """Pickled as grids and kept indices: the coordinates are made again."""
        pieces = [
            (tuple(one.grid), one.tile, one.window, one.pixels, None if one.complete else one.indices)
            for one in self.segments
        ]
        return _rebuild, (pieces, self.rows, self.num_prefix_tokens, self.padding, str(self.device), self.seeds)

    def __repr__(self) -> str:
        grids = ", ".join("x".join(map(str, segment.grid)) for segment in self.segments)
        padding = f", padding={self.padding}" if self.padding else ""
        return f"TokenLayout(rows={self.rows}, grids=[{grids}], num_prefix_tokens={self.num_prefix_tokens}{padding})"


def _check_indices(given: object, number: int, cells: int) -> None:
    """Refuse what is no list of the indices of image `number`'s patches."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError(f"keep: {given!r} for image {number}: expected a tensor or a list of its patches' indices")
    for index in given:
        if type(index) is not int or not 0 <= index < cells:
            raise InputError(f"keep: {index!r} for image {number}: expected whole numbers from 0 to {cells - 1}")


def _rebuild(pieces, rows: int, num_prefix_tokens: int, padding: int, device: str, seeds: Tensor | None) -> TokenLayout:
    segments = [
        Segment.from_grid(Grid(*sides), torch.device(device), tile, window, pixels)
        if indices is None
        else Segment.from_indices(Grid(*sides), indices, pixels)
        for sides, tile, window, pixels, indices in pieces
    ]
    return TokenLayout(segments, rows=rows, num_prefix_tokens=num_prefix_tokens, padding=padding, seeds=seeds)
