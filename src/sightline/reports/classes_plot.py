"""Figures of how classes fare between sizes, a function from tables of classes to SVG text each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sightline.reports import style, words
from sightline.reports.lines import Line, Panel, lines_figure
from sightline.results.classes import ClassEffect, ClassStudy, Metric
from sightline.results.rows import Z95

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAID = {"top1": "accuracy", "predicted": "images named so"}


def extrapolation(study: ClassStudy, effects: Sequence[ClassEffect], *, narrow: bool = False) -> str:
    """Top-1 at each size less that at `since`, in points of percent, with 95 % bars paired by image; one line a line
    (LookHere figure 28)."""
    found = {(one.line, one.shown): one for one in effects if one.kind == "extrapolation"}
    lines = []
    for name in study.lines:
        points = [found.get((name, size)) for size in study.sizes]
        y = [0.0 if one is None else 100 * one.value for one in points]
        bars = [0.0 if one is None else 100 * Z95 * (one.stderr or 0) for one in points]
        limits = [(value - bar, value + bar) for value, bar in zip(y, bars, strict=True)]
        lines.append(Line(name, style.look(name, study.lines), range(len(y)), y, limits))
    label = f"top-1 less that at {study.since} (points)"
    panel = Panel(lines, y_label=label, level=(0, ""), spread=False, **_sizes(study, few=narrow))
    return lines_figure([panel], height=3.2, narrow_height=2.8, narrow=narrow)


def by_class(study: ClassStudy, metric: Metric, effects: Sequence[ClassEffect], *, narrow: bool = False) -> str:
    """A metric (percent) of some classes by size, a panel each, one line a line (figures 29 to 31)."""

    def from_0_to_100(axes: Axes) -> None:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), max(min(high, 100.0), 0.1))

    panels = []
    for one in effects:
        lines = [
            Line(name, style.look(name, study.lines), range(len(values)), [100 * value for value in values])
            for name, values in study.curves(metric, one.name).items()
        ]
        axes = {"y_label": f"{SAID[metric]} (%)", "spread": False, "paint": from_0_to_100, **_sizes(study, few=True)}
        panels.append(Panel(lines, style.short(one.name), **axes))
    return lines_figure(panels, height=2.5, share_y=False, narrow=narrow)


def crossings(study: ClassStudy, pairs: Sequence[ClassEffect], *, narrow: bool = False) -> str:
    """For pairs of classes, of the images of the first: its mean probability (across) and that of the second (up), from
    the size `since`, which has an open mark, on; one line a line (figures 32 to 35)."""

    def begin(lines: Sequence[Line], axes: Axes) -> None:
        at = study.sizes.index(study.since)
        for line in lines:
            axes.plot([line.x[at]], [line.y[at]], **{**line.look, "markersize": 8, "markerfacecolor": style.PAGE})

    panels = []
    for pair in pairs:
        lines = []
        for name, points in study.crossing(pair.name, pair.other).items():
            across, up = zip(*points, strict=True)
            x, y = ([100 * one for one in some] for some in (across, up))
            lines.append(Line(name, style.look(name, study.lines), x, y))
        x_label, y_label = (f"P({style.short(one, 22)}) (%)" for one in (pair.name, pair.other))
        title = f"{style.short(pair.name, 16)} / {style.short(pair.other, 16)}"
        panels.append(Panel(lines, title, x_label, y_label, spread=False, paint=partial(begin, lines)))
    return lines_figure(panels, height=2.5, share_y=False, narrow=narrow)


def _sizes(study: ClassStudy, *, few: bool) -> dict[str, Any]:
    """An axis of sizes, the first and last of which are named, and others where there is room."""
    names = [words.printable(size.removesuffix(" px")) for size in study.sizes]
    last = len(names) - 1
    step = max(math.ceil(len(names) / (4 if few else 10)), 1)
    shown = {
        place: name if place in (0, last) or (place % step == 0 and last - place >= step) else ""
        for place, name in enumerate(names)
    }
    label = "size (px)" if all(size.endswith(" px") for size in study.sizes) else "size (px), or view"
    return {"x_ticks": shown, "x_range": (-0.3, last + 0.3), "x_label": label}
