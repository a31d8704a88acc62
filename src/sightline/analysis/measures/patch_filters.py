"""What the patch embedding looks for: principal components of its filters (ViT section 4.5, figure 7 left)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.of_weights import WeightMeasure
from sightline.errors import InputError
from sightline.io.config import Count, check_value
from sightline.models import Model
from sightline.models.embedders.flexible import FlexiblePatchEmbed
from sightline.tokens.grid import Grid

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
    """The filters, [dim, channels * patch_size**2].

    Raises:
        InputError: the embedder has no linear layer over patches.
    """
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
