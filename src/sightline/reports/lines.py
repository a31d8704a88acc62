"""Every curve of every page: panels of lines with their 95 % intervals, as SVG text.

A figure has two layouts: `narrow` is for a screen of a phone, where the text of a wide one would be too small.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sightline.reports import style, words
from sightline.results.rows import FRACTION, MetricValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WHOLE = (0.0, 100.0)
"""The range of an axis of fractions in percent."""
_LEVEL: Mapping[str, Any] = {"color": style.FAINT, "linewidth": 1.2, "linestyle": (0, (5, 3)), "zorder": 1}
_DOT: Mapping[str, Any] = {"marker": "o", "markersize": 2.6, "alpha": 0.45, "linewidth": 0, "zorder": 2}
# Lines at named places are moved apart by this share of the axis, so that their bars do not lie on each other.
_APART, _MOST_APART = 0.01, 0.035
# Names at the ends of lines keep this distance, in hundredths of the axis.
_NAME_GAP = 4.8
# Points from line to line of what stands above the axes, wide and narrow.
_STRIP = (15, 25)


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        label: in the legend, where lines of one label stand once; "" for none.
        look: matplotlib's properties of the line, such as `color`.
        x, y: of its points, in the units of the axes.
        limits: [points, 2], where y lies with 95 %; None where that is not known.
        band: the limits are a band, else a bar at each point.
        dots: x -> what the y there is the mean of.
    """

    label: str
    look: Mapping[str, Any]
    x: Sequence[float]
    y: Sequence[float]
    limits: Sequence[Sequence[float]] | None = None
    band: bool = False
    dots: Mapping[float, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """Sizes of training, marked above the axes: from `low` to `high`, None where they are not known."""

    words: str
    colour: str
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        lines: each with points.
        x_scale: `log2` has doublings at equal distances.
        x_ticks: rising place -> its name, shown where there is room; None leaves it to matplotlib.
        x_range: None fits what is drawn.
        y_range: None fits what is drawn; `WHOLE` has a tick every 20 %.
        level: a dashed level, and its name in the legend ("" for none).
        diagonal: the dashed line on which both axes are equal.
        above: place -> name, of an axis above.
        trained: a line each above the axes.
        name_ends: lines are named at their right ends, on a wide page.
    """

    lines: Sequence[Line]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_scale: Literal["linear", "log2"] = "linear"
    x_ticks: Mapping[Any, str] | None = None
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    level: tuple[float, str] | None = None
    diagonal: bool = False
    above: Mapping[float, str] | None = None
    trained: Sequence[Trained] = ()
    name_ends: bool = False


def measured_line(label: str, look: Mapping[str, Any], points: Mapping[Any, MetricValue], **options: Any) -> Line:
    """A line through what was measured: place on the x axis -> value, fractions in percent."""
    y = [words.scaled(one.value, one.unit) for one in points.values()]
    limits = [[words.scaled(end, one.unit) for end in one.limits() or [one.value] * 2] for one in points.values()]
    return Line(label, look, list(points), y, limits, **options)


def value_range(one: MetricValue, lines: Sequence[Line] | None = None) -> tuple[float, float] | None:
    """The y axis of a metric: fractions from 0 to 100 %, or fitted to all of `lines`; None of any other unit."""
    return None if one.unit != FRACTION else WHOLE if lines is None else fitted_range(lines)


def fitted_range(lines: Sequence[Line]) -> tuple[float, float]:
    """A y axis of percent that begins and ends where lines and their limits do, and within 0 and 100."""
    ends = [end for line in lines for pair in line.limits or [line.y] for end in pair]
    room = max(0.06 * (max(ends) - min(ends)), 0.5)
    return max(min(ends) - room, 0.0), min(max(ends) + room, 100.0)


def drawn(panels: Sequence[Panel], prefix: str, description: str, **options: Any) -> str:
    """A figure for a page, as `style.both`; "" without panels. Options are those of `lines_figure`."""
    return style.both(partial(lines_figure, panels, **options), prefix, description) if panels else ""


def lines_figure(
    panels: Sequence[Panel],
    *,
    height: float = 2.4,
    columns: int = 3,
    share_y: bool = True,
    narrow: bool = False,
) -> str:
    """SVG text of panels with one legend.

    Args:
        height: of a row of panels in inches, at most 3.2 on a narrow page.
        columns: of a wide page, at most.
        share_y: all panels have one y axis.
    """
    columns = 1 if narrow else min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    names = {line.label: line.look for panel in panels for line in panel.lines if line.label}
    names |= {panel.level[1]: _LEVEL for panel in panels if panel.level and panel.level[1]}
    named_at_ends = any(panel.name_ends for panel in panels) and not narrow
    inches = (style.NARROW if narrow else style.WIDE) / columns - (2 if named_at_ends else 0.6)

    def paint(figure: Figure) -> None:
        grid = list(figure.subplots(rows, columns, sharey=share_y, squeeze=False).flat)
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            # What a panel beside or below says too is said once.
            below = panels[place + columns] if place + columns < len(panels) else None
            titles = textwrap.wrap(words.printable(panel.title), round(13.4 * inches))
            axes.set_title("\n".join(titles), parse_math=False)
            axes.set_xlabel("" if below and below.x_label == panel.x_label else panel.x_label, parse_math=False)
            beside = place % columns and panels[place - 1].y_label == panel.y_label
            axes.set_ylabel("" if beside else panel.y_label, parse_math=False)
            _draw(axes, panel, inches)
            _draw_trained(axes, panel, narrow=narrow)
            if panel.name_ends and not narrow:
                _name_ends(axes, panel.lines)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        style.legend(figure, [(style.short(label), look) for label, look in names.items()], narrow=narrow)

    tall = rows * (min(height, 3.2) if narrow else height) + 0.4
    tall += _STRIP[narrow] / 72 * max(len(panel.trained) for panel in panels)
    tall += 0.24 * math.ceil(len(names) / (1 if narrow else style.NAMES_ACROSS))
    return style.draw(style.NARROW if narrow else style.WIDE, tall, paint)


def _draw(axes: Axes, panel: Panel, inches: float) -> None:
    """Draw all of a panel but what stands outside its axes, which are so wide."""
    low, high = bounds = _bounds(panel)
    if panel.x_scale == "log2":
        axes.set_xscale("log", base=2)
    barred = [line for line in panel.lines if line.limits is not None and not line.band and panel.x_ticks]
    for line in panel.lines:
        moved = barred.index(line) - (len(barred) - 1) / 2 if line in barred else 0
        share = min(_APART, _MOST_APART / max(len(barred), 1)) * moved
        x, y, look = np.array(line.x, float), np.array(line.y, float), {"zorder": 3, **line.look}
        x = x * (high / low) ** share if panel.x_scale == "log2" else x + share * (high - low)
        for place, values in line.dots.items():
            at = [place + share * (high - low)] * len(values)
            axes.plot(at, values, **{"color": look["color"], **_DOT})
        if line.limits is None or line.band:
            axes.plot(x, y, **look)
        if line.limits is not None:
            least, most = np.array(line.limits, float).reshape(-1, 2).T
            if not line.band:
                bars = np.maximum([y - least, most - y], 0)
                axes.errorbar(x, y, yerr=bars, elinewidth=1.1, capsize=2.5, **look)
            elif len(x) > 1:
                axes.fill_between(x, least, most, color=look["color"], alpha=0.16, linewidth=0)
            else:
                axes.vlines(x, least, most, color=look["color"], linewidth=1.2, zorder=3)
    axes.set_xlim(bounds)
    _ticks(axes, panel, inches)
    if panel.diagonal:
        axes.plot(WHOLE, WHOLE, **_LEVEL)
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
        if panel.y_range == WHOLE:
            axes.set_yticks(range(0, 101, 20))
    # Markers at the ends of the axes are drawn whole.
    for artist in [*axes.lines, *axes.collections]:
        artist.set_clip_on(False)
    low, high = axes.get_ylim()
    if panel.level and (low <= panel.level[0] <= high or panel.y_range is None):
        axes.axhline(panel.level[0], **_LEVEL)


def _bounds(panel: Panel) -> tuple[float, float]:
    """Of the x axis."""
    if panel.x_range:
        return panel.x_range
    trained = [end for one in panel.trained for end in (one.low, one.high) if one.low is not None and end]
    places = [*trained, *(place for line in panel.lines for place in line.x)]
    low, high = min(places), max(places)
    if panel.x_scale == "log2":
        room = (high / low) ** 0.035 if high > low else 1.4
        return low / room, high * room
    room = 0.05 * (high - low) or 0.5
    return (min(panel.x_ticks) - 0.5, max(panel.x_ticks) + 0.5) if panel.x_ticks else (low - room, high + room)


def _ticks(axes: Axes, panel: Panel, inches: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if panel.x_ticks is not None:
        axes.set_xticks(list(panel.x_ticks), _named(panel, panel.x_ticks, inches), parse_math=False)
        axes.set_xticks([], minor=True)
    elif panel.x_scale == "log2":
        axes.xaxis.set_major_locator(LogLocator(base=2))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if panel.above is not None:
        second = axes.secondary_xaxis("top")
        second.set_xticks(list(panel.above), _named(panel, panel.above, inches))
        second.set_xticks([], minor=True)
    if panel.y_range:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def _named(panel: Panel, ticks: Mapping[float, str], inches: float) -> list[str]:
    """Names of rising places on an axis, "" where there is no room; the last one stays."""
    scale = math.log2 if panel.x_scale == "log2" else float
    low, high = (scale(end) for end in _bounds(panel))
    shown: dict[float, str] = {}
    for place in [list(ticks)[-1], *list(ticks)[:-1]]:
        at, name = inches * (scale(place) - low) / (high - low), ticks[place]
        if all(abs(at - other) >= 0.038 * len(name + beside) + 0.06 for other, beside in shown.items()):
            shown[at] = name
    return [shown.get(inches * (scale(place) - low) / (high - low), "") for place in ticks]


def _draw_trained(axes: Axes, panel: Panel, *, narrow: bool) -> None:
    """Say above the axes, a line each, which sizes were seen in training, and mark them below."""
    from matplotlib.transforms import blended_transform_factory, offset_copy

    above = blended_transform_factory(axes.transData, axes.transAxes)
    low, high = _bounds(panel)
    for place, one in enumerate(reversed(panel.trained)):
        at = offset_copy(above, axes.get_figure(root=True), y=8 + _STRIP[narrow] * place, units="points")
        begins = ends = low
        mark = {"color": one.colour, "transform": at, "clip_on": False}
        if one.low is not None and one.high is not None:
            begins, ends = one.low, one.high
            if begins == ends:
                axes.plot([begins], [1], marker="v", markersize=6, **mark)
                axes.axvline(begins, color=one.colour, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
            else:
                axes.plot([begins, ends], [1, 1], linewidth=4, solid_capstyle="butt", **mark)
                axes.axvspan(begins, ends, color=one.colour, alpha=0.08, linewidth=0, zorder=0)
        # On the side with more room, or above where there is little on either.
        left = math.log(begins / low) > math.log(high / ends)
        point, shift = ((low, 1), (0, 10)) if narrow else ((begins if left else ends, 1), (-7 if left else 7, 0))
        axes.annotate(
            style.short(one.words, 42 if narrow else 60), point, xycoords=at, xytext=shift, textcoords="offset points",
            ha="right" if left and not narrow else "left", va="center", fontsize=9.5, annotation_clip=False,
            parse_math=False,
        ).set_in_layout(narrow or place == len(panel.trained) - 1)  # fmt: skip


def _name_ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Name each line at its right end; names are pushed apart, with a thin line to where they belong."""
    if len(lines) * _NAME_GAP > 100:
        return
    from matplotlib.transforms import offset_copy

    low, high = axes.get_ylim()
    ends = [max(zip(line.x, line.y, strict=True)) for line in lines]
    right = max(size for size, _ in ends)
    heights = spread([100 * (end - low) / (high - low) for _, end in ends])
    beside = offset_copy(axes.transData, axes.get_figure(root=True), x=24, units="points")
    for line, end, height in zip(lines, ends, heights, strict=True):
        arrow = {"arrowstyle": "-", "linewidth": 0.9, "shrinkA": 1, "shrinkB": 5, "color": line.look["color"]}
        # From the left end of the name: one from its middle would cross other names.
        arrow["relpos"] = (0, 0.5)
        axes.annotate(
            style.short(line.label), end, xytext=(right, low + height / 100 * (high - low)), textcoords=beside,
            va="center", fontsize=9.5, parse_math=False, annotation_clip=False, arrowprops=arrow,
        )  # fmt: skip


def spread(heights: Sequence[float]) -> list[float]:
    """Heights (percent) moved as little as one pass upward and one downward need to keep names apart."""
    places, moved = sorted(range(len(heights)), key=heights.__getitem__), list(heights)
    least, most = -math.inf, 100.0
    for place in places:
        moved[place] = least = max(moved[place], least)
        least += _NAME_GAP
    for place in reversed(places):
        moved[place] = most = min(moved[place], most)
        most -= _NAME_GAP
    return moved
