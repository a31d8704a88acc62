"""Whether answers are right as often as their scores say: expected calibration errors, and what they are made of."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.errors import InputError
from sightline.metrics.base import ByImage
from sightline.results.rows import FRACTION, MetricValue

# Guo et al. 2017 and LookHere (section 4.1), and of NaViT (table 4).
BINS, _FINE = 15, 30
BIN = "confidence_bin"
"""The slice of the images whose confidence lies in a fifteenth of [0, 1], 1 the lowest."""


class Calibration(ByImage):
    """Expected calibration errors of the first class (Naeini et al. 2015; Guo et al. 2017, equation 3): the mean over
    all images of the distance between accuracy and mean confidence in the bin that each falls into.

    `ece` has 15 bins of one width, `ece_30` has 30, `ece_adaptive` 15 of as many images each (Nixon et al. 2019), where
    images of one confidence are all as right as they are together: their order tells nothing. A confidence on an edge
    falls into the lower bin, as in the equation; 0 into the first. The confidence is the softmax
    of the class that is answered; of a model whose scores are sigmoids, `ece_sigmoid` takes these, in 15 bins. With
    them, by bin of `ece` where it holds images: `top1_in_bin`, and `confidence`, its mean.
    """

    name: ClassVar[str] = "calibration"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    first: ClassVar[str | None] = "ece"

    def update(self, outputs: Tensor, batch: Batch) -> None:
        logits = outputs.double()
        best, answer = logits.max(dim=-1)
        right = (answer == batch.targets["labels"]).double()
        self._records.append(torch.stack((right, (best - logits.logsumexp(-1)).exp(), best.sigmoid()), dim=1).numpy())

    def rows_of(self, records: np.ndarray) -> list[MetricValue]:
        # Of each image: whether the answer is right, its softmax and its sigmoid.
        right, softmax, sigmoid = records.T
        found = {
            "ece": expected_calibration_error(softmax, right),
            f"ece_{_FINE}": expected_calibration_error(softmax, right, _FINE),
            "ece_adaptive": _of_as_many(softmax, right),
        }
        if self.task.config.score_link == "sigmoid":
            found["ece_sigmoid"] = expected_calibration_error(sigmoid, right)
        rows = [MetricValue(name, error, "", len(right), better="lower") for name, error in found.items()]
        place = _places(softmax, BINS)
        for number in np.unique(place).tolist():
            inside, part = place == number, {BIN: number + 1}
            count, accuracy, sure = int(inside.sum()), float(right[inside].mean()), float(softmax[inside].mean())
            rows.append(MetricValue("top1_in_bin", accuracy, FRACTION, count, slices=part, better="higher"))
            rows.append(MetricValue("confidence", sure, "", count, slices=part))
        return rows


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> float:
    """How sure a model says it is, and whether it is right as often as that (NaViT appendix F): the mean over images of
    |accuracy - mean confidence| of their bin, with equal widths over [0, 1], L1, top class.

    Args:
        confidence: [images] in [0, 1]; a bin holds its upper end, the first also 0.
        right: bool or float [images].

    Raises:
        InputError: there is no image, or no bin.
    """
    if bins < 1 or not len(confidence):
        raise InputError(f"ece of {len(confidence)} images in {bins} bins: expected at least one of each")
    # |accuracy - confidence| x images of a bin is the absolute sum of their differences.
    apart = np.bincount(_places(confidence, bins), right - confidence, minlength=bins)
    return float(np.abs(apart).sum() / len(confidence))


def _places(confidence: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each image, from 0 on."""
    # A softmax of equal logits is a hair off the edge that it is meant to be on.
    return np.clip(np.ceil(confidence * bins - 1e-9).astype(np.int64) - 1, 0, bins - 1)


def _of_as_many(confidence: np.ndarray, right: np.ndarray) -> float:
    # In float32, as logits are: what is equal but for the order of a sum is equal.
    _, place, alike = np.unique(confidence.astype(np.float32), return_inverse=True, return_counts=True)
    apart = np.repeat(np.bincount(place, right - confidence) / alike, alike)
    return sum(abs(float(one.sum())) for one in np.array_split(apart, BINS)) / len(right)
