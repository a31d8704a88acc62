"""The figure of a metric by the number of frames that were shown of each clip; SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.errors import InputError
from sightline.reports import style
from sightline.reports.plots import GUESSING, draw_points, names_of, value_axis
from sightline.reports.series import PlotLine, Study
from sightline.results.rows import ResultRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def lines_of(rows: Sequence[ResultRow]) -> tuple[list[PlotLine], Study] | None:
    """A line for each run whose clips were shown with several numbers of frames at one size, that of its training where
    it was measured there; its points by the number of frames. None where there is no such run.

    Raises:
        InputError: as `Study.of`.
    """
    plain = [row for row in rows if row.frames is not None and row.resolution is not None and row.shrunk is None]
    if not plain:
        return None
    sides = {row.run: row.train_resolution for row in plain}
    for run in sides:
        there = {row.resolution for row in plain if row.run == run and row.resolution is not None}
        sides[run] = sides[run] if sides[run] in there else max(there)
    chosen = [row for row in plain if row.resolution == sides[row.run]]
    counts = sorted({row.frames for row in chosen if row.frames is not None})
    whole = Study.of([replace(row, frames=None) for row in chosen])
    found: dict[str, PlotLine] = {}
    for count in counts:
        # Each number alone: a study has one row for a run at a size.
        here = [replace(row, frames=None) for row in chosen if row.frames == count]
        for line in Study.of(here, whole.order).lines(whole.main.metric, split=whole.main.split):
            points = {**(found[line.label].points if line.label in found else {}), count: line.points[sides[line.run]]}
            found[line.label] = replace(line, points=points)
    several = [line for line in found.values() if len(line.points) > 1]
    return (several, whole) if several else None


def by_frames(
    rows: Sequence[ResultRow], *, trained: int | None = None, chance: float | None = None, narrow: bool = False
) -> str:
    """The main metric (bars: 95 %) by the number of frames of each clip, spaced by doublings, one line a run; SVG text.

    Args:
        trained: frames of the clips of the training, where all runs had as many: a triangle and a dotted line.
        chance: what guessing would give, a fraction.

    Raises:
        InputError: no run was shown clips with several numbers of frames at one size.
    """
    found = lines_of(rows)
    if found is None:
        raise InputError("no rows are of clips with several numbers of frames at one size")
    chosen, study = found
    counts = sorted({count for line in chosen for count in line.points})

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_xticks([], minor=True)
        axes.set_xlim(counts[0] / 1.12, counts[-1] * 1.12)
        for place, line in enumerate(chosen):
            apart = 1.012 ** (place - (len(chosen) - 1) / 2)
            draw_points(axes, line, {count * apart: point for count, point in line.points.items()}, study.order)
        if trained is not None:
            axes.axvline(trained, color=style.INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
            axes.set_title(f"trained at {trained} frames", loc="left", fontsize=9.5)
        value_axis(axes, study.main, chance)
        axes.set_xlabel("test frames of each clip")
        guessing = [] if chance is None else [(f"guessing: {100 * chance:.1f} %", GUESSING)]
        style.legend(figure, [*names_of(chosen, study.order), *guessing], narrow=narrow)

    return style.draw_for_page(3.2 if narrow else 3.8, paint, narrow=narrow, names=len(chosen) + (chance is not None))
