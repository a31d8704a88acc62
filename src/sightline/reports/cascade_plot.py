"""Figures of token budgets and cascades: functions from rows to SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError
from sightline.reports import style
from sightline.reports.lines import Line, Panel, lines_figure, named_ticks
from sightline.results.cascade import CascadeRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SINGLE = {"color": style.PALETTE[0], "marker": "o", "markersize": 5.5, "linewidth": 2}
_CASCADE = {"color": style.PALETTE[1], "marker": "s", "markersize": 5, "linewidth": 2}
_CHOSEN = {"color": style.PALETTE[1], "marker": "*", "markersize": 13, "linewidth": 0, "zorder": 4}


def of_kind(rows: Sequence[CascadeRow], kind: str) -> list[CascadeRow]:
    """The rows of single budgets, or those of the cascade without the one that was chosen; by tokens."""
    return sorted((row for row in rows if row.kind == kind and not row.chosen), key=lambda row: row.tokens)


def accuracy_by_cost(rows: Sequence[CascadeRow], *, narrow: bool = False) -> str:
    """Top-1 accuracy (percent) of single budgets (bars: 95 %) and of the cascade (band: 95 %) by mean tokens, and by
    mean time of the forward pass.

    Budgets are named above the axes; the point of the cascade that was chosen for a budget is a star.

    Raises:
        InputError: there is no row of a single budget.
    """
    single, cascade, chosen = _checked(rows), of_kind(rows, "cascade"), [row for row in rows if row.chosen]
    panels = []
    for cost, title in (("tokens", "patches an image, mean"), ("milliseconds", "ms an image, mean (forward pass)")):
        lines = [_line("single budgets", _SINGLE, single, cost)]
        if cascade:
            words = f"cascade {cascade[0].budget}, then {cascade[0].second_budget}"
            lines.append(_line(words, _CASCADE, cascade, cost, band=True))
        if chosen:
            words = f"chosen: {100 * (chosen[0].alpha or 0):.3g} % again"
            lines.append(_line(words, _CHOSEN, chosen, cost, band=True))
        budgets = partial(_name_budgets, single, cost)
        panels.append(
            Panel(
                lines, "", title, "top-1 accuracy (%)", "log2", x_range=_range(rows, cost), spread=False, paint=budgets
            )
        )
    return lines_figure(panels, height=4.0, narrow_height=3.2, narrow=narrow)


def calibration_by_tokens(rows: Sequence[CascadeRow], *, narrow: bool = False) -> str:
    """The expected calibration error (15 bins) of single budgets by mean tokens; SVG text.

    Raises:
        InputError: there is no row of a single budget.
    """
    single = _checked(rows)
    line = Line("", _SINGLE, [row.tokens for row in single], [row.ece for row in single])
    top = 1.25 * max(*line.y, 0.01)
    axes: dict[str, Any] = {
        "x_label": "patches an image, mean",
        "y_label": "expected calibration error",
        "x_scale": "log2",
    }
    budgets = partial(_name_budgets, single, "tokens")
    panel = Panel([line], **axes, x_range=_range(single, "tokens"), y_range=(0.0, top), spread=False, paint=budgets)
    return lines_figure([panel], height=2.7, narrow=narrow)


def _checked(rows: Sequence[CascadeRow]) -> list[CascadeRow]:
    single = of_kind(rows, "single")
    if not single:
        raise InputError("no row is of a single budget")
    return single


def _line(label: str, look: Mapping[str, Any], rows: Sequence[CascadeRow], cost: str, *, band: bool = False) -> Line:
    """A line by a cost, a field of the rows."""
    rows = sorted(rows, key=attrgetter(cost))
    limits = [(100 * row.low, 100 * row.high) for row in rows]
    return Line(label, look, [getattr(row, cost) for row in rows], [100 * row.top1 for row in rows], limits, band)


def _range(rows: Sequence[CascadeRow], cost: str) -> tuple[float, float]:
    values = [getattr(row, cost) for row in rows]
    room = (max(values) / min(values)) ** 0.06 * 1.05
    return min(values) / room, max(values) * room


def _name_budgets(rows: Sequence[CascadeRow], cost: str, axes: Axes) -> None:
    """An axis above, with a tick at each budget."""
    places = {getattr(row, cost): str(row.budget) for row in sorted(rows, key=attrgetter(cost))}
    names, above = named_ticks(places, axes.get_xlim(), 0.09), axes.secondary_xaxis("top")
    above.set_xticks(list(names), list(names.values()))
    above.set_xticks([], minor=True)
