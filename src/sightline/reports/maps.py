"""Pictures made of cells, as SVG text: what each head may look at, which classes are taken for which, and maps of what
was found inside a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sightline.analysis.rows import AnalysisLike, other_of
from sightline.reports import style, words
from sightline.reports.content import FieldsOfViewFigure
from sightline.results.analysis import LAYERS, Size, size_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Small maps beside each other on a wide and a narrow page, and images one by one; of more, some are shown.
_ACROSS, _NARROW_ACROSS, MOST_SHOWN = 12, 6, 6
_CHANNEL = "channel"
# What lines and columns of a picture are called; a matrix has other axes. Of one, so many numbers across at most.
_PLACES, _MATRIX = ("row", "col", "patch_row", "patch_col"), 64
# What a matrix's second axis begins with; characters of a model's name beside an axis.
_OTHER, _WHOSE = "other_", 24
# Inches of a small map, at most; room for what stands beside a mosaic, and above and below.
_TILE, _BESIDE, _ABOVE = 1.1, 0.75, 0.75
# Cells of the picture between maps, and along the longer side of a map, at least.
_GAP, _CELLS = 2, 24
# Inches of the side of a head's panel.
_PANEL = 1.35


@dataclass(frozen=True, eq=False)
class MapTiles:
    """Small maps in a grid: `maps` [down, across, rows, cols] or, of colours from 0 to 1, [..., 3]; NaN is nothing.

    `down` and `across` name the axes ("" of none) and each line and column. `low` and `high` are the ends of the scale
    that all maps share; None where each has its own. `left_out` says of each axis how many of how many are drawn.
    """

    maps: np.ndarray
    down: tuple[str, Sequence[str]]
    across: tuple[str, Sequence[str]]
    low: float | None = None
    high: float | None = None
    left_out: tuple[str, str] = ("", "")


def is_drawn(found: AnalysisLike, name: str) -> bool:
    """Whether an array is a picture that can be drawn: at some size it has lines and columns, and a number in them."""
    quantity = found.quantities[name]
    if quantity.figure in ("", LAYERS) or len([axis for axis in quantity.axes if axis != _CHANNEL]) < 2:
        return False
    return any(tiles_of(found, name, size) is not None for size in found.sizes)


def tiles_of(found: AnalysisLike, name: str, size: Size, *, narrow: bool = False) -> MapTiles | None:
    """The small maps of an array at a size: its last two axes are lines and columns of each, what stands before them
    tells maps apart. Over layers and heads the mean of the images is shown, else the first images one by one; None
    where there is nothing.
    """
    quantity, array = found.quantities[name], found.arrays[size].get(name)
    if array is None or array.ndim != len(quantity.axes) or not np.isfinite(array).any():
        return None
    array, axes = np.asarray(array, dtype=np.float64), [axis for axis in quantity.axes if axis != _CHANNEL]
    coloured, most = _CHANNEL in quantity.axes, _NARROW_ACROSS if narrow else _ACROSS
    images = "image" in axes[:-2] and (len(axes) <= 4 or coloured)
    if images:
        array = np.moveaxis(
            array.take(range(min(MOST_SHOWN, array.shape[axes.index("image")])), axes.index("image")),
            axes.index("image"),
            0,
        )
        axes = ["image", *(axis for axis in axes if axis != "image")]
    elif "image" in axes[:-2]:
        array = _mean(array, axes.index("image"))
        axes.remove("image")
    while len(axes) > 4:
        # What cannot be laid out is shown at its first place.
        array, axes = array[0], axes[1:]
    matrix = len(axes) == 2 and axes[0] not in _PLACES
    outer = axes if matrix else axes[:-2]
    named = [_names(found, size, axis, array.shape[place]) for place, axis in enumerate(outer)]
    outer = [
        _whose(found, axis) if matrix else "layer" if axis == "chosen" else axis.replace("_", " ") for axis in outer
    ]
    if images and len(outer) == 2:
        array, outer, named = np.swapaxes(array, 0, 1), outer[::-1], named[::-1]
    if matrix:
        # Each number is a map of one cell.
        array, most = array[:, :, None, None], _MATRIX
    elif not outer:
        array, outer, named = array[None, None], ["", ""], [[""], [""]]
    elif len(outer) == 1:
        array, outer, named = _wrapped(array, outer[0], named[0], most)
    lines, columns = _some(array.shape[0], max(_ACROSS, most)), _some(array.shape[1], most)
    some = _fewer(lines, array.shape[0]), _fewer(columns, array.shape[1])
    array = array[lines][:, columns]
    down, across = (outer[0], [named[0][one] for one in lines]), (outer[1], [named[1][one] for one in columns])
    if coloured:
        return MapTiles(_colours(array), down, across, left_out=some)
    if not np.isfinite(array).any():
        return None
    if ("head" in outer and not images) or "query" in outer:
        return MapTiles(array, down, across, left_out=some)
    low, high = float(np.nanmin(array)), float(np.nanmax(array))
    whole = low >= 0 and high <= 1 and quantity.unit == "fraction"
    return MapTiles(array, down, across, *((0.0, 1.0) if whole else (low, high)), some)


def _mean(array: np.ndarray, axis: int) -> np.ndarray:
    there = np.isfinite(array)
    count = there.sum(axis)
    return np.divide(np.where(there, array, 0).sum(axis), count, out=np.full(count.shape, np.nan), where=count > 0)


def _whose(found: AnalysisLike, axis: str) -> str:
    """A matrix's axis in words; of two models, of which one it is."""
    if not (other := other_of(found)):
        return axis.replace("_", " ")
    plain = axis.removeprefix(_OTHER)
    return f"{plain.replace('_', ' ')} of {style.short(found.model if plain == axis else other, _WHOSE)}"


