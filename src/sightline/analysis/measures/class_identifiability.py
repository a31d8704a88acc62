"""How well the right class can be read from a token: class identifiability (LookHere figure 13; Vilas et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.labels import required
from sightline.analysis.measures.base import Measure, MeasuredQuantity, PerImage
from sightline.analysis.measures.logit_lens import check_classifier, lens, of_images, pooled_logits
from sightline.data.batch import Batch
from sightline.models import Model
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout


def identifiability(logits: Tensor, classes: Tensor) -> Tensor:
    """1 where the right class has the highest logit, 0 where it has the lowest: 1 - rank / (classes - 1), the rank
    counted from 0 at the highest (Vilas et al. 2023, section 3.1; LookHere figure 13 has 0 and 1 at the ends). Equal
    logits share the mean of their ranks.

    Args:
        logits: [..., classes]; classes: int64 [...], the right one of each.

    Returns:
        float64 [...]; 1 of a single class, nan where the class's logit is none.
    """
    own = logits.gather(-1, classes.unsqueeze(-1))
    above, equal = (logits > own).sum(-1), (logits == own).sum(-1)
    rank = above + (equal - 1).double() / 2
    found = 1 - rank / max(logits.shape[-1] - 1, 1)
    return torch.where(own.squeeze(-1).isnan(), torch.nan, found)


def of_patches(model: Model, tokens: Tensor, layout: TokenLayout, labels: Tensor) -> list[Tensor]:
    """The identifiability of its image's class at each patch of a layer, image by image.

    Args:
        tokens, layout: as `lens`; labels: int64 [images].

    Returns:
        float64 [patches] of each image, in the order of the batch.
    """
    logits = of_images(patch_tokens(lens(model, tokens, layout), layout))
    return [identifiability(one, label.expand(len(one))) for one, label in zip(logits, labels, strict=True)]


class ClassIdentifiability(Measure):
    """How far up the right class stands in what the class token, and each patch, says by itself, layer by layer."""

    name: ClassVar[str] = "class_identifiability"
    needs: ClassVar[tuple[str, ...]] = ("label",)
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "class_token": MeasuredQuantity(
            ("image", "layer"),
            "fraction",
            "of what the head reads, as if the layer were the last: the CLS token, or where there is none to be read "
            "the mean or the probe's answer; 1: the right class has the highest logit, 0: the lowest; what tokens hold "
            "of each other is what the model's own masks let through",
            "layers",
        ),
        "patches": MeasuredQuantity(
            ("image", "layer"), "fraction", "the mean over patches of each by itself; no prefix token", "layers"
        ),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.of_class_token, self.mean_of_patches = PerImage(model.config.depth), PerImage(model.config.depth)
        self.labels: Tensor | None = None

    @classmethod
    def check(cls, model: Model) -> None:
        check_classifier(model, cls.name)

    def begin(self, batch: Batch) -> None:
        self.labels = required(batch, "label", self.name)
        for one in (self.of_class_token, self.mean_of_patches):
            one.begin(batch.layout.images)

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        if layer < 0:
            return
        assert self.labels is not None
        images = torch.arange(layout.images)
        pooled = identifiability(pooled_logits(self.model, tokens, layout), self.labels)
        self.of_class_token.add(images, layer, pooled)
        patches = torch.stack([one.mean() for one in of_patches(self.model, tokens, layout, self.labels)])
        self.mean_of_patches.add(images, layer, patches)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"class_token": self.of_class_token.values, "patches": self.mean_of_patches.values}
