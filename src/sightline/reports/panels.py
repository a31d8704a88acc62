"""Pictures made of cells: what each head may look at, and which classes are taken for which; SVG text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import InputError
from sightline.reports import style
from sightline.reports.content import FieldsOfViewFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = 1.35  # inches, the side of a head's panel


def fields_of_view(field: FieldsOfViewFigure, *, narrow: bool = False) -> str:
    """What the query at the centre (ringed) may attend to, a panel a head; masked cells are hatched; SVG text.

    Where all heads are alike there is one panel.

    Raises:
        InputError: the weights are not [heads, rows, cols] of the grid, or not fractions in [0, 1].
    """
    weight = np.asarray(field.weight, dtype=np.float32)
    if weight.ndim != 3 or weight.shape[1:] != tuple(field.grid) or not weight.size:
        raise InputError(f"{field.encoding}: weights of shape {list(weight.shape)} for a grid of {list(field.grid)}")
    if not (np.isfinite(weight).all() and weight.min() >= 0 and weight.max() <= 1):
        raise InputError(f"{field.encoding}: weights are not fractions in [0, 1]")
    alike = len(weight) > 1 and bool((weight == weight[0]).all())
    panels = weight[:1] if alike else weight
    widest = 3 if narrow else 6 if len(panels) <= 18 else 8
    columns = min(len(panels), widest)
    lines = math.ceil(len(panels) / columns)
    rows, cols = field.grid

    def paint(figure: Figure) -> None:
        axes_grid = figure.subplots(lines, columns, squeeze=False)
        for index, (axes, panel) in enumerate(zip(axes_grid.flat, panels, strict=False)):
            axes.set_xticks([])
            axes.set_yticks([])
            _cells(axes, panel, cmap="viridis", interpolation="none", zorder=1)
            axes.patch.set(facecolor="none", hatch="/////", edgecolor=style.FAINT, linewidth=0)
            axes.plot(cols // 2, rows // 2, "o", markersize=7, markerfacecolor="white", markeredgecolor="#C1121F",
                      markeredgewidth=2.2, zorder=3)  # fmt: skip
            title = f"all {len(weight)} heads alike" if alike else f"head {index}"
            axes.set_title(title, fontsize=9.5, pad=3)
        for axes in axes_grid.flat[len(panels) :]:
            axes.set_axis_off()
        _scale(figure, axes_grid, ("0", "0.05", "0.25", "0.5", "1"), shrink=0.9, aspect=18)

    height = _PANEL * min(rows / cols, 2.5) + 0.22
    scale = style.NARROW / (_PANEL * 3 + 0.8) if narrow else 1.0
    return style.draw(scale * (_PANEL * columns + 0.8), scale * height * lines + 0.1, paint)


def confusion_picture(counts: NDArray[np.int64], classes: Sequence[str]) -> str:
    """How often each class (a row) was taken for each (a column), as shares of the row; SVG text.

    Args:
        counts: int64 [classes, classes], images of the row's class that were named as the column's.

    Raises:
        InputError: the counts are not [classes, classes].
    """
    if counts.shape != (len(classes), len(classes)) or not counts.size:
        raise InputError(f"counts of shape {list(counts.shape)} for {len(classes)} classes")
    totals = counts.sum(axis=1, keepdims=True)
    share = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    names = [style.short(name, 20) for name in classes]
    cell = 0.34 if len(classes) <= 12 else 0.22
    margin = 0.085 * max(map(len, names)) + 0.4

    def paint(figure: Figure) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        axes = figure.add_subplot()
        # One colour on whatever ground the page has: an end of a scale of its own is lost on a dark or a light one.
        colours = LinearSegmentedColormap.from_list("", [(style.PALETTE[0], 0.1), (style.PALETTE[0], 1.0)])
        _cells(axes, share, cmap=colours)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9.5, parse_math=False)
        axes.set_yticks(range(len(names)), names, fontsize=9.5, parse_math=False)
        axes.set_xlabel("named as")
        axes.set_ylabel("true class")
        _scale(figure, axes, ("0 %", "5 %", "25 %", "50 %", "100 %"), shrink=0.8, aspect=22)

    side = cell * len(classes) + margin
    return style.draw(side + 0.9, side, paint)


def _cells(axes: Axes, share: NDArray[np.floating], **how: Any) -> None:
    """A cell for each fraction in [0, 1], none where it is 0, in a frame; `how` as `imshow`."""
    from matplotlib.colors import PowerNorm

    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(True)
    # A square root of the scale: a penalty grows with distance, so that most cells would else look empty.
    axes.imshow(np.ma.masked_equal(share, 0), norm=PowerNorm(0.5, 0, 1), **how)


def _scale(figure: Figure, axes: Any, names: Sequence[str], **how: Any) -> None:
    """What the colours of cells mean, at the right of their axes; `names` of 0, 5, 25, 50 and 100 %."""
    bar = figure.colorbar(np.ravel(axes)[0].images[0], ax=axes, pad=0.02, ticks=[0, 0.05, 0.25, 0.5, 1], **how)
    bar.ax.set_yticklabels(names, fontsize=9.5)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
