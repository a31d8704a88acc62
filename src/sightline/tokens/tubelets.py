"""Clips to flat tubelets and back: patches of some frames, and what happens to frames that they do not divide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import Patchifier, fit_to_patches, grid_after_fit, patchify, unpatchify


@dataclass(frozen=True)
class TubeletPatchifier(Patchifier):
    """Clips to flat rows, one of each tubelet of `tubelet` frames x patch x patch (ViViT section 3.2.2), or of each
    patch of each frame, where `tubelet` is 1 (uniform frame sampling, section 3.2.1).

    Where the frames of a clip are no multiple of `tubelet`, its last frame is repeated; so an image, which is a clip of
    one frame, is one that stands still for a tubelet.

    Attributes:
        tubelet: frames of a row, whose values stand as (channel, frame, y, x).
    """

    tubelet: int = 2
    axes: ClassVar[int] = 3

    @property
    def patch_dim(self) -> int:
        return self.tubelet * super().patch_dim

    def grid_of(self, height: int, width: int, frames: int = 1) -> Grid:
        """The grid (frames, rows, cols), in tubelets, of a clip of so many frames of this size in pixels; raises
        InputError as the call does."""
        if frames < 1:
            raise InputError(f"clip of {frames} frames: expected at least 1")
        return Grid(-(-frames // self.tubelet), *grid_after_fit(height, width, self.patch_size, self.fit))

    def __call__(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Clips to rows.

        Args:
            images: [batch, channels, frames, height, width], or images [batch, channels, height, width], of any dtype.

        Returns:
            [batch, cells, values], frame by frame and row-major in each, and the grid in tubelets.

        Raises:
            InputError: a clip has no frame, or as `fit_to_patches`.
        """
        clips = images.unsqueeze(2) if images.dim() == 4 else images
        batch, channels, frames = clips.shape[:3]
        count = self.grid_of(clips.shape[3], clips.shape[4], frames)[0]
        missing = count * self.tubelet - frames
        if missing:
            clips = torch.cat((clips, clips[:, :, -1:].expand(-1, -1, missing, -1, -1)), dim=2)
        # Frames are images: they are fitted and cut as such, and what is one tubelet is brought together.
        stills, grid = fit_to_patches(clips.transpose(1, 2).flatten(0, 1), self.patch_size, self.fit)
        rows = patchify(stills, self.patch_size)
        rows = rows.reshape(batch, count, self.tubelet, grid.cells, channels, self.patch_size**2)
        return rows.permute(0, 1, 3, 4, 2, 5).reshape(batch, count * grid.cells, self.patch_dim), Grid(count, *grid)

    def unpatchify(self, rows: Tensor, grid: Grid) -> Tensor:
        """The clips [batch, channels, frames, height, width], after `fit` and with the repeated frames, of these
        rows."""
        count, still = grid[0], Grid(*grid[1:])
        apart = rows.reshape(rows.shape[0], count, still.cells, -1, self.tubelet, self.patch_size**2)
        stills = apart.permute(0, 1, 4, 2, 3, 5).reshape(rows.shape[0] * count * self.tubelet, still.cells, -1)
        return unpatchify(stills, still, self.patch_size).unflatten(0, (rows.shape[0], -1)).transpose(1, 2)
