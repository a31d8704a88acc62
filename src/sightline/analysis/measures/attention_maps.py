"""Where one query looks, averaged over images: attention maps (LookHere figures 8 and 18 to 27)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.analysis.places import CENTRE, Place, cell_of, checked_place
from sightline.data.batch import Batch
from sightline.errors import InputError
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.segment import Segment, row_major_index

_WORDS = (
    "averaged over images; rows: the query alone; columns: patches, as attention gives it: what prefix tokens get is "
    "missing from the sum of 1; 0 where masked, NaN where no image has the patch"
)


class AttentionMaps(Measure):
    """What a patch attends to by head and layer, what the first prefix token does, and what attention pooling does.

    All images of a size share one grid. An image whose patch that asks was dropped does not count for it.
    """

    name: ClassVar[str] = "attention_maps"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "map": MeasuredQuantity(
            ("layer", "head", "row", "col"),
            "fraction",
            f"of one patch, that in the middle unless `query` says another; {_WORDS}",
            "maps",
        ),
        "map_prefix": MeasuredQuantity(
            ("layer", "head", "row", "col"),
            "fraction",
            f"of the first prefix token, CLS where there is one, if the model has any; {_WORDS}",
            "maps",
        ),
        "pooling": MeasuredQuantity(
            ("head", "row", "col"), "fraction", f"of the probe of attention pooling, if the model has one; {_WORDS}"
        ),
    }

    def __init__(self, model: Model, query: Place = CENTRE) -> None:
        """Args: query: where the patch that asks stands, (y, x) from 0 to 1 of the image.

        Raises:
            InputError: it is not from 0 to 1.
        """
        super().__init__(model)
        self.query = checked_place("attention_maps: query", query)
        self.grid: Grid | None = None
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}

    def begin(self, batch: Batch) -> None:
        for segment in batch.layout.segments:
            if self.grid is None:
                self.grid = segment.grid
            if segment.grid != self.grid:
                given, expected = (" x ".join(map(str, grid)) for grid in (segment.grid, self.grid))
                raise InputError(f"attention_maps: an image of {given} patches beside one of {expected} (expected one "
                                 "grid at a size: give sizes, not native)")  # fmt: skip

    def queries(self, segment: Segment, prefix: int) -> Sequence[int]:
        places = (segment.indices == cell_of(segment.grid, self.query)).nonzero()[:, 1] + prefix
        return [*([0] if prefix else []), *places.unique().tolist()]

    def attention(self, block: AttentionBlock) -> None:
        before, keys = block.prefix_queries, row_major_index(block.keys, block.grid)
        keys = keys.expand(len(block.images), -1)
        if before and block.first == 0:
            name = "pooling" if block.layer is None else "map_prefix"
            self._add(name, block.layer, block.attention[:, :, 0, block.prefix_keys :], keys)
        asks = row_major_index(block.queries, block.grid) == cell_of(block.grid, self.query)
        rows, places = asks.expand(len(block.images), -1).nonzero().unbind(-1)
        if len(rows):
            self._add("map", block.layer, block.attention[rows, :, places + before, block.prefix_keys :], keys[rows])

    def _add(self, name: str, layer: int | None, weights: Tensor, keys: Tensor) -> None:
        """Weights [images, heads, patches] of patches of these row-major indices [images, patches]."""
        assert self.grid is not None
        heads, layers = weights.shape[1], 1 if layer is None else self.model.config.depth
        if name not in self._sums:
            like = {"dtype": torch.float64, "device": weights.device}
            self._sums[name] = torch.zeros(layers, heads, self.grid.cells, **like)
            self._counts[name] = torch.zeros(layers, 1, self.grid.cells, **like)
        ones = torch.ones(1, keys.numel(), dtype=torch.float64, device=weights.device)
        self._counts[name][layer or 0].index_add_(1, keys.flatten(), ones)
        self._sums[name][layer or 0].index_add_(1, keys.flatten(), weights.double().transpose(0, 1).flatten(1))

    def arrays(self) -> dict[str, np.ndarray]:
        config, grid = self.model.config, (0, 0) if self.grid is None else tuple(self.grid)
        # Where no image had the patch that asks, nothing was added.
        found = {"map": np.full((config.depth, config.heads, *grid), np.nan)}
        for name, total in self._sums.items():
            array = (total / self._counts[name]).unflatten(-1, grid).cpu().numpy()
            found[name] = array[0] if name == "pooling" else array
        return found
