"""Measuring single token budgets and a cascade of two of them on one split (NaViT appendices D, E and F)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field

from sightline.attention.cpu import chosen_precision
from sightline.data.rng import generator
from sightline.data.sizes import Aspect, View
from sightline.data.source import Source
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.evaluation.cascade_points import (
    CascadePoint,
    StageScores,
    best_pair,
    fraction_within_budget,
    measure_cascade,
    threshold_for,
)
from sightline.evaluation.measure import RunInfo
from sightline.evaluation.predict import predict_split
from sightline.io.config import Count, Number, Precision, Share, config_dataclass
from sightline.models import Model
from sightline.results.cascade import CascadeRow
from sightline.results.rows import wilson_interval
from sightline.tasks.base import task_of

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)


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


@dataclass(frozen=True)
class CascadeResult:
    """What was measured.

    Attributes:
        held_out, tested: the images that thresholds were found on, and those that everything else is about.
        singles: each budget alone on the tested images, rising.
        pair: budgets of the first and of the second look.
        points: of each alpha, rising; chosen: of the one found for the budget that was asked for.
        precision: of the matrix products.
    """

    held_out: CascadeStage
    tested: CascadeStage
    singles: tuple[StageScores, ...]
    pair: tuple[int, int]
    points: tuple[CascadePoint, ...]
    chosen: CascadePoint | None
    precision: str


def planned_looks(source: Source, config: CascadeConfig) -> tuple[CascadeStage, CascadeStage]:
    """The held-out images and the tested ones: minival and the split, or else the two halves of the split.

    Raises:
        InputError: there is no such split, or too few images in it.
    """
    source.check(config.split)
    chosen = _some(source.length(config.split), config.images)
    if "minival" in source.splits and config.split != "minival":
        split, held_out, tested = "minival", _some(source.length("minival"), config.images), chosen
    else:
        half = len(chosen) // 2
        split, held_out, tested = config.split, chosen[:half], chosen[half:]
    # With a pair that was given, nothing but its own alphas is looked for on held-out images.
    looks = (
        CascadeStage(split, sorted(held_out), config.pair or config.measured),
        CascadeStage(config.split, sorted(tested), config.measured),
    )
    for look in looks:
        if not look.indices:
            raise InputError(f"split {look.split}: {len(chosen)} images are too few to find a threshold and to test it")
    return looks


def planned_tokens(looks: Sequence[CascadeStage]) -> int:
    """Patches that `measure` will show at most: the length of its progress bar."""
    return sum(len(look.indices) * sum(look.budgets) for look in looks)


def _some(length: int | None, images: int | None) -> list[int]:
    """Indices of a split, in an order that mixes its classes: files are sorted by class; the same for every seed."""
    if length is None:
        if images is None:
            raise InputError("images: expected a number for an endless split")
        return list(range(images))
    order = generator("cascade/images/1", 0).permutation(length)
    return order[:images].tolist()


def measure(
    model: Model,
    source: Source,
    config: CascadeConfig,
    data: str,
    *,
    advance: Callable[[int], None] | None = None,
) -> CascadeResult:
    """Every budget once over the images, and all points of the cascade from what was said.

    Args:
        data: the source as it was asked for.
        advance: called with the patches that the images of each batch may have.

    Raises:
        InputError: as `planned_looks`, or no cascade stays within the budget.
        NonFiniteError: a logit is not finite.
    """
    task = task_of(model).bind(source, data)
    precision = chosen_precision(config.precision, model.anchor.device)

    def scored(look: CascadeStage, budget: int) -> StageScores:
        def report(images: int) -> None:
            if advance is not None:
                advance(images * budget)

        given = predict_split(
            model,
            task,
            source,
            look.split,
            look.indices,
            View("tokens", budget),
            aspect=config.aspect,
            precision=precision,
            workers=config.workers,
            advance=report,
            warm=True,
        )
        return StageScores.of(budget, task, given, look.indices)

    held_out, tested = planned_looks(source, config)
    before = [scored(held_out, budget) for budget in held_out.budgets]
    pair = config.pair or best_pair(before, config.alphas, config.budget)
    first, second = (next(one for one in before if one.budget == budget) for budget in pair)
    alphas = sorted(set(config.alphas))
    if config.budget is not None:
        alphas.append(fraction_within_budget(first, second, config.budget))
    singles = tuple(scored(tested, budget) for budget in tested.budgets)
    thresholds = [(alpha, threshold_for(first.confidence, alpha)) for alpha in alphas]
    points = measure_cascade(singles, pair, thresholds, seed=config.seed)
    chosen = None if config.budget is None else points.pop()
    return CascadeResult(held_out, tested, singles, pair, tuple(points), chosen, precision)


def cascade_rows(
    result: CascadeResult,
    model: Model,
    source: Source,
    config: CascadeConfig,
    identity: RunInfo,
) -> list[CascadeRow]:
    """Rows of each budget alone, then of each point of the cascade, the chosen one last."""
    shared: dict[str, Any] = {
        **vars(identity),
        "encoding": model.encoding.name,
        "task": source.task,
        "split": result.tested.split,
        "images": len(result.tested.indices),
        "aspect": config.aspect,
        "held_out_split": result.held_out.split,
        "held_out": len(result.held_out.indices),
        "patch_size": model.config.patch_size,
        "scores": model.config.score_link,
        "precision": result.precision,
        "threads": torch.get_num_threads(),
        "bootstrap_seed": config.seed,
        "commit": machine.git_commit(),
        "hardware": machine.hardware_name(model.anchor.device),
    }

    def row(one: StageScores, budget: int, **more: Any) -> CascadeRow:
        low, high = wilson_interval(one.top1, len(one.right))
        return CascadeRow(
            **shared,
            **more,
            budget=budget,
            tokens=float(one.tokens.mean()),
            milliseconds=1000 * float(one.seconds.mean()),
            reading_milliseconds=1000 * one.reading,
            top1=one.top1,
            low=low,
            high=high,
            ece=one.ece,
        )

    rows = [row(one, one.budget, kind="single") for one in result.singles]
    for point in (*result.points, *([result.chosen] if result.chosen else [])):
        of_point = {name: getattr(point, name) for name in ("alpha", "threshold", "fraction", "ahead")}
        of_point["ahead_low"], of_point["ahead_high"] = point.ahead_interval or (None, None)
        chosen, (first, second) = point is result.chosen, result.pair
        rows.append(row(point.scored, first, kind="cascade", second_budget=second, chosen=chosen, **of_point))
    return rows
