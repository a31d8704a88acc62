"""What a metric is: it sees batch after batch, and gives rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from sightline import registry
from sightline.data.batch import Batch
from sightline.results.rows import MetricValue


class Metric(ABC):
    """What is measured over the images of a split, batch by batch; `update` appends what its rows need to `_records`.

    Attributes:
        name: of the file.
        tasks: names of the tasks whose outputs it measures.
        first: the metric of its first row, its own name unless given.
    """

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    first: ClassVar[str | None] = None

    def __init__(self, task: Any) -> None:
        """For a task on its data."""
        self.task = task
        self._records: list[Any] = []

    @abstractmethod
    def update(self, outputs: Tensor, batch: Batch) -> None:
        """See the outputs of a batch, float32, both on the CPU."""

    def merge(self, other: Any) -> None:
        """See what another one saw, as on another rank."""
        self._records += other._records

    def state(self) -> Any:
        """All that it keeps beside its task, of which `restore` makes the same metric in another process: numbers,
        texts, lists, tuples, groups and arrays of numpy."""
        return {name: value for name, value in vars(self).items() if name != "task"}

    def restore(self, state: Any) -> None:
        """Take the `state` of another one; nothing was seen before."""
        vars(self).update(state)

    @abstractmethod
    def rows(self) -> list[MetricValue]:
        """What was measured, the number that is looked at first first; nothing of no image."""


class ByImage(Metric):
    """A metric of a few numbers of each image: `update` appends an array [images, numbers] of a batch to `_records`."""

    def rows(self) -> list[MetricValue]:
        return self.rows_of(np.concatenate(self._records)) if any(map(len, self._records)) else []

    @abstractmethod
    def rows_of(self, records: np.ndarray) -> list[MetricValue]:
        """What was measured of images, at least one; `records` has the numbers of each in a row."""


def bootstrap_weights(images: int, draws: int = 1000) -> np.ndarray:
    """How often each image counts in a split as it is, the first, and in each resampled one (bootstrap, by a seed of
    its own): int64 [1 + draws, images]."""
    drawn = np.random.default_rng(0).multinomial(images, np.full(images, 1 / images), size=draws)
    return np.concatenate([np.ones((1, images), np.int64), drawn])


def percentile_interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval (percentiles) of what a split gives, the first, and resampled ones; the first lies in it."""
    low, high = np.nanpercentile(values, (2.5, 97.5))
    return min(float(low), float(values[0])), max(float(high), float(values[0]))


def metrics_of(task: Any) -> list[Metric]:
    """Every metric of a task, its primary one first."""
    kinds = registry.classes(Metric, __package__ or "").values()
    return sorted((kind(task) for kind in kinds if task.name in kind.tasks), key=lambda one: one.name != task.primary)


def first_metric(task: Any) -> str:
    """The name of the first row of a task's primary metric, of the task or its class alone."""
    kind = registry.classes(Metric, __package__ or "").get(task.primary)
    return (kind and kind.first) or task.primary
