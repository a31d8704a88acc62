"""One record of some images and what is said of them: uniform, packed and dropped alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.packing import padded_length
from sightline.data.skip_policy import Unreadable
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout


@dataclass(frozen=True, eq=False)
class Batch:
    """Images as flat patches, where these stand, and what is said of each.

    Attributes:
        inputs: [rows, slots, channels * patch_size**2], as the embedder's half of the workers makes them: uint8, or
            float32 from 0 to 255 where an image was fitted. Slots are those of patches and of padding.
        layout: where they stand, with the model's prefix tokens.
        targets: by name what a task made of the images' targets: tensors, or groups and lists of them.
        indices: torch.int64 [images], of each image in its split.
        names, slices: as `Example`.
        left_out: images that belong here and cannot be read; none of the others takes their place.
    """

    inputs: Tensor
    layout: TokenLayout
    targets: Mapping[str, Any]
    indices: Tensor
    names: list[str]
    slices: list[Mapping[str, str | float]]
    left_out: tuple[Unreadable, ...] = ()

    def __len__(self) -> int:
        """The number of images."""
        return len(self.names)

    def pin_memory(self) -> Self:
        """The same with its tensors in pinned memory, from which a GPU fetches them while it computes: what torch's
        loader calls; needs CUDA."""
        return self._with(lambda tensor: tensor.pin_memory(), self.layout)

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=True), self.layout.to(device))

    def _with(self, change: Any, layout: TokenLayout) -> Self:
        inputs, targets, indices = (map_tensors(one, change) for one in (self.inputs, self.targets, self.indices))
        return dataclasses.replace(self, inputs=inputs, targets=targets, indices=indices, layout=layout)


def map_tensors(tree: Any, change: Any) -> Any:
    """A tree of groups, lists and tensors with every tensor changed: of targets, or of what a model gives."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {name: map_tensors(one, change) for name, one in tree.items()}
    return [map_tensors(one, change) for one in tree] if isinstance(tree, list | tuple) else tree


def is_finite(tree: Any) -> bool:
    """Whether every number of such a tree is."""
    finite: list[bool] = []
    # A sum is finite only where all are, and many times as fast; a sum beyond what its type holds tells nothing.
    map_tensors(tree, lambda tensor: finite.append(bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())))
    return all(finite)


def normalize(inputs: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Flat patches [..., channels * patch_size**2] of values from 0 to 255 as a model takes them: float32, or float64
    where they are. Gradients go through it."""
    kind = torch.float64 if inputs.dtype == torch.float64 else torch.float32
    shift, scale = (torch.tensor(values, dtype=kind, device=inputs.device).unsqueeze(-1) for values in (mean, std))
    channels = inputs.to(kind, copy=True).unflatten(-1, (len(mean), -1))
    return channels.div_(255).sub_(shift).div_(scale).flatten(-2)


PatchIndices = Sequence[np.ndarray | None]
Pixels = Sequence[tuple[int, int] | None]
CollatedTokens = tuple[Tensor, TokenLayout]


def collate_uniform(
    images: Sequence[Tensor],
    grids: Sequence[Grid],
    patch_indices: PatchIndices,
    num_prefix_tokens: int,
    pixels: Pixels | None = None,
) -> CollatedTokens:
    """Images of one grid (and of one size, where `pixels` has sizes as `collate_packed`), one a row, all patches."""
    size = pixels[0] if pixels else None
    assert len(set(grids)) == 1
    assert all(one == size for one in pixels or ())
    layout = TokenLayout.uniform(grids[0], len(images), num_prefix_tokens=num_prefix_tokens, pixels=size)
    return torch.stack(list(images)), layout


def collate_packed(
    images: Sequence[Tensor],
    grids: Sequence[Grid],
    patch_indices: PatchIndices,
    num_prefix_tokens: int,
    pixels: Pixels | None = None,
    padded: Sequence[int] | None = None,
) -> CollatedTokens:
    """Images of any grids in one row, of each the patches that are kept, by their row-major numbers, int64 and rising,
    or all.

    Args:
        pixels: for each image what `Patchifier.valid_size` says of it; None for all.
        padded: rising lengths of slots, to the least of which that holds it the row is padded.
    """
    layout = TokenLayout.packed(grids, num_prefix_tokens=num_prefix_tokens, pixels=pixels)
    patches = [
        torch.arange(grid.cells) if one is None else torch.from_numpy(one)
        for one, grid in zip(patch_indices, grids, strict=True)
    ]
    # Whole images stay whole: back ends know more of them than of what is left of others.
    if any(len(one) < grid.cells for one, grid in zip(patches, grids, strict=True)):
        layout = layout.keep(patches)
    pairs = zip(images, patches, strict=True)
    row = torch.cat([image if len(one) == len(image) else image[one] for image, one in pairs])
    if padded is not None:
        layout = layout.pad_to(padded_length(layout.slots, padded))
        row = F.pad(row, (0, 0, 0, layout.padding))
    return row.unsqueeze(0), layout
