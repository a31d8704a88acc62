"""Tables of numbers and words as plain cells of text, so that a page or a terminal only places them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sightline.reports import answers, series, style, words
from sightline.reports.content import Answers, RunSummary
from sightline.reports.series import HELD_OUT, PlotLine, Study
from sightline.reports.words import DASH, TIMES
from sightline.results.rows import MetricValue, ResultRow, Slices

_QUINTILES = ("smallest", "2nd", "3rd", "4th", "largest")
_VIEWS = {
    "native": ("native", "own size and aspect"),
    "max": ("max:{0}", "own size, at most {0} patches"),
    "tokens": ("tokens:{0}", "resized to at most {0} patches"),
}
# What metrics of which a group is known are broken down by, in words.
BY = {
    "group": "group", "size_quintile": "object size", "class": "class", "confidence_bin": "confidence",
    "coverage": "coverage", "loss, epsilon": "loss and epsilon", "quartile": "quartile",
}  # fmt: skip
# What accuracy under attack is broken down by; each is shown at all sizes, as a metric is.
ATTACK = "loss, epsilon"
# Of `confidence_bin`, as `metrics.calibration` cuts them.
_BINS = 15
_LONG = 20


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: `below` is a smaller second line, `seen` says whether all runs saw a size; a run's has its `colour`."""

    title: str
    below: str = ""
    colour: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A value and the `limits` of its interval, as text; `value` is a dash where nothing was measured. `knob` is the
    value of one that was tuned. `marked`: at a size that the run saw in training."""

    value: str
    limits: Sequence[str] = ()
    best: bool = False
    below: str = ""
    knob: str = ""
    marked: bool = False
    words: bool = False

    @property
    def interval(self) -> str:
        return words.interval(self.limits)


@dataclass(frozen=True, slots=True)
class GridLine:
    """A line of a table; `detail` tells lines of one label apart, `below` is smaller; a run's has its `colour`."""

    label: str
    colour: str
    cells: Sequence[TableCell]
    below: str = ""
    detail: str = ""

    @property
    def name(self) -> str:
        return self.label + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table; `corner` heads the first column, `extreme` says what its best numbers are ("highest"), "" if nothing."""

    caption: str
    headings: Sequence[Heading]
    lines: Sequence[GridLine]
    corner: str = "run"
    extreme: str = ""

    @property
    def long(self) -> bool:
        """Whether a word of the first column would take most of a phone's width."""
        return any(len(word) > _LONG for line in self.lines for word in line.name.split())

    def turned(self) -> TextTable:
        """With a column a run where that is the narrower way: a phone shows few columns."""
        if len(self.lines) >= len(self.headings):
            return self
        headings = [Heading(line.name, line.below, line.colour) for line in self.lines]
        lines = [
            GridLine(heading.title, heading.colour, [line.cells[place] for line in self.lines], heading.below)
            for place, heading in enumerate(self.headings)
        ]
        return TextTable(self.caption, headings, lines, "")


def by_resolution(study: Study, metric: str, split: str | None = None) -> TextTable | None:
    """A metric by run and resolution on one split; None where it was not measured."""
    chosen = [line for line in study.lines(metric, split=split) if line.points]
    where = "fonts not seen in training" if split == HELD_OUT else f"split {split or study.main.split}"
    return _numbers(study, where, chosen, _sizes(study, chosen))


def _sizes(study: Study, chosen: Sequence[PlotLine]) -> list[tuple[Heading, Mapping[str, ResultRow]]]:
    """A column for each resolution of some lines."""
    shape = series.grids(study.rows)
    columns = []
    for size in series.resolutions(chosen):
        # A size whose images were all shrunk has no grid of its own.
        grid = f"\u00a0{TIMES}\u00a0".join(map(str, shape.get(size, ())))
        heading = Heading(f"{size}\u00a0px", grid, seen=series.seen_at(size, chosen))
        columns.append((heading, _at(size, chosen)))
    return columns


