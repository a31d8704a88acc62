"""The figures of a report, each a function from rows to SVG text: a metric by size, by parts of the images, by how sure
the model is, under attack, and beside a paper's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError
from sightline.published import Paper
from sightline.reports import series, style, words
from sightline.reports.content import SeenSizes
from sightline.reports.grids import ATTACK, GridLine, Heading, TableCell, TextTable, titled
from sightline.reports.lines import Line, Panel, lines_figure, measured_line, size_axis, value_range
from sightline.reports.seen import some_words
from sightline.reports.series import PlotLine, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RIGHT, SURE, BIN = "top1_in_bin", "confidence", "confidence_bin"
# Labels at the ends of lines keep this distance, in hundredths of the axis.
_LABEL_GAP = 4.8
# Points from line to line of the strip that says which sizes were seen in training, and where words have a line of
# their own.
_STRIP, _NARROW_STRIP = 15, 25
_ATTACKED = "_top1"
_PUBLISHED: dict[str, Any] = {"color": style.FAINT, "linewidth": 1, "linestyle": (0, (4, 2)), "zorder": 1}


def look_of(line: PlotLine, order: Sequence[str]) -> dict[str, Any]:
    """How a line is drawn: dashed and with open marks where it has the default of a knob that was tuned too, thin and
    dotted where its images were downsampled."""
    dashed = (line.paired and not line.tuned) or line.shrunk is not None
    look = {**style.look(line.run, order), "linewidth": 2 if line.shrunk is None else 1.1, "markersize": 5.5}
    look["linestyle"] = "-" if not dashed else (0, (4, 2)) if line.shrunk is None else (0, (2, 2))
    return look | ({"markerfacecolor": style.PAGE} if dashed else {})


def guessing(chance: float | None) -> tuple[float, str] | None:
    """The level of guessing, a fraction, where it is known."""
    return None if chance is None else (100 * chance, f"guessing: {100 * chance:.1f} %")


def by_resolution(study: Study, *, fitted: bool = False, narrow: bool = False) -> str:
    """The main metric by test resolution (pixels, spaced by doublings), one line a run.

    Bars are 95 % intervals. Above the axes a triangle stands at the one size, or a bar over the sizes, that runs saw
    in training. Where a run has both, its tuned knob is solid and its default dashed. The level of guessing is drawn
    where it is known; `fitted` lets the axis of fractions begin and end where the numbers do.

    Raises:
        InputError: the metric was measured on no square.
    """
    chosen = [line for line in study.lines() if line.points]
    if not chosen:
        raise InputError(f"no row has metric {study.main.metric} on squares of split {study.main.split}")
    trainings = series.sizes_of_training(chosen)
    bounds = {side for sizes, _ in trainings for side in (sizes.low, sizes.high) if sizes.low is not None and side}
    measured = series.resolutions(chosen)
    lines = [measured_line(line.label, look_of(line, study.order), line.points) for line in chosen]

    def marks(axes: Axes) -> None:
        _draw_trainings(axes, trainings, study.order, narrow=narrow)
        if not narrow:
            _label_ends(axes, lines)

    panel = Panel(
        lines,
        x_label="test resolution (side of the image, px)",
        y_label=words.axis(study.main),
        y_range=value_range(study.main, lines if fitted else None),
        level=guessing(study.chance),
        paint=marks,
        **size_axis(measured, sorted({*measured, *bounds}), narrow=narrow),
    )
    strip = (_NARROW_STRIP if narrow else _STRIP) / 72 * len(trainings)
    return lines_figure([panel], height=4.0 + strip, narrow_height=3.0 + strip, narrow=narrow)


def _draw_trainings(
    axes: Axes, trainings: Sequence[tuple[SeenSizes, Sequence[PlotLine]]], order: Sequence[str], *, narrow: bool
) -> None:
    """Say above the axes, a line each, which sizes were seen in training, and mark them below."""
    from matplotlib.transforms import blended_transform_factory, offset_copy

    above = blended_transform_factory(axes.transData, axes.transAxes)
    low, high = axes.get_xlim()
    for place, (sizes, lines) in enumerate(reversed(trainings)):
        runs = list(dict.fromkeys(line.run for line in lines))
        colour = style.colour(runs[0], order) if len(trainings) > 1 and len(runs) == 1 else style.INK
        at = offset_copy(
            above, axes.get_figure(root=True), y=8 + (_NARROW_STRIP if narrow else _STRIP) * place, units="points"
        )
        begins = ends = sizes.one or low
        mark = {"color": colour, "transform": at, "clip_on": False}
        if sizes.one is not None:
            axes.plot([begins], [1], marker="v", markersize=6, **mark)
            axes.axvline(begins, color=colour, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        elif sizes.low is not None and sizes.high is not None:
            begins, ends = sizes.low, sizes.high
            axes.plot([begins, ends], [1, 1], linewidth=4, solid_capstyle="butt", **mark)
            axes.axvspan(begins, ends, color=colour, alpha=0.08, linewidth=0, zorder=0)
        said = f"trained at {some_words(sizes)}"
        if len(trainings) > 1:
            said = f"{', '.join(runs) if len(runs) < 3 else f'{len(runs)} runs'}: {said}"
        # On the side with more room, or above where there is little on either.
        left = math.log(begins / low) > math.log(high / ends)
        point, shift = ((low, 1), (0, 10)) if narrow else ((begins if left else ends, 1), (-7 if left else 7, 0))
        axes.annotate(
            style.short(said, 42 if narrow else 60), point, xycoords=at, xytext=shift, textcoords="offset points",
            ha="right" if left and not narrow else "left", va="center", fontsize=9.5, annotation_clip=False,
            parse_math=False,
        ).set_in_layout(narrow or place == len(trainings) - 1)  # fmt: skip


def _label_ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Name each line at its right end; names are pushed apart, with a thin line to where they belong."""
    if len(lines) * _LABEL_GAP > 100:
        return
    from matplotlib.transforms import offset_copy

    low, high = axes.get_ylim()
    ends = [max(zip(line.x, line.y, strict=True)) for line in lines]
    right = max(size for size, _ in ends)
    heights = _spread([100 * (end - low) / (high - low) for _, end in ends])
    beside = offset_copy(axes.transData, axes.get_figure(root=True), x=24, units="points")
    for line, end, height in zip(lines, ends, heights, strict=True):
        arrow = {"arrowstyle": "-", "linewidth": 0.9, "shrinkA": 1, "shrinkB": 5, "color": line.look["color"]}
        axes.annotate(
            style.short(line.label), end, xytext=(right, low + height / 100 * (high - low)), textcoords=beside,
            va="center", fontsize=9.5, parse_math=False, annotation_clip=False, arrowprops=arrow,
        )  # fmt: skip


