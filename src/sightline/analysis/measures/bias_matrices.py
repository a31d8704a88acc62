"""What is added to the scores of every pair of patches (LookHere figure 2 centre)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import ClassVar

import numpy as np

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.of_weights import MOST_BYTES, WeightMeasure, refuse_larger
from sightline.analysis.views import bias_matrix, refuse_unbiased
from sightline.models import Model
from sightline.tokens.grid import Grid


class BiasMatrices(WeightMeasure):
    """The bias of each head of each layer on all pairs of patches of a small grid.

    Of a larger grid `fields_of_view` and `visible_from` give what one patch sees.
    """

    name: ClassVar[str] = "bias_matrices"
    by_default: ClassVar[bool] = False
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "bias": MeasuredQuantity(
            ("layer", "head", "query", "key"),
            "",
            "what is added to the score before the softmax, -inf where it is masked; patches in row-major order; "
            "prefix tokens are neither rows nor columns",
        ),
        "visible_share": MeasuredQuantity(
            ("layer", "head"), "fraction", "of the pairs of patches, that are not masked; prefix tokens have no part"
        ),
    }

    @classmethod
    def check(cls, model: Model) -> None:
        refuse_unbiased(cls.name, model)

    def refuse_grid(self, grid: Grid) -> None:
        side = isqrt(isqrt(MOST_BYTES // (4 * self.model.config.depth * self.model.config.heads)))
        refuse_larger(self.name, self.model, grid, 4 * grid.cells**2, side)

    def of_grid(self, grid: Grid) -> dict[str, np.ndarray]:
        bias = np.stack([bias_matrix(self.model, layer, grid) for layer in range(self.model.config.depth)])
        return {"bias": bias, "visible_share": (bias > -np.inf).mean((2, 3))}
