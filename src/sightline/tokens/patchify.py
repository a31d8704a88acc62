"""Images to flat patches and back, and what happens to a size that the patch does not divide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.errors import InputError
from sightline.tokens.grid import Grid

Fit = Literal["exact", "pad", "resize", "crop"]


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Cut images into flat patches (ViT section 3.1).

    Args:
        images: [batch, channels, height, width], sides divisible by `patch_size`.

    Returns:
        [batch, rows * cols, channels * patch_size**2]; row-major patches, each flattened as (channel, y, x), so
        that a linear layer over them is the convolution with the same weight reshaped.
    """
    aligned = images.dtype == torch.uint8 and patch_size % 8 == images.storage_offset() % 8 == 0
    if aligned and images.is_contiguous():
        # Eight bytes of a patch's row at once, where workers cut what files held; one row of patches is a mere view.
        return _cut(images.view(torch.int64), patch_size, patch_size // 8).contiguous().view(torch.uint8)
    return _cut(images, patch_size, patch_size)


def _cut(images: Tensor, tall: int, wide: int) -> Tensor:
    """`patchify` of patches of `tall` by `wide` values."""
    batch, channels, height, width = images.shape
    rows, cols = height // tall, width // wide
    cut = images.reshape(batch, channels, rows, tall, cols, wide)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * cols, channels * tall * wide)


def unpatchify(patches: Tensor, grid: Grid, patch_size: int) -> Tensor:
    """The inverse of `patchify`: [batch, rows * cols, channels * patch_size**2] to images."""
    batch, channels = patches.shape[0], patches.shape[-1] // patch_size**2
    cut = patches.reshape(batch, grid.rows, grid.cols, channels, patch_size, patch_size)
    return cut.permute(0, 3, 1, 4, 2, 5).reshape(batch, channels, grid.rows * patch_size, grid.cols * patch_size)


def nearest_multiples(side: int, patch_size: int) -> list[int]:
    """The multiples of the patch that are nearest to a side in pixels: itself, or those below and above."""
    below = side // patch_size * patch_size
    return [below] if below == side else [size for size in (below, below + patch_size) if size > 0]


def check_multiples(what: str, sides: Sequence[int], patch_size: int) -> None:
    """Refuse sides in pixels that the patch does not divide.

    Args:
        what: has these sides, as "resolution {}": the first wrong one is put in.

    Raises:
        InputError: says the first that is none, and the nearest that are.
    """
    for side in sides:
        if side % patch_size:
            near = f"nearest to {side}: {' or '.join(map(str, nearest_multiples(side, patch_size)))}"
            raise InputError(f"{what.format(side)}: must be a multiple of patch_size {patch_size} ({near})")


