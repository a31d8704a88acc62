"""A paper's curve beside those that were measured: the figure, and the numbers as a table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError
from sightline.published import Paper
from sightline.reports import style, words
from sightline.reports.grids import GridLine, Heading, TableCell, TextTable
from sightline.reports.plots import draw_points, names_of, value_axis
from sightline.reports.series import PlotLine, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OTHER: dict[str, Any] = {"color": style.FAINT, "linewidth": 1, "linestyle": (0, (4, 2)), "zorder": 1}


def check(study: Study, paper: Paper) -> None:
    """Refuse a paper whose numbers have no place beside what was measured.

    Raises:
        InputError: it has no curve by resolution, or it is of another metric.
    """
    if paper.curve is None:
        raise InputError(f"paper {paper.name}: its tables hold no curve by resolution")
    if paper.curve.metric != study.main.metric:
        raise InputError(f"paper {paper.name}: its curve is of {paper.curve.metric}, not of {study.main.metric}")


def beside(study: Study, paper: Paper, *, narrow: bool = False) -> str:
    """The main metric (percent) by the side of the test images over that of the training images: what was measured with
    its bars of 95 %, and what the paper printed, dashed, in the colour of the run of the same encoding where there is
    one; SVG text.

    Raises:
        InputError: as `check`.
    """
    check(study, paper)
    assert paper.curve is not None
    trained, published = paper.curve.trained, paper.lines()
    chosen = [line for line in study.lines() if line.points and line.shrunk is None]
    runs = {line.encoding: line for line in reversed(chosen)}

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.set_xscale("log", base=2)
        for line in chosen:
            draw_points(axes, line, {_times(line, size): point for size, point in line.points.items()}, study.order)
        for encoding, points in published.values():
            same = runs.get(encoding)
            look = _OTHER if same is None else {**_OTHER, **_same(same, study), "zorder": 2}
            axes.plot([side / trained for side in points], [one.number for one in points.values()], **look)
        value_axis(axes, study.main)
        ends = [_times(line, size) for line in chosen for size in line.points]
        ends += [side / trained for _, points in published.values() for side in points]
        low, high = min(ends), max(ends)
        axes.set_xlim(low / 1.06, high * 1.06)
        ticks = [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
        axes.set_xticks(ticks, [f"{tick:g}{words.TIMES}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(f"test side in training sides{'' if narrow else ' (of the images, px / px)'}")
        names = [(f"{style.short(line.label)}, measured", look) for line, (_, look) in _named(chosen, study)]
        for method, (encoding, _) in published.items():
            if encoding in runs:
                names.append((f"{method}, published", {**_OTHER, **_same(runs[encoding], study)}))
        if any(encoding not in runs for encoding, _ in published.values()):
            names.append(("others, published", _OTHER))
        style.legend(figure, names, narrow=narrow)

    entries = len(chosen) + sum(encoding in runs for encoding, _ in published.values()) + 1
    return style.draw_for_page(3.4 if narrow else 4.2, paint, narrow=narrow, names=entries)


def _times(line: PlotLine, size: int) -> float:
    return size / line.points[size].train_resolution


def _same(line: PlotLine, study: Study) -> dict[str, Any]:
    return {"color": style.colour(line.run, study.order), "linewidth": 1.8}


def _named(chosen: list[PlotLine], study: Study) -> list[tuple[PlotLine, tuple[str, Any]]]:
    return list(zip(chosen, names_of(chosen, study.order), strict=True))


def numbers(paper: Paper) -> TextTable:
    """The numbers of a paper's curve, as it printed them: a line a method, a column a size."""
    assert paper.curve is not None
    lines = paper.lines()
    sizes = sorted({side for _, points in lines.values() for side in points})
    headings = [Heading(f"{size}\u00a0px", f"{size / paper.curve.trained:.3g}{words.TIMES}") for size in sizes]
    made = []
    for method, (encoding, points) in lines.items():
        cells = [TableCell(points[size].value if size in points else words.DASH) for size in sizes]
        made.append(GridLine(method, "", cells, below=encoding))
    return TextTable(f"Published: {words.title(paper.curve.metric)} in %, {paper.curve.said}", headings, made, "method")
