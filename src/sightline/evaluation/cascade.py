"""Few tokens for every image, and many for those that the model is least sure of (NaViT appendices D, E and F).

All of it is computed from what the model said once at each budget. Which images are seen again is decided by a score
that was found on other images than those that are measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from sightline.attention.cpu import chosen_precision
from sightline.data.rng import generator
from sightline.data.sizes import Aspect, View
from sightline.data.source import Source
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.evaluation.config import RunInfo
from sightline.evaluation.predict import BatchOutputs, predict_split
from sightline.io.config import Count, Number, Precision, Share, config_dataclass
from sightline.metrics.calibration import expected_calibration_error
from sightline.models import Model
from sightline.results.cascade import CascadeRow
from sightline.results.rows import wilson_interval
from sightline.tasks.base import Task, task_of

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
REPLICATES = 2000


@config_dataclass(kw_only=False)
class CascadeConfig:
    """What to measure.

    Attributes:
        budgets: the most patches of an image, each measured alone; those of `pair` are measured in any case.
        pair: budgets of the first and of the second look; None takes the best pair on held-out images.
        alphas: fractions that are seen again.
        budget: mean patches of an image for which an alpha is found; None finds none.
        split: of the data set; images: at most this many of it, and of the held-out split.
        aspect: `native` keeps each image's own, `square` cuts its longer side.
        precision: of the matrix products; `auto` is bfloat16 where this machine is faster with it.
        workers: processes that read ahead; with any, the times are of a busy machine.
        seed: of the bootstrap.
    """

    budgets: tuple[Count, ...]
    pair: tuple[Count, Count] | None = None
    alphas: Annotated[tuple[Share, ...], Field(min_length=1)] = ALPHAS
    budget: Number | None = None
    split: str = "test"
    images: Count | None = None
    aspect: Aspect = "native"
    precision: Precision = "auto"
    workers: int = 0
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0

    def __post_init__(self) -> None:
        if self.pair is not None and self.pair[1] <= self.pair[0]:
            said = f"pair {self.pair[0]},{self.pair[1]}: the second must have more tokens than the first"
            raise InputError(said, field="pair", value=self.pair)
        if len(self.measured) < 2:
            said = f"tokens {', '.join(map(str, self.measured)) or 'none'}: expected two budgets or more"
            raise InputError(said, field="budgets", value=self.budgets)
        least = min(self.measured) if self.pair is None else self.pair[0]
        if self.budget is not None and self.budget < least:
            said = f"budget {self.budget:g}: is below the first look of {least} tokens"
            raise InputError(said, field="budget", value=self.budget)
        machine.check_workers(self.workers)

    @property
    def measured(self) -> tuple[int, ...]:
        """All budgets, rising."""
        return tuple(sorted({*self.budgets, *(self.pair or ())}))


@dataclass(frozen=True)
class CascadeStage:
    """Images of a split, and the budgets at which they are shown."""

    split: str
    indices: Sequence[int]
    budgets: tuple[int, ...]


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
            each = zip(one.batch.indices.tolist(), right.tolist(), confidence.tolist(), strict=True)
            found |= {index: (*scores, one.tokens, one.seconds / len(one.batch)) for index, *scores in each}
            reading += one.reading
        lines = [found[index] for index in indices if index in found]
        right, confidence, tokens, seconds = np.array(lines, np.float64).reshape(-1, 4).T
        return cls(budget, right.astype(bool), confidence, tokens, seconds, reading / max(len(lines), 1))

    def then(self, second: StageScores, threshold: float) -> StageScores:
        """What comes out where images with a score below the threshold are seen again; both looks are paid for."""
        again = self.confidence < threshold
        return StageScores(
            second.budget,
            np.where(again, second.right, self.right),
            np.where(again, second.confidence, self.confidence),
            self.tokens + again * second.tokens,
            self.seconds + again * second.seconds,
            self.reading + float(again.mean()) * second.reading,
        )

    @property
    def top1(self) -> float:
        return float(self.right.mean())

    @property
    def ece(self) -> float:
        return expected_calibration_error(self.confidence, self.right)


def plan_stages(source: Source, config: CascadeConfig) -> tuple[CascadeStage, CascadeStage]:
    """The held-out images and the tested ones: minival and the split, or else the two halves of the split.

    Raises:
        InputError: there is no such split, or too few images in it.
    """
    source.check(config.split)

    def some(split: str) -> list[int]:
        # Files are sorted by class: an order that mixes them, the same for every seed.
        length = source.length(split)
        if length is not None:
            return generator("cascade/images/1", 0).permutation(length)[: config.images].tolist()
        if config.images is None:
            raise InputError("images: expected a number for an endless split")
        return list(range(config.images))

    if "minival" in source.splits and config.split != "minival":
        split, held_out, tested = "minival", some("minival"), some(config.split)
    else:
        chosen = some(config.split)
        split, half = config.split, len(chosen) // 2
        held_out, tested = chosen[:half], chosen[half:]
    # With a pair that was given, nothing but its own alphas is looked for on held-out images.
    looks = (
        CascadeStage(split, sorted(held_out), config.pair or config.measured),
        CascadeStage(config.split, sorted(tested), config.measured),
    )
    for look in looks:
        if not look.indices:
            raise InputError(f"split {look.split}: has too few images to find a threshold and to test it")
    return looks


def count_tokens(looks: Sequence[CascadeStage]) -> int:
    """Patches that `measure` will show at most: the length of its progress bar."""
    return sum(len(look.indices) * sum(look.budgets) for look in looks)


def measure(
    model: Model,
    source: Source,
    config: CascadeConfig,
    identity: RunInfo,
    *,
    advance: Callable[[int], None] | None = None,
) -> list[CascadeRow]:
    """Every budget once over the images, and all points of the cascade from what was said: rows of each budget alone,
    then of each point by rising alpha, last of that for the budget that was asked for.

    Args:
        identity: of the model and its data.
        advance: called with the patches that the images of each batch may have.

    Raises:
        InputError: as `plan_stages`, or no cascade stays within the budget.
        NonFiniteError: a logit is not finite.
    """
    task = task_of(model).bind(source, identity.data)
    precision = chosen_precision(config.precision, model.anchor.device)

    def scored(look: CascadeStage, budget: int) -> StageScores:
        def moved(images: int) -> None:
            if advance is not None:
                advance(images * budget)

        given = predict_split(
            model, task, source, look.split, look.indices, View("tokens", budget), aspect=config.aspect,
            precision=precision, workers=config.workers, warm=True, advance=moved,
        )  # fmt: skip
        return StageScores.of(budget, task, given, look.indices)

    held_out, tested = plan_stages(source, config)
    before = [scored(held_out, budget) for budget in held_out.budgets]
    pair = config.pair or best_pair(before, config.alphas, config.budget)
    first, second = (next(one for one in before if one.budget == budget) for budget in pair)
    alphas = sorted(set(config.alphas))
    if config.budget is not None:
        alphas.append(fraction_within_budget(first, second, config.budget))
    thresholds = [(alpha, threshold_for(first.confidence, alpha)) for alpha in alphas]
    singles = [scored(tested, budget) for budget in tested.budgets]
    points = measure_cascade(singles, pair, thresholds, seed=config.seed)
    if config.budget is not None:
        points[-1][1]["chosen"] = True
    named = {name: value for name, value in vars(identity).items() if name != "weights"}
    shared: dict[str, Any] = named | {
        "encoding": model.encoding.name, "task": source.task, "split": tested.split, "images": len(tested.indices),
        "aspect": config.aspect, "held_out_split": held_out.split, "held_out": len(held_out.indices),
        "patch_size": model.config.patch_size, "scores": model.config.score_link, "precision": precision,
        "threads": torch.get_num_threads(), "bootstrap_seed": config.seed, "commit": machine.git_commit(),
        "hardware": machine.hardware_name(model.anchor.device),
    }  # fmt: skip
    rows = []
    for one, said in [*((one, {"kind": "single", "budget": one.budget}) for one in singles), *points]:
        low, high = wilson_interval(one.top1, len(one.right))
        rows.append(
            CascadeRow(
                **shared, **said, tokens=float(one.tokens.mean()), milliseconds=1000 * float(one.seconds.mean()),
                reading_milliseconds=1000 * one.reading, top1=one.top1, low=low, high=high, ece=one.ece,
            )
        )  # fmt: skip
    return rows


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
    return math.nextafter(1.0, 2.0) if count == len(rising) else float(rising[count - 1 : count + 1].mean())


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
    singles = sorted(singles, key=lambda one: one.budget)
    alone = _means(singles)
    worths: dict[tuple[int, int], float] = {}
    for first, second in itertools.combinations(singles, 2):
        if budget is None:
            joined = [first.then(second, threshold_for(first.confidence, alpha)) for alpha in alphas]
            gains = [_ahead(alone, mean) or 0.0 for mean in _means(joined)]
            worths[first.budget, second.budget] = float(np.mean(gains))
        elif first.tokens.mean() <= budget:
            alpha = fraction_within_budget(first, second, budget)
            worths[first.budget, second.budget] = first.then(second, threshold_for(first.confidence, alpha)).top1
    if not worths:
        raise InputError(f"budgets {[one.budget for one in singles]}: expected two, the first within {budget}")
    return max(worths, key=worths.__getitem__)


def measure_cascade(
    singles: Sequence[StageScores], pair: tuple[int, int], thresholds: Sequence[tuple[float, float]], *, seed: int = 0
) -> list[tuple[StageScores, dict[str, Any]]]:
    """A cascade at several thresholds, beside single budgets on the same images.

    Args:
        singles: at least the two of the pair.
        pair: the budgets of the first and of the second look.
        thresholds: (alpha, threshold) of each point.
        seed: of the bootstrap.

    Returns:
        Of each point what was answered in the end, tokens and times of both looks together, and the fields of its
        `CascadeRow` that say which it is and how far it is ahead of single budgets.
    """
    singles = sorted(singles, key=lambda one: one.budget)
    first, second = (next(one for one in singles if one.budget == budget) for budget in pair)
    joined = [first.then(second, threshold) for _, threshold in thresholds]
    scored, alone = [*singles, *joined], slice(len(singles))
    values = np.stack([[one.tokens, one.right] for one in scored]).astype(np.float64)
    # The same images, drawn with replacement, for all.
    images, draws = values.shape[2], generator("cascade/bootstrap/1", seed)
    often = (draws.multinomial(images, np.full(images, 1 / images)) for _ in range(REPLICATES))
    drawn = [values @ some / images for some in often]
    means, points = _means(scored), []
    for place, ((alpha, threshold), cascade) in enumerate(zip(thresholds, joined, strict=True), start=len(singles)):
        ahead, low, high = _ahead(means[alone], means[place]), None, None
        if ahead is not None:
            low, high = np.quantile([_above(one[alone], one[place]) for one in drawn], (0.025, 0.975)).tolist()
        fraction = float((first.confidence < threshold).mean())
        said = {
            "kind": "cascade", "budget": pair[0], "second_budget": pair[1], "alpha": alpha, "threshold": threshold,
            "fraction": fraction, "ahead": ahead, "ahead_low": low, "ahead_high": high,
        }  # fmt: skip
        points.append((cascade, said))
    return points


def _means(scored: Sequence[StageScores]) -> np.ndarray:
    """float64 [scored, 2]: mean tokens, and top-1."""
    return np.array([(one.tokens.mean(), one.top1) for one in scored], np.float64)


def _ahead(singles: np.ndarray, cascade: np.ndarray) -> float | None:
    """Top-1 less that of single budgets at equal mean tokens, or None where all of them have fewer, or all more."""
    return _above(singles, cascade) if singles[0, 0] <= cascade[0] <= singles[-1, 0] else None


def _above(singles: np.ndarray, cascade: np.ndarray) -> float:
    """Top-1 less the line through single budgets, as `_means` by rising tokens.

    A line between two budgets is what showing some images with the one and the others with the other, by lot, gives.
    It never falls: where more tokens do harm, fewer are taken.
    """
    return float(cascade[1] - np.interp(cascade[0], singles[:, 0], np.maximum.accumulate(singles[:, 1])))
