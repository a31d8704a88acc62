"""Figures of how classes fare between sizes, a function from tables of classes to SVG text each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sightline.reports import style, words
from sightline.results.classes import ClassEffect, ClassStudy, Metric
from sightline.results.rows import Z95

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Panels beside each other.
_COLUMNS, _NARROW_COLUMNS = 3, 1
SAID = {"top1": "accuracy", "predicted": "images named so"}


def extrapolation(study: ClassStudy, effects: Sequence[ClassEffect], *, narrow: bool = False) -> str:
    """Top-1 at each size less that at `since`, in points of percent, with 95 % bars paired by image; one line a line
    (LookHere figure 28)."""
    found = {(one.line, one.shown): one for one in effects if one.kind == "extrapolation"}

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhline(0, color=style.FAINT, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
        for line in study.lines:
            points = [found.get((line, size)) for size in study.sizes]
            values = [0.0 if one is None else 100 * one.value for one in points]
            bars = [0.0 if one is None else 100 * Z95 * (one.stderr or 0) for one in points]
            axes.errorbar(range(len(values)), values, yerr=bars, elinewidth=1.1, capsize=2.5, **_look(study, line))
        _sizes(axes, study, few=narrow)
        axes.set_ylabel(f"top-1 less that at {study.since} (points)")
        _legend(figure, study, narrow=narrow)

    return style.draw_for_page(3.2 if narrow else 3.6, paint, narrow=narrow, names=len(study.lines))


def by_class(study: ClassStudy, metric: Metric, effects: Sequence[ClassEffect], *, narrow: bool = False) -> str:
    """A metric (percent) of some classes by size, a panel each, one line a line (figures 29 to 31)."""

    def paint(axes: Axes, one: ClassEffect) -> None:
        for line, values in study.curves(metric, one.name).items():
            axes.plot(range(len(values)), [100 * value for value in values], **_look(study, line))
        _sizes(axes, study, few=True)
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), max(min(high, 100.0), 0.1))
        # Markers at 0 or 100 % are drawn whole.
        for artist in axes.lines:
            artist.set_clip_on(False)

    return _panels(study, effects, paint, [one.name for one in effects], f"{SAID[metric]} (%)", narrow=narrow)


def crossings(study: ClassStudy, pairs: Sequence[ClassEffect], *, narrow: bool = False) -> str:
    """For pairs of classes, of the images of the first: its mean probability (across) and that of the second (up), from
    the size `since`, which has an open mark, on; one line a line (figures 32 to 35)."""

    def paint(axes: Axes, pair: ClassEffect) -> None:
        for line, points in study.crossing(pair.name, pair.other).items():
            across, up = zip(*points, strict=True)
            look = _look(study, line)
            axes.plot([100 * one for one in across], [100 * one for one in up], **look)
            begin = points[study.sizes.index(study.since)]
            axes.plot([100 * begin[0]], [100 * begin[1]], **{**look, "markersize": 8, "markerfacecolor": style.PAGE})
        axes.set_xlabel(f"P({style.short(pair.name, 22)}) (%)", parse_math=False)
        axes.set_ylabel(f"P({style.short(pair.other, 22)}) (%)", parse_math=False)

    titles = [f"{style.short(one.name, 16)} / {style.short(one.other, 16)}" for one in pairs]
    return _panels(study, pairs, paint, titles, "", narrow=narrow)


def _panels(
    study: ClassStudy,
    effects: Sequence[ClassEffect],
    paint: Callable[[Axes, Any], None],
    titles: Sequence[str],
    up: str,
    *,
    narrow: bool,
) -> str:
    columns = min(_NARROW_COLUMNS if narrow else _COLUMNS, len(effects))
    rows = math.ceil(len(effects) / columns)

    def whole(figure: Figure) -> None:
        grid = figure.subplots(rows, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(effects):
                axes.set_axis_off()
                continue
            paint(axes, effects[place])
            axes.set_title(style.short(titles[place]), parse_math=False)
            if up and place % columns == 0:
                axes.set_ylabel(up)
        _legend(figure, study, narrow=narrow)

    return style.draw_for_page(2.5 * rows + 0.3, whole, narrow=narrow, names=len(study.lines))


def _look(study: ClassStudy, line: str) -> dict[str, Any]:
    colour, marker = style.colour(line, study.lines), style.marker(line, study.lines)
    return {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.8, "zorder": 3}


def _legend(figure: Figure, study: ClassStudy, *, narrow: bool) -> None:
    style.legend(figure, [(style.short(line), _look(study, line)) for line in study.lines], narrow=narrow)


def _sizes(axes: Axes, study: ClassStudy, *, few: bool) -> None:
    """An axis of sizes, the first and last of which are named, and others where there is room."""
    names = [words.printable(size.removesuffix(" px")) for size in study.sizes]
    last = len(names) - 1
    step = max(math.ceil(len(names) / (4 if few else 10)), 1)
    shown = [name if place in (0, last) or (place % step == 0 and last - place >= step) else ""
             for place, name in enumerate(names)]  # fmt: skip
    axes.set_xticks(range(len(names)), shown)
    axes.set_xlim(-0.3, last + 0.3)
    axes.set_xlabel("size (px)" if all(size.endswith(" px") for size in study.sizes) else "size (px), or view")
