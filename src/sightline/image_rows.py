"""Images of uint8 to flat rows, as workers do it: by an embedder's half without weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sightline.grid import Grid
from sightline.patchify import Cutter


@dataclass(frozen=True)
class ImageRows:
    """From an image to rows of values from 0 to 255.

    Attributes:
        cutter: the embedder's half.
        mean: of each channel in [0, 1], by which images are normalised: what is added to them becomes 0.
    """

    cutter: Cutter
    mean: tuple[float, ...]

    def __call__(self, image: np.ndarray) -> tuple[Tensor, Grid]:
        """uint8 [height, width, 3] to [cells, values], uint8, or float32 where the image had to be fitted."""
        pixels = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).unsqueeze(0)
        side = self.cutter.patch_size
        if self.cutter.fit in ("exact", "crop") or not (image.shape[0] % side or image.shape[1] % side):
            rows, grid = self.cutter(pixels)
            return rows[0], grid
        shift = 255 * torch.tensor(self.mean).view(-1, 1)
        rows, grid = self.cutter(pixels - shift.unsqueeze(-1))
        return (rows[0].unflatten(-1, (len(self.mean), -1)) + shift).flatten(-2), grid
