"""What scores are worth once they are as sure as they should be: measures of logits over one temperature."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.metrics.base import ByImage
from sightline.metrics.calibration import expected_calibration_error
from sightline.metrics.likelihood import likelihoods, mean_of
from sightline.results.rows import FITTED, MetricValue

T = TypeVar("T")


@dataclass(frozen=True)
class Temperature:
    """What logits are divided by (Guo et al. 2017, section 4.2), as `evaluation.temperature` fits it.

    Attributes:
        split: that it was fitted on; images: how many of it.
        softmax: where they are read by a softmax; sigmoid: where by sigmoids, None of a model that no BCE trained.
    """

    split: str
    images: int
    softmax: float
    sigmoid: float | None = None


def with_temperature(task: T, temperature: Temperature | None) -> T:
    """A task whose scores are measured over a temperature too; `task` itself without one."""
    if temperature is None:
        return task
    task = copy.copy(task)
    # Only this metric knows of it.
    vars(task)["temperature"] = temperature
    return task


class Tempered(ByImage):
    """`temperature`, and `nll_tempered`, `brier_tempered` and `ece_tempered`, as their namesakes, of the softmax of
    logits / temperature; of a model whose scores are sigmoids also `temperature_sigmoid` and `ece_sigmoid_tempered`.

    Nothing without a temperature (`tempered`). The slice `fitted_on` names the split that it was fitted on.
    """

    name: ClassVar[str] = "tempered"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    first: ClassVar[str | None] = "temperature"

    def update(self, outputs: Tensor, batch: Batch) -> None:
        fitted: Temperature | None = getattr(self.task, "temperature", None)
        if fitted is None:
            return
        labels, logits = batch.targets["labels"].long(), outputs.double()
        best, answer = logits.max(dim=-1)
        logs = (logits / fitted.softmax).log_softmax(-1)
        confidences = logs.amax(-1).exp(), (best / (fitted.sigmoid or 1.0)).sigmoid()
        right = (answer == labels).double()
        self._records.append(torch.stack((*likelihoods(logs, labels), right, *confidences), dim=1).numpy())

    def rows_of(self, records: np.ndarray) -> list[MetricValue]:
        # Of each image its likelihoods, whether the answer is right, its softmax and its sigmoid.
        fitted: Temperature = self.task.temperature
        part, (nll, brier, right, softmax, sigmoid) = {FITTED: fitted.split}, records.T

        def error(metric: str, confidence: np.ndarray) -> MetricValue:
            value = expected_calibration_error(confidence, right)
            return MetricValue(metric, value, "", len(right), slices=part, better="lower")

        def temperature(metric: str, value: float) -> MetricValue:
            return MetricValue(metric, value, "", fitted.images, slices=part)

        rows = [
            temperature("temperature", fitted.softmax),
            mean_of("nll_tempered", nll, "nats", part),
            mean_of("brier_tempered", brier, "", part),
            error("ece_tempered", softmax),
        ]
        if fitted.sigmoid is not None:
            rows += [temperature("temperature_sigmoid", fitted.sigmoid), error("ece_sigmoid_tempered", sigmoid)]
        return rows
