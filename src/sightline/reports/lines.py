"""Every curve of every page: panels of lines with their 95 % intervals, as SVG text.

A figure has two layouts: `narrow` is for a screen of a phone, where the text of a wide one would be too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sightline.reports import style, words
from sightline.results.rows import FRACTION, MetricValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WHOLE = (0.0, 100.0)
"""The range of an axis of fractions in percent."""
LEVEL: Mapping[str, Any] = {"color": style.FAINT, "linewidth": 1.2, "linestyle": (0, (5, 3)), "zorder": 1}
# Lines beside each other are moved apart by this share of the axis, so that their bars do not lie on each other.
_APART, _MOST_APART = 0.008, 0.03


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        label: in the legend, where lines of one label stand once; "" for none.
        look: matplotlib's properties of the line, such as `color`.
        x, y: of its points, in the units of the axes.
        limits: [points, 2], where y lies with 95 %; None where that is not known.
        band: the limits are a band, else a bar at each point.
    """

    label: str
    look: Mapping[str, Any]
    x: Sequence[float]
    y: Sequence[float]
    limits: Sequence[Sequence[float]] | None = None
    band: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        lines: each with points.
        x_scale: `log2` has doublings at equal distances.
        x_ticks: place -> its name, "" for a mark without one; None leaves it to matplotlib.
        x_range, y_range: None fits what is drawn; `WHOLE` has a tick every 20 %.
        level: a dashed level, and its name in the legend ("" for none).
        diagonal: the dashed line on which both axes are equal.
        spread: lines are moved apart a little.
        paint: called with the axes when the lines are drawn, for marks of its own.
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
    spread: bool = True
    paint: Callable[[Axes], None] | None = None


def measured_line(label: str, look: Mapping[str, Any], points: Mapping[Any, MetricValue], **options: Any) -> Line:
    """A line through what was measured: place on the x axis -> value, fractions in percent."""
    y = [words.scaled(one.value, one.unit) for one in points.values()]
    limits = [[words.scaled(end, one.unit) for end in one.limits() or [one.value] * 2] for one in points.values()]
    return Line(label, look, list(points), y, limits, **options)


def value_range(one: MetricValue, lines: Sequence[Line] | None = None) -> tuple[float, float] | None:
    """The y axis of a metric: fractions from 0 to 100 %, or fitted to all limits of `lines`; None of any other unit."""
    if one.unit != FRACTION:
        return None
    if not lines:
        return WHOLE
    ends = [end for line in lines for pair in line.limits or () for end in pair]
    room = max(0.06 * (max(ends) - min(ends)), 0.5)
    return max(min(ends) - room, 0.0), min(max(ends) + room, 100.0)


def size_axis(measured: Sequence[int], whole: Sequence[float], *, narrow: bool) -> dict[str, Any]:
    """Of a panel of sides in pixels by doublings, from the least to the greatest of `whole`: its scale, range, and
    ticks, which are named where there is room."""
    low, high = min(whole), max(whole)
    room = (high / low) ** 0.035 if high > low else 1.4
    bounds = low / room, high * room
    ticks = named_ticks({size: str(size) for size in measured}, bounds, 0.09 if narrow else 0.042)
    return {"x_scale": "log2", "x_range": bounds, "x_ticks": ticks}


def named_ticks(names: Mapping[float, str], bounds: tuple[float, float], width: float) -> dict[float, str]:
    """Names of rising places on an axis of doublings, "" where there is no room; the first and last always stay.

    Args:
        bounds: of the axis; width: of a name, as a share of it.
    """
    reach = width * math.log2(bounds[1] / bounds[0])
    shown = [list(names)[-1]]
    for place in names:
        if all(abs(math.log2(place / other)) >= reach for other in shown):
            shown.append(place)
    return {place: name if place in shown else "" for place, name in names.items()}


def lines_figure(
    panels: Sequence[Panel],
    *,
    height: float = 2.4,
    narrow_height: float | None = None,
    columns: int = 3,
    share_y: bool = True,
    narrow: bool = False,
) -> str:
    """SVG text of panels with one legend.

    Args:
        height: of a row of panels in inches, `narrow_height` on a narrow page; columns: of a wide page, at most.
        share_y: all panels have one y axis.
    """
    columns = 1 if narrow else min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    names = {line.label: line.look for panel in panels for line in panel.lines if line.label}
    names |= {panel.level[1]: LEVEL for panel in panels if panel.level and panel.level[1]}

    def paint(figure: Figure) -> None:
        grid = list(figure.subplots(rows, columns, sharey=share_y, squeeze=False).flat)
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            # What a panel beside or below says too is said once.
            below = panels[place + columns] if place + columns < len(panels) else None
            axes.set_title(panel.title, parse_math=False)
            axes.set_xlabel("" if below and below.x_label == panel.x_label else panel.x_label, parse_math=False)
            beside = place % columns and panels[place - 1].y_label == panel.y_label
            axes.set_ylabel("" if beside else panel.y_label, parse_math=False)
            _draw(axes, panel)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        style.legend(figure, [(style.short(label), look) for label, look in names.items()], narrow=narrow)

    tall = rows * (narrow_height if narrow and narrow_height else height) + 0.4
    return style.draw_for_page(tall, paint, narrow=narrow, names=len(names))


def _draw(axes: Axes, panel: Panel) -> None:
    if panel.x_scale == "log2":
        axes.set_xscale("log", base=2)
    if panel.x_range:
        axes.set_xlim(*panel.x_range)
    _ticks(axes, panel)
    for place, line in enumerate(panel.lines):
        step = min(_APART, _MOST_APART / len(panel.lines)) if panel.spread else 0
        x = _moved(panel, np.array(line.x, float), step * (place - (len(panel.lines) - 1) / 2))
        y, look = np.array(line.y, float), {"zorder": 3, **line.look}
        if line.limits is None or line.band:
            axes.plot(x, y, **look)
        if line.limits is not None:
            low, high = np.array(line.limits, float).reshape(-1, 2).T
            if line.band and len(x) > 1:
                axes.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
            elif line.band:
                axes.vlines(x, low, high, color=look["color"], linewidth=1.2, zorder=3)
            else:
                bars = np.maximum([y - low, high - y], 0)
                axes.errorbar(x, y, yerr=bars, elinewidth=1.1, capsize=2.5, **look)
    if panel.diagonal:
        axes.plot(WHOLE, WHOLE, **LEVEL)
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
        if panel.y_range == WHOLE:
            axes.set_yticks(range(0, 101, 20))
    # Markers at the ends of the axes are drawn whole.
    for artist in [*axes.lines, *axes.collections]:
        artist.set_clip_on(False)
    low, high = axes.get_ylim()
    if panel.level and (low <= panel.level[0] <= high or panel.y_range is None):
        axes.axhline(panel.level[0], **LEVEL)
    if panel.paint:
        panel.paint(axes)


def _moved(panel: Panel, x: np.ndarray, share: float) -> np.ndarray:
    """Places moved by a share of the axis."""
    places = [*(place for line in panel.lines for place in line.x), *(panel.x_range or ())]
    if panel.x_scale == "log2":
        return x * (max(places) / min(places)) ** share
    return x + share * (max(places) - min(places))


def _ticks(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if panel.x_ticks is not None:
        axes.set_xticks(list(panel.x_ticks), list(panel.x_ticks.values()), parse_math=False)
        axes.set_xticks([], minor=True)
    elif panel.x_scale == "log2":
        axes.xaxis.set_major_locator(LogLocator(base=2))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if panel.y_range:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
