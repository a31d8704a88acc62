"""The sentences of a report that depend on its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sightline.reports import series
from sightline.results import ResultRow

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

# A difference below this many of its standard errors is not called a difference.
_CLEAR = 2.0


def percent(fraction: float) -> str:
    """ "93.8 %", with a blank that does not break."""
    return f"{100 * fraction:.1f}\u00a0%"


def with_error(point: series.Point) -> str:
    """ "93.8 ± 0.5 %": a value and its standard error in percent."""
    return f"{100 * point.value:.1f}\u00a0±\u00a0{100 * point.stderr:.1f}\u00a0%"


def name(line: series.Line) -> str:
    """The line's label, without its knob where that is the default: a sentence or a card then compares defaults."""
    return series.printable(line.run) if line.detail == "default knob" else line.label


def headline(rows: Sequence[ResultRow], order: Sequence[str] = ()) -> tuple[str, str]:
    """Which run holds up best beyond the training resolution: a sentence, and one with the evidence.

    Runs are compared by their mean top-1 over the resolutions above the training one at which all were measured, each
    with its default knob where all have it. Two runs within two standard errors of each other are called equal.

    Raises:
        InputError: there are no rows, or of several data sets.
    """
    series.check_rows(rows)
    everything = series.lines(rows, split=series.main_split(rows), order=order)
    untuned = [line for line in everything if not line.tuned]
    chosen = untuned if {line.run for line in untuned} == {line.run for line in everything} else everything
    if not chosen:
        return "No top-1 accuracy was measured.", ""
    common = [size for size in series.resolutions(chosen) if all(size in line.points for line in chosen)]
    trained = max(series.train_resolutions(chosen))
    beyond = [size for size in common if size > trained]
    if not beyond:
        return _at_one_size(chosen, common, trained)
    if len(chosen) == 1:
        return _alone(chosen[0], trained, beyond[-1])
    return _compared(chosen, trained, beyond)


def _at_one_size(chosen: Sequence[series.Line], common: Sequence[int], trained: int) -> tuple[str, str]:
    missing = f"No resolution above the training one ({trained} px) was measured for all runs."
    if not common:
        return missing, ""
    size = trained if trained in common else common[-1]
    best = max(chosen, key=lambda line: line.points[size].value)
    return f"At {size} px, {name(best)} reaches a top-1 accuracy of {with_error(best.points[size])}.", missing


def _alone(line: series.Line, trained: int, largest: int) -> tuple[str, str]:
    end = f"{with_error(line.points[largest])} at {largest} px, {largest / trained:.1f} times that size."
    if trained not in line.points:
        return f"Trained at {trained} px, {name(line)} reaches {end}", ""
    return f"{name(line)} reaches {with_error(line.points[trained])} at {trained} px, as trained, and {end}", ""


def _compared(chosen: Sequence[series.Line], trained: int, beyond: Sequence[int]) -> tuple[str, str]:
    means = [sum(line.points[size].value for size in beyond) / len(beyond) for line in chosen]
    errors = [math.hypot(*(line.points[size].stderr for size in beyond)) / len(beyond) for line in chosen]
    ranked = sorted(range(len(chosen)), key=lambda index: -means[index])
    best, second = chosen[ranked[0]], chosen[ranked[1]]
    gap = means[ranked[0]] - means[ranked[1]]
    error = math.hypot(errors[ranked[0]], errors[ranked[1]])
    largest = beyond[-1]
    times = f"{largest / trained:.1f} times the training size"
    if gap > _CLEAR * error:
        first = f"{name(best)} holds up best on images larger than those it was trained on"
        first += f": {with_error(best.points[largest])} at {largest}\u00a0px, {times}"
        if trained in best.points:
            first += f", after {percent(best.points[trained].value)} at {trained}\u00a0px"
        first += "."
    else:
        first = (
            f"{name(best)} and {name(second)} hold up best on images larger than those they were trained on, and "
            f"cannot be told apart: at {largest}\u00a0px, {times}, they reach {with_error(best.points[largest])} and "
            f"{with_error(second.points[largest])}."
        )
    sizes = f"{beyond[0]} px" if len(beyond) == 1 else f"the {len(beyond)} sizes from {beyond[0]} to {largest} px"
    knobs = ", each with its default knob" if any(line.paired for line in chosen) else ""
    listed = ", ".join(f"{name(chosen[index])} {percent(means[index])}" for index in ranked)
    evidence = f"Mean top-1 accuracy over {sizes}{knobs}: {listed}."
    at_start = [chosen[index] for index in ranked if trained in chosen[index].points]
    start = ", ".join(f"{name(line)} {percent(line.points[trained].value)}" for line in at_start)
    return first, evidence + (f" At the training size of {trained} px: {start}." if start else "")


def duration(seconds: float) -> str:
    """ "0.4 s", "12 s", "3 min 05 s" or "2 h 07 min"; an en dash for 0."""
    if seconds <= 0:
        return DASH
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}\u00a0s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}\u00a0min\u00a0{rest:02d}\u00a0s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours}\u00a0h\u00a0{minutes:02d}\u00a0min"
