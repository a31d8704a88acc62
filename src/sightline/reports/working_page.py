"""The page of runs that are still trained: their curves so far."""

from __future__ import annotations

from collections.abc import Mapping

from sightline.reports import page, style, training_plots
from sightline.reports.content import LossCurve


def render(curves: Mapping[str, LossCurve], *, title: str, state: str, command: str) -> str:
    """The HTML text; it asks to be read again after some seconds.

    Args:
        curves: the loss of each run so far; some or all may be empty.
        state: how far the runs are, in a line.
        command: the line that makes the page again.
    """
    shown = {name: curve for name, curve in curves.items() if curve.images}
    loss = ""
    if shown:
        loss = style.both(
            lambda narrow: training_plots.loss_plot(shown, order=list(curves), narrow=narrow),
            "loss",
            "Training loss by images seen, one line a run",
        )
    return page.render("working.html", title=title, command=command, state=state, loss=loss)
