"""Curves by layer of what was measured inside models, a panel a size, as in the papers; from rows to SVG text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sightline.analysis.rows import AnalysisLike, by_layer
from sightline.reports import style, words
from sightline.reports.lines import Line, Panel, lines_figure, measured_line
from sightline.results.analysis import AnalysisRow, Size, size_words

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
    shown = [name for name in models if any(row.run == name for row in rows)]
    dots = (heads or {}) if len(shown) <= MOST_WITH_HEADS else {}
    panels = []
    for size in sizes_of(rows):
        here = sorted((row for row in rows if row.size == size), key=lambda row: row.layer or 0)
        lines = []
        for place, name in enumerate(shown):
            moved = 0.1 * (place - (len(shown) - 1) / 2)
            look = style.look(name, models)
            dot = {"color": look["color"], "marker": "o", "markersize": 2.6, "alpha": 0.45, "linewidth": 0, "zorder": 2}
            for layer, values in dots.get((name, size), {}).items():
                y = [words.scaled(value, rows[0].unit) for value in values]
                lines.append(Line("", dot, [layer + moved] * len(y), y))
            own = {(row.layer or 0) + moved: row for row in here if row.run == name}
            lines += [measured_line(name, look, own)] if own else []
        axes = {"x_label": "layer", "y_label": axis_of(rows[0]), "spread": False, **_layers(here)}
        panels.append(Panel(lines, panel_title(here, size), **axes))
    return lines_figure(panels, height=2.5, narrow=narrow)


def points(rows: Sequence[AnalysisRow], models: Sequence[str], *, narrow: bool = False) -> str:
    """One number a model and size, what has no layers, as points with their intervals, one column a size."""
    sizes, shown = sizes_of(rows), [name for name in models if any(row.run == name for row in rows)]
    lines = []
    for place, name in enumerate(shown):
        moved = 0.12 * (place - (len(shown) - 1) / 2)
        own = {sizes.index(row.size) + moved: row for row in rows if row.run == name}
        lines.append(measured_line(name, {**style.look(name, models), "linewidth": 0}, own))
    ticks = {place: size_words(size) for place, size in enumerate(sizes)}
    axes = {"x_label": "size of the images", "y_label": axis_of(rows[0]), "x_ticks": ticks, "spread": False}
    return lines_figure([Panel(lines, **axes, x_range=(-0.5, len(sizes) - 0.5))], height=2.5, narrow=narrow)


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


def _layers(rows: Sequence[AnalysisRow]) -> dict[str, Any]:
    """An axis of layers, from 0; -1, what enters the first, is named "in"."""
    layers = [row.layer for row in rows if row.layer is not None] or [0]
    first, last = min(layers), max(layers)
    step = max(1, math.ceil((last - first + 1) / 12))
    ticks = {
        layer: "in" if layer < 0 else str(layer) for layer in range(first, last + 1) if layer < 0 or layer % step == 0
    }
    return {"x_ticks": ticks, "x_range": (first - 0.5, last + 0.5)}
