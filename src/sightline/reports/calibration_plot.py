"""The figure of how often answers are right, by how sure the model says it is; SVG text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.errors import InputError
from sightline.reports import series, style, words
from sightline.reports.plots import draw_points, names_of
from sightline.reports.series import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIGHT, SURE, BIN = "top1_in_bin", "confidence", "confidence_bin"


def is_there(study: Study) -> bool:
    """Whether rows of the main split say both of any bin."""
    return all(BIN in study.parts(metric) for metric in (RIGHT, SURE))


def reliability(study: Study, *, narrow: bool = False) -> str:
    """The reliability diagram (Guo et al. 2017, figure 1): accuracy of each bin (percent; bars: 95 %) by its mean
    confidence, at a resolution of training and at the largest; one line a run.

    Raises:
        InputError: no row is of a bin on squares.
    """
    bins = study.parts(RIGHT).get(BIN, [])
    right, sure = ([study.lines(metric, slices=part) for part in bins] for metric in (RIGHT, SURE))
    # The seldom bins are not there for every run.
    chosen = list({line.label: line for lines in right for line in lines if line.points}.values())
    shown = series.outer_resolutions(chosen)
    if not shown:
        raise InputError(f"no row has {RIGHT} by {BIN} on squares of split {study.main.split}")

    def paint(figure: Figure) -> None:
        shape = (len(shown), 1) if narrow else (1, len(shown))
        panels = list(figure.subplots(*shape, sharey=True, squeeze=False).flat)
        for axes, resolution in zip(panels, shown, strict=True):
            for line in chosen:
                points = {}
                for pair in zip(right, sure, strict=True):
                    here = [one for lines in pair for one in lines if one.label == line.label]
                    found = [one.points[resolution] for one in here if resolution in one.points]
                    if len(found) == len(pair):
                        points[100 * found[1].value] = found[0]
                if points:
                    draw_points(axes, line, dict(sorted(points.items())), study.order)
            trained = " (as trained)" if series.seen_at(resolution, chosen) == "trained" else ""
            axes.set_title(f"tested at {resolution} px{trained}")
            axes.plot([0, 100], [0, 100], color=style.FAINT, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
            axes.set(xlim=(0, 100), ylim=(0, 100), xticks=range(0, 101, 20), yticks=range(0, 101, 20))
            axes.set_xlabel("mean confidence of the bin (%)")
            for artist in [*axes.lines, *axes.collections]:
                artist.set_clip_on(False)
        for axes in panels if narrow else panels[:1]:
            axes.set_ylabel(f"{words.title(RIGHT)} (%)")
        style.legend(figure, names_of(chosen, study.order), narrow=narrow)

    return style.draw_for_page(3.3 * len(shown) if narrow else 4.2, paint, narrow=narrow, names=len(chosen))
