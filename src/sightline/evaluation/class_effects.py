"""How classes fare between sizes and between models (LookHere appendix A.9): falls, rises, spreads, confused pairs.

The paper prints no formula but that of confused pairs; the others are said in `ClassEffect`. Effects are made of frames
with a line a class: `value`, `images`, and where they are known `stderr` and `other`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sightline.errors import unknown_name_error
from sightline.results.classes import MEAN, METRICS, ClassEffect, ClassStudy, ClassTable

_TOGETHER = 512


def class_effects(study: ClassStudy, against: str | None = None) -> list[ClassEffect]:
    """Every effect of a study; of classes without an image only how often they are named.

    Args:
        against: the line from which gaps are measured; the other one of two, else the mean of all, unless given.

    Raises:
        InputError: there is no such line.
    """
    effects = _extrapolations(study) + _gaps(study, against)
    for metric in METRICS:
        effects += _changes(study, metric) + _spreads(study, metric)
    return effects + _confusions(study)


def _extrapolations(study: ClassStudy) -> list[ClassEffect]:
    """`extrapolation` of each line at each size but `since` (figure 28)."""
    made = []
    for size in (size for size in study.sizes if study.grows and size != study.since):
        for before, after in zip(study.at(study.since), study.at(size), strict=True):
            gain, count = after.right.astype(float) - before.right, len(after.labels)
            stderr = float(gain.std(ddof=1)) / math.sqrt(count) if count > 1 else None
            said: dict[str, Any] = {"line": after.line, "shown": size, "since": study.since, "stderr": stderr}
            made.append(ClassEffect("extrapolation", "top1", float(gain.mean()), count, **said))
    return made


def _gaps(study: ClassStudy, against: str | None) -> list[ClassEffect]:
    """`gap` of each line and class at `shown`, where there are several lines; as `class_effects`."""
    if len(study.lines) < 2:
        return []
    if against is None:
        against = study.lines[1] if len(study.lines) == 2 else MEAN
    if against != MEAN and against not in study.lines:
        raise unknown_name_error("--against: line", against, [*study.lines, MEAN])
    right = {table.line: table.right.astype(float) for table in study.at(study.shown)}
    other = right.get(against, np.mean(list(right.values()), axis=0))
    said = {"shown": study.shown, "against": against}
    return [
        effect
        for line in study.lines
        if line != against
        for effect in _effects(study, _by_class(right[line] - other, study.one), "gap", "top1", line=line, **said)
    ]


def _changes(study: ClassStudy, metric: str) -> list[ClassEffect]:
    """`change` of each class from `since` to `shown`, of the mean of all lines, and of each where there are several."""
    made = list[ClassEffect]()
    if not study.grows:
        return made
    every = list(zip(study.at(study.since), study.at(study.shown), strict=True))
    groups = {MEAN: every} | ({pair[0].line: [pair] for pair in every} if len(every) > 1 else {})
    for line, pairs in groups.items():
        if metric == "top1":
            gain = np.mean([after.right.astype(float) - before.right for before, after in pairs], axis=0)
            frame = _by_class(gain, study.one)
        else:
            frame = _named(pairs)
        made += _effects(study, frame, "change", metric, line=line, shown=study.shown, since=study.since)
    return made


def _spreads(study: ClassStudy, metric: str) -> list[ClassEffect]:
    """`spread_of_models` where there are several lines, `spread_of_sizes` where there are several sizes."""
    values, images = study.frame(metric), study.one.counts
    if metric == "predicted":
        images = np.full(len(images), len(study.one.labels))
    made = list[ClassEffect]()
    for kind, some, shown, since in (
        ("spread_of_models", values[study.shown], study.shown, ""),
        ("spread_of_sizes", values.T.groupby(level=0, sort=False).mean().T, study.sizes[-1], study.sizes[0]),
    ):
        if some.shape[1] > 1:
            frame = (some.max(axis=1) - some.min(axis=1)).to_frame("value").assign(images=images)
            # Named by none, and no image: nothing happened.
            frame = frame[(some > 0).any(axis=1) | (study.one.counts > 0)]
            made += _effects(study, frame, kind, metric, shown=shown, since=since)
    return made


def _confusions(study: ClassStudy) -> list[ClassEffect]:
    """`confusion` of each class that has an image, with the other class that it gives most to; the first of equals."""
    import pandas

    table = study.one
    if len(table.classes) < 2 or not study.grows:
        return []
    before, after = (np.mean([one.chances for one in study.at(size)], axis=0) for size in (study.since, study.shown))
    moved = after - before
    gains = moved - np.diag(np.full(len(moved), np.inf))
    others = [table.classes[number] for number in gains.argmax(axis=1).tolist()]
    frame = pandas.DataFrame({"value": gains.max(axis=1) - moved.diagonal(), "images": table.counts, "other": others})
    said = {"shown": study.shown, "since": study.since}
    return _effects(study, frame[table.counts > 0], "confusion", "probability", **said)


def _effects(study: ClassStudy, frame: Any, kind: Any, metric: str, **said: str) -> list[ClassEffect]:
    """An effect of each line of a frame whose value is known."""
    return [
        ClassEffect(
            kind, metric, one["value"], int(one["images"]), name=study.one.classes[int(number)], **said,
            stderr=one["stderr"] if math.isfinite(one.get("stderr", math.nan)) else None, other=one.get("other", ""),
        )
        for number, one in frame.dropna(subset="value").to_dict("index").items()
    ]  # fmt: skip


def _by_class(values: np.ndarray, table: ClassTable) -> Any:
    """The mean of what is known of each image, over those of each true class, and its standard error."""
    import pandas

    found = pandas.Series(values).groupby(table.labels)
    return pandas.DataFrame({"value": found.mean(), "stderr": found.sem(), "images": found.size()})


def _named(pairs: Sequence[tuple[ClassTable, ClassTable]]) -> Any:
    """By how much the share of all images that are named as each class grows, in the mean of all lines, and the
    standard error of that mean over images; of classes that have an image or are named."""
    import pandas

    one = pairs[0][0]
    images, classes, lines = len(one.labels), len(one.classes), len(pairs)
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
    stderrs = np.sqrt(spread) / images / lines
    frame = pandas.DataFrame({"value": sums / images / lines, "stderr": stderrs, "images": images})
    return frame[one.counts + sum(before.predicted + after.predicted for before, after in pairs) > 0]
