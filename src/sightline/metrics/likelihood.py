"""How much a model's scores give to what is true: the negative log-likelihood and the Brier score."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.metrics.base import ByImage
from sightline.results.rows import MetricValue, Slices


class Likelihood(ByImage):
    """`nll`, the mean of -log p(true class) in nats, and `brier`, the mean of the squared distance between all
    probabilities and the truth (Brier 1950: 0 to 2). Probabilities are softmaxes, whatever trained the model.
    """

    name: ClassVar[str] = "likelihood"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    first: ClassVar[str | None] = "nll"

    def update(self, outputs: Tensor, batch: Batch) -> None:
        logs = outputs.double().log_softmax(-1)
        self._records.append(torch.stack(likelihoods(logs, batch.targets["labels"].long()), dim=1).numpy())

    def rows_of(self, records: np.ndarray) -> list[MetricValue]:
        # Both of each image.
        return [mean_of("nll", records[:, 0], "nats"), mean_of("brier", records[:, 1], "")]


def likelihoods(logs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood and the Brier score of each image: float64 [images] each.

    Args:
        logs: log-probabilities, float64 [images, classes]; labels: int64 [images].
    """
    own = logs.gather(1, labels[:, None])[:, 0]
    # The sum over classes of (p - true)^2, where true is 1 of one class.
    return -own, logs.exp().square().sum(-1) - 2 * own.exp() + 1


def mean_of(metric: str, values: np.ndarray, unit: str, slices: Slices = MappingProxyType({})) -> MetricValue:
    """A mean over images, the lower the better, with its standard error."""
    stderr = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return MetricValue(
        metric, float(values.mean()), unit, len(values), stderr=stderr, slices=dict(slices), better="lower"
    )
