"""How classes fare between sizes and between models (LookHere appendix A.9): falls, rises, spreads, confused pairs.

The paper prints no formula but that of confused pairs; the others are said in `ClassEffect`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sightline.errors import unknown_name_error
from sightline.results.classes import MEAN, METRICS, ClassEffect, ClassStudy, ClassTable, Metric

_TOGETHER = 512


def class_effects(study: ClassStudy, against: str | None = None) -> list[ClassEffect]:
    """Every effect of a study; of classes without an image only how often they are named.

    Args:
        against: the line from which gaps are measured; the other one of two, else the mean of all, unless given.

    Raises:
        InputError: there is no such line.
    """
    effects = extrapolations(study) + gaps(study, against)
    for metric in METRICS:
        effects += changes(study, metric) + spreads(study, metric)
    return effects + confusions(study)


def extrapolations(study: ClassStudy) -> list[ClassEffect]:
    """`extrapolation` of each line at each size but `since` (figure 28)."""
    sizes = [size for size in study.sizes if study.grows and size != study.since]
    made = []
    for size in sizes:
        for before, after in zip(study.at(study.since), study.at(size), strict=True):
            gain, count = after.right.astype(float) - before.right, len(after.labels)
            stderr = float(gain.std(ddof=1)) / math.sqrt(count) if count > 1 else None
            said: dict[str, Any] = {"line": after.line, "shown": size, "since": study.since, "stderr": stderr}
            made.append(ClassEffect("extrapolation", "top1", float(gain.mean()), count, **said))
    return made


def gaps(study: ClassStudy, against: str | None = None) -> list[ClassEffect]:
    """`gap` of each line and class at `shown`, where there are several lines; as `class_effects`."""
    if len(study.lines) < 2:
        return []
    if against is None:
        against = study.lines[1] if len(study.lines) == 2 else MEAN
    if against != MEAN and against not in study.lines:
        raise unknown_name_error("--against: line", against, [*study.lines, MEAN])
    right = {table.line: table.right.astype(float) for table in study.at(study.shown)}
    other, made = right.get(against, np.mean(list(right.values()), axis=0)), list[ClassEffect]()
    for line in study.lines:
        if line != against:
            values, stderrs = _by_class(right[line] - other, study.one)
            said = {"line": line, "shown": study.shown, "against": against}
            made += _effects(study.one, "gap", "top1", study.one.counts > 0, values, stderrs, **said)
    return made


def changes(study: ClassStudy, metric: Metric) -> list[ClassEffect]:
    """`change` of each class from `since` to `shown`, of the mean of all lines, and of each where there are several."""
    table, made = study.one, list[ClassEffect]()
    if not study.grows:
        return made
    every = list(zip(study.at(study.since), study.at(study.shown), strict=True))
    groups = {MEAN: every} | ({pair[0].line: [pair] for pair in every} if len(every) > 1 else {})
    for line, pairs in groups.items():
        if metric == "top1":
            gain = np.mean([after.right.astype(float) - before.right for before, after in pairs], axis=0)
            there, (values, stderrs) = table.counts > 0, _by_class(gain, table)
        else:
            # Named by none at either size, and no image: nothing happened.
            there = table.counts + sum(before.predicted + after.predicted for before, after in pairs) > 0
            values, stderrs = _named(pairs)
        said = {"line": line, "shown": study.shown, "since": study.since}
        made += _effects(table, "change", metric, there, values, stderrs, **said)
    return made


def spreads(study: ClassStudy, metric: Metric) -> list[ClassEffect]:
    """`spread_of_models` where there are several lines, `spread_of_sizes` where there are several sizes."""
    table, made = study.one, list[ClassEffect]()
    values = np.array([[getattr(one, metric) for one in study.at(size)] for size in study.sizes])
    of_models, of_sizes = values[study.sizes.index(study.shown)], values.mean(axis=1)
    for kind, some, shown, since in (
        ("spread_of_models", of_models, study.shown, ""),
        ("spread_of_sizes", of_sizes, study.sizes[-1], study.sizes[0]),
    ):
        if len(some) > 1:
            wide = np.ptp(some, axis=0)
            # nan where a class has no image.
            there = np.isfinite(wide) & ((some > 0).any(axis=0) | (table.counts > 0))
            made += _effects(table, kind, metric, there, wide, shown=shown, since=since)
    return made


def confusions(study: ClassStudy) -> list[ClassEffect]:
    """`confusion` of each class that has an image, with the other class that it gives most to; the first of equals."""
    table = study.one
    if len(table.classes) < 2 or not study.grows:
        return []
    before, after = (np.mean([one.chances for one in study.at(size)], axis=0) for size in (study.since, study.shown))
    moved = after - before
    gains = moved - np.diag(np.full(len(moved), np.inf))
    numbers: list[int] = gains.argmax(axis=1).tolist()
    said: dict[str, Any] = {
        "others": [table.classes[one] for one in numbers],
        "shown": study.shown,
        "since": study.since,
    }
    return _effects(table, "confusion", "probability", table.counts > 0, gains.max(axis=1) - moved.diagonal(), **said)


def _effects(
    table: ClassTable,
    kind: Any,
    metric: str,
    there: np.ndarray,
    values: np.ndarray,
    stderrs: np.ndarray | None = None,
    others: Sequence[str] | None = None,
    **said: str,
) -> list[ClassEffect]:
    """An effect of each class that is there."""
    counts = np.full(len(values), len(table.labels)) if metric == "predicted" else table.counts
    made = []
    for number in np.flatnonzero(there).tolist():
        stderr = None if stderrs is None or not math.isfinite(stderrs[number]) else float(stderrs[number])
        names: dict[str, Any] = {"name": table.classes[number], "other": others[number] if others else "", **said}
        made.append(ClassEffect(kind, metric, float(values[number]), int(counts[number]), stderr=stderr, **names))
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


def _named(pairs: Sequence[tuple[ClassTable, ClassTable]]) -> tuple[np.ndarray, np.ndarray]:
    """By how much the share of all images that are named as each class grows, in the mean of all lines, and the
    standard error of that mean over images."""
    images, classes, lines = len(pairs[0][0].labels), len(pairs[0][0].classes), len(pairs)
    sums, squares = np.zeros(classes), np.zeros(classes)
    for start in range(0, images, _TOGETHER):
        rows = np.arange(min(_TOGETHER, images - start))
        # Whole numbers, whose sums are exact.
        each = np.zeros((len(rows), classes))
        for before, after in pairs:
            each[rows, before.answers[start + rows]] -= 1
            each[rows, after.answers[start + rows]] += 1
        sums, squares = sums + each.sum(axis=0), squares + (each**2).sum(axis=0)
    spread = np.full(classes, np.nan) if images < 2 else (images * squares - sums**2) / (images - 1)
    return sums / images / lines, np.sqrt(spread) / images / lines
