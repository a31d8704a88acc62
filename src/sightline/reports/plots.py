"""The figures of a metric by size, each a function from rows to SVG text.

Every figure has two layouts: `narrow` is for a screen of a phone, where the text of a wide one would be too small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.errors import InputError
from sightline.reports import series, style, words
from sightline.reports.content import SeenSizes
from sightline.reports.grids import titled
from sightline.reports.seen import some_words
from sightline.reports.series import Study
from sightline.results.rows import FRACTION, MetricValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Labels at the ends of lines keep this distance, in hundredths of the axis.
_LABEL_GAP = 4.8
# Points from line to line of the strip that says which sizes were seen in training, and where words have a line of
# their own.
_STRIP, _NARROW_STRIP = 15, 25


def by_resolution(study: Study, *, fitted: bool = False, narrow: bool = False) -> str:
    """The main metric by test resolution (pixels, spaced by doublings), one line a run; SVG text.

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

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        measured = series.resolutions(chosen)
        resolution_axis(axes, measured, sorted({*measured, *bounds}), narrow=narrow)
        for line, shift in zip(chosen, _apart(len(chosen)), strict=True):
            low, high = axes.get_xlim()
            moved = {resolution * (high / low) ** shift: point for resolution, point in line.points.items()}
            draw_points(axes, line, moved, study.order)
        _draw_trainings(axes, trainings, study.order, narrow=narrow)
        points = [point for line in chosen for point in line.points.values()]
        value_axis(axes, study.main, study.chance, points if fitted else ())
        axes.set_xlabel("test resolution (side of the image, px)")
        if not narrow:
            _label_ends(axes, chosen, study.order)
        guessing = [] if study.chance is None else [(f"guessing: {100 * study.chance:.1f} %", GUESSING)]
        style.legend(figure, [*names_of(chosen, study.order), *guessing], narrow=narrow)

    tall = (3.4 if narrow else 4.4) + (_NARROW_STRIP if narrow else _STRIP) / 72 * len(trainings)
    return style.draw_for_page(tall, paint, narrow=narrow, names=len(chosen) + (study.chance is not None))


def by_object_size(study: Study, *, narrow: bool = False) -> str:
    """The main metric by fifths of object size, at a resolution of training and at the largest; SVG text.

    Raises:
        InputError: it was not broken down by `size_quintile`.
    """
    parts = study.parts(study.main.metric).get("size_quintile", [])
    fifths = [study.lines(slices=part) for part in parts]
    chosen = list({line.label: line for lines in fifths for line in lines if line.points}.values())
    shown = series.outer_resolutions(chosen)
    if not shown:
        raise InputError(f"no row has {study.main.metric} by object size on split {study.main.split}")

    def paint(figure: Figure) -> None:
        shape = (len(shown), 1) if narrow else (1, len(shown))
        panels = list(figure.subplots(*shape, sharey=True, squeeze=False).flat)
        for axes, resolution in zip(panels, shown, strict=True):
            for line, shift in zip(chosen, _apart(len(chosen)), strict=True):
                at = {
                    number + 4 * shift: other.points[resolution]
                    for number, lines in enumerate(fifths)
                    for other in lines
                    if other.label == line.label and resolution in other.points
                }
                draw_points(axes, line, at, study.order)
            trained = " (as trained)" if series.seen_at(resolution, chosen) == "trained" else ""
            axes.set_title(f"tested at {resolution} px{trained}")
            axes.set_xticks(range(len(parts)), [titled("size_quintile", part) for part in parts])
            axes.set_xlim(-0.4, len(parts) - 0.6)
            value_axis(axes, study.main)
        panels[-1].set_xlabel("object size, by fifths of the test images")
        for axes in panels[1:]:
            axes.set_ylabel(words.axis(study.main) if narrow else "")
        style.legend(figure, names_of(chosen, study.order), narrow=narrow)

    tall = 2.4 * len(shown) + 0.4 if narrow else 3.1
    return style.draw_for_page(tall, paint, narrow=narrow, names=len(chosen))


def _apart(count: int) -> list[float]:
    """Shares of an axis by which lines are moved, so that their bars do not lie on each other."""
    step = min(0.008, 0.03 / count)
    return [step * (place - (count - 1) / 2) for place in range(count)]


def _look(line: series.PlotLine, order: Sequence[str]) -> dict[str, Any]:
    """How a line is drawn: dashed and with open marks where it has the default of a knob that was tuned too, thin and
    dotted where its images were shrunk."""
    dashed = (line.paired and not line.tuned) or line.shrunk is not None
    colour = style.colour(line.run, order)
    return {
        "color": colour,
        "linewidth": 2 if line.shrunk is None else 1.1,
        "linestyle": "-" if not dashed else (0, (4, 2)) if line.shrunk is None else (0, (2, 2)),
        "marker": style.marker(line.run, order),
        "markersize": 5.5,
        "markerfacecolor": style.PAGE if dashed else colour,
    }


