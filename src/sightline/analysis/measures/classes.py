"""How well the right class can be read from a token (LookHere figure 13; Vilas et al. 2023), and from patches on the
object beside those that are not (figure 14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.labels import InPatches, in_patches, required
from sightline.analysis.measures.base import MeasuredQuantity, PerImage
from sightline.analysis.measures.logit_lens import OfClassifier, lens, of_images, pooled_logits
from sightline.data.batch import Batch
from sightline.models import Model
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout

_RULE = (
    "a patch is on the object where more than half of its pixels, of those of which something is said, have the "
    "image's class; no prefix token is a patch"
)


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


class ClassIdentifiability(OfClassifier):
    """How far up the right class stands in what the class token, and each patch, says by itself, layer by layer."""

    name: ClassVar[str] = "class_identifiability"
    needs: ClassVar[tuple[str, ...]] = ("label",)
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "class_token": MeasuredQuantity(
            ("image", "layer"),
            "fraction",
            "of what the head reads, as if the layer were the last: the CLS token, or where there is none to be read "
            "the mean or the probe's answer; by the rank of the right class's logit: 1 the highest, 0 the lowest, of "
            "4 classes 2/3 the second; what tokens hold of each other is what the model's own masks let through",
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


class ClassPatches(OfClassifier):
    """The class identifiability of patches on the object and of those that are not, image by image; an image that has
    none of a kind is nan there, and left out of means."""

    name: ClassVar[str] = "class_patches"
    needs: ClassVar[tuple[str, ...]] = ("label", "pixels")
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "on_object": MeasuredQuantity(
            ("image", "layer"), "fraction", f"the mean over patches on the object, NaN where there is none; {_RULE}",
            "layers"
        ),
        "off_object": MeasuredQuantity(
            ("image", "layer"), "fraction", f"the mean over the others, NaN where there is none; {_RULE}", "layers"
        ),
        "patches_on": MeasuredQuantity(("image",), "", "how many patches are on the object"),
        "patches_off": MeasuredQuantity(
            ("image",), "", "how many are not; a patch of which nothing is said counts in neither"
        ),
    }  # fmt: skip

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.sums = PerImage(model.config.depth, 2)
        self.counts: list[tuple[int, int]] = []
        self.labels: Tensor | None = None
        self.kinds: list[tuple[Tensor, Tensor]] = []

    def begin(self, batch: Batch) -> None:
        self.labels = labels = required(batch, "label", self.name)
        required(batch, "pixels", self.name)
        self.sums.begin(batch.layout.images)
        device, self.kinds = batch.layout.device, []
        patches = [segment.patches for segment in batch.layout.segments] * batch.layout.rows
        masks = in_patches(batch, self.model.config)
        for mask, label, count in zip(masks, labels.tolist(), patches, strict=True):
            on, off = (torch.from_numpy(one).to(device) for one in on_object(mask, label, count))
            self.kinds.append((on, off))
            self.counts.append((int(on.sum()), int(off.sum())))

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        if layer < 0:
            return
        assert self.labels is not None
        found = of_patches(self.model, tokens, layout, self.labels)
        sums = [torch.stack([one[on].sum(), one[off].sum()]) for one, (on, off) in zip(found, self.kinds, strict=True)]
        self.sums.add(torch.arange(layout.images), layer, torch.stack(sums))

    def arrays(self) -> dict[str, np.ndarray]:
        counts = np.array(self.counts, np.int64).reshape(-1, 2)
        sums = self.sums.values
        there = np.broadcast_to(counts[:, None] > 0, sums.shape)
        means = np.divide(sums, counts[:, None], out=np.full(sums.shape, np.nan), where=there)
        return {
            "on_object": means[..., 0],
            "off_object": means[..., 1],
            "patches_on": counts[:, 0],
            "patches_off": counts[:, 1],
        }


def on_object(mask: InPatches, label: int, patches: int) -> tuple[np.ndarray, np.ndarray]:
    """Which patches of an image are on the object, and which are not: bool [patches] each, never both; neither where
    nothing is said of any pixel."""
    said = np.bincount(mask.patches, mask.counts, patches)
    own = np.bincount(mask.patches, mask.counts * (mask.classes == label), patches)
    on = 2 * own > said
    return on, (said > 0) & ~on
