"""Few tokens for every image, and many for those that the model is least sure of (NaViT appendix E).

All of it is computed from what the model said once at each budget. Which images are seen again is decided by a score
that was found on other images than those that are measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.data.rng import generator
from sightline.errors import InputError
from sightline.evaluation.predict import BatchOutputs
from sightline.metrics.calibration import expected_calibration_error
from sightline.tasks.base import Task

REPLICATES = 2000


@dataclass(frozen=True, eq=False)
class StageScores:
    """How a model did at one budget: arrays [images], in the same order at every budget.

    Attributes:
        budget: the most patches of an image.
        right: bool, whether its best class is the true one; confidence: float64, the score of that class.
        tokens: the patches that each had; seconds: of its forward pass.
        reading: seconds an image to read or draw it.
    """

    budget: int
    right: np.ndarray
    confidence: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray
    reading: float

    @classmethod
    def of(cls, budget: int, task: Task, given: Iterable[BatchOutputs], indices: Sequence[int]) -> StageScores:
        """Scores of what a model gave, in the order of `indices`, without the images that cannot be read."""
        found: dict[int, tuple[float, ...]] = {}
        reading = 0.0
        for one in given:
            right, confidence = task.confidence(one.outputs, one.batch)
            rest = one.tokens, one.seconds / len(one.batch)
            each = zip(one.batch.indices.tolist(), right.tolist(), confidence.tolist(), strict=True)
            found |= {index: (*scores, *rest) for index, *scores in each}
            reading += one.reading
        lines = [found[index] for index in indices if index in found]
        right, confidence, tokens, seconds = np.array(lines, np.float64).reshape(-1, 4).T
        return cls(budget, right.astype(bool), confidence, tokens, seconds, reading / max(len(lines), 1))

    @property
    def top1(self) -> float:
        return float(self.right.mean())

    @property
    def ece(self) -> float:
        return expected_calibration_error(self.confidence, self.right)


@dataclass(frozen=True)
class CascadePoint:
    """One cascade on the measured images.

    Attributes:
        alpha: the fraction that was to be seen again; fraction: the one that was.
        threshold: images whose first score is below it are seen again.
        scored: what was answered in the end; tokens, seconds and reading are of both looks together.
        ahead, ahead_interval: top1 less that of single budgets at equal mean tokens, joined by lines that never fall,
            with its 95 % (paired bootstrap over images); None where no line is.
    """

    alpha: float
    threshold: float
    fraction: float
    scored: StageScores
    ahead: float | None
    ahead_interval: tuple[float, float] | None


def threshold_for(confidence: np.ndarray, fraction: float) -> float:
    """The score below which `fraction` of these lie, rounded to whole images; ties stay above it.

    Args:
        confidence: [images] of other images than those that it is used on.
        fraction: 0 to 1; 0 gives 0, below which nothing lies, and 1 gives what everything lies below.
    """
    rising = np.sort(confidence)
    count = round(fraction * len(rising))
    if count == 0:
        return 0.0
    if count == len(rising):
        return math.nextafter(1.0, 2.0)
    return float((rising[count - 1] + rising[count]) / 2)


def fraction_within_budget(first: StageScores, second: StageScores, budget: float) -> float:
    """The largest fraction, of these images, with which a cascade has at most `budget` tokens an image in the mean.

    Raises:
        InputError: the first look alone has more.
    """
    spent = first.tokens.mean()
    if spent > budget:
        raise InputError(f"budget {budget:g}: the first look alone has {spent:.1f} tokens an image")
    again = second.tokens[np.argsort(first.confidence, kind="stable")].cumsum()
    return float((spent + again / len(again) <= budget).mean())


def best_pair(singles: Sequence[StageScores], alphas: Sequence[float], budget: float | None = None) -> tuple[int, int]:
    """The budgets of the best cascade on held-out images.

    With `budget`, the one that is right most often within so many tokens an image; else the one that in the mean over
    `alphas` is furthest ahead of single budgets (an alpha at which these have no equal counts as level).

    Raises:
        InputError: there are fewer than two budgets, or none within `budget`.
    """
    singles = _rising(singles)
    worths: dict[tuple[int, int], float] = {}
    for first, second in itertools.combinations(singles, 2):
        if budget is None:
            gains = [_cascade(first, second, threshold_for(first.confidence, alpha)) for alpha in alphas]
            worths[first.budget, second.budget] = float(np.mean([_ahead(singles, one) or 0.0 for one in gains]))
        elif first.tokens.mean() <= budget:
            alpha = fraction_within_budget(first, second, budget)
            chosen = _cascade(first, second, threshold_for(first.confidence, alpha))
            worths[first.budget, second.budget] = chosen.top1
    if not worths:
        raise InputError(f"budgets {[one.budget for one in singles]}: expected two, the first within {budget}")
    return max(worths, key=worths.__getitem__)


def measure_cascade(
    singles: Sequence[StageScores],
    pair: tuple[int, int],
    thresholds: Sequence[tuple[float, float]],
    *,
    seed: int = 0,
) -> list[CascadePoint]:
    """A cascade at several thresholds, beside single budgets on the same images.

    Args:
        singles: at least the two of the pair.
        pair: the budgets of the first and of the second look.
        thresholds: (alpha, threshold) of each point.
        seed: of the bootstrap.
    """
    singles = _rising(singles)
    first, second = (next(one for one in singles if one.budget == budget) for budget in pair)
    joined = [_cascade(first, second, threshold) for _, threshold in thresholds]
    means = _resampled_means([*singles, *joined], seed)
    points, alone = [], slice(len(singles))
    for place, ((alpha, threshold), cascade) in enumerate(zip(thresholds, joined, strict=True), start=len(singles)):
        ahead, interval = _ahead(singles, cascade), None
        if ahead is not None:
            gains = [right[place] - _single_at(tokens[place], tokens[alone], right[alone]) for right, tokens in means]
            interval = float(np.quantile(gains, 0.025)), float(np.quantile(gains, 0.975))
        fraction = float((first.confidence < threshold).mean())
        points.append(CascadePoint(alpha, threshold, fraction, cascade, ahead, interval))
    return points


def _rising(singles: Sequence[StageScores]) -> list[StageScores]:
    return sorted(singles, key=lambda one: one.budget)


def _cascade(first: StageScores, second: StageScores, threshold: float) -> StageScores:
    """What comes out where images with a first score below the threshold are seen again; both looks are paid for."""
    again = first.confidence < threshold
    return StageScores(
        second.budget,
        np.where(again, second.right, first.right),
        np.where(again, second.confidence, first.confidence),
        first.tokens + again * second.tokens,
        first.seconds + again * second.seconds,
        first.reading + float(again.mean()) * second.reading,
    )


def _ahead(singles: Sequence[StageScores], cascade: StageScores) -> float | None:
    """Top-1 less that of single budgets at equal mean tokens, or None where all of them have fewer, or all more."""
    tokens = np.array([one.tokens.mean() for one in singles])
    own = cascade.tokens.mean()
    if not tokens[0] <= own <= tokens[-1]:
        return None
    return cascade.top1 - _single_at(own, tokens, np.array([one.top1 for one in singles]))


def _single_at(own: float, tokens: np.ndarray, top1: np.ndarray) -> float:
    """Top-1 of single budgets, float64 [budgets] by rising tokens, at `own` tokens.

    A line between two budgets is what showing some images with the one and the others with the other, by lot, gives.
    It never falls: where more tokens do harm, fewer are taken.
    """
    return float(np.interp(own, tokens, np.maximum.accumulate(top1)))


def _resampled_means(scored: Sequence[StageScores], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(top-1, tokens) of each of `scored`, both float64, on images drawn with replacement, the same for all."""
    values = np.stack([one.right for one in scored] + [one.tokens for one in scored], axis=1).astype(np.float64)
    images = len(values)
    draws = generator("cascade/bootstrap/1", seed)
    means = [draws.multinomial(images, np.full(images, 1 / images)) @ values / images for _ in range(REPLICATES)]
    return [(mean[: len(scored)], mean[len(scored) :]) for mean in means]
