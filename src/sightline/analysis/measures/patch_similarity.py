"""How alike patches are: the mean cosine of two patches of an image (LookHere A.8, figures 15 and 17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.data.batch import Batch
from sightline.models import Model
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout


class PatchSimilarity(Measure):
    """The mean cosine similarity of two different patches of an image, layer by layer.

    No pair of patches is looked at: of unit vectors u the pairs' sum is |sum u|^2 - sum |u|^2, in O(patches x dim).
    Prefix tokens are in no pair, nor are patches that were dropped, nor a patch with itself (the paper does not say;
    with these it would be nearer 1, by (1 - similarity) / patches). A patch whose features are all 0 is like no other.
    """

    name: ClassVar[str] = "patch_similarity"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "similarity": MeasuredQuantity(
            ("image", "layer"),
            "cosine",
            "the mean over pairs of different patches, of what enters the first layer (-1) and of each layer's output; "
            "no prefix tokens",
            "layers",
        )
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.found: list[np.ndarray] = [np.zeros((0, model.config.depth + 1))]

    def begin(self, batch: Batch) -> None:
        self.found.append(np.full((batch.layout.images, self.model.config.depth + 1), np.nan))

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        each = [mean_cosine(patches) for patches in patch_tokens(tokens, layout)]
        self.found[-1][:, layer + 1] = torch.stack(each, dim=1).flatten().cpu().numpy()

    def arrays(self) -> dict[str, np.ndarray]:
        return {"similarity": np.concatenate(self.found)}


def mean_cosine(patches: Tensor) -> Tensor:
    """The mean cosine similarity of different patches.

    Args:
        patches: [rows, patches, dim].

    Returns:
        float64 [rows]; NaN of one patch, which is part of no pair.
    """
    count = patches.shape[1]
    unit = torch.nn.functional.normalize(patches.double(), dim=-1, eps=1e-300)
    pairs = unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))
    return pairs / (count * (count - 1)) if count > 1 else pairs.new_full(pairs.shape, torch.nan)