def _spread(heights: Sequence[float]) -> list[float]:
    """`heights` (percent) moved as little as a single pass upward and one downward need to keep them apart."""
    places = sorted(range(len(heights)), key=lambda index: heights[index])
    spread = list(heights)
    for before, after in itertools.pairwise(places):
        spread[after] = max(spread[after], spread[before] + _LABEL_GAP)
    limit = 100.0
    for index in reversed(places):
        spread[index] = min(spread[index], limit)
        limit = spread[index] - _LABEL_GAP
    return spread


def by_object_size(study: Study, *, narrow: bool = False) -> str:
    """The main metric by fifths of object size, at a resolution of training and at the largest.

    Raises:
        InputError: it was not broken down by `size_quintile`.
    """
    parts = study.parts(study.main.metric).get("size_quintile", [])
    fifths = [study.lines(slices=part) for part in parts]
    chosen = _distinct(line for lines in fifths for line in lines)
    panels = []
    for size in series.outer_resolutions(chosen):
        lines = []
        for line in chosen:
            own = [(fifth, one) for fifth, some in enumerate(fifths) for one in some if one.label == line.label]
            points = {fifth: one.points[size] for fifth, one in own if size in one.points}
            lines += [measured_line(line.label, look_of(line, study.order), points)] if points else []
        panels.append(
            Panel(
                lines,
                title=_tested_at(size, chosen),
                x_label="object size, by fifths of the test images",
                y_label=words.axis(study.main),
                x_ticks={fifth: titled("size_quintile", part) for fifth, part in enumerate(parts)},
                x_range=(-0.4, len(parts) - 0.6),
                y_range=value_range(study.main),
            )
        )
    if not panels:
        raise InputError(f"no row has {study.main.metric} by object size on split {study.main.split}")
    return lines_figure(panels, height=2.7, narrow_height=2.4, narrow=narrow)


def is_calibrated(study: Study) -> bool:
    """Whether rows of the main split say how sure and how often right the answers of any bin are."""
    return all(BIN in study.parts(metric) for metric in (RIGHT, SURE))


