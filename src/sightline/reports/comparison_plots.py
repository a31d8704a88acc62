"""The figures of a comparison, after LookHere's 1, 6 and 7: means over seeds with their intervals, as SVG text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sightline.reports import style, words
from sightline.reports.comparison_tables import CHANGE, TOP1, beyond, order, picked, trained_at
from sightline.reports.grids import titled
from sightline.reports.lines import WHOLE, Line, Panel, lines_figure
from sightline.results.comparison import ComparisonRow, MeanRow

_FIFTHS = {fifth: titled("size_quintile", {"size_quintile": fifth}) for fifth in range(1, 6)}


def by_size(rows: Sequence[ComparisonRow], *, larger: bool, narrow: bool = False) -> str:
    """Top-1 on the test split by the side of the images, from the size of the training up (figure 1) or down (6)."""
    side = trained_at(rows)
    some = [row for row in picked(rows, TOP1) if (row.resolution >= side if larger else row.resolution <= side)]
    sides = sorted({row.resolution for row in some})
    panel = Panel(
        _lines(rows, ((row.resolution, row) for row in some)),
        x_label="test resolution (side of the image, px)",
        y_label="top-1 accuracy (%)",
        x_scale="log2",
        x_ticks={side: str(side) for side in sides},
        y_range=WHOLE,
    )
    return lines_figure([panel], height=3.8, narrow_height=3.0, narrow=narrow)


def by_object_size(rows: Sequence[ComparisonRow], *, narrow: bool = False) -> str:
    """What top-1 gains from the size of the training to larger ones, by fifths of object size (figure 7)."""
    panels = []
    for side in beyond(rows):
        found = [(part, picked(rows, CHANGE, resolution=side, slices={"size_quintile": part})) for part in _FIFTHS]
        if found[0][1]:
            lines = _lines(rows, ((part, row) for part, some in found for row in some))
            title = f"{trained_at(rows)} to {side} px"
            panels.append(Panel(lines, title, y_label="points of %", x_ticks=_FIFTHS, level=(0, "")))
    return lines_figure(panels, columns=2, share_y=False, narrow=narrow)


def _lines(rows: Sequence[ComparisonRow], points: Iterable[tuple[int, MeanRow]]) -> list[Line]:
    """A line an encoding, of places and means."""
    names, of_name = order(rows), {}
    for place, row in points:
        of_name.setdefault(row.encoding, []).append((place, row))
    lines = []
    for name in (name for name in names if name in of_name):
        x, some = zip(*of_name[name], strict=True)
        y = [words.scaled(row.value, row.unit) for row in some]
        limits = [[words.scaled(end, row.unit) for end in row.interval or (row.value, row.value)] for row in some]
        lines.append(Line(name, style.look(name, names), x, y, limits))
    return lines
