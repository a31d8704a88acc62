"""Figures of token budgets and cascades: functions from rows to SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sightline.errors import InputError
from sightline.reports import style
from sightline.results.cascade import CascadeRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SINGLE, CASCADE = style.PALETTE[0], style.PALETTE[1]
# Of a name: its height, and the width of a character of it.
_TALL = 9.5
_WIDE = 0.62 * _TALL
_GAP = 4.0


def of_kind(rows: Sequence[CascadeRow], kind: str) -> list[CascadeRow]:
    """The rows of single budgets, or those of the cascade without the one that was chosen; by tokens."""
    return sorted((row for row in rows if row.kind == kind and not row.chosen), key=lambda row: row.tokens)


def accuracy_by_cost(rows: Sequence[CascadeRow], *, narrow: bool = False) -> str:
    """Top-1 accuracy (percent) of single budgets (bars: 95 %) and of the cascade (band: 95 %) by mean tokens, and by
    mean time of the forward pass; SVG text.

    A budget is named at its point, a point of the cascade by the fraction that was seen again; the point chosen for a
    budget is a star.

    Raises:
        InputError: there is no row of a single budget.
    """
    single, cascade = _checked(rows), of_kind(rows, "cascade")
    chosen = [row for row in rows if row.chosen]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(2, 1) if narrow else figure.subplots(1, 2, sharey=True)
        costs = {"tokens": "patches an image, mean", "milliseconds": "ms an image, mean (forward pass)"}
        for axes, (cost, title) in zip(panels, costs.items(), strict=True):
            points, _ = _line(single, cost)
            x, y, low, high = points.T
            axes.errorbar(x, y, yerr=[y - low, high - y], color=SINGLE, marker="o", markersize=5.5, linewidth=2,
                          elinewidth=0.9, capsize=2.5, zorder=3)  # fmt: skip
            # A band: the points of a cascade are so near to each other that bars would make a fence.
            points, _ = _line(cascade, cost)
            x, y, low, high = points.T
            axes.plot(x, y, color=CASCADE, marker="s", markersize=5, linewidth=2, zorder=3)
            axes.fill_between(x, low, high, color=CASCADE, alpha=0.18, linewidth=0, zorder=2)
            for row in chosen:
                axes.plot(
                    getattr(row, cost),
                    100 * row.top1,
                    color=CASCADE,
                    marker="*",
                    markersize=13,
                    zorder=4,
                    clip_on=False,
                )
            axes.margins(y=0.12)
            if narrow or axes is panels[0]:
                axes.set_ylabel("top-1 accuracy (%)")
            axes.set_xlabel(title)
            _log_axis(axes, [getattr(row, cost) for row in rows])
        _legend(figure, cascade, chosen, narrow=narrow)
        figure.draw_without_rendering()
        for axes, cost in zip(panels, costs, strict=True):
            _label(axes, [(*_line(single, cost), SINGLE), (*_line(cascade, cost), CASCADE)])

    return style.draw_for_page(6.6 if narrow else 4.6, paint, narrow=narrow)


def calibration_by_tokens(rows: Sequence[CascadeRow], *, narrow: bool = False) -> str:
    """The expected calibration error (15 bins) of single budgets by mean tokens; SVG text.

    Raises:
        InputError: there is no row of a single budget.
    """
    single = _checked(rows)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        points = np.array([(row.tokens, row.ece, row.ece, row.ece) for row in single])
        axes.plot(*points.T[:2], color=SINGLE, marker="o", markersize=5.5, linewidth=2, clip_on=False)
        axes.set_ylim(0, 1.25 * max(points[:, 1].max(), 0.01))
        axes.set_xlabel("patches an image, mean")
        axes.set_ylabel("expected calibration error")
        _log_axis(axes, [row.tokens for row in single])
        figure.draw_without_rendering()
        _label(axes, [(points, [f"{row.budget}" for row in single], SINGLE)])

    return style.draw_for_page(3.0, paint, narrow=narrow)


def _checked(rows: Sequence[CascadeRow]) -> list[CascadeRow]:
    single = of_kind(rows, "single")
    if not single:
        raise InputError("no row is of a single budget")
    return single


def _line(rows: Sequence[CascadeRow], cost: str) -> tuple[NDArray[np.float64], list[str]]:
    """Points by a cost (a field of the rows), and what they are called.

    A point is that cost, the top-1 accuracy, and both ends of its interval (percent): float64 [rows, 4].
    """
    rows = sorted(rows, key=attrgetter(cost))
    points = [(getattr(row, cost), 100 * row.top1, 100 * row.low, 100 * row.high) for row in rows]
    names = [f"{row.budget}" if row.alpha is None else f"{100 * row.alpha:.3g} %" for row in rows]
    return np.array(points).reshape(-1, 4), names


def _log_axis(axes: Axes, values: Sequence[float]) -> None:
    """Doublings at equal distances, with round numbers as ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = min(values), max(values)
    axes.set_xscale("log", base=2)
    axes.set_xlim(low / (high / low) ** 0.06 / 1.05, high * (high / low) ** 0.06 * 1.05)
    axes.xaxis.set_major_locator(LogLocator(base=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, cascade: Sequence[CascadeRow], chosen: Sequence[CascadeRow], *, narrow: bool) -> None:
    single = {"color": SINGLE, "marker": "o", "linewidth": 2}
    entries = [("single budgets: at most so many patches", single)]
    if cascade:
        words = f"cascade {cascade[0].budget}, then {cascade[0].second_budget} for so many %"
        entries.append((words, {"color": CASCADE, "marker": "s", "linewidth": 2}))
    if chosen:
        words = f"chosen: {100 * (chosen[0].alpha or 0):.3g} %"
        entries.append((words, {"color": CASCADE, "marker": "*", "markersize": 11, "linestyle": ""}))
    style.legend(figure, entries, narrow=narrow)


def _label(axes: Axes, lines: Sequence[tuple[NDArray[np.float64], Sequence[str], str]]) -> None:
    """Name points where there is room: no name lies on another, on a point, a bar or a line; one without room is
    left out.

    Args:
        lines: the points of each (x, y, and both ends of the bar), their names and their colour; the most important
            first.
    """
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D, Bbox

    scale = 72 / axes.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]
    in_points = axes.transData + Affine2D().scale(scale)
    drawn, taken, wanted = [], [], []
    for points, names, colour in lines:
        at, low, high = (in_points.transform(points[:, [0, column]]) for column in (1, 2, 3))
        drawn.append(Path(at))
        bars = zip(at[:, 0], low[:, 1], high[:, 1], strict=True)
        taken += [Bbox.from_extents(x - 4, bottom - 2, x + 4, top + 2) for x, bottom, top in bars]
        wanted += zip(points[:, :2], at, low[:, 1], high[:, 1], names, [colour] * len(names), strict=True)
    for point, (x, y), low, high, name, colour in wanted:
        half = _WIDE * len(name) / 2
        above, below, beside = high + _GAP + _TALL / 2, low - _GAP - _TALL / 2, half + 5
        for middle, up in (
            (x, above),
            (x, below),
            *((x + side * beside, y + step) for step in (9, -9, 18, -18) for side in (-1, 1)),
        ):
            box = Bbox.from_extents(middle - half, up - _TALL / 2, middle + half, up + _TALL / 2)
            near = box.padded(2)
            if not box.count_overlaps(taken) and not any(line.intersects_bbox(near, filled=False) for line in drawn):
                taken.append(box)
                axes.annotate(
                    name, point, xytext=(middle - x, up - y), textcoords="offset points",
                    color=colour, fontsize=_TALL, ha="center", va="center", annotation_clip=False,
                )  # fmt: skip
                break
