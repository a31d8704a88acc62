"""The figures of training: loss and accuracy by images seen, each a function from curves to SVG text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sightline.errors import InputError
from sightline.reports import plots, style, words
from sightline.reports.content import LossCurve, RunSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LOSS_POINTS = 300


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
    kinds = list(dict.fromkeys(curves[name].kind for name in points))

    def paint(figure: Figure) -> None:
        panels = list(figure.subplots(len(kinds), 1, sharex=True, squeeze=False).flat)
        for axes, kind in zip(panels, kinds, strict=True):
            shown = {name: both for name, both in points.items() if curves[name].kind == kind}
            for name, (x, y) in shown.items():
                mark = ("o", 5) if len(x) == 1 else ("", 0)
                axes.plot(x, y, color=style.colour(name, order), linewidth=1.6, marker=mark[0], markersize=mark[1])
            axes.set_ylim(bottom=min(0.0, min(float(y.min()) for _, y in shown.values())))
            axes.set_ylabel("training loss")
            if kind:
                axes.set_title(style.short(kind, 44 if narrow else 90), fontsize=9.5)
        _images_axis(panels[-1], narrow=narrow)
        _legend(figure, points, order, narrow=narrow)

    return style.draw_for_page(2.6 * len(kinds) + 0.4, paint, narrow=narrow, names=len(points))


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

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for run in runs:
            colour = style.colour(run.name, order)
            images = [point.images for point in run.validation]
            axes.plot(images, [plots.height(point.measured) for point in run.validation], color=colour, linewidth=1.8,
                      zorder=3, marker=style.marker(run.name, order), markersize=4)  # fmt: skip
            low, high = zip(*(plots.limits(point.measured) for point in run.validation), strict=True)
            if len(images) == 1:
                axes.vlines(images, low, high, color=colour, linewidth=1.2, zorder=3)
            else:
                axes.fill_between(images, low, high, color=colour, alpha=0.16, linewidth=0)
            for point in run.validation:
                if point.step == run.best_step:
                    axes.plot(point.images, plots.height(point.measured), color=colour, marker="*", markersize=14,
                              zorder=4, markeredgecolor=style.PAGE)  # fmt: skip
        every = [point.measured for run in runs for point in run.validation]
        plots.value_axis(axes, every[0], None, every)
        _images_axis(axes, narrow=narrow)
        _legend(figure, [run.name for run in runs], order, narrow=narrow)

    return style.draw_for_page(2.9, paint, narrow=narrow, names=len(runs))


def _images_axis(axes: Axes, *, narrow: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("images seen in training")


def _legend(figure: Figure, names: Iterable[str], order: Sequence[str], *, narrow: bool) -> None:
    looks = [(style.short(name), {"color": style.colour(name, order), "linewidth": 2}) for name in names]
    style.legend(figure, looks, narrow=narrow)


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
