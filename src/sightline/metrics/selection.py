"""What a model is worth where it may leave out the images that it is least sure of."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.metrics.base import ByImage
from sightline.results.rows import FRACTION, MetricValue

_SHARES = (0.5, 0.8, 0.9)
COVERAGE = "coverage"
"""The slice of the images that are answered, the surest of all, as a share of them."""


class Selection(ByImage):
    """`aurc`, the area under the curve of risk by coverage (Geifman, Uziel and El-Yaniv 2019, equation 2): the mean
    over k of the share of wrong answers among the k surest images; and `top1_answered` of the surest half, four fifths
    and nine tenths, in whole images, rounded up.

    Sure is what has a high score by the model's own link. Of images with one score each order is as good as another,
    and the mean over all of them counts: no order of the data changes a number.
    """

    name: ClassVar[str] = "selection"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    first: ClassVar[str | None] = "aurc"

    def update(self, outputs: Tensor, batch: Batch) -> None:
        logits = outputs.double()
        best, answer = logits.max(dim=-1)
        # Of sigmoids the logit itself: far out they are all 1.
        score = best if self.task.config.score_link == "sigmoid" else best - logits.logsumexp(-1)
        wrong = (answer != batch.targets["labels"]).double()
        self._records.append(torch.stack((wrong, score), dim=1).numpy())

    def rows_of(self, records: np.ndarray) -> list[MetricValue]:
        # Of each image: whether the answer is wrong, and its score.
        wrong, score = records.T
        # In float32, as logits are: what is equal but for the order of a sum is equal.
        _, place, alike = np.unique(-score.astype(np.float32), return_inverse=True, return_counts=True)
        # What the k-th surest image is wrong by, whatever the order of those that are alike.
        expected = np.repeat(np.bincount(place, wrong) / alike, alike)
        lost, answered = expected.cumsum(), np.arange(1, len(wrong) + 1)
        rows = [MetricValue("aurc", float((lost / answered).mean()), "", len(wrong), better="lower")]
        for share in _SHARES:
            count = math.ceil(share * len(wrong))
            right = min(max(1 - float(lost[count - 1]) / count, 0.0), 1.0)
            part = {COVERAGE: share}
            rows.append(MetricValue("top1_answered", right, FRACTION, count, slices=part, better="higher"))
        return rows
