"""Tables of the HTML report as plain cells of text, so that the template only places them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sightline.reports import answers, series, style
from sightline.reports.content import Answers, RunSummary, SeenSizes
from sightline.reports.findings import DASH, TIMES, duration, interval
from sightline.reports.series import QUINTILES, Point
from sightline.results import ResultRow, Slices


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: `below` is a smaller second line; a run's has its `colour`."""

    title: str
    below: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and its interval in percent, as text; `value` is a dash where nothing was measured. `marked`: at a size
    that the run saw in training."""

    value: str
    interval: str = ""
    best: bool = False
    below: str = ""
    marked: bool = False
    words: bool = False


@dataclass(frozen=True, slots=True)
class GridLine:
    """A line of a table; `below` is smaller and under its label; a run's has its `colour`."""

    label: str
    colour: str
    cells: Sequence[Cell]
    below: str = ""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table; `corner` heads the first column."""

    caption: str
    headings: Sequence[Heading]
    lines: Sequence[GridLine]
    corner: str = "run"

    def turned(self) -> TextTable:
        """With a column a run where that is the narrower way: a phone shows few columns."""
        if len(self.lines) >= len(self.headings):
            return self
        headings = [Heading(line.label, line.below, line.colour) for line in self.lines]
        lines = [
            GridLine(heading.title, heading.colour, [line.cells[place] for line in self.lines], heading.below)
            for place, heading in enumerate(self.headings)
        ]
        return TextTable(self.caption, headings, lines, "")


def accuracy(
    rows: Sequence[ResultRow],
    split: str,
    order: Sequence[str],
    caption: str,
    metric: str = "top1",
    seen: Mapping[str, SeenSizes] | None = None,
) -> TextTable | None:
    """A metric in percent by run and resolution on one split; None where it was not measured."""
    chosen = [line for line in series.lines(rows, metric, split=split, order=order, seen=seen) if line.points]
    if not chosen:
        return None
    shape = series.grids(rows)
    sizes = series.resolutions(chosen)
    headings = [Heading(f"{size}\u00a0px", f"{shape[size][0]}\u00a0{TIMES}\u00a0{shape[size][1]}") for size in sizes]
    best = {size: series.best_lines(chosen, size) for size in sizes}
    made = []
    for index, line in enumerate(chosen):
        cells = []
        for size in sizes:
            point = line.points.get(size)
            knob = f"knob {point.knob:g}" if point and line.tuned and point.knob is not None else ""
            cells.append(_cell(point, index in best[size], knob, marked=line.seen.holds(size)))
        made.append(GridLine(line.label, style.colour(line.run, order), cells))
    made.append(_counts([[line.points.get(size) for line in chosen] for size in sizes]))
    return TextTable(caption, headings, made).turned()


_VIEWS = {
    "native": ("native", "own size and aspect"),
    "max": ("max:{0}", "own size, at most {0} patches"),
    "tokens": ("tokens:{0}", "resized to at most {0} patches"),
}


def by_view(
    rows: Sequence[ResultRow], split: str, order: Sequence[str], seen: Mapping[str, SeenSizes] | None = None
) -> TextTable | None:
    """Top-1 in percent by run and way of showing images, squares of one size left out; None where there is no other."""
    chosen = [line for line in series.lines(rows, split=split, order=order, seen=seen) if line.views]
    if not chosen:
        return None
    views = series.views(chosen)
    headings = []
    for view in views:
        kind, _, number = view.partition(":")
        title, below = _VIEWS.get(kind, (view, ""))
        headings.append(Heading(title.format(number), below.format(number)))
    made = []
    for line in chosen:
        cells = []
        for view in views:
            point = line.views.get(view)
            patches = f"{point.patches:,.1f} patches" if point is not None and point.patches else ""
            cells.append(_cell(point, False, patches))
        made.append(GridLine(line.label, style.colour(line.run, order), cells))
    made.append(_counts([[line.views.get(view) for line in chosen] for view in views]))
    return TextTable(f"Top-1 accuracy in %, split {split}, by view", headings, made).turned()


def by_group(
    rows: Sequence[ResultRow], split: str, order: Sequence[str], seen: Mapping[str, SeenSizes] | None = None
) -> list[TextTable]:
    """Top-1 by group of classes, and within the true group, at a size of training and at the largest."""
    metrics: dict[str, tuple[str, Slices]] = {
        name: ("top1", {"group": name}) for name in series.groups(row for row in rows if row.split == split)
    }
    if any(row.metric == "top1_within_group" and row.split == split for row in rows):
        metrics["within group"] = "top1_within_group", {}
    return _breakdown(rows, split, order, metrics, "by group", seen)


def by_size(
    rows: Sequence[ResultRow], split: str, order: Sequence[str], seen: Mapping[str, SeenSizes] | None = None
) -> list[TextTable]:
    """Top-1 by fifths of object size, at a size of training and at the largest."""
    metrics: dict[str, tuple[str, Slices]] = {
        title: ("top1", {"size_quintile": number}) for number, title in enumerate(QUINTILES, start=1)
    }
    return _breakdown(rows, split, order, metrics, "by object size", seen)


def _breakdown(
    rows: Sequence[ResultRow],
    split: str,
    order: Sequence[str],
    metrics: Mapping[str, tuple[str, Slices]],
    by: str,
    seen: Mapping[str, SeenSizes] | None,
) -> list[TextTable]:
    """A table for a size of training and for the largest resolution: a line a run, a column a metric."""
    columns = {
        title: [
            one for one in series.lines(rows, metric, split=split, slices=part, order=order, seen=seen) if one.points
        ]
        for title, (metric, part) in metrics.items()
    }
    tables = []
    for size in series.outer_resolutions([line for lines in columns.values() for line in lines]):
        labels = {line.label: line for lines in columns.values() for line in lines if size in line.points}
        made = []
        for label, line in labels.items():
            cells = []
            for lines in columns.values():
                at = [other for other in lines if size in other.points]
                leaders = series.best_lines(at, size)
                found = next((place for place, other in enumerate(at) if other.label == label), None)
                cells.append(_cell(None if found is None else at[found].points[size], found in leaders))
            made.append(GridLine(label, style.colour(line.run, order), cells))
        caption = f"Top-1 accuracy {by}, in %, tested at {size} px{as_trained(size, list(labels.values()))}"
        tables.append(TextTable(caption, [Heading(title) for title in columns], made).turned())
    return tables


def as_trained(size: int, chosen: Sequence[series.Line]) -> str:
    """ ", as trained", where all runs were trained at that size alone; ", seen in training" where all saw it; or ""."""
    if all(line.seen.one == size for line in chosen):
        return ", as trained"
    return ", seen in training" if all(line.seen.holds(size) for line in chosen) else ""


def training(runs: Sequence[RunSummary], order: Sequence[str]) -> TextTable:
    """What each run saw and took: parameters, sizes, images, tokens, operations, times, precision, and its knob."""
    headings = [
        Heading("position encoding"),
        Heading("sizes", "in training"),
        Heading("tokens dropped", "in training"),
        Heading("images shown", "in training"),
        Heading("tokens", "in training"),
        Heading("operations", "of training"),
        Heading("training"),
        Heading("images/s"),
        Heading("testing"),
        Heading("parameters"),
        Heading("knob", "now / default"),
        Heading("precision", "of training"),
    ]
    made = []
    for run in runs:
        speed = run.train_images / run.train_seconds if run.train_seconds > 0 and run.train_images else None
        knob = DASH if run.knob is None else f"{run.knob_name or 'knob'} {run.knob:g}"
        if run.knob is not None and run.knob_default is not None:
            knob += f" / {run.knob_default:g}"
        texts = [
            run.encoding,
            DASH if run.seen is None else run.seen.words,
            DASH if run.seen is None else run.seen.drop or "none",
            _number(run.train_images),
            _number(run.train_tokens),
            f"{run.train_flops:.3g}" if run.train_flops else DASH,
            duration(run.train_seconds),
            f"{speed:,.0f}" if speed else DASH,
            duration(run.evaluate_seconds),
            _number(run.parameters),
            knob,
            run.precision or DASH,
        ]
        made.append(GridLine(run.name, style.colour(run.name, order), [Cell(text, words=True) for text in texts]))
    return TextTable("What each run saw and took", headings, made).turned()


# A table of more classes than this shows those with the lowest accuracy alone.
_MOST_CLASSES = 60


def by_class(said: Answers) -> TextTable:
    """The accuracy of each class, the lowest first."""
    scores = answers.by_class(said)
    shown = scores[:_MOST_CLASSES]
    caption = "Accuracy by class, the lowest first"
    if len(shown) < len(scores):
        caption += f" ({len(shown)} of {len(scores):,})"
    made = []
    for score in shown:
        cells = [_cell(score.point, False), Cell(_number(score.point.images)), Cell(score.mistaken_for, words=True)]
        made.append(GridLine(score.name, "", cells))
    headings = [Heading("right, in %"), Heading("images"), Heading("most often taken for", "(images)")]
    return TextTable(caption, headings, made, corner="class")


def confusions(said: Answers) -> TextTable | None:
    """What was most often taken for what; None where nothing was mistaken."""
    pairs = answers.top_confusions(said)
    if not pairs:
        return None
    made = []
    for label, named, count, total in pairs:
        share = _cell(Point(count / total, total, None), False)
        made.append(GridLine(label, "", [Cell(named, words=True), Cell(f"{count:,} of {total:,}"), share]))
    headings = [Heading("named as"), Heading("images"), Heading("share, in %")]
    return TextTable("The most frequent mistakes", headings, made, corner="true class")


def _cell(point: series.Point | None, best: bool, below: str = "", *, marked: bool = False) -> Cell:
    if point is None:
        return Cell(DASH)
    return Cell(f"{100 * point.value:.1f}", interval(*point.interval()), best, below, marked)


def _counts(columns: Sequence[Sequence[series.Point | None]]) -> GridLine:
    """How many images were measured in each column."""
    cells = []
    for points in columns:
        counts = sorted({point.images for point in points if point is not None})
        cells.append(Cell(f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"))
    return GridLine("images", "", cells)


def _number(count: int) -> str:
    return f"{count:,}" if count else DASH
