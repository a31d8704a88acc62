"""The figures of training: loss and accuracy by images seen, each a function from curves to SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sightline.errors import InputError
from sightline.reports import style, words
from sightline.reports.content import LossCurve, RunSummary
from sightline.reports.lines import Line, Panel, lines_figure, measured_line, value_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LOSS_POINTS = 300
_IMAGES = "images seen in training"


def figures(runs: Sequence[RunSummary], order: Sequence[str]) -> dict[str, object]:
    """What `training.html` shows of the runs: both figures as HTML, "" where there is nothing to draw, and their words.

    `order` fixes the colours.
    """
    curves = {run.name: run.loss for run in runs if len(run.loss.images)}
    loss = style.both(partial(loss_plot, curves, order=order), "loss", "Training loss") if curves else ""
    points = [point.measured for run in runs for point in run.validation]
    validation = ""
    if points:
        what = f"{words.capital(words.title(points[0].metric))} on validation images while training"
        validation = style.both(partial(validation_plot, runs, order=order), "validation", what)
    return {
        "loss": loss,
        "losses": len({curve.kind for curve in curves.values()}),
        "validation": validation,
        "counts": [f"{count:,}" for count in sorted({one.count for one in points})],
        "points": points,
        "splits": sorted({point.split for run in runs for point in run.validation}),
        # A run that was validated once has no curve.
        "drawn": sorted({"bar" if len(run.validation) == 1 else "band" for run in runs if run.validation}),
        "best": [(run.name, point) for run in runs for point in run.validation if point.step == run.best_step],
        "words": words,
    }


def loss_plot(curves: Mapping[str, LossCurve], *, order: Sequence[str] = (), narrow: bool = False) -> str:
    """Training loss by images seen, one line a run; long curves are averaged to 300 points; SVG text.

    Losses of different kinds have a panel each: their numbers cannot be compared.

    Raises:
        InputError: there is no point to draw, or a curve has another number of losses than of images.
    """
    order = list(dict.fromkeys([*order, *curves]))
    points = {name: _averaged(name, curve) for name, curve in curves.items()}
    points = {name: (x, y) for name, (x, y) in points.items() if len(x)}
    if not points:
        raise InputError("there is no training loss to draw")
    panels = []
    for kind in dict.fromkeys(curves[name].kind for name in points):
        lines = []
        for name, (x, y) in points.items():
            if curves[name].kind == kind:
                mark = {"marker": "o" if len(x) == 1 else "", "markersize": 5}
                look = {"color": style.colour(name, order), "linewidth": 1.6, **mark}
                lines.append(Line(name, look, x.tolist(), y.tolist()))
        title = style.short(kind, 44 if narrow else 90)
        panels.append(Panel(lines, title, _IMAGES, "training loss", spread=False, paint=_from_zero))
    return lines_figure(panels, height=2.6, columns=1, share_y=False, narrow=narrow)


def _from_zero(axes: Axes) -> None:
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0.0, axes.dataLim.y0))


def validation_plot(runs: Sequence[RunSummary], *, order: Sequence[str] = (), narrow: bool = False) -> str:
    """A metric on images held out from training by images seen, one line a run with the band of its 95 % intervals; a
    star stands at the best checkpoint; SVG text.

    Raises:
        InputError: no run was validated while training.
    """
    runs = [run for run in runs if run.validation]
    if not runs:
        raise InputError("there is no validation curve to draw")
    order = list(dict.fromkeys([*order, *(run.name for run in runs)]))
    lines = []
    for run in runs:
        look = {**style.look(run.name, order), "linewidth": 1.8, "markersize": 4}
        lines.append(measured_line(run.name, look, {one.images: one.measured for one in run.validation}, band=True))

    def marks(axes: Axes) -> None:
        axes.set_xlim(left=0)
        for run, line in zip(runs, lines, strict=True):
            star = {"color": line.look["color"], "marker": "*", "markersize": 14, "markeredgecolor": style.PAGE}
            for point, x, y in zip(run.validation, line.x, line.y, strict=True):
                if point.step == run.best_step:
                    axes.plot(x, y, **star, zorder=4)

    first = runs[0].validation[0].measured
    axes = {"x_label": _IMAGES, "y_label": words.axis(first), "y_range": value_range(first, lines)}
    return lines_figure([Panel(lines, **axes, spread=False, paint=marks)], height=2.6, narrow=narrow)


def _averaged(name: str, curve: LossCurve) -> tuple[np.ndarray, np.ndarray]:
    """The curve's finite points as float64 arrays, means of neighbours where there are more than can be seen."""
    if len(curve.images) != len(curve.loss):
        raise InputError(f"run {name}: {len(curve.loss)} losses for {len(curve.images)} counts of images")
    x, y = np.asarray(curve.images, dtype=np.float64), np.asarray(curve.loss, dtype=np.float64)
    keep = np.isfinite(x) & np.isfinite(y)
    x, y = x[keep], y[keep]
    if len(x) <= _MOST_LOSS_POINTS:
        return x, y
    parts = np.array_split(np.arange(len(x)), _MOST_LOSS_POINTS)
    return np.array([x[part].mean() for part in parts]), np.array([y[part].mean() for part in parts])
