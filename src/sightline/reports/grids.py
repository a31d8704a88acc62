"""Tables of the HTML report as plain cells of text, so that the template only places them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sightline.reports import series, style
from sightline.reports.content import RunSummary
from sightline.reports.findings import DASH, TIMES, duration
from sightline.reports.series import QUINTILES
from sightline.results import ResultRow


@dataclass(frozen=True, slots=True)
class Heading:
    """A column: `below` is a smaller second line, `marked` the training resolution's, `words` holds no numbers."""

    title: str
    below: str = ""
    marked: bool = False
    words: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and its standard error in percent, as text; `value` is a dash where nothing was measured."""

    value: str
    stderr: str = ""
    best: bool = False
    below: str = ""


@dataclass(frozen=True, slots=True)
class GridLine:
    """A line of a table, named and coloured as its run."""

    label: str
    colour: str
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table; `foot` is a last line with its own heading, or empty."""

    caption: str
    headings: Sequence[Heading]
    lines: Sequence[GridLine]
    foot: Sequence[str] = ()


def accuracy(
    rows: Sequence[ResultRow], split: str, order: Sequence[str], caption: str, metric: str = "top1"
) -> TextTable | None:
    """A metric in percent by run and resolution on one split; None where it was not measured."""
    chosen = series.lines(rows, metric, split=split, order=order)
    if not chosen:
        return None
    shape = {row.resolution: row.grid for row in rows if row.grid}
    trained = series.train_resolutions(chosen)
    sizes = series.resolutions(chosen)
    headings = [Heading(f"{size} px", f"{shape[size][0]} {TIMES} {shape[size][1]}", size in trained) for size in sizes]
    best = {size: series.best_lines(chosen, size) for size in sizes}
    made = []
    for index, line in enumerate(chosen):
        cells = []
        for size in sizes:
            point = line.points.get(size)
            knob = f"knob {point.knob:g}" if point and line.tuned and point.knob is not None else ""
            cells.append(_cell(point, index in best[size], knob))
        made.append(GridLine(line.label, style.colour(line.run, order), cells))
    foot = ["test images"]
    for size in sizes:
        counts = sorted({line.points[size].images for line in chosen if size in line.points})
        foot.append(f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}")
    return TextTable(caption, headings, made, foot)


def by_group(rows: Sequence[ResultRow], split: str, order: Sequence[str]) -> list[TextTable]:
    """Top-1 by group of classes, and within the true group, at the training and at the largest resolution."""
    metrics = {name: f"top1_group_{name}" for name in series.groups(row for row in rows if row.split == split)}
    if any(row.metric == "top1_within_group" and row.split == split for row in rows):
        metrics["within group"] = "top1_within_group"
    return _breakdown(rows, split, order, metrics, "by group")


def by_size(rows: Sequence[ResultRow], split: str, order: Sequence[str]) -> list[TextTable]:
    """Top-1 by fifths of object size, at the training and at the largest resolution."""
    metrics = {title: f"top1_size_q{number}" for number, title in enumerate(QUINTILES, start=1)}
    return _breakdown(rows, split, order, metrics, "by object size")


def _breakdown(
    rows: Sequence[ResultRow], split: str, order: Sequence[str], metrics: Mapping[str, str], by: str
) -> list[TextTable]:
    """A table for the training and for the largest resolution: a line a run, a column a metric (title: metric)."""
    kept = [row for row in rows if row.split == split and row.metric in set(metrics.values())]
    columns = {title: series.lines(kept, metric, split=split, order=order) for title, metric in metrics.items()}
    tables = []
    for size in series.outer_resolutions(kept):
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
        trained = any(line.train_resolution == size for line in labels.values())
        caption = f"Top-1 accuracy {by}, in %, tested at {size} px" + (", as trained" if trained else "")
        tables.append(TextTable(caption, [Heading(title) for title in columns], made))
    return tables


def training(runs: Sequence[RunSummary], order: Sequence[str]) -> TextTable:
    """What each run took: parameters, images, times, precision, and its knob."""
    headings = [
        Heading("position encoding", words=True),
        Heading("knob", "now / default", words=True),
        Heading("parameters"),
        Heading("images", "in training"),
        Heading("training"),
        Heading("images/s"),
        Heading("testing"),
        Heading("precision"),
    ]
    made = []
    for run in runs:
        speed = run.train_images / run.train_seconds if run.train_seconds > 0 and run.train_images else None
        knob = DASH if run.knob is None else f"{run.knob_name or 'knob'} {run.knob:g}"
        if run.knob is not None and run.knob_default is not None:
            knob += f" / {run.knob_default:g}"
        texts = [
            run.encoding,
            knob,
            _number(run.parameters),
            _number(run.train_images),
            duration(run.train_seconds),
            f"{speed:,.0f}" if speed else DASH,
            duration(run.evaluate_seconds),
            run.precision or DASH,
        ]
        made.append(GridLine(run.name, style.colour(run.name, order), [Cell(text) for text in texts]))
    return TextTable("What each run took", headings, made)


def _cell(point: series.Point | None, best: bool, below: str = "") -> Cell:
    if point is None:
        return Cell(DASH)
    return Cell(f"{100 * point.value:.1f}", f"{100 * point.stderr:.1f}", best, below)


def _number(count: int) -> str:
    return f"{count:,}" if count else DASH
