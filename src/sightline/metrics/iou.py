"""Intersection over union of classes of pixels, from a confusion matrix of a whole split."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sightline.data.batch import Batch
from sightline.metrics.base import Metric
from sightline.results import INFERENCE, Measured
from sightline.targets import IGNORE, Crop

_DRAWS = 1000


class MeanIou(Metric):
    """`miou`, `iou` of each class, `foreground_iou`, `pixel_accuracy`.

    A pixel without a class (255) counts nowhere. IoU of a class is what is rightly called so, over what is called so or
    is so; a class that is neither in the labels nor in the answers of the whole split has none, and is left out of the
    mean; one that is only answered has 0. `foreground_iou` is that of all classes but the first, as one class, where
    the first is called background. Intervals are those of resampled images (bootstrap, percentiles, 1000 draws by a
    seed of their own). Where images were looked at otherwise than whole, rows say how (slice `inference`).
    """

    name: ClassVar[str] = "miou"
    tasks: ClassVar[tuple[str, ...]] = ("segmentation",)

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        # Of each image, the confusion of its labels (first axis) and answers, as numbers of pairs and their counts.
        self._seen: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, outputs: Any, batch: Batch) -> None:
        maps, classes = self.task.each(outputs, batch.layout), self.task.config.num_classes
        patch = self.task.config.patch_size
        grids = [segment.grid for segment in batch.layout.segments for _ in range(batch.layout.rows)]
        for output, labels, grid in zip(maps, batch.targets["pixels"], grids, strict=True):
            wanted = labels.numpy()
            crop = Crop((0, 0, *wanted.shape), (grid.rows * patch, grid.cols * patch))
            there = wanted != IGNORE
            pairs = wanted[there].astype(np.int64) * classes + self.task.decode(output, crop).labels[there]
            self._seen.append(np.unique(pairs, return_counts=True))

    def merge(self, other: Any) -> None:
        self._seen += other._seen

    def rows(self) -> list[Measured]:
        if not self._seen:
            return []
        names, images = self.task.names, len(self._seen)
        draws = np.random.default_rng(0).multinomial(images, np.full(images, 1 / images), size=_DRAWS)
        weights = np.concatenate([np.ones((1, images), np.int64), draws])
        # [1 + draws, classes]: of the split as it is, and of each resampled one.
        right, said, true = (self._sums(weights, kind) for kind in range(3))
        union = said + true - right
        with np.errstate(invalid="ignore"):
            ious = np.where(union > 0, right / union, np.nan)
        pixels = true.sum(axis=1)

        def measured(metric: str, values: np.ndarray, count: int, counted: str, unit: str, **slices: str) -> Measured:
            if self.task.looked:
                slices[INFERENCE] = self.task.looked
            low, high = np.nanpercentile(values, (2.5, 97.5))
            interval = (min(float(low), float(values[0])), max(float(high), float(values[0])))
            return Measured(
                metric, float(values[0]), unit, count, slices=slices, interval=interval, better="higher",
                counted=counted,
            )  # fmt: skip

        rows = []
        if np.isfinite(ious[0]).any():
            rows.append(measured("miou", _mean(ious), images, "images", ""))
        if pixels[0]:
            correct = right.sum(axis=1) / np.maximum(pixels, 1)
            rows.append(measured("pixel_accuracy", correct, images, "images", "share of pixels"))
        if names[0] == "background":
            shapes = self._foreground(weights)
            if np.isfinite(shapes[0]):
                rows.append(measured("foreground_iou", shapes, images, "images", ""))
        for number, name in enumerate(names):
            if np.isfinite(ious[0, number]):
                # Those in which it is, or is answered.
                count = sum(bool((np.array(np.divmod(keys, len(names))) == number).any()) for keys, _ in self._seen)
                rows.append(measured("iou", ious[:, number], count, "images", "", **{"class": name}))
        return rows

    def _sums(self, weights: np.ndarray, kind: int) -> np.ndarray:
        """Pixels of each class, rightly so (0), said to be so (1) or so (2): float64 [weights, classes]."""
        classes = len(self.task.names)
        counts = np.zeros((len(self._seen), classes))
        for row, (keys, numbers) in zip(counts, self._seen, strict=True):
            true, said = np.divmod(keys, classes)
            there = true == said if kind == 0 else np.ones(len(keys), bool)
            np.add.at(row, (said if kind == 1 else true)[there], numbers[there])
        return weights @ counts

    def _foreground(self, weights: np.ndarray) -> np.ndarray:
        """IoU of all that is not the first class, as one: [weights]."""
        classes, both, either = len(self.task.names), [], []
        for keys, numbers in self._seen:
            true, said = np.divmod(keys, classes)
            both.append(numbers[(true > 0) & (said > 0)].sum())
            either.append(numbers[(true > 0) | (said > 0)].sum())
        unions = weights @ np.array(either, np.float64)
        return np.divide(
            weights @ np.array(both, np.float64), unions, out=np.full(len(weights), np.nan), where=unions > 0
        )


def _mean(ious: np.ndarray) -> np.ndarray:
    """The mean of those that there are, [draws]."""
    there = np.isfinite(ious)
    return np.where(there, ious, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
