"""What token budgets and a cascade came to: tables for the terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sightline.reports import page, style
from sightline.reports.cascade_plot import accuracy_by_cost, calibration_by_tokens, of_kind
from sightline.reports.content import SeenSizes
from sightline.reports.tables import print_table
from sightline.reports.words import percent
from sightline.results.cascade import CascadeRow

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def print_rows(rows: Sequence[CascadeRow]) -> None:
    """Print both tables, and what was chosen."""
    first = rows[0]
    title = f"Single budgets, {first.images} images of {first.data}/{first.split}"
    print_table(*_singles(rows), title=title)
    if of_kind(rows, "cascade"):
        print_table(*_cascades(rows), title=_cascade_title(rows))
    print("top-1 in %, with its 95 % interval; tokens and ms (of the forward pass) of an image in the mean")
    if of_kind(rows, "cascade"):
        print("again: the fraction seen again, scores below `below`; ahead: of single budgets at equal mean tokens")
    if chosen := _chosen(rows):
        print(chosen)


def render(rows: Sequence[CascadeRow], command: str, *, seen: SeenSizes | None = None) -> str:
    """The HTML text: equal rows give equal text.

    Args:
        command: the line that measures it again.
        seen: the sizes of training; the one that the rows name unless given.

    Raises:
        InputError: there is no row of a single budget.
    """
    return page.render(
        "cascade.html",
        title=f"{rows[0].run}: accuracy by tokens and time",
        command=command,
        row=rows[0],
        trained=(seen or SeenSizes.of_one(rows[0].train_resolution)).words,
        chosen=_chosen(rows),
        curve=style.both(partial(accuracy_by_cost, rows), "curve", "Top-1 accuracy by mean tokens and by mean time"),
        calibration=style.both(
            partial(calibration_by_tokens, rows), "ece", "Expected calibration error by mean tokens"
        ),
        singles=_singles(rows),
        cascades=_cascades(rows),
        cascade_title=_cascade_title(rows),
    )


def _singles(rows: Sequence[CascadeRow]) -> Table:
    return ("budget", "tokens", "ms an image", "reading", "top-1", "ECE"), [
        (
            str(row.budget),
            f"{row.tokens:.1f}",
            _milliseconds(row.milliseconds),
            _milliseconds(row.reading_milliseconds),
            _percent(row.top1, row.low, row.high),
            f"{row.ece:.3f}",
        )
        for row in of_kind(rows, "single")
    ]


def _cascades(rows: Sequence[CascadeRow]) -> Table:
    return ("alpha", "again", "below", "tokens", "ms", "top-1", "ahead"), [
        (
            f"{row.alpha:.3g}{' *' if row.chosen else ''}",
            f"{row.fraction:.3f}",
            f"{row.threshold:.3f}",
            f"{row.tokens:.1f}",
            _milliseconds(row.milliseconds),
            _percent(row.top1, row.low, row.high),
            _percent(row.ahead, row.ahead_low, row.ahead_high, "+"),
        )
        for row in (*of_kind(rows, "cascade"), *(row for row in rows if row.chosen))
    ]


def _cascade_title(rows: Sequence[CascadeRow]) -> str:
    row = next((row for row in rows if row.kind == "cascade"), None)
    return f"Cascade: {row.budget} tokens, then {row.second_budget} for the least certain" if row else ""


def _chosen(rows: Sequence[CascadeRow]) -> str:
    row = next((row for row in rows if row.chosen), None)
    if row is None:
        return ""
    held_out = row.held_out_split if row.held_out_split != row.split else f"the other half of {row.split}"
    return (
        f"Chosen for the budget: alpha {row.alpha:.3g}, the largest within it on {held_out}; here it took "
        f"{row.tokens:.1f} tokens an image and reached {percent(row.top1)}."
    )


def _milliseconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _percent(value: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    if value is None or low is None or high is None:
        return "-"
    return f"{100 * value:{sign}.1f} [{100 * low:{sign}.1f},{100 * high:{sign}.1f}]"
