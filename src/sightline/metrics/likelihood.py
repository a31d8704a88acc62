"""How much a model's scores give to what is true: the negative log-likelihood and the Brier score."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from sightline.data.batch import Batch
from sightline.metrics.base import Metric
from sightline.results import Measured


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
        own = logs.gather(1, batch.targets["labels"].long()[:, None])[:, 0]
        chances = logs.exp()
        # The sum over classes of (p - true)^2, where true is 1 of one class.
        brier = chances.square().sum(-1) - 2 * own.exp() + 1
        self._seen.append(np.stack((-own.numpy(), brier.numpy()), axis=1))

    def merge(self, other: Any) -> None:
        self._seen += other._seen

    def rows(self) -> list[Measured]:
        seen = np.concatenate(self._seen) if self._seen else np.empty((0, 2))
        if not len(seen):
            return []
        return [_mean("nll", seen[:, 0], "nats"), _mean("brier", seen[:, 1], "")]


def _mean(metric: str, values: np.ndarray, unit: str) -> Measured:
    stderr = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return Measured(metric, float(values.mean()), unit, len(values), stderr=stderr, better="lower")
