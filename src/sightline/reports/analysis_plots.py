"""Curves by layer of what was measured inside models, a panel a size, as in the papers; from rows to SVG text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.analysis.rows import AnalysisLike, by_layer
from sightline.reports import style, words
from sightline.results.analysis import AnalysisRow, Size, size_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Panels beside each other on a wide page.
_COLUMNS = 3
MOST_WITH_HEADS = 3
"""Models whose heads are drawn one by one: of more, dots hide what they are of."""
Heads = Mapping[tuple[str, Size | None], Mapping[int, Sequence[float]]]
"""The mean over images of each head, by model and size, then by layer."""


def heads_of(found: Sequence[AnalysisLike], measure: str, name: str) -> Heads:
    """What each head has of a quantity, the mean over images; nothing where it is not by head."""
    heads: dict[tuple[str, Size | None], dict[int, Sequence[float]]] = {}
    for one in found:
        quantity = one.quantities.get(name) if one.measure == measure else None
        if quantity is None or set(quantity.axes) - {"image"} != {"layer", "head"}:
            continue
        for size in (size for size in one.sizes if name in one.arrays[size]):
            layers = by_layer(one.arrays[size][name], quantity.axes, one.about.get("depth"), heads=True)
            place = one.model, None if size == (0, 0) else size
            heads[place] = {layer: np.asarray(values).mean(0).tolist() for layer, values in layers if layer is not None}
    return heads


def sizes_of(rows: Sequence[AnalysisRow]) -> list[Size | None]:
    """At which something was measured, by area; the images' own last."""
    sizes = {row.size for row in rows}
    return sorted(sizes, key=lambda size: (math.inf, 0, 0) if size is None else (size[0] * size[1], *size))


