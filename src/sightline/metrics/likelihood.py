"""How much a model's scores give to what is true: the negative log-likelihood and the Brier score."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.metrics.base import Metric
from sightline.results import Measured, Slices


class Likelihood(Metric):
    """`nll`, the mean of -log p(true class) in nats, and `brier`, the mean of the squared distance between all
    probabilities and the truth (Brier 1950: 0 to 2). Probabilities are softmaxes, whatever trained the model.
    """

    name: ClassVar[str] = "likelihood"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    first: ClassVar[str | None] = "nll"

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        # Both of each image.
        self._seen: list[np.ndarray] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        logs = outputs.double().log_softmax(-1)
        self._seen.append(torch.stack(likelihoods(logs, batch.targets["labels"].long()), dim=1).numpy())

    def merge(self, other: Any) -> None:
        self._seen += other._seen

    def rows(self) -> list[Measured]:
        seen = np.concatenate(self._seen) if self._seen else np.empty((0, 2))
        if not len(seen):
            return []
        return [mean_of("nll", seen[:, 0], "nats"), mean_of("brier", seen[:, 1], "")]


def likelihoods(logs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The negative log-likelihood and the Brier score of each image: float64 [images] each.

    Args:
        logs: log-probabilities, float64 [images, classes]; labels: int64 [images].
    """
    own = logs.gather(1, labels[:, None])[:, 0]
    # The sum over classes of (p - true)^2, where true is 1 of one class.
    return -own, logs.exp().square().sum(-1) - 2 * own.exp() + 1


def mean_of(metric: str, values: np.ndarray, unit: str, slices: Slices = MappingProxyType({})) -> Measured:
    """A mean over images, the lower the better, with its standard error."""
    stderr = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return Measured(metric, float(values.mean()), unit, len(values), stderr=stderr, slices=dict(slices), better="lower")