def held_out(study: Study) -> TextTable | None:
    """The main metric on fonts not seen in training; None where these are the main split, or were not tested."""
    return None if study.main.split == HELD_OUT else by_resolution(study, study.main.metric, HELD_OUT)


def by_view(study: Study, metric: str) -> TextTable | None:
    """A metric by run and way of showing images, squares of one size left out; None where there is no other."""
    chosen = [line for line in study.lines(metric) if line.views]
    return _numbers(study, f"split {study.main.split}, by view", chosen, _views(chosen))


def _views(chosen: Sequence[PlotLine]) -> list[tuple[Heading, Mapping[str, ResultRow]]]:
    """A column for each view of some lines."""
    columns = []
    for view in dict.fromkeys(view for line in chosen for view in line.views):
        kind, _, number = view.partition(":")
        title, below = _VIEWS.get(kind, (view, ""))
        points = {line.label: line.views[view] for line in chosen if view in line.views}
        columns.append((Heading(title.format(number), below.format(number)), points))
    return columns


def by_attack(study: Study, metric: str) -> list[TextTable]:
    """A metric under attack by run, resolution and view: a table for each loss and epsilon."""
    tables = []
    for part in study.parts(metric).get(ATTACK, []):
        chosen = study.lines(metric, slices=part)
        where = f"loss {part['loss']}, epsilon {part['epsilon']}, split {study.main.split}"
        table = _numbers(study, where, chosen, [*_sizes(study, chosen), *_views(chosen)])
        tables += [table] if table else []
    return tables


def of_metric(study: Study, metric: str) -> list[TextTable]:
    """All that was measured of a metric on the main split."""
    parts = [table for by in study.parts(metric) if by != ATTACK for table in by_part(study, metric, by)]
    parts += by_attack(study, metric)
    return [table for table in (by_resolution(study, metric), by_view(study, metric), *parts) if table is not None]


def by_part(study: Study, metric: str, by: str) -> list[TextTable]:
    """A metric by what it was broken down by, at a size of training and at the largest."""
    parts = {titled(by, part): study.lines(metric, slices=part) for part in study.parts(metric)[by]}
    if by == "group" and metric == "top1":
        parts["within group"] = study.lines("top1_within_group")
    tables = []
    for size in series.outer_resolutions([line for lines in parts.values() for line in lines]):
        named = {line.label: line for lines in parts.values() for line in lines if size in line.points}
        lines = list(named.values())
        columns = [(Heading(title), _at(size, found)) for title, found in parts.items() if found]
        where = f"tested at {size} px{words.SEEN[series.seen_at(size, lines)]}"
        table = _numbers(study, where, lines, columns, by=BY.get(by, by.replace("_", " ")))
        tables += [table] if table else []
    return tables


def _at(size: int, lines: Sequence[PlotLine]) -> dict[str, ResultRow]:
    """What was measured at a size, by the labels of lines."""
    return {line.label: line.points[size] for line in lines if size in line.points}


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


def _numbers(
    study: Study,
    where: str,
    lines: Sequence[PlotLine],
    columns: Sequence[tuple[Heading, Mapping[str, ResultRow]]],
    by: str = "",
) -> TextTable | None:
    """A table of measured numbers; None where there is none.

    Args:
        columns: what stands in each, by the labels of lines.
        by: what a metric is broken down by; of all images, what was seen in training is marked, and images are counted.
    """
    if not columns:
        return None
    made = []
    best = [_best(points) for _, points in columns]
    for line in lines:
        cells = []
        for (_, points), leaders in zip(columns, best, strict=True):
            point = points.get(line.label)
            cells.append(TableCell(DASH) if point is None else _cell(point, line, line.label in leaders, whole=not by))
        made.append(GridLine(words.printable(line.run), style.colour(line.run, study.order), cells, detail=line.detail))
    one = next(point for _, points in columns for point in points.values())
    if not by:
        counts = [sorted({point.count for point in points.values()}) for _, points in columns]
        cells = [TableCell(words.span([f"{count:,}" for count in found])) for found in counts]
        made.append(GridLine(one.counted, "", cells))
    caption = words.heading(one) + (f" by {by}" if by else "") + f", {where}"
    extreme = words.EXTREME.get(one.better, "") if any(best) else ""
    return TextTable(caption, [heading for heading, _ in columns], made, extreme=extreme)


