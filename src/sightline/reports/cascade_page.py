"""What token budgets and a cascade came to: tables for the terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from sightline.reports import page, style
from sightline.reports.content import SeenSizes
from sightline.reports.lines import Line, Panel, drawn, lines_figure
from sightline.reports.tables import Cell, Table, print_cells, text_table
from sightline.reports.words import percent
from sightline.results.cascade import CascadeRow

_SINGLE = {"color": style.PALETTE[0], "marker": "o", "markersize": 5.5, "linewidth": 2}
_CASCADE = {"color": style.PALETTE[1], "marker": "s", "markersize": 5, "linewidth": 2}
_CHOSEN = {"color": style.PALETTE[1], "marker": "*", "markersize": 13, "linewidth": 0, "zorder": 4}


def render(rows: Sequence[CascadeRow], command: str, *, seen: SeenSizes | None = None) -> str:
    """The HTML text: equal rows give equal text.

    Args:
        command: the line that measures it again.
        seen: the sizes of training; the one that the rows name unless given.
    """
    what = ("Top-1 accuracy by mean tokens and by mean time", "Expected calibration error by mean tokens")
    accuracy, calibration = _figures(rows)
    return page.render(
        "cascade.html",
        title=f"{rows[0].run}: accuracy by tokens and time",
        command=command,
        row=rows[0],
        seen=seen or SeenSizes.of_one(rows[0].train_resolution),
        chosen=_chosen(rows),
        curve=drawn(prefix="curve", description=what[0], **accuracy),
        calibration=drawn(prefix="ece", description=what[1], **calibration),
        tables=tables(rows),
    )


def figure_files(rows: Sequence[CascadeRow]) -> list[str]:
    """Both figures of the page as SVG text for files of their own: accuracy by cost, and calibration."""
    return [style.standalone(lines_figure(**one)) for one in _figures(rows)]


def _figures(rows: Sequence[CascadeRow]) -> list[dict[str, Any]]:
    return [
        {"panels": accuracy_by_cost(rows), "height": 4.0},
        {"panels": calibration_by_tokens(rows), "height": 2.7},
    ]


def print_rows(rows: Sequence[CascadeRow]) -> None:
    """Print both tables, and what was chosen."""
    made = tables(rows)
    for table in made:
        print_cells(table)
    print("top-1 in %, in brackets its 95 % interval; tokens and ms (of the forward pass) of an image in the mean")
    if len(made) > 1:
        print("alpha: the share that was to be seen again; again: the share that was, with scores below `below`")
        print("ahead: of single budgets at equal mean tokens")
    if chosen := _chosen(rows):
        print(chosen)


def tables(rows: Sequence[CascadeRow]) -> list[Table]:
    """Single budgets, and the cascade where there is one."""
    first = rows[0]
    single = [
        (str(row.budget), f"{row.tokens:.1f}", _time(row.milliseconds), _time(row.reading_milliseconds),
         _share(row.top1, row.low, row.high), f"{row.ece:.3f}") for row in of_kind(rows, "single")
    ]  # fmt: skip
    title = f"Single budgets, {first.images} images of {first.data}/{first.split}"
    made = [text_table(title, ("budget", "tokens", "ms an image", "reading, ms", "top-1", "ECE"), single)]
    cascades = of_kind(rows, "cascade")
    if cascades:
        lines = [
            (f"{row.alpha:.3g}{' *' if row.chosen else ''}", f"{row.fraction:.3f}", f"{row.threshold:.3f}",
             f"{row.tokens:.1f}", _time(row.milliseconds), _share(row.top1, row.low, row.high),
             _share(row.ahead, row.ahead_low, row.ahead_high, "+"))
            for row in (*cascades, *(row for row in rows if row.chosen))
        ]  # fmt: skip
        title = (
            f"Cascade: {cascades[0].budget} tokens, then {cascades[0].second_budget} for the least certain; "
            f"{first.images} images, thresholds from {first.held_out} others"
        )
        made.append(text_table(title, ("alpha", "again", "below", "tokens", "ms", "top-1", "ahead"), lines))
    return made


def _time(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _share(value: float | None, low: float | None, high: float | None, sign: str = "") -> Cell:
    if value is None or low is None or high is None:
        return Cell()
    return Cell(f"{100 * value:{sign}.1f}", [f"{100 * end:{sign}.1f}" for end in (low, high)])


def _chosen(rows: Sequence[CascadeRow]) -> str:
    row = next((row for row in rows if row.chosen), None)
    if row is None:
        return ""
    held_out = row.held_out_split if row.held_out_split != row.split else f"the other half of {row.split}"
    return (
        f"Chosen for the budget: alpha {row.alpha:.3g}, the largest within it on {held_out}; here it took "
        f"{row.tokens:.1f} tokens an image and reached {percent(row.top1)}."
    )


def of_kind(rows: Sequence[CascadeRow], kind: str) -> list[CascadeRow]:
    """The rows of single budgets, or those of the cascade without the one that was chosen; by tokens."""
    return sorted((row for row in rows if row.kind == kind and not row.chosen), key=lambda row: row.tokens)


def accuracy_by_cost(rows: Sequence[CascadeRow]) -> list[Panel]:
    """Top-1 accuracy of single budgets (bars) and of the cascade (band) by mean tokens, and by mean time of the forward
    pass. Budgets are named above; the point of the cascade that was chosen for a budget is a star."""
    single, cascade, chosen, panels = (
        of_kind(rows, "single"),
        of_kind(rows, "cascade"),
        [one for one in rows if one.chosen],
        [],
    )
    for cost, title in (("tokens", "patches an image, mean"), ("milliseconds", "ms an image, mean (forward pass)")):
        lines = [_line("single budgets", _SINGLE, single, cost)]
        if cascade:
            label = f"cascade {cascade[0].budget}, then {cascade[0].second_budget}"
            lines.append(_line(label, _CASCADE, cascade, cost, band=True))
        if chosen:
            label = f"chosen: {100 * (chosen[0].alpha or 0):.3g} % again"
            lines.append(_line(label, _CHOSEN, chosen, cost, band=True))
        panels.append(Panel(lines, "", title, "top-1 accuracy (%)", "log2", above=_budgets(single, cost)))
    return panels


def calibration_by_tokens(rows: Sequence[CascadeRow]) -> list[Panel]:
    """The expected calibration error (15 bins) of single budgets by mean tokens."""
    single = of_kind(rows, "single")
    line = Line("", _SINGLE, [row.tokens for row in single], [row.ece for row in single])
    labels, above = ("", "patches an image, mean", "expected calibration error"), _budgets(single, "tokens")
    return [Panel([line], *labels, "log2", y_range=(0.0, 1.25 * max(*line.y, 0.01)), above=above)]


def _budgets(rows: Sequence[CascadeRow], cost: str) -> dict[float, str]:
    return {getattr(row, cost): str(row.budget) for row in sorted(rows, key=attrgetter(cost))}


def _line(label: str, look: Mapping[str, Any], rows: Sequence[CascadeRow], cost: str, *, band: bool = False) -> Line:
    """A line by a cost, a field of the rows."""
    rows = sorted(rows, key=attrgetter(cost))
    limits = [(100 * row.low, 100 * row.high) for row in rows]
    return Line(label, look, [getattr(row, cost) for row in rows], [100 * row.top1 for row in rows], limits, band)
