"""Intersection over union of classes of pixels, from confusion matrices of a whole split."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sightline.data.batch import Batch
from sightline.metrics.base import Metric
from sightline.metrics.boundary import at_boundary, band_width
from sightline.results import INFERENCE, Measured
from sightline.targets import IGNORE, Crop

_DRAWS = 1000


class MeanIou(Metric):
    """`miou`, `pixel_accuracy`, `foreground_iou`, `boundary_iou`, and `iou` and `boundary_iou` of each class.

    A pixel without a class (255) counts nowhere. IoU of a class is what is rightly called so, over what is called so or
    is so, of all pixels of the split together; a class that is neither in the labels nor in the answers of the whole
    split has none, and is left out of the mean; one that is only answered has 0. `foreground_iou` is that of all
    classes but the first, as one class, where the first is called background. `boundary_iou` is the mean of the same of
    what of each class lies within 2 % of the image's diagonal of its boundary, in the labels and in the answers (Cheng
    et al. 2021, equation 1), where pixels without a class belong to no class in either. Intervals are those of
    resampled images (bootstrap, percentiles, 1000 draws by a seed of their own). Where images were looked at otherwise
    than whole, rows say how (slice `inference`).
    """

    name: ClassVar[str] = "miou"
    tasks: ClassVar[tuple[str, ...]] = ("segmentation",)

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self._pixels, self._edges = _Pairs(task.config.num_classes), _Pairs(task.config.num_classes)

    def update(self, outputs: Any, batch: Batch) -> None:
        maps, sizes = self.task.each(outputs, batch.layout), self.task.seen(batch.targets)
        for output, labels, size in zip(maps, batch.targets["pixels"], sizes, strict=True):
            true = labels.numpy()
            crop = Crop((0, 0, *true.shape), size)
            said = np.where(true == IGNORE, IGNORE, self.task.decode(output, crop).labels)
            self._pixels.add(true, said)
            width = band_width(true.shape)
            self._edges.add(*(np.where(at_boundary(one, width), one, IGNORE) for one in (true, said)))

    def merge(self, other: Any) -> None:
        self._pixels.seen += other._pixels.seen
        self._edges.seen += other._edges.seen

    def state(self) -> Any:
        return self._pixels.seen, self._edges.seen

    def restore(self, state: Any) -> None:
        self._pixels.seen, self._edges.seen = state

    def rows(self) -> list[Measured]:
        if not self._pixels.seen:
            return []
        names, images = self.task.names, len(self._pixels.seen)
        draws = np.random.default_rng(0).multinomial(images, np.full(images, 1 / images), size=_DRAWS)
        # Of the split as it is, and of each resampled one.
        weights = np.concatenate([np.ones((1, images), np.int64), draws])
        (right, said, true), edges = self._pixels.sums(weights), self._edges.sums(weights)
        ious, boundaries = _ious(right, said, true), _ious(*edges)
        pixels = true.sum(axis=1)

        def measured(metric: str, values: np.ndarray, count: int = images, unit: str = "", **slices: str) -> Measured:
            if self.task.looked:
                slices[INFERENCE] = self.task.looked
            low, high = np.nanpercentile(values, (2.5, 97.5))
            interval = (min(float(low), float(values[0])), max(float(high), float(values[0])))
            return Measured(
                metric, float(values[0]), unit, count, slices=slices, interval=interval, better="higher",
                counted="images",
            )  # fmt: skip

        if not pixels[0]:
            return []
        rows = [
            measured("miou", _mean(ious)),
            measured("pixel_accuracy", right.sum(axis=1) / np.maximum(pixels, 1), unit="share of pixels"),
        ]
        if names[0] == "background":
            shapes = self._foreground(weights)
            if np.isfinite(shapes[0]):
                rows.append(measured("foreground_iou", shapes))
        rows.append(measured("boundary_iou", _mean(boundaries)))
        for number, name in enumerate(names):
            if np.isfinite(ious[0, number]):
                # In which it is, or is said to be.
                count = sum(bool(((true == number) | (said == number)).any()) for true, said, _ in self._pixels.seen)
                part = {"class": name}
                rows.append(measured("iou", ious[:, number], count, **part))
                rows.append(measured("boundary_iou", boundaries[:, number], count, **part))
        return rows

    def _foreground(self, weights: np.ndarray) -> np.ndarray:
        """IoU of all that is not the first class, as one: [weights]."""
        both, either = [], []
        for true, said, numbers in self._pixels.seen:
            both.append(numbers[(true > 0) & (said > 0)].sum())
            either.append(numbers[(true > 0) | (said > 0)].sum())
        unions = weights @ np.array(either, np.float64)
        return np.divide(
            weights @ np.array(both, np.float64), unions, out=np.full(len(weights), np.nan), where=unions > 0
        )


class _Pairs:
    """Which pairs of classes, the true one and the one that is said, the pixels of each image have, and how many pixels
    have them; `IGNORE` for no class."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.seen: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, true: np.ndarray, said: np.ndarray) -> None:
        """Pixels of one more image: uint8 [height, width] each."""
        there = (true != IGNORE) | (said != IGNORE)
        counts = np.bincount(true[there].astype(np.int64) * 256 + said[there])
        pairs = counts.nonzero()[0]
        self.seen.append((pairs // 256, pairs % 256, counts[pairs]))

    def sums(self, weights: np.ndarray) -> list[np.ndarray]:
        """Pixels of each class that are rightly called so, that are called so, and that are so: float64 [weights,
        classes] each.

        Args:
            weights: int [weights, images], how often each image counts.
        """
        counts = np.zeros((3, len(self.seen), IGNORE + 1))
        for image, (true, said, numbers) in enumerate(self.seen):
            right = true == said
            for kind, (classes, many) in enumerate(((true[right], numbers[right]), (said, numbers), (true, numbers))):
                np.add.at(counts[kind, image], classes, many)
        return [weights @ one[:, : self.classes] for one in counts]


def _ious(right: np.ndarray, said: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Of each class: [weights, classes], nan where it is nowhere."""
    union = said + true - right
    return np.divide(right, union, out=np.full(union.shape, np.nan), where=union > 0)


def _mean(ious: np.ndarray) -> np.ndarray:
    """The mean of those that there are, [draws]."""
    there = np.isfinite(ious)
    return np.where(there, ious, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
