"""The sentences of a report that depend on its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from sightline.reports import words
from sightline.reports.series import PlotLine, Study, resolutions
from sightline.results.rows import FRACTION, Z95, ResultRow

# A run has learned something where its accuracy lies above guessing by so many deviations (Wilson).
CLEARLY = 3.0


def learned(line: PlotLine, chance: float | None) -> bool:
    """Whether a run is clearly above guessing, at the sizes that it saw or at any; true where guessing is not known."""
    if chance is None:
        return True
    inside = [point for size, point in line.points.items() if line.seen.holds(size)]
    return any(_limits(point, CLEARLY)[0] > chance for point in (inside or line.points.values()))


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


def shrinking(study: Study) -> list[str]:
    """For each line of a run that was also shown images shrunk to the size of its training: where it does better with
    them as they are, where with the shrunk ones, and where the interval of the difference holds 0."""
    lines, said = study.lines(), []
    for small in (line for line in lines if line.shrunk is not None and study.main.better):
        for own in (line for line in lines if line.shrunk is None and line.run == small.run):
            sizes = [size for size, point in own.points.items() if size in small.points and _alike(point, small)]
            if not sizes:
                continue
            found: dict[str, list[str]] = {"as they are": [], "shrunk": [], "": []}
            for size in sizes:
                _, low, high = difference(own, small, [size], len(sizes))
                sign = 0 if low <= 0 <= high else 1 if (low > 0) == (study.main.better == "higher") else -1
                found[("", "as they are", "shrunk")[sign]].append(f"{size}")
            parts = [f"{how} at {words.listed(at)}\u00a0px" for how, at in found.items() if how and at]
            best = f"does better with images {', and '.join(parts)}" if parts else ""
            alike = f"no clear difference at {words.listed(found[''])}\u00a0px" if found[""] else ""
            default = f" (shrunk ones with its default {own.searched})" if own.tuned and not small.tuned else ""
            said.append(f"{own.name}: {'; '.join(filter(None, (best, alike)))}{default}.")
    return said


def _alike(point: ResultRow, small: PlotLine) -> bool:
    """Whether a point of a run is one of images as they are that its line of shrunk ones stands beside: what was tuned
    stands beside the default too, as shrunk images are not tuned on."""
    other = small.points[point.resolution or 0]
    return point.seed == other.seed and (point.tuned or (other.tuned, other.knob) == (False, point.knob))


def _means(line: PlotLine, sizes: Sequence[int], deviations: float = Z95) -> tuple[float, float, float]:
    """The mean over some sizes, and the means of the limits of its intervals."""
    points = [line.points[size] for size in sizes]
    columns = zip(*((point.value, *_limits(point, deviations)) for point in points), strict=True)
    mean, low, high = (sum(column) / len(points) for column in columns)
    return mean, low, high


def _limits(point: ResultRow, deviations: float) -> tuple[float, float]:
    return point.limits(deviations) or (-math.inf, math.inf)


def headline(study: Study) -> tuple[str, str]:
    """What the rows say of the runs beyond the sizes of training: a sentence, and one with the evidence."""
    first, evidence = _verdict(study)
    if study.main.metric != "top1":
        first = f"{words.capital(words.title(study.main.metric))}: {first}"
    return first, evidence


def _verdict(study: Study) -> tuple[str, str]:
    """No run is called better where the interval of its difference to another holds 0, where rows do not say which
    values are better, or where a run is not clearly above chance.

    Runs are compared by their means over the resolutions at which all were measured and that exceed what any of them
    saw, each with its default knob where all have it.
    """
    everything = [line for line in study.lines() if line.points and line.shrunk is None]
    untuned = [line for line in everything if not line.tuned]
    chosen = untuned if {line.run for line in untuned} == {line.run for line in everything} else everything
    if not chosen:
        return f"No {words.title(study.main.metric)} was measured on squares.", ""
    common = [size for size in resolutions(chosen) if all(size in line.points for line in chosen)]
    ignorant = [line for line in chosen if not learned(line, study.chance)]
    if ignorant and study.chance is not None:
        return _unlearned(chosen, ignorant, common, study.chance)
    if len(chosen) == 1:
        return _alone(chosen[0])
    if not common:
        return "No size was measured for all runs, which leaves nothing to compare.", ""
    if not study.main.better:
        return _reached(chosen, common), "No verdict: the rows do not say which values are better."
    if any(line.points[size].limits() is None for line in chosen for size in common):
        return _reached(chosen, common), "No verdict: the rows do not say how precisely they were measured."
    return _compared(chosen, common, study.main.better)


def _reached(chosen: Sequence[PlotLine], common: Sequence[int]) -> str:
    """The numbers of all at one size, without a verdict; "" where they share none."""
    size = _shown_within(chosen, common)
    if size is None:
        return ""
    reached = [f"{line.name} {words.with_interval(line.points[size])}" for line in chosen]
    return f"At {size} px: {words.listed(reached)}."


def _unlearned(
    chosen: Sequence[PlotLine], ignorant: Sequence[PlotLine], common: Sequence[int], chance: float
) -> tuple[str, str]:
    """No verdict: one of the runs has not learned enough to be compared with."""
    names = words.listed([line.name for line in ignorant])
    if len(chosen) == 1:
        first = f"{names} was trained too little for a verdict: its accuracy is not clearly above guessing"
    elif len(ignorant) == len(chosen):
        first = "No run was trained enough for a verdict: the accuracy of none is clearly above guessing"
    else:
        were = "was" if len(ignorant) == 1 else "were"
        first = f"No verdict: {names} {were} trained too little, with an accuracy not clearly above guessing"
    return f"{first} ({words.percent(chance)}).", _reached(chosen, common)


def _alone(line: PlotLine) -> tuple[str, str]:
    """One run: where it was trained, and at the largest size."""
    size, largest = _shown_within([line], list(line.points)), max(line.points)
    parts = []
    if size is not None and line.seen.holds(size):
        where = "as trained" if line.seen.one == size else f"within the sizes seen in training ({line.seen.words})"
        parts.append(f"{words.with_interval(line.points[size])} at {size}\u00a0px, {where}")
    if not parts or largest != size:
        parts.append(f"{words.with_interval(line.points[largest])} at {largest}\u00a0px{_times([line], largest)}")
    first = f"{line.name} reaches {', and '.join(parts)}."
    return first, "" if line.seen.is_exceeded_by(largest) else "No size beyond those of training was measured."


def _compared(chosen: Sequence[PlotLine], common: Sequence[int], better: str) -> tuple[str, str]:
    """Runs beside each other: at sizes that none of them saw, or else where no size exceeds what each of them saw."""
    beyond = [size for size in common if all(line.seen.is_exceeded_by(size) for line in chosen)]
    size = beyond[-1] if beyond else _shown_within(chosen, common)
    assert size is not None
    sizes = beyond or [size]
    best, *others = sorted(chosen, key=lambda line: _means(line, sizes)[0], reverse=better == "higher")
    gaps = [difference(best, line, sizes, len(others)) for line in others]
    equal = [line for line, (_, low, high) in zip(others, gaps, strict=True) if low <= 0 <= high]
    at, where = f"At {size}\u00a0px", f"at {size}\u00a0px{_times(chosen, size)}"
    reached = words.listed([words.with_interval(line.points[size]) for line in (best, *equal)])
    names = words.listed([line.name for line in (best, *equal)])
    larger = "on images larger than those of training"
    evidence = _evidence(best, others, sizes, gaps[0])
    if not beyond:
        evidence += " No size beyond those that every run saw in training was measured for all of them."
        if equal:
            return f"{at}, no difference was found between {names}: they reach {reached}.", evidence
        extreme = f"{words.EXTREME[better]} {words.short(best.points[size].metric)}"
        return f"{at}, {best.name} reaches the {extreme}: {reached}.", evidence
    evidence += _as_trained([best, *others])
    if len(equal) == len(others):
        return f"No difference was found between {names} {larger}: {where}, they reach {reached}.", evidence
    if equal:
        pair = f"{best.name} and {words.listed([line.name for line in equal])}"
        first = f"{words.capital(larger)} no difference was found between {pair}: {where}, they reach {reached}."
        return first, evidence
    trained = best.seen.one
    after = ""
    if trained is not None and trained in best.points:
        after = f", after {_value(best, trained)} at {trained}\u00a0px"
    return f"{best.name} holds up best {larger}: {reached} {where}{after}.", evidence


def _evidence(best: PlotLine, others: Sequence[PlotLine], sizes: Sequence[int], gap: tuple[float, float, float]) -> str:
    all_of = words.span(sizes) if len(sizes) > 2 else words.listed([str(size) for size in sizes])
    over = f"At {all_of} px" if len(sizes) == 1 else f"In the mean over {len(sizes)} sizes, {all_of} px"
    paired = dict.fromkeys(line.searched for line in (best, *others) if line.paired)
    knobs = f", each with its default {' or '.join(paired)}" if paired else ""
    kind = best.points[sizes[0]].unit
    means = words.listed([f"{line.name} {words.quantity(_means(line, sizes)[0], kind)}" for line in (best, *others)])
    certain = " (95 % for all comparisons together)" if len(others) > 1 else ""
    ahead, low, high = (words.number(value, kind, "+") for value in gap)
    points = "points" if kind == FRACTION else words.unit(kind)
    return f"{over}{knobs}: {means}. {best.name} less {others[0].name}: {ahead} {points} [{low},\u00a0{high}]{certain}."


def _value(line: PlotLine, size: int) -> str:
    return words.quantity(line.points[size].value, line.points[size].unit)


def _as_trained(chosen: Sequence[PlotLine]) -> str:
    """The value of each run at the one size that all were trained at, if there is one."""
    size = chosen[0].seen.one
    if size is None or any(line.seen.one != size or size not in line.points for line in chosen):
        return ""
    reached = words.listed([f"{line.name} {_value(line, size)}" for line in chosen])
    return f" At the training size of {size} px: {reached}."


def _shown_within(chosen: Sequence[PlotLine], common: Sequence[int]) -> int | None:
    """The largest of some sizes that all runs saw in training, else that some saw, else the largest."""
    for some in (all, any):
        inside = [size for size in common if some(line.seen.holds(size) for line in chosen)]
        if inside:
            return inside[-1]
    return common[-1] if common else None


def _times(chosen: Sequence[PlotLine], size: int) -> str:
    """ ", 4.6 times the size of training": how far a size is beyond what was seen; "" where it is not."""
    if not all(line.seen.is_exceeded_by(size) for line in chosen):
        return ""
    high = max(line.seen.high or 0.0 for line in chosen)
    of = "the size of training" if all(line.seen.one == high for line in chosen) else "the largest size of training"
    return f", {size / high:.1f} times {of}"
