"""Figures of token budgets and cascades: functions from rows to SVG text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sightline.cascade_rows import CascadeRow
from sightline.errors import InputError
from sightline.reports import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SINGLE, CASCADE = style.PALETTE[0], style.PALETTE[1]
# Of a name: its height, and the width of a character of it.
_TALL = 9.5
_WIDE = 0.62 * _TALL
_GAP = 4.0

Box = tuple[float, float, float, float]
Named = tuple[float, float, float, float, str, str]


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
        costs: list[tuple[str, Callable[[CascadeRow], float]]] = [
            ("patches an image, mean", lambda row: row.tokens),
            ("ms an image, mean (forward pass)", lambda row: row.milliseconds),
        ]
        for axes, (title, cost) in zip(panels, costs, strict=True):
            _line(axes, single, cost)
            _band(axes, cascade, cost)
            for row in chosen:
                axes.plot(cost(row), 100 * row.top1, color=CASCADE, marker="*", markersize=13, zorder=4, clip_on=False)
            axes.margins(y=0.12)
            if narrow:
                axes.set_ylabel("top-1 accuracy (%)")
            axes.set_xlabel(title)
            _log_axis(axes, [cost(row) for row in rows])
        panels[0].set_ylabel("top-1 accuracy (%)")
        _legend(figure, single, cascade, chosen, narrow=narrow)
        figure.draw_without_rendering()
        for axes, (_, cost) in zip(panels, costs, strict=True):
            named = [
                (cost(row), 100 * row.top1, 100 * row.low, 100 * row.high, name, colour)
                for line, colour in ((single, SINGLE), (cascade, CASCADE))
                for row in line
                for name in [f"{row.budget}" if row.alpha is None else f"{100 * row.alpha:.3g} %"]
            ]
            _label(axes, named, [sorted((cost(row), 100 * row.top1) for row in line) for line in (single, cascade)])

    return style.draw(style.width(narrow=narrow), 6.6 if narrow else 4.6, paint)


def calibration_by_tokens(rows: Sequence[CascadeRow], *, narrow: bool = False) -> str:
    """The expected calibration error (15 bins) of single budgets by mean tokens; SVG text.

    Raises:
        InputError: there is no row of a single budget.
    """
    single = _checked(rows)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        points = [(row.tokens, row.ece) for row in single]
        axes.plot(*zip(*points, strict=True), color=SINGLE, marker="o", markersize=5.5, linewidth=2, clip_on=False)
        axes.set_ylim(0, 1.25 * max(max(row.ece for row in single), 0.01))
        axes.set_xlabel("patches an image, mean")
        axes.set_ylabel("expected calibration error")
        _log_axis(axes, [row.tokens for row in single])
        figure.draw_without_rendering()
        _label(axes, [(row.tokens, row.ece, row.ece, row.ece, f"{row.budget}", SINGLE) for row in single], [points])

    return style.draw(style.width(narrow=narrow), 3.0, paint)


def _checked(rows: Sequence[CascadeRow]) -> list[CascadeRow]:
    single = of_kind(rows, "single")
    if not single:
        raise InputError("no row is of a single budget")
    return single


def _line(axes: Axes, rows: Sequence[CascadeRow], cost: Callable[[CascadeRow], float]) -> None:
    """Single budgets, each with a bar."""
    rows = sorted(rows, key=cost)
    axes.errorbar(
        [cost(row) for row in rows],
        [100 * row.top1 for row in rows],
        yerr=[[100 * (row.top1 - row.low) for row in rows], [100 * (row.high - row.top1) for row in rows]],
        color=SINGLE,
        marker="o",
        markersize=5.5,
        linewidth=2,
        elinewidth=0.9,
        capsize=2.5,
        zorder=3,
    )


def _band(axes: Axes, rows: Sequence[CascadeRow], cost: Callable[[CascadeRow], float]) -> None:
    """The cascade, its points so near to each other that bars would make a fence."""
    rows = sorted(rows, key=cost)
    at = [cost(row) for row in rows]
    low, high = [100 * row.low for row in rows], [100 * row.high for row in rows]
    axes.plot(at, [100 * row.top1 for row in rows], color=CASCADE, marker="s", markersize=5, linewidth=2, zorder=3)
    axes.fill_between(at, low, high, color=CASCADE, alpha=0.18, linewidth=0, zorder=2)


def _log_axis(axes: Axes, values: Sequence[float]) -> None:
    """Doublings at equal distances, with round numbers as ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = min(values), max(values)
    axes.set_xscale("log", base=2)
    axes.set_xlim(low / (high / low) ** 0.06 / 1.05, high * (high / low) ** 0.06 * 1.05)
    axes.xaxis.set_major_locator(LogLocator(base=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _legend(
    figure: Figure,
    single: Sequence[CascadeRow],
    cascade: Sequence[CascadeRow],
    chosen: Sequence[CascadeRow],
    *,
    narrow: bool,
) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=SINGLE, marker="o", linewidth=2, label="single budgets: at most so many patches")]
    if cascade:
        first, second = cascade[0].budget, cascade[0].second_budget
        words = f"cascade {first}, then {second} for so many %"
        handles.append(Line2D([], [], color=CASCADE, marker="s", linewidth=2, label=words))
    if chosen:
        words = f"chosen: {100 * (chosen[0].alpha or 0):.3g} %"
        handles.append(Line2D([], [], color=CASCADE, marker="*", markersize=11, linestyle="", label=words))
    figure.legend(
        handles=handles, loc="outside upper left", ncols=style.legend_columns(3, narrow=narrow), frameon=False
    )


def _label(axes: Axes, named: Sequence[Named], lines: Sequence[Sequence[tuple[float, float]]]) -> None:
    """Name points where there is room: no name lies on another, on a point, a bar or a line; one without room is
    left out.

    Args:
        named: x, y, both ends of the bar, the name and its colour of each point, the most important first.
        lines: what is drawn through the points, in data coordinates.
    """
    scale = 72 / axes.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]

    def place(x: float, y: float) -> tuple[float, float]:
        right, up = axes.transData.transform((x, y))
        return scale * right, scale * up

    taken = [box for line in lines for box in _along([place(*point) for point in line])]
    places = [(place(x, y), place(x, low)[1], place(x, high)[1]) for x, y, low, high, _, _ in named]
    taken += [(x - 4, low - 2, x + 4, high + 2) for (x, _), low, high in places]
    for (at_x, at_y, _, _, text, colour), ((x, y), low, high) in zip(named, places, strict=True):
        half = _WIDE * len(text) / 2
        above, below, beside = high + _GAP + _TALL / 2, low - _GAP - _TALL / 2, half + 5
        for middle, up in (
            (x, above),
            (x, below),
            *((x + side * beside, y + step) for step in (9, -9, 18, -18) for side in (-1, 1)),
        ):
            box = middle - half, up - _TALL / 2, middle + half, up + _TALL / 2
            if not any(_overlap(box, other) for other in taken):
                taken.append(box)
                axes.annotate(
                    text, (at_x, at_y), xytext=(middle - x, up - y), textcoords="offset points",
                    color=colour, fontsize=_TALL, ha="center", va="center", annotation_clip=False,
                )  # fmt: skip
                break


def _along(points: Sequence[tuple[float, float]]) -> list[Box]:
    """Small boxes that cover the line through some points."""
    boxes = []
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        steps = max(math.ceil(math.hypot(x1 - x0, y1 - y0) / 4), 1)
        for step in range(steps + 1):
            x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
            boxes.append((x - 2, y - 2, x + 2, y + 2))
    return boxes


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
