"""Where a picture lies under its patches, where the patch does not divide its sides."""

from __future__ import annotations

import numpy as np

from sightline.models import ViTConfig


def covered_size(config: ViTConfig, shown: tuple[int, int]) -> tuple[int, int]:
    """(height, width) of what the patches of a picture of `shown` cover, in its own pixels: more than it where it is
    padded, less where what is left over is not looked at."""
    if config.fit not in ("pad", "crop"):
        return shown
    rows, cols = config.grid_of(shown)
    return rows * config.patch_size, cols * config.patch_size


def undo_fit(config: ViTConfig, image: np.ndarray, shown: tuple[int, int]) -> np.ndarray:
    """What was fitted to patches, uint8 [height, width, 3], as the picture of `shown` (height, width) that it was,
    black where it was not looked at; one that was resized as it is."""
    if covered_size(config, shown) == shown:
        return image
    whole = np.zeros((*shown, image.shape[2]), image.dtype)
    there = image[: shown[0], : shown[1]]
    whole[: there.shape[0], : there.shape[1]] = there
    return whole
