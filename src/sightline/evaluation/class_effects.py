"""How classes fare between sizes and between models (LookHere appendix A.9): falls, rises, spreads, confused pairs.

The paper prints no formula but that of confused pairs; the others are said in `ClassEffect`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sightline.errors import unknown_name_error
from sightline.results.classes import MEAN, METRICS, ClassEffect, ClassStudy, ClassTable, Kind, Metric

_TOGETHER = 512


def class_effects(study: ClassStudy, against: str | None = None) -> list[ClassEffect]:
    """Every effect of a study; of classes without an image only how often they are named.

    Args:
        against: the line from which gaps are measured; the other one of two, else the mean of all, unless given.

    Raises:
        InputError: there is no such line.
    """
    effects = []
    if study.grows:
        effects += extrapolations(study)
    if len(study.lines) > 1:
        effects += gaps(study, against)
    for metric in METRICS:
        effects += changes(study, metric) if study.grows else []
        effects += spreads(study, metric)
    return effects + (confusions(study) if study.grows else [])


def extrapolations(study: ClassStudy) -> list[ClassEffect]:
    """`extrapolation` of each line at each size but `since` (figure 28)."""
    made = []
    for size in study.sizes:
        for before, after in zip(study.at(study.since), study.at(size), strict=True) if size != study.since else ():
            gain = after.right.astype(float) - before.right
            stderr = float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else None
            made.append(
                ClassEffect(
                    kind="extrapolation", metric="top1", value=float(gain.mean()), stderr=stderr, count=len(gain),
                    line=after.line, shown=size, since=study.since,
                )
            )  # fmt: skip
    return made


def gaps(study: ClassStudy, against: str | None = None) -> list[ClassEffect]:
    """`gap` of each line and class at `shown`; as `class_effects`."""
    if against is None:
        against = study.lines[1] if len(study.lines) == 2 else MEAN
    if against != MEAN and against not in study.lines:
        raise unknown_name_error("--against: line", against, [*study.lines, MEAN])
    tables, made = study.at(study.shown), list[ClassEffect]()
    right = {table.line: table.right.astype(float) for table in tables}
    other = right.get(against, np.mean(list(right.values()), axis=0))
    for table in tables:
        if table.line != against:
            values, stderrs = _by_class(right[table.line] - other, table)
            said = {"kind": "gap", "metric": "top1", "line": table.line, "shown": study.shown, "against": against}
            made += _effects(table, table.counts > 0, values, table.counts, stderrs, **said)
    return made


def changes(study: ClassStudy, metric: Metric) -> list[ClassEffect]:
    """`change` of each class from `since` to `shown`, of the mean of all lines, and of each where there are several."""
    before, after = study.at(study.since), study.at(study.shown)
    groups: dict[str, list[int]] = {MEAN: list(range(len(before)))}
    if len(study.lines) > 1:
        groups |= {line: [place] for place, line in enumerate(study.lines)}
    table, made = study.one, list[ClassEffect]()
    for line, members in groups.items():
        pair = [before[one] for one in members], [after[one] for one in members]
        if metric == "top1":
            right = [np.mean([one.right for one in tables], axis=0) for tables in pair]
            values, stderrs = _by_class(right[1] - right[0], table)
            there, counts = table.counts > 0, table.counts
        else:
            values, stderrs = _named(*pair)
            counts = np.full(len(values), len(table.labels))
            # Named by none at either size, and no image: nothing happened.
            there = table.counts + sum(one.predicted for tables in pair for one in tables) > 0
        said = {"kind": "change", "metric": metric, "line": line, "shown": study.shown, "since": study.since}
        made += _effects(table, there, values, counts, stderrs, **said)
    return made


def spreads(study: ClassStudy, metric: Metric) -> list[ClassEffect]:
    """`spread_of_models` where there are several lines, `spread_of_sizes` where there are several sizes."""
    table, made = study.one, list[ClassEffect]()
    of_models = np.array([getattr(one, metric) for one in study.at(study.shown)])
    means = np.array([np.mean([getattr(one, metric) for one in study.at(size)], axis=0) for size in study.sizes])
    counts = table.counts if metric == "top1" else np.full(len(table.classes), len(table.labels))
    kinds: tuple[tuple[Kind, np.ndarray, str, str], ...] = (
        ("spread_of_models", of_models, study.shown, ""),
        ("spread_of_sizes", means, study.sizes[-1], study.sizes[0]),
    )
    for kind, values, shown, since in kinds:
        if len(values) > 1:
            wide = np.ptp(values, axis=0)
            # nan where a class has no image.
            there = np.isfinite(wide) & ((values > 0).any(axis=0) | (table.counts > 0))
            made += _effects(table, there, wide, counts, kind=kind, metric=metric, shown=shown, since=since)
    return made


def confusions(study: ClassStudy) -> list[ClassEffect]:
    """`confusion` of each class that has an image, with the other class that it gives most to; the first of equals."""
    before, after = (np.mean([one.chances for one in study.at(size)], axis=0) for size in (study.since, study.shown))
    table, moved = study.one, after - before
    if len(table.classes) < 2:
        return []
    gains = moved - np.diag(np.full(len(moved), np.inf))
    others = gains.argmax(axis=1)
    values = gains[np.arange(len(moved)), others] - moved.diagonal()
    return [
        ClassEffect(
            kind="confusion", metric="probability", value=float(values[number]), count=int(table.counts[number]),
            name=table.classes[number], other=table.classes[int(others[number])], shown=study.shown, since=study.since,
        )
        for number in np.flatnonzero(table.counts).tolist()
    ]  # fmt: skip


def _effects(
    table: ClassTable,
    there: np.ndarray,
    values: np.ndarray,
    counts: np.ndarray,
    stderrs: np.ndarray | None = None,
    **said: Any,
) -> list[ClassEffect]:
    """An effect of each class that is there."""
    made = []
    for number in np.flatnonzero(there).tolist():
        stderr = None if stderrs is None or not math.isfinite(stderrs[number]) else float(stderrs[number])
        value, count, name = float(values[number]), int(counts[number]), table.classes[number]
        made.append(ClassEffect(value=value, count=count, name=name, stderr=stderr, **said))
    return made


def _by_class(values: np.ndarray, table: ClassTable) -> tuple[np.ndarray, np.ndarray]:
    """The mean of what is known of each image, over those of each true class, and its standard error; nan where there
    is none."""
    classes, counts = len(table.classes), table.counts
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.bincount(table.labels, values, minlength=classes) / counts
        # From the mean: a difference of squares would make an error of what does not vary.
        squares = np.bincount(table.labels, (values - means[table.labels]) ** 2, minlength=classes)
        return means, np.where(counts > 1, np.sqrt(squares / (counts - 1) / counts), np.nan)


def _named(before: Sequence[ClassTable], after: Sequence[ClassTable]) -> tuple[np.ndarray, np.ndarray]:
    """By how much the share of all images that are named as each class grows, in the mean of all lines, and the
    standard error of that mean over images."""
    images, classes = len(before[0].labels), len(before[0].classes)
    sums, squares = np.zeros(classes), np.zeros(classes)
    for start in range(0, images, _TOGETHER):
        these = slice(start, start + _TOGETHER)
        count = len(before[0].labels[these])
        # Whole numbers, whose sums are exact.
        each = np.zeros((count, classes))
        for tables, sign in ((before, -1), (after, 1)):
            for one in tables:
                each[np.arange(count), one.answers[these]] += sign
        sums, squares = sums + each.sum(axis=0), squares + (each**2).sum(axis=0)
    lines, spread = len(before), images * squares - sums**2
    if images < 2:
        return sums / images / lines, np.full(classes, np.nan)
    return sums / images / lines, np.sqrt(spread / (images - 1)) / images / lines
