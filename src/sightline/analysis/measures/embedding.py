"""What is made of patches before the first layer: the filters of the patch embedding, and how alike the positions'
embeddings are (ViT section 4.5, figures 7 and 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.of_weights import WeightMeasure
from sightline.errors import InputError
from sightline.io.config import Count, check_value, whole
from sightline.models import Model
from sightline.models.embedders.flexible import FlexiblePatchEmbed
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

MOST_PAIRS = 4 << 20
"""Pairs of patches: all of a grid of up to 2,048; of a larger one the queries are fewer."""
# How near to the largest weight another counts as large: weights that mirror each other differ by rounding.
_AS_LARGE = 0.99


class PatchFilters(WeightMeasure):
    """Principal components of the filters that make tokens of patches, the same at every size.

    The weight W [dim, values of a patch] has a filter a row; of the rows less their mean, the right singular vectors
    v_k are the components, and s_k^2 / sum s^2 is each one's share of the variance. The first of a component's largest
    weights is positive, so that a sign hangs on the weights alone.
    """

    name: ClassVar[str] = "patch_filters"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "filters": MeasuredQuantity(
            ("component", "patch_row", "patch_col", "channel"),
            "",
            "principal components of the patch embedding's filters, of length 1, over normalised pixels; "
            "tokens, prefix tokens and masks have no part in it",
        ),
        "pictures": MeasuredQuantity(
            ("component", "patch_row", "patch_col", "channel"),
            "fraction",
            "the same scaled to [0, 1], to be seen: 0.5 is a weight of 0, and the largest weight is 0 or 1",
            "maps",
        ),
        "variance": MeasuredQuantity(("component",), "fraction", "of the filters' variance, that the component has"),
    }

    def __init__(self, model: Model, components: int = 28) -> None:
        super().__init__(model)
        check_value("components", components, Count)
        self.components = components

    @classmethod
    def check(cls, model: Model) -> None:
        _weight(model)

    def of_grid(self, grid: Grid) -> dict[str, np.ndarray]:
        weight, patch = _weight(self.model).double().cpu(), self.model.config.patch_size
        centred = weight - weight.mean(0)
        _, values, components = torch.linalg.svd(centred, full_matrices=False)
        components = signed(components[: self.components])
        power = values.square()
        total = power.sum()
        variance = torch.where(total > 0, power / total, 0)[: self.components]
        # Flat patches are (channel, y, x); pictures have their channels last.
        filters = components.unflatten(1, (-1, patch, patch)).permute(0, 2, 3, 1)
        largest = filters.abs().amax((1, 2, 3), keepdim=True)
        return {
            "filters": filters.float().numpy(),
            "pictures": (0.5 + filters / (2 * largest)).float().numpy(),
            "variance": variance.numpy(),
        }


def signed(components: Tensor) -> Tensor:
    """Vectors [n, values] turned so that the first of the largest entries of each is positive."""
    large = components.abs() >= _AS_LARGE * components.abs().amax(1, keepdim=True)
    first = components.gather(1, large.int().argmax(1, keepdim=True))
    return torch.where(first < 0, -components, components)


def _weight(model: Model) -> Tensor:
    """The filters, [dim, channels * patch_size**2]."""
    embedder, config = model.patch_embed, model.config
    if isinstance(embedder, FlexiblePatchEmbed):
        # Of the patches in use.
        return embedder.kernel(embedder.patch_size).detach()
    proj = getattr(embedder, "proj", None)
    pixels = (config.dim, config.channels, config.patch_size, config.patch_size)
    flat = isinstance(proj, nn.Linear) and proj.in_features == math.prod(pixels[1:])
    # A projection of a stem's map may be as wide by chance.
    if not flat or embedder.kernel_of(config) != pixels:
        raise InputError(
            f"patch_filters: embedder {config.embedder} has no linear layer over flat patches (expected patches)"
        )
    return proj.weight.detach()  # type: ignore[union-attr]


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
        """Args: layer: before which they are added; InputError where nothing is."""
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