def reliability(study: Study, *, narrow: bool = False) -> str:
    """The reliability diagram (Guo et al. 2017, figure 1): accuracy of each bin (percent; bars: 95 %) by its mean
    confidence, at a resolution of training and at the largest; one line a run.

    Raises:
        InputError: no row is of a bin on squares.
    """
    bins = study.parts(RIGHT).get(BIN, [])
    right, sure = ([study.lines(metric, slices=part) for part in bins] for metric in (RIGHT, SURE))
    # The seldom bins are not there for every run.
    chosen, panels = _distinct(line for lines in right for line in lines), []
    for size in series.outer_resolutions(chosen):
        lines = []
        for line in chosen:
            points = {}
            for pair in zip(right, sure, strict=True):
                found = [
                    one.points[size] for lines in pair for one in lines if one.label == line.label if size in one.points
                ]
                if len(found) == len(pair):
                    points[100 * found[1].value] = found[0]
            if points:
                lines.append(measured_line(line.label, look_of(line, study.order), dict(sorted(points.items()))))
        title, label = _tested_at(size, chosen), f"{words.title(RIGHT)} (%)"
        axes = {"x_label": "mean confidence of the bin (%)", "y_label": label, "x_range": (0.0, 100.0)}
        panels.append(Panel(lines, title, **axes, y_range=(0.0, 100.0), diagonal=True, spread=False))
    if not panels:
        raise InputError(f"no row has {RIGHT} by {BIN} on squares of split {study.main.split}")
    return lines_figure(panels, height=3.8, narrow_height=3.3, narrow=narrow)


def attack_metrics(study: Study) -> list[str]:
    """Names of the metrics under attack that were measured on the main split."""
    return [one.metric for one in study.metrics() if ATTACK in study.parts(one.metric)]


def attack_panels(study: Study) -> list[Panel]:
    """Top-1 accuracy under attack (percent; bars: 95 %) by test resolution, for each attack, loss and epsilon that was
    measured on squares; one line a run."""
    shown = []
    for metric in attack_metrics(study):
        for part in study.parts(metric)[ATTACK] if metric.endswith(_ATTACKED) else ():
            lines = [line for line in study.lines(metric, slices=part) if line.points]
            title = f"{metric.removesuffix(_ATTACKED).upper()} {part['epsilon']}, loss {part['loss']}"
            shown += [(title, lines)] if lines else []
    sizes = series.resolutions([line for _, lines in shown for line in lines])
    return [
        Panel(
            [measured_line(line.label, look_of(line, study.order), line.points) for line in lines],
            title=title,
            x_label="test resolution (px)",
            y_label="top-1 accuracy (%)",
            y_range=value_range(next(iter(lines[0].points.values()))),
            **size_axis(sizes, sizes, narrow=True),
        )
        for title, lines in shown
    ]


def check_paper(study: Study, paper: Paper) -> None:
    """Refuse a paper whose numbers have no place beside what was measured.

    Raises:
        InputError: it has no curve by resolution, or it is of another metric.
    """
    if paper.curve is None:
        raise InputError(f"paper {paper.name}: its tables hold no curve by resolution")
    if paper.curve.metric != study.main.metric:
        raise InputError(f"paper {paper.name}: its curve is of {paper.curve.metric}, not of {study.main.metric}")


def beside_paper(study: Study, paper: Paper, *, narrow: bool = False) -> str:
    """The main metric (percent) by the side of the test images over that of the training images: what was measured with
    its bars of 95 %, and what the paper printed, dashed, in the colour of the run of the same encoding where there is
    one.

    Raises:
        InputError: as `check_paper`.
    """
    check_paper(study, paper)
    assert paper.curve is not None
    chosen = [line for line in study.lines() if line.points and line.shrunk is None]
    runs = {line.encoding: line for line in reversed(chosen)}
    lines = []
    for line in chosen:
        points = {size / point.train_resolution: point for size, point in line.points.items()}
        lines.append(measured_line(f"{style.short(line.label)}, measured", look_of(line, study.order), points))
    for method, (encoding, printed) in sorted(paper.lines().items(), key=lambda item: item[1][0] not in runs):
        look, name = _PUBLISHED, "others, published"
        if encoding in runs:
            own = {"color": style.colour(runs[encoding].run, study.order), "linewidth": 1.8, "zorder": 2}
            look, name = {**_PUBLISHED, **own}, f"{method}, published"
        x = [side / paper.curve.trained for side in printed]
        lines.append(Line(name, look, x, [one.number for one in printed.values()]))
    places = [place for line in lines for place in line.x]
    low, high = min(places), max(places)
    doublings = [2.0**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    panel = Panel(
        lines,
        x_label=f"test side in training sides{'' if narrow else ' (of the images, px / px)'}",
        y_label=words.axis(study.main),
        x_scale="log2",
        x_ticks={tick: f"{tick:g}{words.TIMES}" for tick in doublings},
        x_range=(low / 1.06, high * 1.06),
        y_range=value_range(study.main),
        spread=False,
    )
    return lines_figure([panel], height=3.8, narrow_height=3.0, narrow=narrow)


def paper_numbers(paper: Paper) -> TextTable:
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


def _distinct(lines: Any) -> list[PlotLine]:
    """Lines with points, one of each label."""
    return list({line.label: line for line in lines if line.points}.values())


def _tested_at(size: int, chosen: Sequence[PlotLine]) -> str:
    return f"tested at {size} px{' (as trained)' if series.seen_at(size, chosen) == 'trained' else ''}"
