"""The figures of a comparison, after LookHere's 1, 6 and 7: means over seeds with their intervals, as SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline.reports import style, words
from sightline.reports.comparison_tables import CHANGE, TOP1, beyond, order, picked, trained_at
from sightline.reports.grids import titled
from sightline.results.comparison import ComparisonRow, MeanRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FIFTHS = range(1, 6)


def by_size(rows: Sequence[ComparisonRow], *, larger: bool, narrow: bool = False) -> str:
    """Top-1 on the test split by the side of the images, from the size of the training up (figure 1) or down (6)."""
    side, names = trained_at(rows), order(rows)
    some = [row for row in picked(rows, TOP1) if (row.resolution >= side if larger else row.resolution <= side)]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.set_xscale("log", base=2)
        for name in names:
            moved = 2.0 ** (0.006 * _place(name, names))
            _line(axes, name, names, [(moved * row.resolution, row) for row in some if row.encoding == name])
        sides = sorted({row.resolution for row in some})
        axes.set_xticks(sides, [str(one) for one in sides])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 100)
        axes.set_xlabel("test resolution (side of the image, px)")
        axes.set_ylabel("top-1 accuracy (%)")
        _names(figure, names, narrow=narrow)

    return style.draw_for_page(3.4 if narrow else 4.2, paint, narrow=narrow, names=len(names))


def by_object_size(rows: Sequence[ComparisonRow], *, narrow: bool = False) -> str:
    """What top-1 gains from the size of the training to larger ones, by fifths of object size (figure 7)."""
    sides, names = beyond(rows), order(rows)
    sides = [side for side in sides if picked(rows, CHANGE, resolution=side, slices={"size_quintile": 1})]

    def paint(figure: Figure) -> None:
        shape = (len(sides), 1) if narrow else (-(-len(sides) // 2), 2)
        panels = list(figure.subplots(*shape, squeeze=False).flat)
        for axes in panels[len(sides) :]:
            axes.set_visible(False)
        for axes, side in zip(panels, sides, strict=False):
            fifths = [picked(rows, CHANGE, resolution=side, slices={"size_quintile": part}) for part in _FIFTHS]
            for name in names:
                found = [(part, row) for part, some in zip(_FIFTHS, fifths, strict=True) for row in some]
                moved = 0.04 * _place(name, names)
                _line(axes, name, names, [(part + moved, row) for part, row in found if row.encoding == name])
            axes.set_title(f"{trained_at(rows)} to {side} px")
            axes.set_xticks(list(_FIFTHS), [titled("size_quintile", {"size_quintile": part}) for part in _FIFTHS])
            axes.axhline(0, color=style.FAINT, linewidth=1, zorder=1)
            axes.set_ylabel("points of %")
        _names(figure, names, narrow=narrow)

    tall = 2.4 * (len(sides) if narrow else -(-len(sides) // 2)) + 0.4
    return style.draw_for_page(tall, paint, narrow=narrow, names=len(names))


def _place(name: str, names: Sequence[str]) -> float:
    """By how many steps a line is moved from the middle, so that bars do not lie on each other."""
    return names.index(name) - (len(names) - 1) / 2


def _line(axes: Axes, name: str, names: Sequence[str], points: Sequence[tuple[float, MeanRow]]) -> None:
    if not points:
        return
    values = [words.scaled(row.value, row.unit) for _, row in points]
    ends = [[words.scaled(end, row.unit) for end in row.interval or (row.value, row.value)] for _, row in points]
    low = [value - end[0] for value, end in zip(values, ends, strict=True)]
    high = [end[1] - value for value, end in zip(values, ends, strict=True)]
    places = [place for place, _ in points]
    axes.errorbar(places, values, yerr=[low, high], elinewidth=1, capsize=2, zorder=3, **_look(name, names))


def _look(name: str, names: Sequence[str]) -> dict[str, Any]:
    look = {"color": style.colour(name, names), "marker": style.marker(name, names), "markersize": 5, "linewidth": 1.6}
    # The palette starts again after its last colour.
    return look | ({"linestyle": (0, (4, 2))} if names.index(name) >= len(style.PALETTE) else {})


def _names(figure: Figure, names: Sequence[str], *, narrow: bool) -> None:
    style.legend(figure, [(style.short(name), _look(name, names)) for name in names], narrow=narrow)