def names_of(chosen: Sequence[series.PlotLine], order: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """The entries of lines in a legend."""
    return [(style.short(line.label), _look(line, order)) for line in chosen]


def draw_points(axes: Axes, line: series.PlotLine, points: Mapping[float, MetricValue], order: Sequence[str]) -> None:
    """A line through what was measured, with its 95 % intervals where they are known."""
    if not points:
        # Bars of nothing would take all room from the panels.
        return
    values = np.array([height(point) for point in points.values()])
    low, high = np.array([limits(point) for point in points.values()]).reshape(-1, 2).T
    bars = np.maximum([values - low, high - values], 0)
    axes.errorbar(list(points), values, yerr=bars, elinewidth=1.1, capsize=2.5, zorder=3, **_look(line, order))


def height(point: MetricValue) -> float:
    """Of a point on its axis: fractions in percent."""
    return words.scaled(point.value, point.unit)


def limits(point: MetricValue) -> tuple[float, ...]:
    """Where it lies with 95 %, on that axis: twice its value where that is not known."""
    return tuple(words.scaled(limit, point.unit) for limit in point.limits() or (point.value, point.value))


def value_axis(axes: Axes, one: MetricValue, chance: float | None = None, fit_to: Sequence[MetricValue] = ()) -> None:
    """Fractions from 0 to 100 %, or from the lowest to the highest limit of `fit_to`, with a dashed line where guessing
    is; of any other unit what is drawn."""
    axes.set_ylabel(words.axis(one))
    if one.unit == FRACTION:
        axes.set_ylim(0, 100)
        axes.set_yticks(range(0, 101, 20))
    if one.unit == FRACTION and fit_to:
        from matplotlib.ticker import MaxNLocator

        ends = [end for point in fit_to for end in limits(point)]
        low, high = min(ends), max(ends)
        room = max(0.06 * (high - low), 0.5)
        axes.set_ylim(max(low - room, 0.0), min(high + room, 100.0))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    # Markers at 0 or 100 % are drawn whole.
    for artist in [*axes.lines, *axes.collections]:
        artist.set_clip_on(False)
    low, high = axes.get_ylim()
    if chance is not None and low <= 100 * chance <= high:
        axes.axhline(100 * chance, **GUESSING)


GUESSING = {"color": style.FAINT, "linewidth": 1.2, "linestyle": (0, (5, 3)), "zorder": 1}


def resolution_axis(axes: Axes, measured: Sequence[int], whole: Sequence[float], *, narrow: bool) -> None:
    """Sides in pixels, spaced by doublings, from the least to the greatest of `whole`; those that were measured are
    labelled where there is room."""
    axes.set_xscale("log", base=2)
    low, high = min(whole), max(whole)
    room = (high / low) ** 0.035 if high > low else 1.4
    axes.set_xlim(low / room, high * room)
    # A label needs about 4 % of the axis; the outer ones always stay, and a crowded tick keeps its mark.
    reach = (0.09 if narrow else 0.042) * math.log2(high * room * room / low)
    shown = [measured[-1]]
    for resolution in measured[:-1]:
        if all(abs(math.log2(resolution / other)) >= reach for other in shown):
            shown.append(resolution)
    axes.set_xticks(measured, [str(resolution) if resolution in shown else "" for resolution in measured])
    axes.set_xticks([], minor=True)


def _draw_trainings(
    axes: Axes, trainings: Sequence[tuple[SeenSizes, Sequence[series.PlotLine]]], order: Sequence[str], *, narrow: bool
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


def _label_ends(axes: Axes, chosen: Sequence[series.PlotLine], order: Sequence[str]) -> None:
    """Name each line at its right end; names are pushed apart, with a thin line to where they belong."""
    if len(chosen) * _LABEL_GAP > 100:
        return
    from matplotlib.transforms import offset_copy

    low, high = axes.get_ylim()
    ends = [(size, height(line.points[size])) for line in chosen for size in [max(line.points)]]
    right = max(size for size, _ in ends)
    heights = _spread([100 * (end - low) / (high - low) for _, end in ends])
    beside = offset_copy(axes.transData, axes.get_figure(root=True), x=24, units="points")
    for line, end, spread in zip(chosen, ends, heights, strict=True):
        arrow = {"arrowstyle": "-", "linewidth": 0.9, "shrinkA": 1, "shrinkB": 5}
        axes.annotate(
            style.short(line.label), end, xytext=(right, low + spread / 100 * (high - low)), textcoords=beside,
            va="center", fontsize=9.5, parse_math=False, annotation_clip=False,
            arrowprops={"color": style.colour(line.run, order), **arrow},
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