def curves(
    rows: Sequence[AnalysisRow], models: Sequence[str], heads: Heads | None = None, *, narrow: bool = False
) -> str:
    """A quantity by layer, one line a model with the 95 % of its mean over images; small dots are heads (ViT figure 11,
    LookHere figures 4, 15 to 17).

    Args:
        rows: of one quantity; models: all that the page speaks of, whose colours are the same in all of its figures.
        heads: as `heads_of`; of more than three models they are left out.
    """
    sizes, shown = sizes_of(rows), [name for name in models if any(row.run == name for row in rows)]
    columns = 1 if narrow else min(_COLUMNS, len(sizes))
    lines = -(-len(sizes) // columns)
    dots = (heads or {}) if len(shown) <= MOST_WITH_HEADS else {}

    def paint(figure: Figure) -> None:
        panels = figure.subplots(lines, columns, squeeze=False, sharey=True)
        for place, axes in enumerate(panels.flat):
            if place >= len(sizes):
                axes.set_visible(False)
                continue
            here = [row for row in rows if row.size == sizes[place] and row.layer is not None]
            for name in shown:
                own = sorted((row for row in here if row.run == name), key=lambda row: row.layer or 0)
                moved = 0.1 * (shown.index(name) - (len(shown) - 1) / 2)
                _heads(axes, dots.get((name, sizes[place]), {}), rows[0].unit, moved, look_of(name, models))
                _line(axes, own, moved, look_of(name, models))
            _layers(axes, [row.layer or 0 for row in here])
            axes.set_title(panel_title(here, sizes[place]), parse_math=False)
            if place % columns == 0:
                axes.set_ylabel(axis_of(rows[0]), parse_math=False)
            if place + columns >= len(sizes):
                axes.set_xlabel("layer")
            # Hidden panels below would else take the labels with them.
            axes.tick_params(labelbottom=True)
        legend(figure, shown, models, narrow=narrow)

    return style.draw_for_page(2.5 * lines + 0.35, paint, narrow=narrow, names=len(shown))


def points(rows: Sequence[AnalysisRow], models: Sequence[str], *, narrow: bool = False) -> str:
    """One number a model and size, what has no layers, as points with their intervals, one column a size."""
    sizes, shown = sizes_of(rows), [name for name in models if any(row.run == name for row in rows)]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for name in shown:
            moved = 0.12 * (shown.index(name) - (len(shown) - 1) / 2)
            own = [row for row in rows if row.run == name]
            places = [sizes.index(row.size) + moved for row in own]
            values = [words.scaled(row.value, row.unit) for row in own]
            ends = [[words.scaled(end, row.unit) for end in row.interval or (row.value, row.value)] for row in own]
            low = [max(value - end[0], 0) for value, end in zip(values, ends, strict=True)]
            high = [max(end[1] - value, 0) for value, end in zip(values, ends, strict=True)]
            look = {**look_of(name, models), "linewidth": 0}
            axes.errorbar(places, values, yerr=[low, high], elinewidth=1.2, capsize=2.5, **look)
        axes.set_xticks(range(len(sizes)), [size_words(size) for size in sizes])
        axes.set_xlim(-0.5, len(sizes) - 0.5)
        axes.set_xlabel("size of the images")
        axes.set_ylabel(axis_of(rows[0]), parse_math=False)
        legend(figure, shown, models, narrow=narrow)

    return style.draw_for_page(2.8, paint, narrow=narrow, names=len(shown))


def axis_of(row: AnalysisRow) -> str:
    """ "distance (cells)"; of long names the unit stands alone."""
    said = words.axis(row)
    unit = words.unit(row.unit)
    return said if len(said) <= 30 or not unit else unit


def panel_title(rows: Sequence[AnalysisRow], size: Size | None) -> str:
    """ "64 px (8 x 8 patches)", where all models have patches of one size."""
    patches = {row.patch_size for row in rows}
    if size is None or len(patches) != 1 or not (patch := patches.pop()):
        return size_words(size)
    return f"{size_words(size)} ({-(-size[0] // patch)} {words.TIMES} {-(-size[1] // patch)} patches)"


def look_of(name: str, models: Sequence[str]) -> dict[str, Any]:
    """How a model's line looks in every figure of a page."""
    look = {"color": style.colour(name, models), "marker": style.marker(name, models), "markersize": 5}
    again = models.index(name) >= len(style.PALETTE)
    return {**look, "linewidth": 1.6, **({"linestyle": (0, (4, 2))} if again else {})}


def legend(figure: Figure, shown: Sequence[str], models: Sequence[str], *, narrow: bool) -> None:
    """The names of the models above a figure."""
    style.legend(figure, [(style.short(name), look_of(name, models)) for name in shown], narrow=narrow)


def _line(axes: Axes, rows: Sequence[AnalysisRow], moved: float, look: Mapping[str, Any]) -> None:
    if not rows:
        return
    values = [words.scaled(row.value, row.unit) for row in rows]
    ends = [[words.scaled(end, row.unit) for end in row.interval or (row.value, row.value)] for row in rows]
    low = [max(value - end[0], 0) for value, end in zip(values, ends, strict=True)]
    high = [max(end[1] - value, 0) for value, end in zip(values, ends, strict=True)]
    places = [(row.layer or 0) + moved for row in rows]
    axes.errorbar(places, values, yerr=[low, high], elinewidth=1, capsize=2, zorder=3, **look)


def _heads(axes: Axes, heads: Mapping[int, Sequence[float]], unit: str, moved: float, look: Mapping[str, Any]) -> None:
    for layer, values in heads.items():
        places, shown = [layer + moved] * len(values), [words.scaled(value, unit) for value in values]
        axes.plot(places, shown, "o", markersize=2.6, alpha=0.45, color=look["color"], zorder=2, linewidth=0)


def _layers(axes: Axes, layers: Sequence[int]) -> None:
    """An axis of layers, from 0; -1, what enters the first, is named "in"."""
    first, last = (min(layers), max(layers)) if layers else (0, 0)
    step = max(1, math.ceil((last - first + 1) / 12))
    ticks = [layer for layer in range(first, last + 1) if layer < 0 or layer % step == 0]
    axes.set_xticks(ticks, ["in" if layer < 0 else str(layer) for layer in ticks])
    axes.set_xlim(first - 0.5, last + 0.5)
