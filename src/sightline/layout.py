"""Where each token stands: the one record that uniform, packed and token-dropped batches share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.errors import InputError
from sightline.grid import Grid
from sightline.kept import Kept

_COORDS = Kept("coordinates", 4 << 20)


def grid_coords(grid: Grid, device: torch.device, tile: Grid | None = None) -> Tensor:
    """The (y, x) of each patch of a grid, row-major or in tiles: int64 [rows * cols, 2].

    Cached by (grid, tile, device), never by the token count; not while compiling or exporting, where the sizes may be
    symbolic, nor where tensors are fake, which neither come from the cache nor go into it.
    """
    key = (grid, tile, device)
    symbolic = torch.compiler.is_compiling() or type(grid.rows) is not int or type(grid.cols) is not int
    caching = not symbolic and type(torch.empty(0, device=device)) is Tensor
    if caching and (found := _COORDS.get(key)) is not None:
        return found
    # A tensor born under inference mode could never be used in training.
    with torch.inference_mode(False):
        rows = torch.arange(grid.rows, device=device).unsqueeze(1).expand(grid.rows, grid.cols)
        cols = torch.arange(grid.cols, device=device).unsqueeze(0).expand(grid.rows, grid.cols)
        coords = torch.stack((rows, cols), dim=-1).reshape(grid.rows * grid.cols, 2)
        if tile is not None:
            y, x = coords.unbind(-1)
            tiles_across = (grid.cols + tile.cols - 1) // tile.cols
            of_tile = (y // tile.rows) * tiles_across + x // tile.cols
            # Stable: inside a tile the order stays row-major, also in the smaller tiles at the edges.
            coords = coords[of_tile.argsort(stable=True)]
    if caching:
        _COORDS.put(key, coords, coords.nbytes)
    return coords


@dataclass(frozen=True, eq=False)
class Segment:
    """The patches of one image: its own grid, and which of them are here.

    Attributes:
        grid: the grid of the whole image, also when patches were dropped.
        coords: int64 [1 or rows, patches, 2] as (y, x) in cells.
        complete: every patch of the grid is here, in the order that `tile` says.
        tile: None for row-major order; else tiles of this many rows and columns follow each other row-major, and so
            do the patches in each (sparse back ends: neighbours in the image are neighbours in memory).
    """

    grid: Grid
    coords: Tensor
    complete: bool = True
    tile: Grid | None = None

    @property
    def row_major(self) -> bool:
        """Every patch of the grid is here, in row-major order."""
        return self.complete and self.tile is None

    @property
    def patches(self) -> int:
        """How many patches of the image are here."""
        return self.coords.shape[1]

    @property
    def indices(self) -> Tensor:
        """The row-major index of each patch in its grid: int64 [1 or rows, patches]."""
        return self.coords[..., 0] * self.grid.cols + self.coords[..., 1]


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
    """

    def __init__(self, segments: Sequence[Segment], *, rows: int, num_prefix_tokens: int, padding: int = 0) -> None:
        self.segments = tuple(segments)
        self.rows = rows
        self.num_prefix_tokens = num_prefix_tokens
        self.padding = padding
        # One object for all layers: back ends keep what they made for a layout as long as it lives.
        self._unpadded = self._like(self.segments, padding=0) if padding else None

    @classmethod
    def uniform(
        cls,
        grid: Grid | tuple[int, int],
        rows: int,
        *,
        num_prefix_tokens: int = 1,
        device: torch.device | str = "cpu",
        tile: Grid | None = None,
    ) -> TokenLayout:
        """A batch of `rows` images that all have one grid; `tile` as `Segment.tile`."""
        grid = Grid(*grid)
        segment = Segment(grid, grid_coords(grid, torch.device(device), tile).unsqueeze(0), tile=tile)
        return cls((segment,), rows=rows, num_prefix_tokens=num_prefix_tokens)

    @classmethod
    def packed(
        cls,
        grids: Iterable[Grid | tuple[int, int]],
        *,
        num_prefix_tokens: int = 1,
        device: torch.device | str = "cpu",
        tile: Grid | None = None,
    ) -> TokenLayout:
        """One row that holds images of any grids, one after the other, with nothing between them; `tile` as
        `Segment.tile`."""
        device = torch.device(device)
        grids = [Grid(*grid) for grid in grids]
        segments = [Segment(grid, grid_coords(grid, device, tile).unsqueeze(0), tile=tile) for grid in grids]
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
            index = indices if isinstance(indices, Tensor) else self._indices(number, indices[number]).unsqueeze(0)
            every = grid_coords(segment.grid, index.device).expand(index.shape[0], -1, -1)
            coords = torch.gather(every, 1, index.unsqueeze(-1).expand(-1, -1, 2))
            segments.append(Segment(segment.grid, coords, complete=False))
        return self._like(segments)

    def _indices(self, number: int, given: Tensor | Sequence[int]) -> Tensor:
        """The kept patches of image `number` as a tensor; a list is looked at, a tensor may be on another device."""
        if isinstance(given, Tensor):
            return given
        cells = self.segments[number].grid.cells
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise InputError(f"keep: {given!r} for image {number}: expected a tensor or a list of its patches' indices")
        for index in given:
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < cells:
                raise InputError(f"keep: {index!r} for image {number}: expected whole numbers from 0 to {cells - 1}")
        return torch.tensor(given, dtype=torch.int64, device=self.device)

    def pad_to(self, slots: int) -> TokenLayout:
        """The same images with padding slots at the end, so that a row has `slots` of them.

        Sequences of a fixed length in one batch are one row too: tokens of two images never meet, so it does not
        matter which sequence the padding is in.

        Raises:
            InputError: the images alone take more slots.
        """
        used = sum(self.lengths)
        if slots < used:
            raise InputError(f"pad_to {slots}: the images take {used} slots")
        return self if slots == self.slots else self._like(self.segments, padding=slots - used)

    @property
    def unpadded(self) -> TokenLayout:
        """The same images without the padding."""
        return self if self._unpadded is None else self._unpadded

    def queries(self, count: int) -> TokenLayout:
        """A layout of `count` prefix tokens and no patch for each image: the probes of attention pooling."""
        segments = [Segment(segment.grid, segment.coords[:, :0], complete=False) for segment in self.segments]
        return TokenLayout(segments, rows=self.rows, num_prefix_tokens=count)

    def tiled(self, tile: Grid) -> TokenLayout:
        """The same whole images in tiles, as `Segment.tile`; an image with dropped patches stays as it is."""
        segments = [
            Segment(segment.grid, grid_coords(segment.grid, self.device, tile).unsqueeze(0), tile=tile)
            if segment.complete
            else segment
            for segment in self.segments
        ]
        return self._like(segments)

    def patches_only(self) -> TokenLayout:
        """The same images without their prefix tokens and the padding."""
        return TokenLayout(self.segments, rows=self.rows, num_prefix_tokens=0)

    def _like(self, segments: Sequence[Segment], padding: int | None = None) -> TokenLayout:
        """Other images in rows like these, with as much padding unless it is given."""
        return TokenLayout(
            segments,
            rows=self.rows,
            num_prefix_tokens=self.num_prefix_tokens,
            padding=self.padding if padding is None else padding,
        )

    @property
    def lengths(self) -> list[int]:
        """Slots of each image of one row, its prefix tokens included."""
        return [self.num_prefix_tokens + segment.patches for segment in self.segments]

    @property
    def slots(self) -> int:
        """Slots of one row, its padding included."""
        return sum(self.lengths) + self.padding

    @property
    def images(self) -> int:
        """Images in all rows."""
        return self.rows * len(self.segments)

    @property
    def device(self) -> torch.device:
        return self.segments[0].coords.device if self.segments else torch.device("cpu")

    @property
    def coords(self) -> Tensor:
        """(y, x) of each slot, 0 at prefix and padding slots: int64 [1 or rows, slots, 2]."""
        return self._per_slot([segment.coords for segment in self.segments])

    @property
    def grids(self) -> Tensor:
        """(rows, cols) of the image of each slot, (1, 1) at padding slots: int64 [1, slots, 2]."""
        pieces = []
        grids, lengths = [segment.grid for segment in self.segments], self.lengths
        if self.padding:
            grids, lengths = [*grids, Grid(1, 1)], [*lengths, self.padding]
        for grid, length in zip(grids, lengths, strict=True):
            side = [torch.full((1, length), size, device=self.device) for size in grid]
            pieces.append(torch.stack(side, dim=-1))
        return torch.cat(pieces, dim=1)

    @property
    def image_ids(self) -> Tensor:
        """The image of each slot, counted over all rows, -1 at padding slots: int64 [rows, slots]."""
        row = [torch.full((length,), number, device=self.device) for number, length in enumerate(self.lengths)]
        first = torch.arange(self.rows, device=self.device).unsqueeze(1) * len(self.segments)
        images = torch.cat(row).unsqueeze(0) + first
        return F.pad(images, (0, self.padding), value=-1) if self.padding else images

    @property
    def is_prefix(self) -> Tensor:
        """True at prefix slots: bool [slots]."""
        pieces = [torch.arange(length, device=self.device) < self.num_prefix_tokens for length in self.lengths]
        if self.padding:
            pieces.append(torch.zeros(self.padding, dtype=torch.bool, device=self.device))
        return torch.cat(pieces)

    def _per_slot(self, per_patch: Sequence[Tensor], prefix: Tensor | None = None) -> Tensor:
        """Join values of patches [1 or rows, patches, ...] with those of prefix slots (0 unless given) and of padding
        slots (0)."""
        count = self.num_prefix_tokens
        pieces = list(per_patch)
        if count:
            pieces = []
            for values in per_patch:
                shape = (values.shape[0], count, *values.shape[2:])
                pieces += [values.new_zeros(shape) if prefix is None else prefix.to(values).expand(shape), values]
        if self.padding:
            values = per_patch[0]
            pieces.append(values.new_zeros((values.shape[0], self.padding, *values.shape[2:])))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def join(self, patches: Tensor, prefix: Tensor | None = None) -> Tensor:
        """Lay patch tokens and prefix tokens into slots.

        Args:
            patches: [1 or rows, patches of all images of a row, ...]; none for padding.
            prefix: [num_prefix_tokens, ...], the same for each image; zeros where None.

        Returns:
            [1 or rows, slots, ...]; zeros at padding slots.
        """
        counts = [segment.patches for segment in self.segments]
        pieces = [patches] if len(counts) == 1 else list(patches.split(counts, dim=1))
        return self._per_slot(pieces, prefix)

    def split(self, tokens: Tensor) -> list[Tensor]:
        """The slots of each image: a list of [rows, its slots, ...], one for each segment; none of padding."""
        if self.padding:
            tokens = tokens[:, : -self.padding]
        return [tokens] if len(self.segments) == 1 else list(tokens.split(self.lengths, dim=1))

    def lay(self, patches: Tensor) -> Tensor:
        """Row-major patches of each image to the order of this layout: [rows, patches and padding of a row, ...]."""
        bare = TokenLayout(self.segments, rows=self.rows, num_prefix_tokens=0, padding=self.padding)
        return bare._reordered(patches, inverse=False)

    def row_major(self, tokens: Tensor) -> Tensor:
        """Tokens [rows, slots, ...] with each image's patches in row-major order; dropped ones do not come back."""
        return self._reordered(tokens, inverse=True)

    def _reordered(self, tokens: Tensor, *, inverse: bool) -> Tensor:
        if all(segment.row_major or not segment.complete for segment in self.segments):
            return tokens
        count = self.num_prefix_tokens
        pieces = []
        for image, segment in zip(self.split(tokens), self.segments, strict=True):
            if segment.complete:
                order = segment.indices[0].argsort() if inverse else segment.indices[0]
                image = torch.cat((image[:, :count], image[:, count:][:, order]), dim=1)
            pieces.append(image)
        if self.padding:
            pieces.append(tokens[:, -self.padding :])
        return torch.cat(pieces, dim=1)

    def __reduce__(self):
        """Pickled as grids and kept indices: the coordinates are made again."""
        pieces = [
            (tuple(segment.grid), segment.tile, None if segment.complete else segment.indices)
            for segment in self.segments
        ]
        return _rebuild, (pieces, self.rows, self.num_prefix_tokens, self.padding, str(self.device))

    def __repr__(self) -> str:
        grids = ", ".join(f"{segment.grid.rows}x{segment.grid.cols}" for segment in self.segments)
        padding = f", padding={self.padding}" if self.padding else ""
        return f"TokenLayout(rows={self.rows}, grids=[{grids}], num_prefix_tokens={self.num_prefix_tokens}{padding})"


def _rebuild(pieces, rows: int, num_prefix_tokens: int, padding: int, device: str) -> TokenLayout:
    segments = []
    for sides, tile, indices in pieces:
        grid = Grid(*sides)
        coords = grid_coords(grid, torch.device(device), tile if indices is None else None)
        segments.append(
            Segment(grid, coords.unsqueeze(0), tile=tile)
            if indices is None
            else Segment(grid, coords[indices], complete=False)
        )
    return TokenLayout(segments, rows=rows, num_prefix_tokens=num_prefix_tokens, padding=padding)
