"""Rows grouped into the lines of a plot or table: one line a run, two where its knob was also tuned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sightline.errors import InputError
from sightline.results import SQUARE, ResultRow

HELD_OUT = "heldout_fonts"
QUINTILES = ("smallest", "2nd", "3rd", "4th", "largest")


@dataclass(frozen=True, slots=True)
class Point:
    """One measured number: `value` and `stderr` are fractions, `images` how many were measured."""

    value: float
    stderr: float
    images: int
    knob: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One run under one rule for its knob; `points` maps a resolution in pixels to what was measured there.

    `detail` tells lines of one run apart ("tuned knob", "seed 1"), else it is empty; `paired` says that the same run
    is there with its default and with its tuned knob.
    """

    run: str
    encoding: str
    detail: str
    tuned: bool
    paired: bool
    train_resolution: int
    points: Mapping[int, Point]

    @property
    def label(self) -> str:
        """The run's name with its detail, on one line."""
        return printable(self.run) + (f" ({self.detail})" if self.detail else "")


def printable(text: object) -> str:
    """`text` on one line without control characters, which neither a terminal nor XML should be handed."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def check_rows(rows: Sequence[ResultRow]) -> None:
    """Raise `InputError` unless there are rows, of one data set and task, with finite standard errors."""
    if not rows:
        raise InputError("there are no result rows to report")
    kinds = sorted({f"{row.data} / {row.task}" for row in rows})
    if len(kinds) > 1:
        raise InputError(f"rows of several data sets cannot share one curve, report each: {', '.join(kinds)}")
    for row in rows:
        if not (math.isfinite(row.stderr) and row.stderr >= 0):
            raise InputError(f"run {row.run}, {row.metric} at {row.resolution} px: standard error {row.stderr}")


def main_split(rows: Sequence[ResultRow]) -> str:
    """The split that the curve shows: `test` if it was measured, else the first that is not a side measurement."""
    splits = list(dict.fromkeys(row.split for row in rows))
    if "test" in splits:
        return "test"
    return next((split for split in splits if split not in (HELD_OUT, "minival")), splits[0])


def run_order(rows: Iterable[ResultRow], names: Iterable[str] = ()) -> list[str]:
    """Run names, `names` first and then as they appear; a run's place fixes its colour in every figure."""
    return list(dict.fromkeys([*names, *(row.run for row in rows)]))


def lines(rows: Iterable[ResultRow], metric: str = "top1", *, split: str, order: Sequence[str] = ()) -> list[Line]:
    """The lines of one metric on one split, in run order, default knob before tuned; points by rising resolution, of
    square images alone.

    Runs of several seeds are several lines, and so are several fixed knobs of one run; the labels then say which.

    Raises:
        InputError: two rows claim the same point.
    """
    chosen = [row for row in rows if row.metric == metric and row.split == split and row.view == SQUARE]
    by_knob = _runs_with_several_knobs(chosen)
    groups: dict[tuple[str, int, bool, float | None], list[ResultRow]] = {}
    for row in chosen:
        fixed = row.knob if not row.tuned and (row.run, row.seed) in by_knob else None
        groups.setdefault((row.run, row.seed, row.tuned, fixed), []).append(row)
    place = {name: index for index, name in enumerate(run_order(chosen, order))}
    made = []
    for key in sorted(groups, key=lambda key: (place[key[0]], key[1], key[2], key[3] or 0.0)):
        run, seed, tuned, fixed = key
        paired = any(other[:2] == (run, seed) and other[2] != tuned for other in groups)
        details = []
        if any(other[0] == run and other[1] != seed for other in groups):
            details.append(f"seed {seed}")
        if fixed is not None:
            details.append(f"knob {fixed:g}")
        elif tuned or paired:
            details.append("tuned knob" if tuned else "default knob")
        first = groups[key][0]
        points = _points(groups[key])
        made.append(Line(run, first.encoding, ", ".join(details), tuned, paired, first.train_resolution, points))
    return made


def _runs_with_several_knobs(rows: Iterable[ResultRow]) -> set[tuple[str, int]]:
    seen: dict[tuple[str, int, int | None], set[float | None]] = {}
    for row in rows:
        if not row.tuned:
            seen.setdefault((row.run, row.seed, row.resolution), set()).add(row.knob)
    return {key[:2] for key, knobs in seen.items() if len(knobs) > 1}


def _points(rows: Iterable[ResultRow]) -> dict[int, Point]:
    points: dict[int, Point] = {}
    for row in sorted(rows, key=lambda row: row.resolution or 0):
        if row.resolution is None:
            continue
        if row.resolution in points:
            raise InputError(f"run {row.run}: {row.metric} on {row.split} at {row.resolution} px is there twice")
        points[row.resolution] = Point(row.value, row.stderr, row.images, row.knob)
    return points


def resolutions(chosen: Iterable[Line]) -> list[int]:
    """All resolutions at which any of the lines was measured, rising, in pixels."""
    return sorted({resolution for line in chosen for resolution in line.points})


def train_resolutions(chosen: Iterable[Line]) -> list[int]:
    """The resolutions at which the runs were trained, rising, in pixels: one, unless runs differ."""
    return sorted({line.train_resolution for line in chosen})


def best_lines(chosen: Sequence[Line], resolution: int) -> set[int]:
    """Indices of the lines with the highest value at `resolution`; empty where fewer than two were measured."""
    values = {index: line.points[resolution].value for index, line in enumerate(chosen) if resolution in line.points}
    return {index for index, value in values.items() if value == max(values.values())} if len(values) > 1 else set()


def groups(rows: Iterable[ResultRow]) -> list[str]:
    """Names of the class groups that were measured, in the order of the rows."""
    prefix = "top1_group_"
    return list(dict.fromkeys(row.metric.removeprefix(prefix) for row in rows if row.metric.startswith(prefix)))


def outer_resolutions(rows: Iterable[ResultRow]) -> list[int]:
    """The resolutions that a breakdown is shown at: the training one (else the smallest) and the largest of `rows`."""
    chosen = list(rows)
    measured = sorted({row.resolution for row in chosen if row.resolution is not None})
    if not measured:
        return []
    trained = sorted({row.train_resolution for row in chosen} & set(measured))
    return sorted({trained[0] if trained else measured[0], measured[-1]})
