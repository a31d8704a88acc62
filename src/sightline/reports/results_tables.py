"""The tables of the results page: a metric by size, view and part of the images, attacks, training, and mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sightline.reports import series, style, words
from sightline.reports.content import Answers, RunSummary, SeenSizes
from sightline.reports.series import HELD_OUT, PlotLine, Study
from sightline.reports.tables import Cell, Head, Table, print_cells, text_table
from sightline.reports.words import DASH, TIMES
from sightline.results.predictions import Prediction
from sightline.results.rows import FRACTION, MetricValue, ResultRow, Slices

if TYPE_CHECKING:
    from rich.console import Console

_QUINTILES = ("smallest", "2nd", "3rd", "4th", "largest")
_VIEWS = {
    "native": ("native", "own size and aspect"),
    "max": ("max:{0}", "own size, at most {0} patches"),
    "tokens": ("tokens:{0}", "resized to at most {0} patches"),
}
# What metrics of which a group is known are broken down by, in words.
_BY = {
    "group": "group", "size_quintile": "object size", "class": "class", "confidence_bin": "confidence",
    "coverage": "coverage", "loss, epsilon": "loss and epsilon", "quartile": "quartile",
}  # fmt: skip
ATTACK = "loss, epsilon"
"""What accuracy under attack is broken down by; each is shown at all sizes, as a metric is."""
# Of `confidence_bin`, as `metrics.calibration` cuts them.
_BINS = 15
# So many mistakes are listed, and so many classes, those with the lowest accuracy.
_MOST_MISTAKES, _MOST_CLASSES = 12, 60
_Column = tuple[Head, Mapping[str, ResultRow]]
"""A column, and what stands in it by the labels of lines."""


def print_accuracy(
    rows: Sequence[ResultRow], console: Console | None = None, *, seen: Mapping[str, SeenSizes] | None = None
) -> None:
    """Print a table of each metric by run and resolution, one for held-out fonts and one for other views than squares
    if they were measured; metrics that go with the main one are left to the page.

    Under each number stands where it lies with 95 %; of a tuned knob also its value. A resolution that all runs were
    trained at is marked "trained", one that all saw among others "seen".

    Args:
        seen: run -> the sizes of its training, the one that its rows name unless given.

    Raises:
        InputError: there are no rows, or of several data sets.
    """
    from rich.console import Console

    console, study = console or Console(), Study.of(rows, seen=seen)
    aside = set(words.about()["aside"]) - {study.main.metric}
    metrics = [one.metric for one in study.metrics() if one.metric not in aside]
    found = [by_resolution(study, metric) for metric in metrics]
    found += [held_out(study), *(by_view(study, metric) for metric in metrics)]
    for metric in metrics:
        known = [by for by in study.parts(metric) if {by, by.split(", ")[0]} & _BY.keys()]
        found += of_metric(study, metric, without=known)
    shown = [table for table in found if table is not None]
    for table in shown:
        print_cells(table, console)
    limits = any(cell.limits for table in shown for _, cells in table.lines for cell in cells)
    extremes = sorted({table.extreme for table in shown if table.extreme})
    said = ["Below each number: where it lies with 95 %."] * limits
    said += [f"*: {' or '.join(extremes)} at its size."] * bool(extremes)
    if said:
        console.print(" ".join(said), highlight=False)


def by_resolution(study: Study, metric: str, split: str | None = None) -> Table | None:
    """A metric by run and resolution on one split; None where it was not measured."""
    chosen = [line for line in study.lines(metric, split=split) if line.points]
    where = "fonts not seen in training" if split == HELD_OUT else f"split {split or study.main.split}"
    return _table(study, where, chosen, _sizes(study, chosen))


def held_out(study: Study) -> Table | None:
    """The main metric on fonts not seen in training; None where these are the main split, or were not tested."""
    return None if study.main.split == HELD_OUT else by_resolution(study, study.main.metric, HELD_OUT)


def by_view(study: Study, metric: str) -> Table | None:
    """A metric by run and way of showing images, squares of one size left out; None where there is no other."""
    chosen = [line for line in study.lines(metric) if line.views]
    return _table(study, f"split {study.main.split}, by view", chosen, _views(chosen))


def of_metric(study: Study, metric: str, without: Iterable[str] | None = None) -> list[Table]:
    """All that was measured of a metric on the main split; `without` leaves out the whole, and what it was broken down
    by but for attacks."""
    found = [by_resolution(study, metric), by_view(study, metric)] if without is None else []
    for by in study.parts(metric):
        if by not in (ATTACK, *(without or ())):
            found += by_part(study, metric, by)
    return [table for table in [*found, *by_attack(study, metric)] if table is not None]


def by_attack(study: Study, metric: str) -> list[Table]:
    """A metric under attack by run, resolution and view: a table for each loss and epsilon."""
    found = []
    for part in study.parts(metric).get(ATTACK, []):
        chosen = study.lines(metric, slices=part)
        where = f"loss {part['loss']}, epsilon {part['epsilon']}, split {study.main.split}"
        found.append(_table(study, where, chosen, [*_sizes(study, chosen), *_views(chosen)]))
    return [table for table in found if table is not None]


def by_part(study: Study, metric: str, by: str) -> list[Table]:
    """A metric by what it was broken down by, at a size of training and at the largest."""
    parts = {titled(by, part): study.lines(metric, slices=part) for part in study.parts(metric)[by]}
    if by == "group" and metric == "top1":
        parts["within group"] = study.lines("top1_within_group")
    found = []
    for size in series.outer_resolutions([line for lines in parts.values() for line in lines]):
        lines = list({line.label: line for lines in parts.values() for line in lines if size in line.points}.values())
        columns = [(Head(title), _at(size, some)) for title, some in parts.items() if some]
        where = f"tested at {size} px{words.SEEN[series.seen_at(size, lines)]}"
        found.append(_table(study, where, lines, columns, by=_BY.get(by, by.replace("_", " "))))
    return [table for table in found if table is not None]


def titled(by: str, part: Slices) -> str:
    """What a part of the images is called."""
    if by == "size_quintile" and part[by] in range(1, 6):
        return _QUINTILES[int(part[by]) - 1]
    if by == "confidence_bin" and part[by] in range(1, _BINS + 1):
        low, high = (100 * (int(part[by]) - step) / _BINS for step in (1, 0))
        return f"{low:.0f} to {high:.0f}\u00a0%"
    if by == "coverage" and isinstance(part[by], float):
        return f"surest {part[by]:.0%}"
    return ", ".join(map(str, part.values()))


def _sizes(study: Study, chosen: Sequence[PlotLine]) -> list[_Column]:
    """A column for each resolution of some lines; one whose images were all shrunk has no grid of its own."""
    shape, columns = series.grids(study.rows), []
    for size in series.resolutions(chosen):
        grid = f"\u00a0{TIMES}\u00a0".join(map(str, shape.get(size, ())))
        columns.append((Head(f"{size}\u00a0px", grid, seen=series.seen_at(size, chosen)), _at(size, chosen)))
    return columns


def _views(chosen: Sequence[PlotLine]) -> list[_Column]:
    """A column for each view of some lines."""
    columns = []
    for view in dict.fromkeys(view for line in chosen for view in line.views):
        kind, _, number = view.partition(":")
        title, below = _VIEWS.get(kind, (view, ""))
        points = {line.label: line.views[view] for line in chosen if view in line.views}
        columns.append((Head(title.format(number), below.format(number)), points))
    return columns


def _at(size: int, lines: Sequence[PlotLine]) -> dict[str, ResultRow]:
    """What was measured at a size, by the labels of lines."""
    return {line.label: line.points[size] for line in lines if size in line.points}


def _table(
    study: Study, where: str, lines: Sequence[PlotLine], columns: Sequence[_Column], by: str = ""
) -> Table | None:
    """A table of measured numbers; None where there is none. `by` is what a metric is broken down by; of all images
    what was seen in training is marked, and images are counted."""
    if not columns:
        return None
    best, made = [_best(points) for _, points in columns], []
    for line in lines:
        cells = [
            _cell(points.get(line.label), line, line.label in leaders, whole=not by)
            for (_, points), leaders in zip(columns, best, strict=True)
        ]
        head = Head(words.printable(line.run), colour=style.colour(line.run, study.order), detail=line.detail)
        made.append((head, cells))
    one = next(point for _, points in columns for point in points.values())
    if not by:
        counts = [sorted({point.count for point in points.values()}) for _, points in columns]
        made.append((Head(one.counted), [Cell(words.span([f"{count:,}" for count in found])) for found in counts]))
    caption = words.heading(one) + (f" by {by}" if by else "") + f", {where}"
    extreme = words.EXTREME.get(one.better, "") if any(best) else ""
    return Table(caption, [head for head, _ in columns], made, extreme=extreme).turned()


def _best(points: Mapping[str, ResultRow]) -> set[str]:
    """The labels of the best values at one size; none where fewer than two were measured, or all are equal."""
    values = {label: point.value for label, point in points.items() if point.resolution is not None}
    if len(set(values.values())) < 2:
        return set()
    extreme = {"higher": max, "lower": min}.get(next(iter(points.values())).better)
    return {label for label, value in values.items() if extreme is not None and value == extreme(values.values())}


def _cell(point: ResultRow | None, line: PlotLine, best: bool, *, whole: bool) -> Cell:
    if point is None:
        return Cell()
    below = [f"{point.patches:,.1f} patches"] if point.resolution is None else []
    if whole and point.tuned_label:
        below.append(f"{'knob ' if point.tuned_label[0].isdigit() else ''}{point.tuned_label}")
    marked = whole and point.resolution is not None and line.seen.holds(point.resolution)
    return Cell(words.number(point.value, point.unit), words.limits(point), best, ", ".join(below), marked)


def training(runs: Sequence[RunSummary], order: Sequence[str]) -> Table:
    """What each run saw and took: parameters, sizes, images, tokens, operations, times, precision, and its knob."""
    made, columns = [], []
    for run in runs:
        speed = run.train_images / run.train_seconds if run.train_seconds > 0 and run.train_images else None
        knob = "" if run.knob is None else f"{run.knob_name or 'knob'} {run.knob:g}"
        if run.knob is not None and run.knob_default is not None:
            knob += f" / {run.knob_default:g}"
        said = {
            Head("position encoding"): run.encoding,
            Head("sizes", "in training"): run.seen and run.seen.words,
            Head("tokens dropped", "in training"): run.seen and (run.seen.drop or "none"),
            Head("images shown", "in training"): _number(run.train_images),
            Head("tokens", "in training"): _number(run.train_tokens),
            Head("operations", "of training"): f"{run.train_flops:.3g}" if run.train_flops else "",
            Head("training"): words.duration(run.train_seconds),
            Head("images/s"): f"{speed:,.0f}" if speed else "",
            Head("testing"): words.duration(run.evaluate_seconds),
            Head("parameters"): _number(run.parameters),
            Head("knob", "now / default"): knob,
            Head("precision", "of training"): run.precision,
        }
        columns = list(said)
        cells = [Cell(text or DASH, words=True) for text in said.values()]
        made.append((Head(run.name, colour=style.colour(run.name, order)), cells))
    return Table("What each run saw and took", columns, made).turned()


def _number(count: int) -> str:
    return f"{count:,}" if count else DASH


def share(count: int, total: int) -> MetricValue:
    """So many of all images, named rightly."""
    return MetricValue("top1", count / total, FRACTION, total)


def _share(one: MetricValue) -> Cell:
    return Cell(words.number(one.value, one.unit), words.limits(one))


def by_class(said: Answers) -> Table:
    """The accuracy of each class, and what its other images were taken for most; the lowest first."""
    counts: dict[str, Counter[str]] = {}
    for one in said.answers:
        counts.setdefault(one.label, Counter())[one.predicted] += 1
    scores = sorted((named[name] / named.total(), name) for name, named in counts.items())
    lines = []
    for _, name in scores[:_MOST_CLASSES]:
        named, total = counts[name], counts[name].total()
        wrong = named - Counter({name: total})
        most = max(wrong.values(), default=0)
        others = sorted(other for other, count in wrong.items() if count == most)
        more = f" and {len(others) - 2} more" if len(others) > 2 else ""
        taken = f"{', '.join(others[:2])}{more} ({most})" if others else ""
        lines.append((name, _share(share(named[name], total)), f"{total:,}", Cell(taken, words=True)))
    shown = f" ({len(lines)} of {len(scores):,})" if len(lines) < len(scores) else ""
    columns = ("class", "right, in %", "images", Head("most often taken for", "(images)"))
    return text_table(f"Accuracy by class, the lowest first{shown}", columns, lines)


def confusions(said: Answers) -> Table | None:
    """What was most often taken for what; None where nothing was mistaken."""
    pairs = Counter((one.label, one.predicted) for one in said.answers if not one.correct)
    totals = Counter(one.label for one in said.answers)
    lines = [
        (label, Cell(named, words=True), f"{count:,} of {totals[label]:,}", _share(share(count, totals[label])))
        for (label, named), count in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_MISTAKES]
    ]
    columns = ("true class", "named as", "images", "share, in %")
    return text_table("The most frequent mistakes", columns, lines) if lines else None


def confusion(said: Answers) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the classes, and int64 [classes, classes]: images of the row's class that were named as the column's."""
    names = sorted({name for one in said.answers for name in (one.label, one.predicted)})
    place = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for one in said.answers:
        counts[place[one.label], place[one.predicted]] += 1
    return names, counts


def worst(answers: Sequence[Prediction], count: int) -> list[Prediction]:
    """The mistakes that the model was surest of."""
    wrong = [one for one in answers if not one.correct]
    return sorted(wrong, key=lambda one: (-one.score, one.index))[:count]
