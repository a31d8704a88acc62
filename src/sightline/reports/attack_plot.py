"""The figure of accuracy under attack by test resolution; SVG text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.errors import InputError
from sightline.reports import series, style
from sightline.reports.grids import ATTACK
from sightline.reports.plots import draw_points, names_of, resolution_axis, value_axis
from sightline.reports.series import PlotLine, Study
from sightline.results.rows import Slices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIRST = "_top1"


def metrics(study: Study) -> list[str]:
    """Names of the metrics under attack that were measured on the main split."""
    return [one.metric for one in study.metrics() if ATTACK in study.parts(one.metric)]


def panels_of(study: Study) -> list[tuple[str, list[PlotLine]]]:
    """What the figure shows: top-1 under each attack on squares, by loss and epsilon; the title of each, and lines."""
    found = []
    for metric in metrics(study):
        for part in study.parts(metric)[ATTACK] if metric.endswith(_FIRST) else ():
            lines = [line for line in study.lines(metric, slices=part) if line.points]
            found += [(_title(metric, part), lines)] if lines else []
    return found


def by_resolution(study: Study, *, narrow: bool = False) -> str:
    """Top-1 accuracy under attack (percent; bars: 95 %) by test resolution, a panel for each attack, loss and epsilon;
    one line a run.

    Raises:
        InputError: no row is of an attack on squares.
    """
    shown = panels_of(study)
    if not shown:
        raise InputError(f"no row is of an attack on squares of split {study.main.split}")
    every = list({line.label: line for _, lines in shown for line in lines}.values())
    sizes = series.resolutions([line for _, lines in shown for line in lines])
    columns = 1 if narrow else 2
    rows = -(-len(shown) // columns)

    def paint(figure: Figure) -> None:
        panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
        for number, (axes, (title, lines)) in enumerate(zip(panels, shown, strict=False)):
            resolution_axis(axes, sizes, sizes, narrow=True)
            for line in lines:
                draw_points(axes, line, {float(size): point for size, point in line.points.items()}, study.order)
            axes.set_title(title)
            value_axis(axes, next(iter(lines[0].points.values())))
            # Each panel's title says of which attack.
            axes.set_ylabel("" if number % columns else "top-1 accuracy (%)")
            if number >= len(shown) - columns:
                axes.set_xlabel("test resolution (px)")
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        style.legend(figure, names_of(every, study.order), narrow=narrow)

    return style.draw_for_page(2.5 * rows + 0.5, paint, narrow=narrow, names=len(every))


def _title(metric: str, part: Slices) -> str:
    """ "FGSM 1/255, loss ce"."""
    return f"{metric.removesuffix(_FIRST).upper()} {part['epsilon']}, loss {part['loss']}"
