"""The figures of a report, each a function from rows or arrays to SVG text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sightline.errors import InputError
from sightline.reports import series, style
from sightline.reports.content import FieldsOfView, LossCurve
from sightline.results import ResultRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Labels at the ends of lines keep this distance, in points of percent of the axis.
_LABEL_GAP = 4.8
_MOST_LOSS_POINTS = 300
_PANEL = 1.35  # inches, the side of a head's panel


def accuracy_by_resolution(
    rows: Sequence[ResultRow],
    *,
    split: str | None = None,
    order: Sequence[str] = (),
    chance: float | None = None,
) -> str:
    """Top-1 accuracy (percent) by test resolution (pixels, spaced by doublings), one line a run; SVG text.

    Bars are one standard error; a vertical line stands at each training resolution; where a run has both, its tuned
    knob is solid and its default dashed. `order` fixes the colours, `chance` (a fraction) draws the level of guessing.

    Raises:
        InputError: no row has `top1` on the split.
    """
    series.check_rows(rows)
    split = split or series.main_split(rows)
    chosen = series.lines(rows, split=split, order=order)
    if not chosen:
        raise InputError(f"no row has metric top1 on split {split}")
    order = series.run_order(rows, order)
    measured = series.resolutions(chosen)
    rows_of_legend = math.ceil(len(chosen) / 3)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for line in chosen:
            _draw_line(axes, line, list(line.points), order)
        for trained in series.train_resolutions(chosen):
            axes.axvline(trained, color=style.INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
            axes.annotate(
                f"trained at {trained} px", (trained, 100), xytext=(4, 5), textcoords="offset points", fontsize=9
            )
        _percent_axis(axes, chance)
        _resolution_axis(axes, sorted({*measured, *series.train_resolutions(chosen)}))
        axes.set_xlabel("test resolution (side of the image, px)")
        _label_ends(axes, chosen, order)
        _legend(figure, chosen, order)

    return style.draw(9.2, 4.6 + 0.24 * rows_of_legend, paint)


def quintile_plot(rows: Sequence[ResultRow], *, split: str | None = None, order: Sequence[str] = ()) -> str:
    """Top-1 accuracy by size of the object in the image, at the training and at the largest resolution; SVG text.

    Raises:
        InputError: no row has a metric `top1_size_q1` .. `top1_size_q5` on the split.
    """
    series.check_rows(rows)
    split = split or series.main_split(rows)
    shown = series.outer_resolutions(row for row in rows if row.metric.startswith("top1_size_q") and row.split == split)
    if not shown:
        raise InputError(f"no row has accuracy by object size on split {split}")
    order = series.run_order(rows, order)
    quintiles = [series.lines(rows, f"top1_size_q{number}", split=split, order=order) for number in range(1, 6)]
    legend = list({line.label: line for lines in quintiles for line in lines}.values())

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, resolution in zip(panels, shown, strict=True):
            for line in legend:
                at = {
                    number: other.points[resolution]
                    for number, lines in enumerate(quintiles)
                    for other in lines
                    if other.label == line.label and resolution in other.points
                }
                _draw_points(axes, line, list(at), list(at.values()), order)
            trained = " (as trained)" if any(line.train_resolution == resolution for line in legend) else ""
            axes.set_title(f"tested at {resolution} px{trained}")
            axes.set_xticks(range(5), series.QUINTILES)
            axes.set_xlim(-0.4, 4.4)
            axes.set_xlabel("object size, by fifths of the test images")
            _percent_axis(axes, None)
        for axes in panels[1:]:
            axes.set_ylabel("")
        _legend(figure, legend, order)

    return style.draw(9.2, 3.3 + 0.24 * math.ceil(len(legend) / 3), paint)


def loss_plot(curves: Mapping[str, LossCurve], *, order: Sequence[str] = ()) -> str:
    """Training loss by images seen, one line a run; long curves are averaged to 300 points; SVG text.

    Raises:
        InputError: there is no point to draw, or a curve has another number of losses than of images.
    """
    order = list(dict.fromkeys([*order, *curves]))
    points = {name: _averaged(name, curve) for name, curve in curves.items()}
    points = {name: (x, y) for name, (x, y) in points.items() if len(x)}
    if not points:
        raise InputError("there is no training loss to draw")

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for name, (x, y) in points.items():
            shown = ("o", 5) if len(x) == 1 else ("", 0)
            axes.plot(x, y, color=style.colour(name, order), linewidth=1.6, marker=shown[0], markersize=shown[1])
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=min(0.0, min(float(y.min()) for _, y in points.values())))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("images seen in training")
        axes.set_ylabel("training loss")
        _legend(figure, [series.Line(name, "", "", False, False, 0, {}) for name in points], order, markers=False)

    return style.draw(9.2, 2.9 + 0.24 * math.ceil(len(points) / 3), paint)


def fields_of_view(field: FieldsOfView) -> str:
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
    columns = min(len(panels), 6 if len(panels) <= 18 else 8)
    lines = math.ceil(len(panels) / columns)
    rows, cols = field.grid

    def paint(figure: Figure) -> None:
        from matplotlib.colors import PowerNorm

        # A square root of the scale: a penalty grows with distance, so that most cells would else look empty.
        norm = PowerNorm(0.5, 0, 1)
        axes_grid = figure.subplots(lines, columns, squeeze=False)
        image = None
        for index, axes in enumerate(axes_grid.flat):
            axes.grid(visible=False)
            axes.set_xticks([])
            axes.set_yticks([])
            if index >= len(panels):
                axes.set_axis_off()
                continue
            image = axes.imshow(
                np.ma.masked_equal(panels[index], 0), cmap="viridis", norm=norm, interpolation="none", zorder=1
            )
            axes.patch.set(facecolor="none", hatch="/////", edgecolor=style.FAINT, linewidth=0)
            for spine in axes.spines.values():
                spine.set_visible(True)
            axes.plot(cols // 2, rows // 2, "o", markersize=7, markerfacecolor="white", markeredgecolor="#C1121F",
                      markeredgewidth=2.2, zorder=3)  # fmt: skip
            title = f"all {len(weight)} heads alike" if alike else f"head {index}"
            axes.set_title(title, fontsize=9, pad=3)
        if image is not None:
            bar = figure.colorbar(image, ax=axes_grid, shrink=0.9, aspect=18, pad=0.02, ticks=[0, 0.05, 0.25, 0.5, 1])
            bar.ax.set_yticklabels(["0", "0.05", "0.25", "0.5", "1"], fontsize=8.5)
            bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]

    height = _PANEL * min(rows / cols, 2.5) + 0.22
    return style.draw(_PANEL * columns + 0.8, height * lines + 0.1, paint)


def _draw_line(axes: Axes, line: series.Line, at: Sequence[int], order: Sequence[str]) -> None:
    _draw_points(axes, line, at, [line.points[resolution] for resolution in at], order)


def _draw_points(
    axes: Axes, line: series.Line, x: Sequence[float], points: Sequence[series.Point], order: Sequence[str]
) -> None:
    dashed = line.paired and not line.tuned
    colour = style.colour(line.run, order)
    axes.errorbar(
        x,
        [100 * point.value for point in points],
        yerr=[100 * point.stderr for point in points],
        color=colour,
        marker=style.marker(line.run, order),
        markersize=5.5,
        markerfacecolor=style.PAGE if dashed else colour,
        linewidth=2,
        linestyle=(0, (4, 2)) if dashed else "-",
        elinewidth=1.1,
        capsize=2.5,
        zorder=3,
    )


def _percent_axis(axes: Axes, chance: float | None) -> None:
    axes.set_ylim(0, 100)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("top-1 accuracy (%)")
    # Markers at 0 or 100 % are drawn whole.
    for artist in [*axes.lines, *axes.collections]:
        artist.set_clip_on(False)
    if chance is not None:
        axes.axhline(100 * chance, color=style.FAINT, linewidth=1, linestyle=(0, (5, 3)), zorder=1)
        axes.annotate(
            f"guessing: {100 * chance:.1f} %", (0, 100 * chance), xycoords=("axes fraction", "data"), xytext=(4, 3),
            textcoords="offset points", fontsize=8.5,
        )  # fmt: skip


def _resolution_axis(axes: Axes, measured: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    low, high = min(measured), max(measured)
    room = (high / low) ** 0.035 if high > low else 1.4
    axes.set_xlim(low / room, high * room)
    # A label needs about 4 % of the axis; the outer ones always stay, and a crowded tick keeps its mark.
    reach = 0.042 * math.log2(high * room * room / low)
    shown: list[int] = []
    for resolution in measured:
        apart = not shown or math.log2(resolution / shown[-1]) >= reach
        clear_of_last = resolution == high or math.log2(high / resolution) >= reach
        if (apart and clear_of_last) or resolution == high:
            shown.append(resolution)
    axes.set_xticks(measured, [str(resolution) if resolution in shown else "" for resolution in measured])
    axes.set_xticks([], minor=True)


def _label_ends(axes: Axes, chosen: Sequence[series.Line], order: Sequence[str]) -> None:
    """Name each line at its right end; names are pushed apart, with a thin line to where they belong."""
    if len(chosen) * _LABEL_GAP > 100:
        return
    from matplotlib.transforms import offset_copy

    ends = {line.label: list(line.points.items())[-1] for line in chosen}
    heights = _spread([100 * ends[line.label][1].value for line in chosen])
    right = max(resolution for resolution, _ in ends.values())
    beside = offset_copy(axes.transData, axes.get_figure(root=True), x=24, units="points")
    for line, height in zip(chosen, heights, strict=True):
        resolution, point = ends[line.label]
        axes.annotate(
            style.short(line.label),
            (resolution, 100 * point.value),
            xytext=(right, height),
            textcoords=beside,
            va="center",
            fontsize=9.5,
            parse_math=False,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": style.colour(line.run, order), "linewidth": 0.9,
                "shrinkA": 1, "shrinkB": 5,
            },
        )  # fmt: skip


def _spread(heights: Sequence[float]) -> list[float]:
    """`heights` (percent) moved as little as a single pass upward and one downward need to keep them apart."""
    places = sorted(range(len(heights)), key=lambda index: heights[index])
    spread = list(heights)
    for before, after in itertools.pairwise(places):
        spread[after] = max(spread[after], spread[before] + _LABEL_GAP)
    limit = 100.0
    for index in reversed(places):
        spread[index] = min(spread[index], limit)
        limit = spread[index] - _LABEL_GAP
    return spread


def _legend(figure: Figure, chosen: Sequence[series.Line], order: Sequence[str], *, markers: bool = True) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for line in chosen:
        dashed = line.paired and not line.tuned
        colour = style.colour(line.run, order)
        handles.append(
            Line2D([], [], color=colour, linewidth=2, linestyle=(0, (4, 2)) if dashed else "-", markersize=5.5,
                   marker=style.marker(line.run, order) if markers else "",
                   markerfacecolor=style.PAGE if dashed else colour)
        )  # fmt: skip
    # Names are set afterwards: a legend drops labels that start with an underscore, and reads dollar signs as formulas.
    legend = figure.legend(
        handles, ["." for _ in chosen], loc="outside upper left", ncols=min(3, len(chosen)), frameon=False
    )
    for text, line in zip(legend.get_texts(), chosen, strict=True):
        text.set(text=style.short(line.label), parse_math=False)


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