def _best(points: Mapping[str, ResultRow]) -> set[str]:
    """The labels of the best values at one size; none where fewer than two were measured, or all are equal."""
    values = {label: point.value for label, point in points.items() if point.resolution is not None}
    if len(set(values.values())) < 2:
        return set()
    extreme = {"higher": max, "lower": min}.get(next(iter(points.values())).better)
    return {label for label, value in values.items() if extreme is not None and value == extreme(values.values())}


def _cell(point: MetricValue, line: PlotLine | None = None, best: bool = False, *, whole: bool = False) -> TableCell:
    cell = TableCell(words.number(point.value, point.unit), words.limits(point), best)
    if line is None or not isinstance(point, ResultRow):
        return cell
    below = f"{point.patches:,.1f} patches" if point.resolution is None else ""
    knob = point.tuned_label if whole else ""
    marked = whole and point.resolution is not None and line.seen.holds(point.resolution)
    return replace(cell, below=below, knob=knob, marked=marked)


def training(runs: Sequence[RunSummary], order: Sequence[str]) -> TextTable:
    """What each run saw and took: parameters, sizes, images, tokens, operations, times, precision, and its knob."""
    made, headings = [], []
    for run in runs:
        speed = run.train_images / run.train_seconds if run.train_seconds > 0 and run.train_images else None
        knob = DASH if run.knob is None else f"{run.knob_name or 'knob'} {run.knob:g}"
        if run.knob is not None and run.knob_default is not None:
            knob += f" / {run.knob_default:g}"
        said = {
            ("position encoding", ""): run.encoding,
            ("sizes", "in training"): run.seen and run.seen.words,
            ("tokens dropped", "in training"): run.seen and (run.seen.drop or "none"),
            ("images shown", "in training"): _number(run.train_images),
            ("tokens", "in training"): _number(run.train_tokens),
            ("operations", "of training"): f"{run.train_flops:.3g}" if run.train_flops else "",
            ("training", ""): words.duration(run.train_seconds),
            ("images/s", ""): f"{speed:,.0f}" if speed else "",
            ("testing", ""): words.duration(run.evaluate_seconds),
            ("parameters", ""): _number(run.parameters),
            ("knob", "now / default"): knob,
            ("precision", "of training"): run.precision,
        }
        headings = [Heading(*heading) for heading in said]
        cells = [TableCell(text or DASH, words=True) for text in said.values()]
        made.append(GridLine(run.name, style.colour(run.name, order), cells))
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
    made = [
        GridLine(name, "", [_cell(point), TableCell(_number(point.count)), TableCell(mistaken_for, words=True)])
        for name, point, mistaken_for in shown
    ]
    headings = [Heading("right, in %"), Heading("images"), Heading("most often taken for", "(images)")]
    return TextTable(caption, headings, made, corner="class")


def confusions(said: Answers) -> TextTable | None:
    """What was most often taken for what; None where nothing was mistaken."""
    pairs = answers.top_confusions(said)
    if not pairs:
        return None
    made = []
    for label, named, count, total in pairs:
        cells = [TableCell(named, words=True), TableCell(f"{count:,} of {total:,}"), _cell(answers.share(count, total))]
        made.append(GridLine(label, "", cells))
    headings = [Heading("named as"), Heading("images"), Heading("share, in %")]
    return TextTable("The most frequent mistakes", headings, made, corner="true class")


def _number(count: int) -> str:
    return f"{count:,}" if count else DASH
