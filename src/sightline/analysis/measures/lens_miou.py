"""How well what patches say by themselves segments an image: the logit lens's mIoU (LookHere figure 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from torch import Tensor

from sightline.analysis.labels import InPatches, in_patches, required
from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.analysis.measures.logit_lens import check_classifier, lens, of_images
from sightline.data.batch import Batch
from sightline.metrics.base import bootstrap_weights, percentile_interval
from sightline.metrics.iou import ConfusionCounts, class_ious, confusion_pairs
from sightline.models import Model
from sightline.models.head import patch_tokens
from sightline.tokens.layout import TokenLayout

_RULE = (
    "a pixel is said to be what its patch says: the highest logit, of the classes that masks may show; pixels of no "
    "class (the background) and those of which nothing is said are left out; prefix tokens are no patches"
)


class LensMiou(Measure):
    """Mean IoU of what the logit lens says of each patch, at the labels' own pixels (nearest).

    IoU is of the pixels that have a class: those rightly called so over those called so or that are so. The mean is
    over the classes that are there; where a class is called so that is nowhere, those whose pixels it takes lose them.
    A classifier has no class for the background, and none is made up for it by a threshold.
    """

    name: ClassVar[str] = "lens_miou"
    needs: ClassVar[tuple[str, ...]] = ("pixels",)
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "image_miou": MeasuredQuantity(
            ("image", "layer"), "fraction", f"of each image, NaN where no pixel has a class; {_RULE}", "layers"
        ),
        "miou": MeasuredQuantity(("layer",), "fraction", f"of the pixels of all images together; {_RULE}", "layers"),
        "miou_low": MeasuredQuantity(("layer",), "fraction", "where miou's 95 % begin: images resampled, 1000 draws"),
        "miou_high": MeasuredQuantity(("layer",), "fraction", "where they end"),
        "pixel_accuracy": MeasuredQuantity(
            ("layer",), "fraction", f"pixels rightly called, of all images together; {_RULE}"
        ),
        "pixels": MeasuredQuantity(("image",), "px", "that have a class, in patches that are there"),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.pairs: list[ConfusionCounts] | None = None
        self.seen: list[int] = []
        # Of the batch at hand: which classes masks may show, and what lies in which patch.
        self.classes: Tensor | None = None
        self.masks: list[InPatches] = []

    @classmethod
    def check(cls, model: Model) -> None:
        check_classifier(model, cls.name)

    def begin(self, batch: Batch) -> None:
        required(batch, "pixels", self.name)
        self.classes = classes = batch.targets["pixel_classes"]
        numbers = classes.cpu().numpy()
        if self.pairs is None:
            self.pairs = [ConfusionCounts(len(numbers), len(numbers)) for _ in range(self.model.config.depth)]
        self.masks = []
        for patches, said, counts in in_patches(batch, self.model.config):
            there = said >= 0
            # Classes by their place among those of masks.
            self.masks.append(InPatches(patches[there], np.searchsorted(numbers, said[there]), counts[there]))
            self.seen.append(int(counts[there].sum()))

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        if layer < 0:
            return
        assert self.pairs is not None
        assert self.classes is not None
        said = lens(self.model, tokens, layout).index_select(-1, self.classes).argmax(-1)
        for one, mask in zip(of_images(patch_tokens(said, layout)), self.masks, strict=True):
            pairs = self.pairs[layer]
            predicted = one.cpu().numpy()[mask.patches]
            pairs.images.append(confusion_pairs(mask.classes, predicted, times=mask.counts, ignored=pairs.ignored))

    def arrays(self) -> dict[str, np.ndarray]:
        images, depth = len(self.seen), self.model.config.depth
        found: dict[str, np.ndarray] = {
            name: np.full(depth, np.nan) for name in ("miou", "miou_low", "miou_high", "pixel_accuracy")
        }
        found["image_miou"], found["pixels"] = np.full((images, depth), np.nan), np.array(self.seen, np.int64)
        weights = bootstrap_weights(max(images, 1))[:, :images]
        # An image at a time: of a thousand classes those of all are many.
        alone = np.ones((1, 1), np.int64)
        for layer, pairs in enumerate(self.pairs or ()):
            right, said, true = pairs.sums(weights)
            values = present_mean(class_ious(right, said, true), true)
            if np.isfinite(values[0]):
                found["miou"][layer] = values[0]
                found["miou_low"][layer], found["miou_high"][layer] = percentile_interval(values)
                found["pixel_accuracy"][layer] = right[0].sum() / true[0].sum()
            for image, one in enumerate(pairs.images):
                right, said, true = ConfusionCounts(pairs.classes, pairs.ignored, [one]).sums(alone)
                found["image_miou"][image, layer] = present_mean(class_ious(right, said, true), true)[0]
        return found


def present_mean(ious: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The mean over the classes that have a pixel, [weights]; nan where none has.

    Args:
        ious, true: of each class, [weights, classes].
    """
    there = true > 0
    count = there.sum(axis=1)
    summed = np.where(there, ious, 0).sum(axis=1)
    return np.divide(summed, count, out=np.full(len(ious), np.nan), where=count > 0)
