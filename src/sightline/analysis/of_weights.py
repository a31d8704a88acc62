"""Measures of the weights and the encoding alone: of a model and a grid, with no image and no pass."""

from __future__ import annotations

from abc import abstractmethod
from math import isqrt
from typing import Any

import numpy as np
import torch

from sightline.analysis.analyse import analysis_of
from sightline.analysis.found import Analysis
from sightline.analysis.images import NATIVE, Images, Size, Sizes, batches_by_size, sizes_of
from sightline.analysis.measures.base import Measure
from sightline.data.batch import Batch
from sightline.errors import InputError
from sightline.io.read import format_bytes
from sightline.models import Model
from sightline.tokens.grid import Grid

MOST_BYTES = 64 << 20
"""Of one array that has the heads of all layers among its axes."""


class WeightMeasure(Measure):
    """A measure that looks at no image: it takes note of the grid, from a batch or without one.

    Where images have grids of their own (native sizes), it is of the first one's.
    """

    grid: Grid | None = None

    def begin(self, batch: Batch) -> None:
        self.measure_grid(batch.layout.segments[0].grid)

    def measure_grid(self, grid: Grid) -> None:
        """Be of this grid, if of none yet.

        Raises:
            InputError: it has not two axes, or is too large for this measure.
        """
        if self.grid is None:
            self.refuse_grid(grid.planar(self.name))
            self.grid = grid

    def refuse_grid(self, grid: Grid) -> None:
        """Raise InputError for a grid of which it cannot be; says what it can be of."""

    @abstractmethod
    def of_grid(self, grid: Grid) -> dict[str, np.ndarray]:
        """The arrays of `quantities` on a grid."""

    def arrays(self) -> dict[str, np.ndarray]:
        if self.grid is None:
            return {name: np.zeros([0] * len(one.axes)) for name, one in self.quantities.items()}
        with torch.inference_mode():
            return self.of_grid(self.grid)


def read_from_weights(
    model: Model,
    measure: type[WeightMeasure],
    images: Images | None,
    sizes: Sizes = None,
    *,
    called: str = "",
    **options: Any,
) -> Analysis:
    """What a measure of the weights finds in a model, on the grid of each size; nothing runs through the model.

    Args:
        images: None, or as `batches_by_size`: they only say which sizes there are.
        sizes: as `sizes_of`; None is the training size, or that of images that have one.
        called: what the model is called; its encoding unless given.
        **options: of the measure.

    Raises:
        InputError: the measure is not for this model or this grid, a size is none that the patch divides, or is
            `native` without images.
    """
    measure.check(model)
    batches = dict.fromkeys(sizes_of(model, sizes), ()) if images is None else batches_by_size(model, images, sizes)
    arrays: dict[Size, dict[str, np.ndarray]] = {}
    for size, those in batches.items():
        one = measure(model, **options)
        if size != NATIVE:
            one.measure_grid(model.patch_embed.patchifier.grid_of(*size))
        elif (first := next((batch for batch in those if len(batch)), None)) is not None:
            one.begin(first)
        else:
            raise InputError("size 'native': is that of images, and there are none (expected a side in pixels)")
        arrays[size] = one.arrays()
    # As JSON keeps them.
    asked = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    asked = {key: value for key, value in asked.items() if not isinstance(value, np.ndarray)}
    return analysis_of(model, measure.name, dict.fromkeys(arrays, ()), arrays, called=called, **asked)


def refuse_larger(what: str, model: Model, grid: Grid, *, pairs: bool = False) -> None:
    """Refuse a grid where an array of all heads by its patches, or by `pairs` of them, would be above `MOST_BYTES`.

    Raises:
        InputError: says what it would take, and the largest square that fits.
    """
    layers, heads, most = model.config.depth, model.config.heads, format_bytes(MOST_BYTES)
    needed = layers * heads * 4 * grid.cells ** (2 if pairs else 1)
    if needed > MOST_BYTES:
        cells = MOST_BYTES // (4 * layers * heads)
        side = isqrt(isqrt(cells) if pairs else cells)
        raise InputError(
            f"{what} on {grid.rows}x{grid.cols} patches: {layers} layers of {heads} heads would take "
            f"{format_bytes(needed)} (expected at most {most}: {side}x{side} patches)"
        )
