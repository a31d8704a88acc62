"""The sentences of a report that depend on its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from sightline.reports import series
from sightline.reports.content import SeenSizes
from sightline.results import ResultRow

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

# A run has learned something where its accuracy lies above guessing by so many deviations (Wilson).
CLEARLY = 3.0


def percent(fraction: float) -> str:
    """ "93.8 %", with a blank that does not break."""
    return f"{100 * fraction:.1f}\u00a0%"


def interval(low: float, high: float) -> str:
    """ "[92.6, 94.8]": where a share lies, in percent."""
    return f"[{100 * low:.1f},\u00a0{100 * high:.1f}]"


def with_interval(point: series.Point) -> str:
    """ "93.8 % [92.6, 94.8]": a share in percent, and where it lies with 95 %."""
    return f"{percent(point.value)} {interval(*point.interval())}"


def name(line: series.Line) -> str:
    """The line's label, without its knob where that is the default: a sentence or a card then compares defaults."""
    return series.printable(line.run) if line.detail == "default knob" else line.label


def learned(line: series.Line, chance: float | None) -> bool:
    """Whether the accuracy of a run is clearly above guessing, at the sizes that it saw or at any; true where guessing
    is not known."""
    if chance is None:
        return True
    inside = {size: point for size, point in line.points.items() if line.seen.holds(size)}
    return any(point.interval(CLEARLY)[0] > chance for point in (inside or line.points).values())


def difference(
    one: series.Line, other: series.Line, sizes: Sequence[int], comparisons: int = 1
) -> tuple[float, float, float]:
    """How much larger the mean accuracy of `one` over some sizes is, and the two-sided interval of that.

    Newcombe's interval, from Wilson's of both. The images of a size are those of the others too, so that the errors of
    one run are taken to go together. 95 % for all comparisons in common (Bonferroni).

    Returns:
        The difference, its lower and its upper limit, as fractions.
    """
    deviations = NormalDist().inv_cdf(1 - 0.025 / max(comparisons, 1))
    (p, p_low, p_high), (q, q_low, q_high) = (_mean(line, sizes, deviations) for line in (one, other))
    gap = p - q
    return gap, gap - math.hypot(p - p_low, q_high - q), gap + math.hypot(p_high - p, q - q_low)


def _mean(line: series.Line, sizes: Sequence[int], deviations: float) -> tuple[float, float, float]:
    """The mean accuracy over some sizes, and the means of the limits of its intervals."""
    points = [line.points[size] for size in sizes]
    limits = [point.interval(deviations) for point in points]
    columns = ([point.value for point in points], *zip(*limits, strict=True))
    mean, low, high = (sum(column) / len(points) for column in columns)
    return mean, low, high


def headline(
    rows: Sequence[ResultRow],
    order: Sequence[str] = (),
    *,
    seen: Mapping[str, SeenSizes] | None = None,
    chance: float | None = None,
) -> tuple[str, str]:
    """Which run does best on images larger than those of training: a sentence, and one with the evidence.

    Runs are compared by their mean top-1 over the resolutions at which all were measured and that exceed what any of
    them saw, each with its default knob where all have it. None is called better where the interval of its difference
    to another holds 0, and none at all where no run is clearly above `chance` (a fraction).

    Raises:
        InputError: there are no rows, or of several data sets.
    """
    series.check_rows(rows)
    measured = series.lines(rows, split=series.main_split(rows), order=order, seen=seen)
    everything = [line for line in measured if line.points]
    untuned = [line for line in everything if not line.tuned]
    chosen = untuned if {line.run for line in untuned} == {line.run for line in everything} else everything
    if not chosen:
        return "No top-1 accuracy was measured on squares.", ""
    common = [size for size in series.resolutions(chosen) if all(size in line.points for line in chosen)]
    ignorant = [line for line in chosen if not learned(line, chance)]
    if ignorant and chance is not None:
        return _unlearned(chosen, ignorant, common, chance)
    beyond = [size for size in common if all(line.seen.is_exceeded_by(size) for line in chosen)]
    if len(chosen) == 1:
        return _alone(chosen[0])
    if not common:
        return "No size was measured for all runs, which leaves nothing to compare.", ""
    return _beyond(chosen, beyond) if beyond else _within(chosen, common)


def _unlearned(
    chosen: Sequence[series.Line], ignorant: Sequence[series.Line], common: Sequence[int], chance: float
) -> tuple[str, str]:
    """No verdict: one of the runs has not learned enough to be compared with."""
    names = _listed([name(line) for line in ignorant])
    if len(chosen) == 1:
        first = f"{names} was trained too little for a verdict: its accuracy is not clearly above guessing"
    elif len(ignorant) == len(chosen):
        first = "No run was trained enough for a verdict: the accuracy of none is clearly above guessing"
    else:
        were = "was" if len(ignorant) == 1 else "were"
        first = f"No verdict: {names} {were} trained too little, with an accuracy not clearly above guessing"
    first += f" ({percent(chance)})."
    size = _shown_within(chosen, common)
    if size is None:
        return first, ""
    return first, f"At {size} px: {_listed([f'{name(line)} {with_interval(line.points[size])}' for line in chosen])}."


