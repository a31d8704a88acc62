"""How far heads look: the mean distance that attention spans (ViT D.7 and figure 11, RoPE-ViT figure 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity, PerImage
from sightline.data.batch import Batch
from sightline.models import Model

_WORDS = "rows: patches; prefix tokens are no rows"


class AttentionDistance(Measure):
    """The distance from a patch to the patches that it looks at, weighted by attention and averaged over queries.

    Under a mask it is of what is visible: what a head cannot see has no weight.
    """

    name: ClassVar[str] = "attention_distance"
    supports_windows: ClassVar[bool] = True
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "distance": MeasuredQuantity(
            ("image", "layer", "head"),
            "cells",
            f"{_WORDS}, nor columns: the attention to patches is scaled to sum to 1",
            "layers",
        ),
        "distance_of_grid": MeasuredQuantity(
            ("image", "layer", "head"),
            "fraction",
            f"as distance, over the mean distance of two cells of the grid (1: it looks everywhere alike); {_WORDS}",
            "layers",
        ),
        "distance_pixels": MeasuredQuantity(("image", "layer", "head"), "px", "as distance, times the patch size"),
        "weighted_sum": MeasuredQuantity(
            ("image", "layer", "head"),
            "cells",
            f"the distances' sum weighted by attention as it is, which counts attention to prefix tokens as 0 "
            f"(LookHere figure 16); {_WORDS}",
        ),
        "to_prefix": MeasuredQuantity(
            ("image", "layer", "head"), "fraction", f"the attention that patches give to prefix tokens; {_WORDS}"
        ),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        shape = model.config.depth, model.config.heads
        self.distance, self.summed, self.patches, self.asking = (PerImage(*shape) for _ in range(4))
        self.scale: list[float] = []

    def begin(self, batch: Batch) -> None:
        for one in (self.distance, self.summed, self.patches, self.asking):
            one.begin(batch.layout.images)
        grids = [segment.grid for segment in batch.layout.segments]
        self.scale += [mean_distance(tuple(grid)) for grid in grids] * batch.layout.rows

    def attention(self, block: AttentionBlock) -> None:
        if block.layer is None:
            return
        summed = block.weighted(block.distance)
        to_patches = block.of_patches.sum(-1)
        # What a query gives to patches may round to nothing; it then looks at none.
        distance = torch.where(to_patches > 0, summed / to_patches, 0)
        self.distance.add(block.images, block.layer, distance.sum(-1))
        self.summed.add(block.images, block.layer, summed.sum(-1))
        self.patches.add(block.images, block.layer, to_patches.sum(-1))
        self.asking.add(block.images, block.layer, torch.full(to_patches.shape[:-1], to_patches.shape[-1]))

    def arrays(self) -> dict[str, np.ndarray]:
        asking = self.asking.values
        distance, scale = self.distance.values / asking, np.array(self.scale).reshape(-1, 1, 1)
        return {
            "distance": distance,
            "distance_of_grid": np.divide(distance, scale, out=np.zeros_like(distance), where=scale > 0),
            "distance_pixels": distance * self.model.config.patch_size,
            "weighted_sum": self.summed.values / asking,
            "to_prefix": 1 - self.patches.values / asking,
        }


def mean_distance(grid: tuple[int, ...]) -> float:
    """The mean Euclidean distance of two cells of a grid, drawn with replacement, in cells: what attention that is the
    same everywhere spans."""
    axes = [np.arange(1 - side, side) for side in grid]
    shifts = np.meshgrid(*axes, indexing="ij")
    # Of a displacement there are as many pairs as cells that stay inside.
    pairs = np.prod([side - np.abs(shift) for side, shift in zip(grid, shifts, strict=True)], axis=0)
    return float((np.sqrt(sum(shift.astype(float) ** 2 for shift in shifts)) * pairs).sum() / pairs.sum())
