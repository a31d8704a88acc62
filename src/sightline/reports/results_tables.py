"""The tables of the results page: a metric by size, view and part of the images, attacks, training, and mistakes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sightline.reports import series, style, words
from sightline.reports.attributes_part import attributes_parts
from sightline.reports.content import Answers, RunSummary, SeenSizes
from sightline.reports.series import HELD_OUT, PlotLine, Study
from sightline.reports.tables import Cell, Head, Table, measured_cell, print_cells, table_of, text_table
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
    "coverage": "coverage", "loss, epsilon": "loss and epsilon", "quartile": "quartile", "set": "set",
    "set, level": "set and level",
}  # fmt: skip
ATTACK = "loss, epsilon"
"""What accuracy under attack is broken down by; each is shown at all sizes, as a metric is."""
# Of `confidence_bin`, as `metrics.calibration` cuts them.
_BINS = 15
# So many mistakes are listed, and so many classes, those with the lowest accuracy.
_MOST_MISTAKES, _MOST_CLASSES = 12, 60


def print_accuracy(
    rows: Sequence[ResultRow],
    console: Console | None = None,
    *,
    seen: Mapping[str, SeenSizes] | None = None,
    main_alone: bool = False,
) -> None:
    """Print a table of each metric by run and resolution, one for held-out fonts and one for other views than squares
    if they were measured; metrics that go with the main one are left to the page.

    Each number has its 95 % interval, one of a tuned parameter also that value. A resolution that all runs were trained
    at is marked "trained", one that all saw among others "seen".

    Args:
        seen: run -> the sizes of its training, the one that its rows name unless given.
        main_alone: print the main metric alone.

    Raises:
        InputError: there are no rows, or of several data sets.
    """
    from rich.console import Console

    console, study = console or Console(), Study.of(rows, seen=seen)
    aside = set(words.about()["aside"]) - {study.main.metric}
    metrics = [one.metric for one in study.metrics() if one.metric.removeprefix("zero_shot_") not in aside]
    metrics = [study.main.metric] if main_alone else metrics
    found = [by_resolution(study, metric) for metric in metrics]
    found += [held_out(study), *(by_view(study, metric) for metric in metrics)]
    for metric in metrics:
        known = [by for by in study.parts(metric) if {by, by.split(", ")[0]} & _BY.keys()]
        found += of_metric(study, metric, without=known)
    found += [table for one in attributes_parts(study)[:1] for table in one.tables]
    shown = [table for table in found if table is not None]
    for table in shown:
        print_cells(table, console)
    limits = any(cell.limits for table in shown for _, cells in table.lines for cell in cells)
    extremes = sorted({table.extreme for table in shown if table.extreme})
    said = ["In brackets: the 95 % interval."] * limits
    said += [f"*: {' or '.join(extremes)} at its size."] * bool(extremes)
    if said:
        console.print(" ".join(said), highlight=False)


def by_resolution(study: Study, metric: str, split: str | None = None) -> Table | None:
    """A metric by run and resolution on one split; None where it was not measured."""
    chosen = [line for line in study.lines(metric, split=split) if line.points]
    where = "fonts not seen in training" if split == HELD_OUT else f"split {split or study.main.split}"
    heads = _sizes(study, chosen)
    return _table(study, where, [(line, {heads[size]: one for size, one in line.points.items()}) for line in chosen])


def held_out(study: Study) -> Table | None:
    """The main metric on fonts not seen in training; None where these are the main split, or were not tested."""
    return None if study.main.split == HELD_OUT else by_resolution(study, study.main.metric, HELD_OUT)


def by_view(study: Study, metric: str) -> Table | None:
    """A metric by run and way of showing images, squares of one size left out; None where there is no other."""
    chosen = [(line, _views(line)) for line in study.lines(metric) if line.views]
    return _table(study, f"split {study.main.split}, by view", chosen)


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
        heads = _sizes(study, chosen)
        some = [(line, {heads[size]: one for size, one in line.points.items()} | _views(line)) for line in chosen]
        where = f"loss {part['loss']}, epsilon {part['epsilon']}, split {study.main.split}"
        found.append(_table(study, where, some))
    return [table for table in found if table is not None]


def error_consistency(study: Study, alike: Mapping[tuple[str, str], Mapping[int, MetricValue]]) -> Table | None:
    """The error consistency of each run with people, and of each two runs, by resolution; None where there is none."""
    found = {f"{line.label} and people": line.points for line in study.lines("error_consistency")}
    found |= {" and ".join(pair): some for pair, some in alike.items()}
    lines = {
        Head(who): {Head(f"{size}\u00a0px"): f"{some[size].value:.3f}" for size in some}
        for who, some in found.items() if some
    }  # fmt: skip
    caption = "Error consistency (Cohen's kappa of what two name rightly), the mean over sets"
    return table_of(caption, lines, "who").turned() if lines else None


def by_part(study: Study, metric: str, by: str) -> list[Table]:
    """A metric by what it was broken down by, at a size of training and at the largest."""
    parts = {titled(by, part): study.lines(metric, slices=part) for part in study.parts(metric)[by]}
    if by == "group" and metric == "top1":
        parts["within group"] = study.lines("top1_within_group")
    found = []
    for size in series.outer_resolutions([line for lines in parts.values() for line in lines]):
        some: dict[str, tuple[PlotLine, dict[Head, ResultRow]]] = {}
        for title, line in ((title, line) for title, lines in parts.items() for line in lines if size in line.points):
            some.setdefault(line.label, (line, {}))[1][Head(title)] = line.points[size]
        seen = series.seen_at(size, [line for line, _ in some.values()])
        where = f"tested at {size} px{words.SEEN[seen]}"
        found.append(_table(study, where, list(some.values()), _BY.get(by, by.replace("_", " "))))
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


def _sizes(study: Study, chosen: Sequence[PlotLine]) -> dict[int, Head]:
    """The column of each resolution of some lines; one whose images were all shrunk has no grid of its own."""
    shape = series.grids(study.rows)
    grids = {size: f"\u00a0{TIMES}\u00a0".join(map(str, shape.get(size, ()))) for size in series.resolutions(chosen)}
    return {size: Head(f"{size}\u00a0px", grid, seen=series.seen_at(size, chosen)) for size, grid in grids.items()}


def _views(line: PlotLine) -> dict[Head, ResultRow]:
    """What was measured in other ways than on squares, by column."""
    found = {}
    for view, one in line.views.items():
        kind, _, number = view.partition(":")
        title, below = _VIEWS.get(kind, (view, ""))
        found[Head(title.format(number), below.format(number))] = one
    return found


def _table(
    study: Study, where: str, lines: Sequence[tuple[PlotLine, Mapping[Head, ResultRow]]], by: str = ""
) -> Table | None:
    """A table of what was measured of lines, by column; None where there is none. `by` is what a metric is broken down
    by; of all images what was seen in training is marked, and images are counted."""
    rows = [one for _, points in lines for one in points.values()]
    if not rows:
        return None
    # By size, and then in the order in which they come.
    columns = sorted({head: one for _, points in lines for head, one in points.items()}.items(), key=_place)
    # One run alone is the best of nothing.
    several = lines if len({line.run for line, _ in lines}) > 1 else []
    best = {head: _best([points[head] for _, points in several if head in points]) for head, _ in columns}
    made: dict[Head, dict[Head, Cell | str]] = {}
    for line, points in lines:
        head = Head(words.printable(line.run), colour=style.colour(line.run, study.order), detail=line.detail)
        made[head] = {
            column: _cell(one, line, one.value == best[column], whole=not by) for column, one in points.items()
        }
    if not by:
        counts = {head: sorted({some[head].count for _, some in lines if head in some}) for head, _ in columns}
        made[Head(rows[0].counted)] = {head: words.span([f"{one:,}" for one in some]) for head, some in counts.items()}
    caption = words.heading(rows[0]) + (f" by {by}" if by else "") + f", {where}"
    table = table_of(caption, made, columns=[head for head, _ in columns])
    marked = any(one is not None for one in best.values())
    return replace(table, extreme=words.EXTREME.get(rows[0].better, "") if marked else "").turned()


def _place(column: tuple[Head, ResultRow]) -> float:
    return column[1].resolution or math.inf


def _best(rows: Sequence[ResultRow]) -> float | None:
    """The best value of a column of squares; None where fewer than two were measured, or all are equal."""
    values = {row.value for row in rows if row.resolution is not None}
    extreme = {"higher": max, "lower": min}.get(rows[0].better) if rows else None
    return extreme(values) if extreme is not None and len(values) > 1 else None


def _cell(one: ResultRow, line: PlotLine, best: bool, *, whole: bool) -> Cell:
    below = [f"{one.patches:,.1f} patches"] if one.resolution is None else []
    if whole and one.tuned_label:
        below.append(f"{'parameter ' if one.tuned_label[0].isdigit() else ''}{one.tuned_label}")
    marked = whole and one.resolution is not None and line.seen.holds(one.resolution)
    return replace(measured_cell(one), best=best, below=", ".join(below), marked=marked)


def training(runs: Sequence[RunSummary], order: Sequence[str]) -> Table:
    """What each run saw and took: parameters, sizes, images, tokens, operations, times, precision, and its knob."""
    lines = {}
    for run in runs:
        speed = run.train_images / run.train_seconds if run.train_seconds > 0 and run.train_images else None
        knob = "" if run.knob is None else f"{run.knob_name or 'parameter'} {run.knob:g}"
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
            Head("encoding's parameter", "now / default"): knob,
            Head("precision", "of training"): run.precision,
        }
        cells = {head: Cell(text or DASH, words=True) for head, text in said.items()}
        lines[Head(run.name, colour=style.colour(run.name, order))] = cells
    return table_of("What each run saw and took", lines).turned()


def _number(count: int) -> str:
    return f"{count:,}" if count else DASH


def share(count: int, total: int) -> MetricValue:
    """So many of all images, named rightly."""
    return MetricValue("top1", count / total, FRACTION, total)


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
        lines.append((name, measured_cell(share(named[name], total)), f"{total:,}", Cell(taken, words=True)))
    shown = f" ({len(lines)} of {len(scores):,})" if len(lines) < len(scores) else ""
    columns = ("class", "right, in %", "images", Head("most often taken for", "(images)"))
    return text_table(f"Accuracy by class, the lowest first{shown}", columns, lines)


def confusions(said: Answers) -> Table | None:
    """What was most often taken for what; None where nothing was mistaken."""
    pairs = Counter((one.label, one.predicted) for one in said.answers if not one.correct)
    totals = Counter(one.label for one in said.answers)
    lines = [
        (label, Cell(named, words=True), f"{count:,} of {totals[label]:,}", measured_cell(share(count, totals[label])))
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