def grid_after_fit(height: int, width: int, patch_size: int, fit: Fit = "exact") -> Grid:
    """The grid that `fit_to_patches` gives an image of this size in pixels, without an image.

    Raises:
        InputError: as `fit_to_patches`.
    """
    # Sizes may be symbolic: words of them are made where one is refused, since a compiler holds them fixed there.
    if height < 1 or width < 1:
        raise InputError(f"image of {height}x{width} pixels: both sides must be at least 1")
    if fit == "exact" and (height % patch_size or width % patch_size):
        heights, widths = (nearest_multiples(side, patch_size) for side in (height, width))
        raise InputError(
            f"image of {height}x{width} pixels: the sides must be multiples of the patch size {patch_size} "
            f"(nearest: {', '.join(f'{h}x{w}' for h in heights for w in widths)}), or pass fit='pad' or fit='resize' "
            "to create_model, with init_from for a model that is there"
        )
    if fit == "resize":
        # As `round`, in whole numbers: a side may be beyond what a float holds, or symbolic.
        twice = 2 * patch_size
        return Grid(
            *(max(1, (2 * side + patch_size - 1 + side // patch_size % 2) // twice) for side in (height, width))
        )
    if fit == "crop":
        if min(height, width) < patch_size:
            raise InputError(f"image of {height}x{width} pixels: holds no whole patch of {patch_size}x{patch_size}")
        return Grid(height // patch_size, width // patch_size)
    return Grid(-(-height // patch_size), -(-width // patch_size))


def fit_to_patches(images: Tensor, patch_size: int, fit: Fit = "exact") -> tuple[Tensor, Grid]:
    """Make both sides multiples of the patch.

    Args:
        images: [batch, channels, height, width].
        fit: `exact` refuses other sizes; `pad` adds zeros at the bottom and right (timm's `dynamic_img_pad`);
            `resize` scales each side to the nearest multiple (bilinear, antialiased); `crop` passes over the pixels
            beyond the last whole patch at the bottom and right, as a convolution does.

    Returns:
        The images, and their grid.

    Raises:
        InputError: a side is 0, or is not a multiple and `fit` is `exact`; names the nearest sizes. Or `fit` is
            `crop` and there is no whole patch.
    """
    height, width = images.shape[-2:]
    if fit == "resize" and not (height % patch_size or width % patch_size):
        # Sizes that are left alone may be symbolic.
        fit = "exact"
    sides = [side * patch_size for side in grid_after_fit(height, width, patch_size, fit)]
    if fit == "pad":
        images = F.pad(images, (0, sides[1] - width, 0, sides[0] - height))
    elif fit == "crop":
        images = images[..., : sides[0], : sides[1]]
    elif fit == "resize":
        # In float32: torch has no antialiased resize of 16-bit images on a CPU.
        wide = images.float() if images.dtype.itemsize < 4 else images
        wide = F.interpolate(wide, size=sides, mode="bilinear", align_corners=False, antialias=True)
        images = wide.to(images.dtype)
    return images, Grid(images.shape[-2] // patch_size, images.shape[-1] // patch_size)


@dataclass(frozen=True)
class Patchifier:
    """The half of an embedder that workers run: images to flat rows of values, without weights, and small to pickle.

    This one cuts patches; a plug-in's may do otherwise. The values of a row stand channel by channel, so that a
    channel's mean and deviation hold for an equal run of them. Its grids have so many `axes`: 3 where it cuts clips too
    (`tubelets`).
    """

    axes: ClassVar[int] = 2
    patch_size: int
    channels: int = 3
    fit: Fit = "exact"

    @property
    def patch_dim(self) -> int:
        """Of a row."""
        return self.channels * self.patch_size**2

    def grid_of(self, height: int, width: int) -> Grid:
        """The grid of an image of this size in pixels, without an image; raises InputError as the call does."""
        return grid_after_fit(height, width, self.patch_size, self.fit)

    def __call__(self, images: Tensor) -> tuple[Tensor, Grid]:
        """[batch, channels, height, width] of any dtype to [batch, cells, values] in row-major order, and the grid.

        Raises:
            InputError: as `fit_to_patches`.
        """
        images, grid = fit_to_patches(images, self.patch_size, self.fit)
        return patchify(images, self.patch_size), grid

    def valid_size(self, height: int, width: int) -> tuple[int, int] | None:
        """The size of an image again, where its rows hold more than its pixels and whoever embeds them must know which
        are its own; None where nobody asks."""
        return None

    def unpatchify(self, rows: Tensor, grid: Grid) -> Tensor:
        """The images, after `fit`, that were cut into these rows."""
        return unpatchify(rows, grid, self.patch_size)


@dataclass(frozen=True)
class RectPatchifier(Patchifier):
    """Patches of `sides` (height, width) pixels, for images of which both are multiples; `patch_size` says nothing."""

    sides: tuple[int, int] = (16, 16)

    def __post_init__(self) -> None:
        if self.fit != "exact":
            raise InputError(
                f"fit {self.fit}: fits images to square patches (expected exact for those of {self.sides})"
            )

    @property
    def patch_dim(self) -> int:
        return self.channels * self.sides[0] * self.sides[1]

    def grid_of(self, height: int, width: int) -> Grid:
        tall, wide = self.sides
        if height < tall or width < wide or height % tall or width % wide:
            raise InputError(
                f"image of {height}x{width} pixels: must be multiples of the patch of {tall}x{wide} pixels"
            )
        return Grid(height // tall, width // wide)

    def __call__(self, images: Tensor) -> tuple[Tensor, Grid]:
        grid = self.grid_of(*images.shape[-2:])
        return _cut(images, *self.sides), grid

    def unpatchify(self, rows: Tensor, grid: Grid) -> Tensor:
        cut = rows.reshape(rows.shape[0], grid.rows, grid.cols, self.channels, *self.sides)
        return cut.permute(0, 3, 1, 4, 2, 5).reshape(
            rows.shape[0], self.channels, *map(math.prod, zip(grid, self.sides, strict=True))
        )


def check_channels(channels: int, model: str = "model") -> None:
    """Raise InputError for a model, called so, that takes neither grey images nor RGB."""
    if channels not in (1, 3):
        raise InputError(
            f"{model}: takes images of {channels} channels, and they can be prepared for 1 (grey) or 3 (RGB); call it "
            f"from Python with tensors [batch, {channels}, height, width] of your own"
        )


def to_channels(image: np.ndarray, channels: int) -> np.ndarray:
    """RGB pixels [..., 3] as a model of 3 channels or 1 takes them: [..., channels]. Grey is Pillow's `convert("L")`
    (ITU-R 601-2); floating point stays so."""
    if channels == 3:
        return image
    if image.dtype != np.uint8:
        return image @ np.array([[0.299], [0.587], [0.114]], image.dtype)
    grey = image @ np.array([19595, 38470, 7471], np.uint32)
    return ((grey + 0x8000) >> 16).astype(np.uint8)[..., None]


@dataclass(frozen=True)
class ImagePatchifier:
    """From an image to flat rows of values from 0 to 255, as workers make them: by an embedder's half without weights.

    Attributes:
        patchifier: the embedder's half.
        mean: of each channel in [0, 1], by which images are normalised: what is added to them becomes 0.
    """

    patchifier: Patchifier
    mean: tuple[float, ...]

    def of_patches(self, patch_size: int | None) -> ImagePatchifier:
        """The same that cuts patches of another size; None leaves it as it is."""
        return self if patch_size is None else replace(self, patchifier=replace(self.patchifier, patch_size=patch_size))

    def __call__(self, image: np.ndarray) -> tuple[Tensor, Grid]:
        """uint8 [height, width, 3], or a clip [frames, height, width, 3], to [cells, values], uint8, or float32 where
        the image had to be fitted. For a model of one channel the image is turned grey.

        Raises:
            InputError: a clip for an embedder of images; or as the patchifier.
        """
        image = to_channels(image, self.patchifier.channels)
        if image.ndim > 3 and self.patchifier.axes < 3:
            raise InputError(f"clip of {len(image)} frames: this model's embedder cuts images (expected tubelets)")
        pixels = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, 0))).unsqueeze(0)
        side = self.patchifier.patch_size
        if self.patchifier.fit in ("exact", "crop") or not (image.shape[-3] % side or image.shape[-2] % side):
            rows, grid = self.patchifier(pixels)
            return rows[0], grid
        shift = 255 * torch.tensor(self.mean).view(-1, 1)
        rows, grid = self.patchifier(pixels - shift.view(-1, *(1,) * (pixels.dim() - 2)))
        return (rows[0].unflatten(-1, (len(self.mean), -1)) + shift).flatten(-2), grid
