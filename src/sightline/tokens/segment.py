"""Where the patches of one image stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sightline.tokens.cache import ByteLRUCache
from sightline.tokens.grid import Grid

_COORDS = ByteLRUCache("coordinates", 4 << 20)


def grid_coords(grid: Grid, device: torch.device, tile: Grid | None = None) -> Tensor:
    """The place of each patch of a grid, (y, x) or one number an axis, row-major or in tiles: int64 [cells, axes].

    Kept by (grid, tile, device), never by the token count; not where sizes may be symbolic or tensors fake.

    Raises:
        InputError: tiles of a grid that has not two axes.
    """

    def make() -> Tensor:
        if tile is None and device.type == "meta":
            # A shape alone, for which torch's own ways would load its compiler.
            return torch.empty(grid.cells, len(grid), dtype=torch.int64, device=device)
        axes = [torch.arange(side, device=device) for side in grid]
        coords = torch.stack(torch.meshgrid(axes, indexing="ij"), dim=-1).reshape(grid.cells, len(grid))
        if tile is None:
            return coords
        rows, cols = tile
        tiles_across = (grid.planar("tiles").cols + cols - 1) // cols
        y, x = coords.unbind(-1)
        # Stable: inside a tile the order stays row-major, also in the smaller tiles at the edges.
        return coords[((y // rows) * tiles_across + x // cols).argsort(stable=True)]

    return _COORDS.get_tensor((grid, tile, device), device, make) if all(type(side) is int for side in grid) else make()


def row_major_index(coords: Tensor, grid: Grid) -> Tensor:
    """The row-major index in a grid of patches at `coords`: int64 [..., axes] -> [...]."""
    index = coords[..., 0]
    for axis in range(1, len(grid)):
        index = index * grid[axis] + coords[..., axis]
    return index


class Window(NamedTuple):
    """Where a window was cut from: the grid of its image, its first cell there, and the first slot of that image.

    `size` is that of a whole window: one at an edge is a piece of such a one, and what hangs on displacements is there
    as it is in the whole.
    """

    grid: Grid
    origin: tuple[int, ...]
    start: int
    size: Grid


@dataclass(frozen=True, eq=False)
class Segment:
    """The patches of one image: its own grid, and which of them are here.

    Attributes:
        grid: the grid of the whole image, also when patches were dropped.
        coords: int64 [1 or rows, patches, axes] in cells, (y, x) where there are two.
        complete: every patch of the grid is here, in the order that `tile` says.
        tile: None for row-major order; else tiles of this many rows and columns follow each other row-major, and so
            do the patches in each (sparse back ends: neighbours in the image are neighbours in memory).
        window: where the image is a window of another, and `coords` and `grid` are the window's own.
        pixels: (height, width) of the image, where its rows hold more than its pixels (`Patchifier.valid_size`).
    """

    grid: Grid
    coords: Tensor
    complete: bool = True
    tile: Grid | None = None
    window: Window | None = None
    pixels: tuple[int, int] | None = None

    @classmethod
    def from_grid(
        cls,
        grid: Grid,
        device: torch.device,
        tile: Grid | None = None,
        window: Window | None = None,
        pixels: tuple[int, int] | None = None,
    ) -> Segment:
        """All patches of a grid."""
        return cls(grid, grid_coords(grid, device, tile).unsqueeze(0), tile=tile, window=window, pixels=pixels)

    @classmethod
    def from_indices(cls, grid: Grid, indices: Tensor, pixels: tuple[int, int] | None = None) -> Segment:
        """The patches of these row-major indices, int64 [1 or rows, patches], in this order."""
        coords = grid_coords(grid, indices.device).index_select(0, indices.flatten())
        return cls(grid, coords.unflatten(0, indices.shape), complete=False, pixels=pixels)

    @property
    def row_major(self) -> bool:
        """Every patch of the grid is here, in row-major order."""
        return self.complete and self.tile is None

    @property
    def cache_key(self) -> object:
        """Equal for images whose patches stand alike."""
        return (self.grid, self.tile, self.window_grid) if self.complete else id(self.coords)

    @property
    def window_grid(self) -> Grid:
        """The grid by which displacements are read: its own, or of a window that of a whole one."""
        return self.grid if self.window is None else self.window.size

    @property
    def patches(self) -> int:
        """How many patches of the image are here."""
        return self.coords.shape[1]

    @property
    def indices(self) -> Tensor:
        """The row-major index of each patch in its grid: int64 [1 or rows, patches]."""
        return row_major_index(self.coords, self.grid)

    @property
    def image_coords(self) -> Tensor:
        """As `coords`, in the image that a window was cut from, whose grid is `window.grid`."""
        return self.coords if self.window is None else self.coords + self.coords.new_tensor(self.window.origin)
