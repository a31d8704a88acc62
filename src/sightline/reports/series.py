"""Rows grouped into the lines of a plot or table: one line a run, two where its knob was also tuned.

Only rows of square images stand on the axis of resolutions; those of other views are lines by view.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from sightline.errors import InputError
from sightline.reports.content import SeenSizes
from sightline.results import DEVIATIONS, SQUARE, ResultRow, Slices, wilson

HELD_OUT = "heldout_fonts"
QUINTILES = ("smallest", "2nd", "3rd", "4th", "largest")


@dataclass(frozen=True, slots=True)
class Point:
    """One measured number: `value` is a fraction of `images` images, `patches` of an image in the mean."""

    value: float
    images: int
    knob: float | None
    patches: float = 0.0

    def interval(self, deviations: float = DEVIATIONS) -> tuple[float, float]:
        """Where the fraction lies with 95 %, or with another certainty (Wilson)."""
        return wilson(self.value, self.images, deviations)

    @property
    def low(self) -> float:
        return self.interval()[0]

    @property
    def high(self) -> float:
        return self.interval()[1]


@dataclass(frozen=True, slots=True)
class Line:
    """One run under one rule for its knob; `points` maps a resolution in pixels to what was measured there, and
    `views` a way of showing images that is no square of one size to the same. `seen` are the sizes of its training.

    `detail` tells lines of one run apart ("tuned knob", "seed 1"), else it is empty; `paired` says that the same run
    is there with its default and with its tuned knob.
    """

    run: str
    encoding: str
    detail: str
    tuned: bool
    paired: bool
    seen: SeenSizes
    points: Mapping[int, Point] = field(default_factory=dict)
    views: Mapping[str, Point] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The run's name with its detail, on one line."""
        return printable(self.run) + (f" ({self.detail})" if self.detail else "")


def printable(text: object) -> str:
    """`text` on one line without control characters, which neither a terminal nor XML should be handed."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def check_rows(rows: Sequence[ResultRow]) -> None:
    """Raise `InputError` unless there are rows, of one data set and task, with finite standard errors, of images."""
    if not rows:
        raise InputError("there are no result rows to report")
    kinds = sorted({f"{row.data} / {row.task}" for row in rows})
    if len(kinds) > 1:
        raise InputError(f"rows of several data sets cannot share one curve, report each: {', '.join(kinds)}")
    for row in rows:
        shown = f"at {row.resolution} px" if row.view == SQUARE else f"at {row.view}"
        if row.stderr is not None and not (math.isfinite(row.stderr) and row.stderr >= 0):
            raise InputError(f"run {row.run}, {row.metric} {shown}: standard error {row.stderr}")
        if row.images < 1:
            raise InputError(f"run {row.run}, {row.metric} {shown}: {row.images} images")


def main_split(rows: Sequence[ResultRow]) -> str:
    """The split that the curve shows: `test` if it was measured, else the first that is not a side measurement."""
    splits = list(dict.fromkeys(row.split for row in rows))
    if "test" in splits:
        return "test"
    return next((split for split in splits if split not in (HELD_OUT, "minival")), splits[0])


def run_order(rows: Iterable[ResultRow], names: Iterable[str] = ()) -> list[str]:
    """Run names, `names` first and then as they appear; a run's place fixes its colour in every figure."""
    return list(dict.fromkeys([*names, *(row.run for row in rows)]))


def lines(
    rows: Iterable[ResultRow],
    metric: str = "top1",
    *,
    split: str,
    slices: Slices = MappingProxyType({}),
    order: Sequence[str] = (),
    seen: Mapping[str, SeenSizes] | None = None,
) -> list[Line]:
    """The lines of one metric on one split, in run order, default knob before tuned; points by rising resolution.

    Of all images, unless `slices` names a part of them.
    Runs of several seeds are several lines, and so are several fixed knobs of one run; the labels then say which.
    `seen` are the sizes of each run's training; a run that it lacks saw the one size that its rows name.

    Raises:
        InputError: two rows claim the same point.
    """
    chosen = [row for row in rows if row.metric == metric and row.split == split and row.slices == slices]
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
        sizes = (seen or {}).get(run) or SeenSizes.of_one(first.train_resolution)
        squares, views = _points(groups[key])
        made.append(Line(run, first.encoding, ", ".join(details), tuned, paired, sizes, squares, views))
    return made


def _runs_with_several_knobs(rows: Iterable[ResultRow]) -> set[tuple[str, int]]:
    found: dict[tuple[str, int, object], set[float | None]] = {}
    for row in rows:
        if not row.tuned:
            found.setdefault((row.run, row.seed, (row.view, row.resolution)), set()).add(row.knob)
    return {key[:2] for key, knobs in found.items() if len(knobs) > 1}


def _points(rows: Sequence[ResultRow]) -> tuple[dict[int, Point], dict[str, Point]]:
    squares: dict[int, Point] = {}
    views: dict[str, Point] = {}
    for row in rows:
        point = Point(row.value, row.images, row.knob, row.patches)
        shown = row.view if row.resolution is None else f"{row.resolution} px"
        if row.resolution in squares or shown in views:
            raise InputError(f"run {row.run}: {row.metric} on {row.split} at {shown} is there twice")
        if row.resolution is None:
            views[shown] = point
        else:
            squares[row.resolution] = point
    return dict(sorted(squares.items())), views


def resolutions(chosen: Iterable[Line]) -> list[int]:
    """All resolutions at which any of the lines was measured, rising, in pixels."""
    return sorted({resolution for line in chosen for resolution in line.points})


def views(chosen: Iterable[Line]) -> list[str]:
    """All views other than squares in which any of the lines was measured, in their order."""
    return list(dict.fromkeys(view for line in chosen for view in line.views))


def grids(rows: Iterable[ResultRow]) -> dict[int, tuple[int, ...]]:
    """Resolution -> (rows, cols) of its patches."""
    return {row.resolution: row.grid for row in rows if row.resolution is not None and row.grid is not None}


def sizes_of_training(chosen: Iterable[Line]) -> list[tuple[SeenSizes, list[Line]]]:
    """The sizes of training that the lines differ in, each with its lines, in their order."""
    found: dict[tuple[float | None, float | None], tuple[SeenSizes, list[Line]]] = {}
    for line in chosen:
        found.setdefault((line.seen.low, line.seen.high), (line.seen, []))[1].append(line)
    return list(found.values())


def best_lines(chosen: Sequence[Line], resolution: int) -> set[int]:
    """Indices of the lines with the highest value at `resolution`; empty where fewer than two were measured, or all
    are equal."""
    values = {index: line.points[resolution].value for index, line in enumerate(chosen) if resolution in line.points}
    if len(set(values.values())) < 2:
        return set()
    return {index for index, value in values.items() if value == max(values.values())}


def groups(rows: Iterable[ResultRow]) -> list[str]:
    """Names of the class groups that were measured, in the order of the rows."""
    return list(dict.fromkeys(str(row.slices["group"]) for row in rows if set(row.slices) == {"group"}))


def outer_resolutions(chosen: Sequence[Line]) -> list[int]:
    """The resolutions that a breakdown is shown at: the largest that all lines saw in training (else the smallest
    that was measured), and the largest."""
    measured = resolutions(chosen)
    if not measured:
        return []
    trained = [size for size in measured if all(line.seen.holds(size) for line in chosen)]
    return sorted({trained[-1] if trained else measured[0], measured[-1]})
