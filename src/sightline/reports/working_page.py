"""The page of runs that are still trained: their curves so far."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.reports import page, training_plots
from sightline.reports.content import RunSummary


def render(runs: Sequence[RunSummary], *, title: str, state: str, command: str) -> str:
    """The HTML text; it asks to be read again after some seconds.

    Args:
        runs: with their loss and validation so far; some or all may be empty.
        state: how far the runs are, in a line.
        command: the line that makes the page again.
    """
    curves = training_plots.figures(runs, [run.name for run in runs])
    return page.render("working.html", title=title, command=command, state=state, **curves)