def _alone(line: series.Line) -> tuple[str, str]:
    """One run: where it was trained, and at the largest size."""
    size, largest = _shown_within([line], list(line.points)), max(line.points)
    parts = []
    if size is not None and line.seen.holds(size):
        where = "as trained" if line.seen.one == size else f"within the sizes seen in training ({line.seen.words})"
        parts.append(f"{with_interval(line.points[size])} at {size}\u00a0px, {where}")
    if not parts or largest != size:
        parts.append(f"{with_interval(line.points[largest])} at {largest}\u00a0px{_times([line], largest)}")
    first = f"{name(line)} reaches {', and '.join(parts)}."
    return first, "" if line.seen.is_exceeded_by(largest) else "No size beyond those of training was measured."


def _beyond(chosen: Sequence[series.Line], beyond: Sequence[int]) -> tuple[str, str]:
    """Runs beside each other at sizes that none of them saw."""
    largest = beyond[-1]
    best, *others = _ranked(chosen, beyond)
    equal = _equals(best, others, beyond)
    times = _times(chosen, largest)
    if not equal:
        first = f"{name(best)} holds up best on images larger than those of training"
        first += f": {with_interval(best.points[largest])} at {largest}\u00a0px{times}"
        trained = best.seen.one
        if trained is not None and trained in best.points:
            first += f", after {percent(best.points[trained].value)} at {trained}\u00a0px"
    elif len(equal) == len(others):
        first = f"No difference was found between {_listed([name(line) for line in (best, *others)])} on images larger "
        first += f"than those of training: at {largest}\u00a0px{times}, they reach "
        first += _listed([with_interval(line.points[largest]) for line in (best, *others)])
    else:
        first = f"On images larger than those of training no difference was found between {name(best)} and "
        first += f"{_listed([name(line) for line in equal])}: at {largest}\u00a0px{times}, they reach "
        first += _listed([with_interval(line.points[largest]) for line in (best, *equal)])
    return first + ".", _evidence(best, others, beyond) + _as_trained([best, *others])


def _within(chosen: Sequence[series.Line], common: Sequence[int]) -> tuple[str, str]:
    """Runs beside each other where no size exceeds what each of them saw."""
    size = _shown_within(chosen, common)
    assert size is not None
    best, *others = _ranked(chosen, [size])
    equal = _equals(best, others, [size])
    at = f"At {size}\u00a0px"
    if not equal:
        first = f"{at}, {name(best)} reaches the highest accuracy: {with_interval(best.points[size])}."
    else:
        first = f"{at}, no difference was found between {_listed([name(line) for line in (best, *equal)])}: they reach "
        first += _listed([with_interval(line.points[size]) for line in (best, *equal)]) + "."
    missing = " No size beyond those that every run saw in training was measured for all of them."
    return first, _evidence(best, others, [size]) + missing


def _ranked(chosen: Sequence[series.Line], sizes: Sequence[int]) -> list[series.Line]:
    return sorted(chosen, key=lambda line: -sum(line.points[size].value for size in sizes))


def _equals(best: series.Line, others: Sequence[series.Line], sizes: Sequence[int]) -> list[series.Line]:
    """Those of `others` that cannot be told from the best."""
    return [line for line in others if difference(best, line, sizes, len(others))[1] <= 0]


def _evidence(best: series.Line, others: Sequence[series.Line], sizes: Sequence[int]) -> str:
    over = f"At {sizes[0]} px" if len(sizes) == 1 else f"In the mean over {len(sizes)} sizes, {_joined(sizes)} px"
    knobs = ", each with its default knob" if any(line.paired for line in (best, *others)) else ""
    means = _listed([f"{name(line)} {percent(_mean(line, sizes, 1.0)[0])}" for line in (best, *others)])
    gap, low, high = difference(best, others[0], sizes, len(others))
    certain = " (95 % for all comparisons together)" if len(others) > 1 else ""
    return (
        f"{over}{knobs}: {means}. {name(best)} less {name(others[0])}: {100 * gap:+.1f} points "
        f"[{100 * low:+.1f},\u00a0{100 * high:+.1f}]{certain}."
    )


def _as_trained(chosen: Sequence[series.Line]) -> str:
    """The accuracy of each run at the one size that all were trained at, if there is one."""
    size = chosen[0].seen.one
    if size is None or any(line.seen.one != size or size not in line.points for line in chosen):
        return ""
    start = _listed([f"{name(line)} {percent(line.points[size].value)}" for line in chosen])
    return f" At the training size of {size} px: {start}."


def _shown_within(chosen: Sequence[series.Line], common: Sequence[int]) -> int | None:
    """The largest of some sizes that all runs saw in training, else that some saw, else the largest."""
    for some in (all, any):
        inside = [size for size in common if some(line.seen.holds(size) for line in chosen)]
        if inside:
            return inside[-1]
    return common[-1] if common else None


def _times(chosen: Sequence[series.Line], size: int) -> str:
    """ ", 4.6 times the size of training": how far a size is beyond what was seen; "" where it is not."""
    if not all(line.seen.is_exceeded_by(size) for line in chosen):
        return ""
    high = max(line.seen.high or 0.0 for line in chosen)
    of = "the size of training" if all(line.seen.one == high for line in chosen) else "the largest size of training"
    return f", {size / high:.1f} times {of}"


def _listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _joined(sizes: Sequence[int]) -> str:
    return f"{sizes[0]} and {sizes[1]}" if len(sizes) == 2 else f"{sizes[0]} to {sizes[-1]}"


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
