"""What tokens are like: how long and which stand out (Darcet et al. 2024, "Vision Transformers Need Registers", section
2), and how alike patches are (LookHere A.8, figures 15 and 17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sightline.analysis.measures.base import Measure, MeasuredQuantity, PerImage
from sightline.data.batch import Batch
from sightline.io.config import check_value
from sightline.models import Model
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout

_PATCHES = "of patches, dropped ones and prefix tokens apart; “in” is what enters the first layer"
_STATISTICS = ("mean_norm", "median_norm", "greatest_norm", "outliers")


class TokenNorms(Measure):
    """L2 norms of tokens as layers give them, before the final norm: of patches, and of each prefix token by itself.

    A patch is an outlier where its norm is more than `times` the median of its image's patches in that layer. Darcet et
    al. call tokens of DINOv2 outliers by one norm, 150, between the two humps of its histogram, some ten times apart; a
    multiple of the median is the same rule for any model, layer and precision, and no patch of an even image is one.

    Attributes:
        times: how often the median an outlier's norm is, at least 1.
    """

    name: ClassVar[str] = "token_norms"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "mean_norm": MeasuredQuantity(("image", "layer"), "", f"the mean {_PATCHES}", "layers"),
        "median_norm": MeasuredQuantity(
            ("image", "layer"), "", f"the median (of an even number, the middle of two) {_PATCHES}", "layers"
        ),
        "greatest_norm": MeasuredQuantity(("image", "layer"), "", f"the greatest {_PATCHES}", "layers"),
        "outliers": MeasuredQuantity(
            ("image", "layer"),
            "fraction",
            "of the image's patches, those whose norm is above a multiple of its median (3 unless another was asked "
            "for); prefix tokens are none",
            "layers",
        ),
        "prefix_norm": MeasuredQuantity(
            ("image", "layer", "prefix"), "", "of each prefix token, CLS first where there is one, then registers"
        ),
        "outlier_places": MeasuredQuantity(
            ("outlier", "place"), "", "the image, the layer (-1 first), the row and the column of each outlier"
        ),
    }

    def __init__(self, model: Model, *, times: float = 3.0) -> None:
        super().__init__(model)
        check_value("times", times, Annotated[float, Field(ge=1)])
        self.times = times
        self.images = 0
        layers = model.config.depth + 1
        self.found = {name: PerImage(layers) for name in _STATISTICS}
        self.found["prefix_norm"] = PerImage(layers, model.num_prefix_tokens)
        self.places: list[np.ndarray] = []

    def begin(self, batch: Batch) -> None:
        self.images += batch.layout.images
        for one in self.found.values():
            one.begin(batch.layout.images)

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        count, images = layout.num_prefix_tokens, len(layout.segments)
        norms = torch.linalg.vector_norm(tokens, dim=-1, dtype=torch.float64)
        for number, (image, segment) in enumerate(zip(layout.split(norms), layout.segments, strict=True)):
            prefix, patches = image[:, :count], image[:, count:]
            median = patches.quantile(0.5, dim=1)
            beyond = patches > self.times * median.unsqueeze(1)
            values = patches.mean(1), median, patches.amax(1), beyond.double().mean(1), prefix
            # Images are numbered row by row.
            numbers = torch.arange(number, layout.images, images)
            for name, value in zip(self.found, values, strict=True):
                self.found[name].add(numbers, layer + 1, value)
            rows, places = beyond.nonzero(as_tuple=True)
            coords = segment.coords.expand(layout.rows, -1, -1)[rows, places].cpu().numpy()
            which = self.images - layout.images + numbers.numpy()[rows.cpu().numpy()]
            self.places.append(np.column_stack((which, np.full(len(which), layer), coords)))

    def arrays(self) -> dict[str, np.ndarray]:
        places = np.concatenate([np.zeros((0, 2 + len(self.model.config.train_grid)), dtype=np.int64), *self.places])
        # By image, then by layer, as the patches stand.
        order = np.lexsort(places.T[::-1])
        return {**{name: one.values for name, one in self.found.items()}, "outlier_places": places[order]}


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
            "the mean over pairs of different patches, of what enters the first layer (“in”) and of each layer's "
            "output; no prefix tokens",
            "layers",
        )
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.found = PerImage(model.config.depth + 1)

    def begin(self, batch: Batch) -> None:
        self.found.begin(batch.layout.images)

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        each = torch.stack([mean_cosine(patches) for patches in patch_tokens(tokens, layout)], dim=1).flatten()
        self.found.add(torch.arange(layout.images), layer + 1, each)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"similarity": self.found.values}


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
