"""How far runs lie apart, what downsampling changes, and means over seeds: tables with their intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from statistics import NormalDist

from sightline.reports import style, words
from sightline.reports.content import RunSummary
from sightline.reports.series import PlotLine, Study, resolutions
from sightline.reports.tables import Cell, Head, Table, table_of
from sightline.results.rows import FRACTION, Z95, ResultRow
from sightline.results.statistics import student_interval

# A run has learned something where its accuracy lies above guessing by so many deviations (Wilson).
_CLEARLY = 3.0


def learned(line: PlotLine, chance: float | None) -> bool:
    """Whether a run is clearly above guessing, at the sizes that it saw or at any; true where guessing is not known."""
    if chance is None:
        return True
    inside = [size for size in line.points if line.seen.holds(size)]
    return any(_means(line, [size], _CLEARLY)[1] > chance for size in inside or line.points)


def difference(
    one: PlotLine, other: PlotLine, sizes: Sequence[int], comparisons: int = 1
) -> tuple[float, float, float]:
    """How much larger the mean of `one` over some sizes is, and the two-sided interval of that.

    Newcombe's interval, from those of both. The images of a size are those of the others too, so that the errors of
    one run are taken to go together. 95 % for all comparisons in common (Bonferroni).

    Returns:
        The difference, its lower and its upper limit.
    """
    deviations = NormalDist().inv_cdf(1 - 0.025 / max(comparisons, 1))
    (p, p_low, p_high), (q, q_low, q_high) = (_means(line, sizes, deviations) for line in (one, other))
    gap = p - q
    return gap, gap - math.hypot(p - p_low, q_high - q), gap + math.hypot(p_high - p, q - q_low)


def between_runs(study: Study) -> Table | None:
    """Each run less the best one, at the sizes that are larger than what any of them saw in training, else at the
    largest; None where there are not two runs to compare, or rows do not say how precise, or which way better, they
    are. Runs have their default knob where all have it. The best has the best mean over these sizes.
    """
    everything = [line for line in study.lines() if line.points and line.shrunk is None]
    untuned = [line for line in everything if not line.tuned]
    chosen = untuned if {line.run for line in untuned} == {line.run for line in everything} else everything
    common = [size for size in resolutions(chosen) if all(size in line.points for line in chosen)]
    precise = all(line.points[size].limits() is not None for line in chosen for size in common)
    if len(chosen) < 2 or not common or not study.main.better or not precise:
        return None
    beyond = [size for size in common if all(line.seen.is_exceeded_by(size) for line in chosen)]
    sizes = beyond or common[-1:]
    best, *others = sorted(chosen, key=lambda line: _means(line, sizes)[0], reverse=study.main.better == "higher")
    columns = {Head(f"{size}\u00a0px"): [size] for size in sizes}
    columns |= {Head("mean", "of these sizes"): sizes} if len(sizes) > 1 else {}
    lines = {}
    for line in others:
        head = Head(f"{line.name} minus {best.name}", colour=style.colour(line.run, study.order))
        comparisons = len(others) * len(columns)
        lines[head] = {column: _cell(study, line, best, some, comparisons) for column, some in columns.items()}
    where = "beyond training" if beyond else "at the largest size"
    return table_of(_caption(study, f"Differences {where}"), lines)


def of_downsampling(study: Study) -> Table | None:
    """Of each run that was also shown images downsampled to the size of its training: images as they are less those,
    by size; None where there is none. What was tuned stands beside the default too, since nothing is tuned on
    downsampled images."""
    lines, found = study.lines(), {}
    precise = all(point.limits() is not None for line in lines for point in line.points.values())
    pairs = [
        (own, small, [size for size, point in own.points.items() if size in small.points and _alike(point, small)])
        for small in (line for line in lines if line.shrunk is not None and study.main.better and precise)
        for own in (line for line in lines if line.shrunk is None and line.run == small.run)
    ]
    comparisons = sum(len(sizes) for *_, sizes in pairs)
    for own, small, sizes in pairs:
        default = f"downsampled with its default {own.searched}" if own.tuned and not small.tuned else ""
        cells = {Head(f"{size}\u00a0px"): _cell(study, own, small, [size], comparisons) for size in sizes}
        found |= {Head(own.name, default, style.colour(own.run, study.order)): cells} if cells else {}
    columns = [Head(f"{size}\u00a0px") for size in resolutions(lines)]
    columns = [column for column in columns if any(column in cells for cells in found.values())]
    caption = _caption(study, "Images as they are minus the same images downsampled to the training size")
    return table_of(caption, found, columns=columns) if found else None


def over_seeds(study: Study, runs: Sequence[RunSummary]) -> Table | None:
    """The mean of the runs that differ in their seed alone, by size, with its interval (Student's t) and the lowest and
    highest of them; None where there are no such runs."""
    plain = {run.name: {name: value for name, value in run.config.items() if name != "seed"} for run in runs}
    groups: dict[tuple[str, bool, float | None], dict[int, PlotLine]] = {}
    for line in (line for line in study.lines() if line.points and line.shrunk is None):
        one = next(iter(line.points.values()))
        training = json.dumps(plain.get(line.run) or line.run, default=str)
        groups.setdefault((training, line.tuned, None if line.tuned else one.knob), {})[one.seed] = line
    several = [list(lines.values()) for lines in groups.values() if len(lines) > 1]
    encodings, found = [lines[0].encoding for lines in several], {}
    for lines in several:
        first, cells = lines[0], {}
        for size in (size for size in resolutions(lines) if all(size in line.points for line in lines)):
            values = [line.points[size].value for line in lines]
            mean, limits = student_interval(values)
            shown = [words.number(one, study.main.unit) for one in words.clip(limits or (), study.main.unit)]
            low, high = (words.number(one, study.main.unit) for one in (min(values), max(values)))
            cells[Head(f"{size}\u00a0px")] = Cell(words.number(mean, study.main.unit), shown, below=f"{low} to {high}")
        # Of one encoding with several settings the runs say which.
        detail = words.listed([line.run for line in lines]) if encodings.count(first.encoding) > 1 else ""
        head = Head(first.encoding, f"{len(lines)} seeds", style.colour(first.run, study.order), detail)
        found |= {head: cells} if cells else {}
    caption = f"Mean over seeds: {words.heading(study.main)}"
    return table_of(caption, found, "position encoding").turned() if found else None


def _caption(study: Study, what: str) -> str:
    points = "points of %" if study.main.unit == FRACTION else words.unit(study.main.unit)
    return f"{what}: {words.title(study.main.metric)}" + (f", {points}" if points else "")


def _cell(study: Study, one: PlotLine, other: PlotLine, sizes: Sequence[int], comparisons: int) -> Cell:
    gap, low, high = difference(one, other, sizes, comparisons)
    value, *limits = (words.number(each, study.main.unit, "+") for each in (gap, low, high))
    return Cell(value, limits, best=not low <= 0 <= high)


def _alike(point: ResultRow, small: PlotLine) -> bool:
    """Whether a point of a run is one of images as they are that its line of downsampled ones stands beside."""
    other = small.points[point.resolution or 0]
    return point.seed == other.seed and (point.tuned or (other.tuned, other.knob) == (False, point.knob))


def _means(line: PlotLine, sizes: Sequence[int], deviations: float = Z95) -> tuple[float, float, float]:
    """The mean over some sizes, and the means of the limits of its intervals."""
    points = [line.points[size] for size in sizes]
    columns = zip(*((one.value, *(one.limits(deviations) or (-math.inf, math.inf))) for one in points), strict=True)
    mean, low, high = (sum(column) / len(points) for column in columns)
    return mean, low, high
