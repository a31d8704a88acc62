"""Top-k accuracy, whole and in parts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from torch import Tensor

from sightline.data.batch import Batch
from sightline.metrics.base import Metric
from sightline.results.rows import FRACTION, MetricValue


class Accuracy(Metric):
    """`top1` and `top5` of all; where the images have groups, `top1` by group and `top1_within_group` (the best of the
    classes of the true group alone); where they have sizes, `top1` by fifths of equal count, 1 the smallest (LookHere
    figure 7); of equal sizes the image that comes first in the split is the smaller, in whatever order they are seen.
    """

    name: ClassVar[str] = "accuracy"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    first: ClassVar[str | None] = "top1"

    def update(self, outputs: Tensor, batch: Batch) -> None:
        logits, labels = outputs.numpy(), batch.targets["labels"].numpy()
        own = np.take_along_axis(logits, labels[:, None], axis=1)
        # Ranks rather than a sort; of equal scores the first is the better.
        above = (logits > own).sum(axis=1) + ((logits == own).cumsum(axis=1)[np.arange(len(labels)), labels] - 1)
        groups = np.array([slices.get("group", "") for slices in batch.slices])
        masked = np.full_like(logits, -np.inf)
        for group, classes in self.task.groups.items():
            inside = np.ix_(np.flatnonzero(groups == group), np.asarray(classes, np.int64))
            masked[inside] = logits[inside]
        sizes = np.array([slices.get("size", np.nan) for slices in batch.slices], np.float32)
        # Of each image how many classes score higher than its own, whether that is the best of its group, the group,
        # its size, and its place in the split.
        self._records.append((above, masked.argmax(axis=1) == labels, groups, sizes, batch.indices.numpy()))

    def rows(self) -> list[MetricValue]:
        if not sum(len(above) for above, *_ in self._records):
            return []
        above, within, groups, sizes, indices = (np.concatenate(parts) for parts in zip(*self._records, strict=True))
        right = above == 0
        rows = [_share("top1", right), _share("top5", above < 5)]
        rows += [
            _share("top1", right[groups == group], group=group) for group in self.task.groups if (groups == group).any()
        ]
        if (groups != "").any():
            rows.append(_share("top1_within_group", within[groups != ""]))
        if np.isfinite(sizes).all() and len(sizes) >= 5:
            fifths = np.array_split(np.lexsort((indices, sizes)), 5)
            rows += [_share("top1", right[part], size_quintile=number) for number, part in enumerate(fifths, start=1)]
        return rows


def _share(metric: str, right: np.ndarray, **slices: str | int) -> MetricValue:
    return MetricValue(metric, float(right.mean()), FRACTION, len(right), slices=slices, better="higher")
