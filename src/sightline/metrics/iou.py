"""Intersection over union of classes of pixels, from confusion matrices of a whole split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from sightline.data.batch import Batch
from sightline.data.targets import IGNORE, Crop
from sightline.metrics.base import Metric, bootstrap_weights, percentile_interval
from sightline.metrics.boundary import band_width, boundary_mask
from sightline.results.rows import INFERENCE, MetricValue

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""True classes, predicted classes and numbers of pixels: int64 [pairs] each."""


class MeanIou(Metric):
    """`miou`, `pixel_accuracy`, `foreground_iou`, `boundary_iou`, and `iou` and `boundary_iou` of each class.

    A pixel without a class (255) counts nowhere. IoU of a class is what is rightly called so, over what is called so or
    is so, of all pixels of the split together; a class that is neither in the labels nor in the answers of the whole
    split has none, and is left out of the mean; one that is only answered has 0. `foreground_iou` is that of all
    classes but the first, as one class, where the first is called background. `boundary_iou` is the mean of the same of
    what of each class lies within 2 % of the image's diagonal of its boundary, in the labels and in the answers (Cheng
    et al. 2021, equation 1), where pixels without a class belong to no class in either. Intervals are those of
    resampled images (bootstrap, percentiles, 1000 draws by a seed of their own). Where images were looked at otherwise
    than whole, rows tell how (slice `inference`).
    """

    name: ClassVar[str] = "miou"
    tasks: ClassVar[tuple[str, ...]] = ("segmentation",)

    def update(self, outputs: Any, batch: Batch) -> None:
        maps, sizes = self.task.split_outputs(outputs, batch.layout), self.task.shown_sizes(batch.targets)
        for output, labels, size in zip(maps, batch.targets["pixels"], sizes, strict=True):
            true = labels.numpy()
            crop = Crop((0, 0, *true.shape), size)
            predicted = np.where(true == IGNORE, IGNORE, self.task.decode(output, crop).labels)
            width = band_width(true.shape)
            edges = (np.where(boundary_mask(one, width), one, IGNORE) for one in (true, predicted))
            self._records.append((confusion_pairs(true, predicted), confusion_pairs(*edges)))

    def rows(self) -> list[MetricValue]:
        if not self._records:
            return []
        names, images, weights = self.task.names, len(self._records), bootstrap_weights(len(self._records))
        counts, edges = (ConfusionCounts(len(names), images=list(one)) for one in zip(*self._records, strict=True))
        right, predicted, true = counts.sums(weights)
        ious, boundaries = class_ious(right, predicted, true), class_ious(*edges.sums(weights))
        pixels = true.sum(axis=1)

        def measured(metric: str, values: np.ndarray, count: int, unit: str = "", **slices: str) -> MetricValue:
            slices |= {INFERENCE: self.task.inference_label} if self.task.inference_label else {}
            value, interval = float(values[0]), percentile_interval(values)
            kind: dict[str, Any] = {"interval": interval, "better": "higher", "counted": "images"}
            return MetricValue(metric, value, unit, count, slices=slices, **kind)

        if not pixels[0]:
            return []
        rows = [
            measured("miou", _mean(ious), images),
            measured("pixel_accuracy", right.sum(axis=1) / np.maximum(pixels, 1), images, "share of pixels"),
        ]
        if names[0] == "background":
            shapes = _foreground_iou(counts.images, weights)
            if np.isfinite(shapes[0]):
                rows.append(measured("foreground_iou", shapes, images))
        rows.append(measured("boundary_iou", _mean(boundaries), images))
        for number, name in enumerate(names):
            if np.isfinite(ious[0, number]):
                # In which it is, or is said to be.
                count = sum(
                    bool(((true == number) | (predicted == number)).any()) for true, predicted, _ in counts.images
                )
                part = {"class": name}
                rows.append(measured("iou", ious[:, number], count, **part))
                rows.append(measured("boundary_iou", boundaries[:, number], count, **part))
        return rows


def _foreground_iou(images: Sequence[Pairs], weights: np.ndarray) -> np.ndarray:
    """IoU of all that is not the first class, as one: [weights]."""
    both = weights @ [counts[(true > 0) & (predicted > 0)].sum() for true, predicted, counts in images]
    either = weights @ [counts[(true > 0) | (predicted > 0)].sum() for true, predicted, counts in images]
    return np.divide(both, either, out=np.full(len(weights), np.nan), where=either > 0)


def confusion_pairs(
    true: np.ndarray, predicted: np.ndarray, *, times: np.ndarray | None = None, ignored: int = IGNORE
) -> Pairs:
    """Which pairs of a true class and a predicted one the pixels of an image have, and how many pixels have them.

    Args:
        true, predicted: whole numbers [height, width]; or [pairs] of which there are so many `times`.
        ignored: the number of no class, beyond them.
    """
    there, base = (true != ignored) | (predicted != ignored), ignored + 1
    pairs = true[there].astype(np.int64) * base + predicted[there]
    counts = np.bincount(pairs, None if times is None else times[there]).astype(np.int64)
    pairs = counts.nonzero()[0]
    return pairs // base, pairs % base, counts[pairs]


@dataclass
class ConfusionCounts:
    """The pairs of classes of some images.

    Attributes:
        classes: how many there are, numbered from 0; ignored: as `confusion_pairs`.
        images: `confusion_pairs` of each.
    """

    classes: int
    ignored: int = IGNORE
    images: list[Pairs] = field(default_factory=list)

    def sums(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pixels of each class that are rightly called so, that are called so, and that are so: int64 [weights,
        classes] each.

        Args:
            weights: int [weights, images], how often each image counts.
        """
        # Slow to load, and few commands need it.
        from scipy.sparse import csr_array

        image = np.repeat(np.arange(len(self.images)), [len(one) for one, _, _ in self.images])
        true, predicted, counts = map(np.concatenate, zip(*self.images, strict=True))

        def summed(classes: np.ndarray, pixels: np.ndarray) -> np.ndarray:
            table = csr_array((pixels, (image, classes)), shape=(len(self.images), self.ignored + 1))
            return (table.T @ weights.T).T[:, : self.classes]

        return summed(true, np.where(true == predicted, counts, 0)), summed(predicted, counts), summed(true, counts)


def class_ious(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Of each class: [weights, classes], nan where it is nowhere."""
    union = predicted + true - right
    return np.divide(right, union, out=np.full(union.shape, np.nan), where=union > 0)


def _mean(ious: np.ndarray) -> np.ndarray:
    """The mean of those that there are, [draws]."""
    there = np.isfinite(ious)
    return np.where(there, ious, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
