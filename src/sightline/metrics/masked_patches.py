"""How well corrupted patches are said."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from sightline.data.batch import Batch
from sightline.metrics.base import ByImage, bootstrap_weights, percentile_interval
from sightline.results.rows import MetricValue


class MaskedPatchesError(ByImage):
    """`patch_loss`, the mean loss of all corrupted patches of a split; of classes `patch_accuracy`, the share of them
    that is rightly said, of pixels `patch_mse`, their mean squared error (pixels from 0 to 1), which is the loss.
    Intervals are those of resampled images (bootstrap, percentiles, 1000 draws by a seed of their own). An image's
    patches are corrupted by its number in the split: the same each time.
    """

    name: ClassVar[str] = "masked_patches"
    tasks: ClassVar[tuple[str, ...]] = ("masked_patches",)
    first: ClassVar[str | None] = "patch_loss"

    def update(self, outputs: Any, batch: Batch) -> None:
        losses, right = self.task.each_patch(outputs, batch.targets, batch.layout)
        counts = [one["patches"].shape[1] for one in outputs for _ in range(batch.layout.rows)]
        right = torch.full_like(losses, torch.nan) if right is None else right
        sums = [[one.double().sum().item() for one in of.split(counts)] for of in (losses, right)]
        self._records.append(np.array([*sums, counts], np.float64).T)

    def rows_of(self, records: np.ndarray) -> list[MetricValue]:
        # Of each image the sum of losses, of what is right, and the number of patches.
        lost, right, counts = (bootstrap_weights(len(records)) @ records).T
        classes = np.isfinite(right[0])

        def measured(metric: str, sums: np.ndarray, unit: str, better: Literal["higher", "lower"]) -> MetricValue:
            values = sums / counts
            return MetricValue(
                metric, float(values[0]), unit, len(records), interval=percentile_interval(values), better=better
            )

        rows = [measured("patch_loss", lost, "nats" if classes else "", "lower")]
        if classes:
            return [*rows, measured("patch_accuracy", right, "share of patches", "higher")]
        return [*rows, measured("patch_mse", lost, "", "lower")]