def _several(axis: str) -> str:
    axis, of, whose = axis.partition(" of ")
    return (f"{axis[:-1]}ies" if axis.endswith("y") else f"{axis}s") + of + whose


def _names(found: AnalysisLike, size: Size, axis: str, count: int) -> list[str]:
    """What the places of an axis are called: an array of a measure's own may number them."""
    depth = found.about.get("depth", count)
    if axis.startswith(_OTHER):
        axis, depth = axis.removeprefix(_OTHER), found.about.get("other_depth", depth)
    own = found.arrays[size].get("layers" if axis == "chosen" else _several(axis))
    if own is not None and own.shape == (count,):
        return [f"{one:g}" if own.dtype.kind in "if" else str(one) for one in own.tolist()]
    first = -1 if axis == "layer" and count == depth + 1 else 0
    return ["in" if first + number < 0 else str(first + number) for number in range(count)]


def _wrapped(
    array: np.ndarray, axis: str, names: Sequence[str], across: int
) -> tuple[np.ndarray, list[str], list[Sequence[str]]]:
    """Maps in one line, or in several without names where they are many."""
    if len(array) <= across:
        return array[None], ["", axis], [[""], names]
    columns = next((one for one in range(across, across // 2, -1) if len(array) % one == 0), across)
    lines = -(-len(array) // columns)
    full = np.full((lines * columns, *array.shape[1:]), np.nan)
    full[: len(array)] = array
    return full.reshape(lines, columns, *array.shape[1:]), ["", ""], [[""] * lines, [""] * columns]


def _some(count: int, most: int) -> list[int]:
    """So many numbers below `count`, at most, spread over all of them from the first to the last."""
    return list(range(count)) if count <= most else [round(one * (count - 1) / (most - 1)) for one in range(most)]


def _fewer(kept: Sequence[int], count: int) -> str:
    return f" ({len(kept)} of {count})" if len(kept) < count else ""


def _colours(array: np.ndarray) -> np.ndarray:
    """[..., rows, cols, 3] from 0 to 1, each map stretched to that where a value is beyond it; one channel is grey."""
    array = np.repeat(array, 3, -1) if array.shape[-1] == 1 else array[..., :3]
    there = np.where(np.isfinite(array), array, 0)
    if there.min(initial=0) >= 0 and there.max(initial=0) <= 1:
        return array
    reach = np.abs(there).max((-3, -2, -1), keepdims=True)
    return np.divide(array, 2 * reach, out=np.zeros_like(array), where=reach > 0) + 0.5


def small_multiples(found: AnalysisLike, name: str, *, narrow: bool = False) -> str:
    """An array of a model as small maps at each size (LookHere figures 18 to 27; ViT figure 7)."""
    arrays = [found.arrays[size].get(name) for size in found.sizes]
    # One panel alone where the array is the same at all sizes, as of weights.
    alike = len(arrays) > 1 and all(one is not None and np.array_equal(one, arrays[0]) for one in arrays)  # pyright: ignore
    sizes = found.sizes[:1] if alike else found.sizes
    panels = [(size, tiles) for size in sizes if (tiles := tiles_of(found, name, size, narrow=narrow))]
    wide = max(tiles.maps.shape[1] for _, tiles in panels)
    columns = 1 if narrow or wide > 6 else min(len(panels), 3)
    lines = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    width = style.NARROW if narrow else style.WIDE
    heights = [max(_height(tiles, width / columns) for _, tiles in line) for line in lines]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(lines), columns, squeeze=False, height_ratios=heights)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for place, (axes, (size, tiles)) in enumerate(zip(grid.flat, panels, strict=False)):
            _paint(figure, axes, tiles, first=place % columns == 0)
            axes.set_title("" if alike else size_words(size), parse_math=False)
            axes.set_anchor("N")

    return style.draw(width, sum(heights), paint)


def _height(tiles: MapTiles, width: float) -> float:
    down, across, rows, cols = tiles.maps.shape[:4]
    # Maps that stand in lines without names are smaller, and numbers of a matrix smaller still.
    unnamed = not tiles.down[0] and not tiles.across[0] and down > 1
    times = 3 if across == down == 1 else 0.6 if unnamed else 0.3 if rows == cols == 1 else 1
    return down * min((width - _BESIDE) / across, _TILE * times) * min(rows / max(cols, 1), 3) + _ABOVE


def _paint(figure: Figure, axes: Axes, tiles: MapTiles, *, first: bool) -> None:
    sheet, step = mosaic(tiles)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    shown: dict[str, Any] = {}
    if tiles.maps.ndim == 4:
        own = tiles.low is None
        shown = {"cmap": "viridis", "vmin": 0.0 if own else tiles.low, "vmax": 1.0 if own else tiles.high}
    picture = axes.imshow(sheet, interpolation="none", **shown)
    for (_, names), size, ticks in ((tiles.down, step[0], axes.set_yticks), (tiles.across, step[1], axes.set_xticks)):
        # Of many, some are named: text of 9 points would else run together.
        every = max(1, math.ceil(len(names) / 12))
        kept = [(number, name) for number, name in enumerate(names) if number % every == 0 and name]
        ticks([number * size + (size - 1 - _GAP) / 2 for number, _ in kept], [name for _, name in kept], fontsize=9)
    axes.set_xlabel(f"{tiles.across[0]}{tiles.left_out[1]}", parse_math=False)
    axes.set_ylabel(f"{tiles.down[0]}{tiles.left_out[0]}" if first else "", parse_math=False)
    if tiles.low is not None:
        bar = figure.colorbar(picture, ax=axes, pad=0.02, shrink=0.8, aspect=22)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        bar.ax.tick_params(labelsize=9)


def mosaic(tiles: MapTiles) -> tuple[np.ndarray, tuple[int, int]]:
    """All maps as one picture with gaps between them, and the step from one to the next, (down, across) in its cells.
    Without ends of a scale each map is divided by its own greatest value: [lines, columns], or of colours
    [lines, columns, 4] with nothing where there is nothing."""
    # A cell of a small map is several of the picture, so that a gap is narrow.
    times = max(1, math.ceil(_CELLS / max(tiles.maps.shape[2:4])))
    maps = tiles.maps.repeat(times, 2).repeat(times, 3)
    down, across, rows, cols = maps.shape[:4]
    if maps.ndim == 4 and tiles.low is None:
        top = np.nanmax(np.where(np.isfinite(maps), maps, -np.inf), axis=(2, 3), keepdims=True)
        maps = np.divide(maps, top, out=np.zeros_like(maps), where=np.isfinite(top) & (top > 0))
    step = rows + _GAP, cols + _GAP
    sheet = np.full((down, step[0], across, step[1], *maps.shape[4:]), np.nan)
    sheet[:, :rows, :, :cols] = maps.swapaxes(1, 2)
    sheet = sheet.reshape(down * step[0], across * step[1], *maps.shape[4:])[:-_GAP, :-_GAP]
    if maps.ndim == 4:
        return np.ma.masked_invalid(sheet), step
    there = np.isfinite(sheet).all(-1, keepdims=True)
    return np.concatenate((np.where(there, sheet, 0).clip(0, 1), there.astype(float)), -1), step


def explains(found: AnalysisLike, name: str) -> str:
    """What the small maps of an array are, in a sentence: what stands where, and on which scale."""
    tiles = next(tiles for size in found.sizes if (tiles := tiles_of(found, name, size)) is not None)
    axes = [one for one in (tiles.down[0], tiles.across[0]) if one]
    images, of = "image" in axes, ""
    if images:
        of = f"the first {len(tiles.across[1])} images"
    elif "image" in found.quantities[name].axes:
        of = f"the mean of {len(found.names[found.sizes[0]]):,} images"
    laid = f"one map for each {axes[0]}" if len(axes) == 1 else ""
    if len(axes) == 2:
        laid = f"{_several(axes[0])} down, {_several(axes[1])} across"
    scale = "each map is scaled by its own greatest value"
    scale = "" if tiles.maps.ndim > 4 else scale if tiles.low is None else "all maps of a size share a scale"
    said = "; ".join(one for one in (of, laid, scale) if one)
    return f"{words.capital(said)}." if said else ""


def fields_of_view(field: FieldsOfViewFigure, *, narrow: bool = False) -> str:
    """What the query at the centre (ringed) may attend to, a panel a head; masked cells are hatched; SVG text.

    Where all heads are alike there is one panel.
    """
    weight = field.weight
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
    """
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
