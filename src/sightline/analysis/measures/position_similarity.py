"""How alike the positions' embeddings are (ViT section 4.5, figure 7 centre, and figure 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.of_weights import WeightMeasure
from sightline.errors import InputError
from sightline.io.config import check_value, whole
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

MOST_PAIRS = 4 << 20
"""Pairs of patches: all of a grid of up to 2,048; of a larger one the queries are fewer."""


class PositionSimilarity(WeightMeasure):
    """Cosine similarity of what is added to each patch with what is added to every other, on the grid of a size.

    s(i, j) = p_i . p_j / (|p_i| |p_j|), and 0 for an embedding of length 0.
    """

    name: ClassVar[str] = "position_similarity"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "similarity": MeasuredQuantity(
            ("query_row", "query_col", "row", "col"),
            "cosine",
            "of the embeddings that are added to patches before a layer, the first unless asked for another; prefix "
            f"tokens are neither rows nor columns; above {MOST_PAIRS:,} pairs of patches, queries at even steps; no "
            "mask has a part in it",
            "maps",
        ),
        "query_rows": MeasuredQuantity(("query_row",), "cells", "the grid's row of each query"),
        "query_cols": MeasuredQuantity(("query_col",), "cells", "the grid's column of each query"),
    }

    def __init__(self, model: Model, layer: int = 0) -> None:
        """Args: layer: before which they are added.

        Raises:
            InputError: there is no such layer, or nothing is added before it.
        """
        super().__init__(model)
        check_value("position_similarity: layer", layer, whole(0, model.config.depth - 1))
        if _added(model, model.config.train_grid, layer) is None:
            raise InputError(
                f"position_similarity: layer {layer}: encoding {model.config.encoding} adds nothing there (expected "
                "layer 0, or an encoding whose `at` is every or shared)"
            )
        self.layer = layer

    @classmethod
    def check(cls, model: Model) -> None:
        if _added(model, model.config.train_grid) is None:
            raise InputError(
                f"{cls.name}: encoding {model.config.encoding} adds no embedding to patches "
                "(expected one that does, as learned_1d or sincos_2d)"
            )

    def of_grid(self, grid: Grid) -> dict[str, np.ndarray]:
        added = _added(self.model, grid, self.layer)
        assert added is not None
        unit = F.normalize(added.float(), dim=-1)
        rows, cols = queries_of(grid)
        asking = unit.unflatten(0, tuple(grid))[rows][:, cols].flatten(0, 1)
        # Rounding leaves lengths a little above 1.
        similarity = (asking @ unit.T).clamp(-1, 1).reshape(len(rows), len(cols), *grid)
        return {
            "similarity": similarity.cpu().numpy(),
            "query_rows": np.array(rows, dtype=np.int64),
            "query_cols": np.array(cols, dtype=np.int64),
        }


def _added(model: Model, grid: Grid, layer: int = 0) -> Tensor | None:
    """What is added to the patches of a grid before a layer, [cells, dim], or None."""
    prefix = model.num_prefix_tokens
    layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=prefix, device=model.anchor.device)
    added = model.encoding.hooks.added(layer, layout)
    return None if added is None else added[0, prefix:]


def queries_of(grid: Grid) -> tuple[list[int], list[int]]:
    """The rows and the columns of the queries: all of a small grid; else each step-th of both, with the smallest step
    that leaves no more than `MOST_PAIRS` pairs, half a step from the edge."""
    step, most = 1, max(1, MOST_PAIRS // grid.cells)
    while -(-grid.rows // step) * -(-grid.cols // step) > most:
        step += 1
    rows, cols = (list(range(min((step - 1) // 2, side - 1), side, step)) for side in grid)
    return rows, cols
